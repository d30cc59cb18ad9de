"""Parsing: the arguments of a command as a call of its function, and errors in one sentence with the closest name."""

import contextlib
import inspect
import io
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial, wraps
from typing import Any, TypeAlias, get_type_hints

import tyro

from lur.training.configuration import did_you_mean

Command: TypeAlias = Callable[..., int]
Commands: TypeAlias = Mapping[str, "Command | Commands"]
TYRO_CONFIG = (tyro.conf.DisallowNone, tyro.conf.FlagCreatePairsOff)
TYPE_NAMES = {"INT": "an integer", "FLOAT": "a number", "PATH": "a path"}


def parse_call(command: Command, prog: str, arguments: list[str]) -> Callable[[], int]:
    """The call that the arguments ask for. `--help` prints the help and exits.

    Args:
        command: the function of the command.
        prog: name of the command, for messages.
        arguments: the arguments after the name.
    """

    @wraps(command)
    def make_call(*args: Any, **options: Any) -> Callable[[], int]:
        return partial(command, *args, **options)

    known = flags_of(command)
    for argument in arguments[: arguments.index("--") if "--" in arguments else None]:
        flag = argument.partition("=")[0].replace("_", "-")
        if flag.startswith("--") and flag not in known and not flag.startswith("--tyro"):
            raise ValueError(f"unknown flag {flag} of {prog}{did_you_mean(flag, known)} ({prog} --help lists them)")
    if "NO_COLOR" in os.environ:
        tyro._experimental_options["ansi_codes"] = False
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(make_call, prog=prog, args=arguments, config=TYRO_CONFIG)
    except SystemExit as exit:
        if exit.code in (0, None):
            raise
    raise ValueError(error_sentence(complaint.getvalue(), prog))


def flags_of(command: Command) -> list[str]:
    """The flags of a command, including those of its configuration."""
    flags = ["--help"]
    hints = get_type_hints(command)
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(hints[name]):
            flags += [f"--{field.name}" for field in fields(hints[name])]
        else:
            flags.append(f"--no-{name}" if parameter.default is True else f"--{name}")
    return [flag.replace("_", "-") for flag in flags]


def error_sentence(box: str, prog: str) -> str:
    """The error that tyro prints in a box, as one line; a refused choice comes with the closest valid one.

    Args:
        box: what tyro printed.
        prog: name of the command, for messages.
    """
    without_colours = re.sub(r"\x1b\[[0-9;]*m", "", box)
    rows = [line.strip("│╭╮╰╯─ |+-").strip() for line in without_colours.splitlines()]
    title, *rest = [row for row in rows if row and not row.startswith("For full helptext")] or ["wrong arguments"]
    message = " ".join(rest or [title])
    if match := re.search(r"invalid choice '(.*?)' for argument '(.*?)'\. Expected one of \((.*?)\)", message):
        got, name, options = match.groups()
        choices = sorted(option for option in re.findall(r"'(.*?)'", options) if option != "None")
        return f"{name} must be one of {', '.join(choices)}, got {got!r}{did_you_mean(got, choices)}"
    pattern = r"Error parsing (\S+): no type matching (\w+) could be instantiated from \['(.*?)'\]"
    if match := re.search(pattern, message):
        name, kind, got = match.groups()
        return f"{name} must be {TYPE_NAMES.get(kind, kind)}, got {got!r}"
    message = re.split(r" \(required\)| Argument helptext", message)[0]
    return f"{message.rstrip('.')} ({prog} --help explains)"
