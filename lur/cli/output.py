"""The output of commands: text and progress bars for people, or JSON for programs and then nothing else on stdout."""

import json as encoder
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from lur.printable_text import printable as printable

Printer = Callable[[str], None]
STDOUT = Path("-")
Json = Annotated[
    Path | None,
    tyro.conf.arg(
        metavar="[FILE.json]",
        help="Print the result as JSON and nothing else, or write it to this file.",
        help_behavior_hint="",
    ),
]


def complete_json_flag(arguments: list[str]) -> list[str]:
    """The arguments with a dash after each `--json` that has no file.

    The argument after `--json` is a file if it contains a dot or a slash and is not a flag.
    """
    completed: list[str] = []
    for k, argument in enumerate(arguments):
        if argument == "--":
            return [*completed, *arguments[k:]]
        completed.append(argument)
        if argument == "--json":
            following = arguments[k + 1] if k + 1 < len(arguments) else ""
            if following != "-" and (following.startswith("-") or not {".", "/"} & {*following}):
                completed.append("-")
    return completed


def prints_no_text(quiet: bool, json: Path | None) -> bool:
    """Whether to print no text: because of --quiet, or because standard output is for JSON."""
    return quiet or json == STDOUT


def printer(quiet: bool, json: Path | None) -> Printer:
    """A function that prints lines, or that does nothing with --quiet or if standard output is for JSON."""
    return (lambda text: None) if quiet or json == STDOUT else print_lines


def print_lines(text: str) -> None:
    """Print lines of text, each as `printable` says."""
    print("\n".join(map(printable, text.split("\n"))))


def check_json(json: Path | None) -> None:
    """Raise a ValueError if the JSON file cannot be written, before anything runs."""
    if json is None or json == STDOUT:
        return
    parent = json.absolute().parent
    if not parent.is_dir():
        raise ValueError(f"--json must name a file in an existing folder, got {json}: no folder {parent}")
    if json.is_dir():
        raise ValueError(f"--json must name a file, got the folder {json}")
    if not os.access(json if json.exists() else parent, os.W_OK):
        raise ValueError(f"--json must name a writable file, got {json}")


def write_json(json: Path | None, value: Any) -> None:
    """Write the result as JSON if it is asked for."""
    if json is None:
        return
    text = encoder.dumps(to_json(value), indent=1, allow_nan=False)
    if json == STDOUT:
        print(text)
    else:
        json.write_text(text + "\n")


def progress_bar(quiet: bool, *fields: str) -> Any:
    """A progress bar on standard error, disabled when quiet or when standard error is not a terminal.

    Args:
        quiet: whether to disable the bar.
        fields: names of extra fields to show.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    visible = sys.stderr.isatty() and not console.is_dumb_terminal  # rich takes a pipe for a terminal with FORCE_COLOR
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *(TextColumn("{task.fields[" + field + "]}") for field in fields),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=quiet or not visible,
        transient=True,
    )


def to_json(value: Any) -> Any:
    """A value in JSON's types: records become objects, arrays lists, and numbers that are not finite null."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): to_json(entry) for name, entry in value.items()}
    if is_dataclass(value):
        return to_json({field.name: getattr(value, field.name) for field in fields(value)})
    if hasattr(value, "_asdict"):
        return to_json(value._asdict())
    if isinstance(value, list | tuple):
        return [to_json(entry) for entry in value]
    if hasattr(value, "tolist"):  # arrays and their scalars
        return to_json(value.tolist())
    return str(value)
