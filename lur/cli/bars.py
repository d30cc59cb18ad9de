"""Progress bars, on a terminal only, on standard error."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def bar(quiet: bool, *fields: str) -> Progress:
    """A bar with the given extra fields; silent when quiet or when nobody looks."""
    console = Console(stderr=True)
    looked_at = sys.stderr.isatty() and not console.is_dumb_terminal  # FORCE_COLOR makes no terminal of a pipe
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *(TextColumn("{task.fields[" + field + "]}") for field in fields),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=quiet or not looked_at,
        transient=True,
    )
