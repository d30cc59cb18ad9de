"""Arguments as a call of a command's function, and refusals in one sentence that names what was perhaps meant."""

import contextlib
import inspect
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial, wraps
from typing import Any, TypeAlias, get_type_hints

import tyro

from lur.training.configuration import nearest

Command: TypeAlias = Callable[..., int]
Commands: TypeAlias = Mapping[str, "Command | Commands"]
SHORT = (tyro.conf.DisallowNone, tyro.conf.FlagCreatePairsOff)


def named(name: str, commands: Commands, prog: str) -> Any:
    """The command of this name."""
    if name not in commands:
        raise ValueError(f"unknown command {prog} {name}{nearest(name, commands)} ({prog} --help lists them)")
    return commands[name]


def parsed(command: Command, prog: str, arguments: list[str]) -> Callable[[], int]:
    """The call that the arguments ask for. `--help` prints and leaves."""

    @wraps(command)
    def later(*args: Any, **options: Any) -> Callable[[], int]:
        return partial(command, *args, **options)

    check_flags(command, prog, arguments)
    if "NO_COLOR" in os.environ:
        tyro._experimental_options["ansi_codes"] = False
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(later, prog=prog, args=arguments, config=SHORT)
    except SystemExit as left:
        if left.code in (0, None):
            raise
    raise ValueError(sentence(said.getvalue(), prog))


def check_flags(command: Command, prog: str, arguments: Iterable[str]) -> None:
    """Refuse a flag that the command does not have."""
    known = flags_of(command)
    for argument in arguments:
        if argument == "--":
            return
        flag = argument.partition("=")[0].replace("_", "-")
        if flag.startswith("--") and flag not in known and not flag.startswith("--tyro"):
            raise ValueError(f"unknown flag {flag} of {prog}{nearest(flag, known)} ({prog} --help lists them)")


def flags_of(command: Command) -> list[str]:
    """The flags of a command, those of its configuration included."""
    found = ["--help"]
    hints = get_type_hints(command)
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(hints[name]):
            found += [f"--{field.name}" for field in fields(hints[name])]
        else:
            found.append(f"--no-{name}" if parameter.default is True else f"--{name}")
    return [flag.replace("_", "-") for flag in found]


def sentence(box: str, prog: str) -> str:
    """What tyro says in a box, as one line; where a choice was refused, with the nearest one."""
    inside = re.sub(r"\x1b\[[0-9;]*m", "", box)
    rows = [line.strip("│╭╮╰╯─ |+-").strip() for line in inside.splitlines()]
    title, *rest = [row for row in rows if row and not row.startswith("For full helptext")] or ["wrong arguments"]
    said = " ".join(rest or [title])
    if choice := re.search(r"invalid choice '(.*?)' for argument '(.*?)'\. Expected one of \((.*?)\)", said):
        got, name, options = choice.groups()
        choices = sorted(option for option in re.findall(r"'(.*?)'", options) if option != "None")
        return f"{name} must be one of {', '.join(choices)}, got {got!r}{nearest(got, choices)}"
    if value := re.search(r"Error parsing (\S+): no type matching (\w+) could be instantiated from \['(.*?)'\]", said):
        name, kind, got = value.groups()
        return f"{name} must be {KINDS.get(kind, kind)}, got {got!r}"
    said = re.split(r" \(required\)| Argument helptext", said)[0]
    return f"{said.rstrip('.')} ({prog} --help explains)"


KINDS = {"INT": "an integer", "FLOAT": "a number", "PATH": "a path"}
