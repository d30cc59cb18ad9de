"""What a command says: words for people, or JSON for programs and then nothing else on standard output."""

import json as encoder
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

Say = Callable[[str], None]
STDOUT = Path("-")
Json = Annotated[
    Path | None,
    tyro.conf.arg(
        metavar="[FILE.json]",
        help="Print the result as JSON and nothing else, or write it to this file.",
        help_behavior_hint="",
    ),
]


def with_stdout(arguments: list[str]) -> list[str]:
    """Arguments in which a `--json` without a file has a dash: the next is none if it is a flag or a plain word."""
    found: list[str] = []
    for k, argument in enumerate(arguments):
        if argument == "--":
            return [*found, *arguments[k:]]
        found.append(argument)
        if argument == "--json":
            after = arguments[k + 1] if k + 1 < len(arguments) else ""
            if after != "-" and (after.startswith("-") or not {".", "/"} & {*after}):
                found.append("-")
    return found


def silent(quiet: bool, json: Path | None) -> bool:
    """Whether words are unwanted: quiet, or standard output is for JSON."""
    return quiet or json == STDOUT


def speaker(quiet: bool, json: Path | None) -> Say:
    """`print`; nothing if quiet, or if standard output is for JSON."""
    return (lambda line: None) if silent(quiet, json) else print


def check_json(json: Path | None) -> None:
    """Refuse a file that could not be written, before anything is run."""
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
    """The result as JSON where it is asked for."""
    if json is None:
        return
    text = encoder.dumps(plain(value), indent=1, allow_nan=False)
    if json == STDOUT:
        print(text)
    else:
        json.write_text(text + "\n")


def plain(value: Any) -> Any:
    """A value as JSON has it: records by their fields, arrays as lists, and null for what is no finite number."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if is_dataclass(value):
        return plain({field.name: getattr(value, field.name) for field in fields(value)})
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if hasattr(value, "tolist"):  # arrays and their scalars
        return plain(value.tolist())
    return str(value)
