"""Progress bars, on a terminal only, on standard error."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def bar(quiet: bool, *fields: str) -> Progress:
    """A bar with the given extra fields; silent when quiet or when nobody looks."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *(TextColumn("{task.fields[" + field + "]}") for field in fields),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=quiet or not console.is_terminal,
        transient=True,
    )
