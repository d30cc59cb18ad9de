"""Arguments of commands: flags made from the fields of a configuration, and their parsing.

Errors are one sentence, with the closest valid name.
"""

import contextlib
import inspect
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, make_dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_type_hints

import tyro

from lur.training.configuration import (
    FIELD_DESCRIPTIONS,
    FIELD_TYPES,
    METHOD_OPTIONS,
    RunConfig,
    config_from_values,
    did_you_mean,
    read_toml,
)

Command: TypeAlias = Callable[..., int]
Commands: TypeAlias = Mapping[str, "Command | Commands"]
TYRO_CONFIG = (tyro.conf.DisallowNone, tyro.conf.FlagCreatePairsOff)
TYPE_NAMES = {"INT": "an integer", "FLOAT": "a number", "PATH": "a path"}
FROM_METHOD = ("client", *METHOD_OPTIONS)
"""Fields whose default is the method's."""
FROM_TASK = ("client_lr", "server_lr", "server", "theta", "clients_per_round", "batch_size", "clients")
"""Fields whose default is the task's value."""
RATES = ("client_lr", "server_lr")
TaskName = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK", help_behavior_hint="")]


def _flags_class(without: Iterable[str] = (), **rates: tuple[str, str]) -> Any:
    """A dataclass of flags for the fields of the configuration; a flag that is not given is None.

    Args:
        without: fields that have no flag, besides the task.
        rates: flags for lists of rates, each with the symbol of the rate and the default in words.
    """
    flags = []
    for field in fields(RunConfig):
        if field.name != "task" and field.name not in without:
            default = "none" if field.default is None else field.default
            if field.name in (*FROM_TASK, *FROM_METHOD):
                default = "the task's" if field.name in FROM_TASK else "the method's"
            help = FIELD_DESCRIPTIONS[field.name]
            described = tyro.conf.arg(help=help, help_behavior_hint=f"(default: {default})")
            hint = Annotated[FIELD_TYPES[field.name] | None, tyro.conf.DisallowNone, described]
            flags.append((field.name, hint, None))
    for name, (symbol, default) in rates.items():
        help = f"Comma-separated values of {symbol}."
        described = tyro.conf.arg(help=help, help_behavior_hint=f"(default: {default})")
        flags.append((name, Annotated[str, described], ""))
    return make_dataclass("Flags", flags, frozen=True)


RunFlags: Any = _flags_class()
"""The flags of a run: all fields of its configuration but the task."""
SweepFlags: Any = _flags_class(
    RATES, client_lr=("gamma", "0, 10^-3, ..., 100, as in the paper"), server_lr=("eta", "10^-3, 10^-2.5, ..., 10")
)
"""The flags of a sweep, whose rates are lists."""
DecayFlags: Any = _flags_class(
    RATES, client_lr=("gamma", "100, 10, 1, 0.1, 0.01, as in the paper"), server_lr=("eta", "10^-3, 10^-2.5, ..., 10")
)
"""The flags of `lur decay`, whose client rates have another default."""
RunFlagsArg = Annotated[RunFlags, tyro.conf.OmitArgPrefixes]
SweepFlagsArg = Annotated[SweepFlags, tyro.conf.OmitArgPrefixes]
DecayFlagsArg = Annotated[DecayFlags, tyro.conf.OmitArgPrefixes]


def requested_config(
    task: str, file: Path | None, run_dir: Path | None, flags: Any, without: Iterable[str] = ()
) -> RunConfig:
    """The configuration that a command asks for.

    Args:
        task: name of the task; may be empty if a file or a run folder says it.
        file: a TOML file, which task and flags override.
        run_dir: a run folder, whose configuration is taken where neither task nor file is given.
        flags: the flags.
        without: names of flags that are not part of the configuration.
    """
    given = {name: value for name, value in vars(flags).items() if value is not None and name not in without}
    values = {name: value.absolute() if isinstance(value, Path) else value for name, value in given.items()}
    if task:
        values["task"] = task
    if file is not None:
        config = config_from_values(read_toml(file, follow=True) | values, str(file))
        paths = {name: value.absolute() for name, value in vars(config).items() if isinstance(value, Path)}
        return replace(config, **paths)
    if task:
        return config_from_values(values, "the flags")
    if run_dir is None or not (run_dir / "run.json").exists():
        from lur.tasks import NAMES

        raise ValueError(f"expected a task, one of {', '.join(NAMES)}, or --config FILE, got neither")
    from lur.runs.train_run import read_run_config

    return replace(read_run_config(run_dir), **values)


def parse_rates(flag: str, text: str, default: tuple[float, ...]) -> tuple[float, ...]:
    """The rates in a flag's comma-separated list, or the default if it is empty."""
    if not text:
        return default
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{flag} must be comma-separated numbers, got {text!r}") from None


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

    known, arguments = flags_of(command), task_as_positional(command, arguments)
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


def task_as_positional(command: Command, arguments: list[str]) -> list[str]:
    """The arguments with ``--task NAME`` as NAME, where the command takes the task by its position."""
    parameter = inspect.signature(command).parameters.get("task")
    if parameter is None or parameter.annotation is not TaskName:
        return arguments
    kept = [argument.removeprefix("--task=") for argument in arguments]
    return [argument for argument in kept if argument != "--task"]


def folder_name(task: str) -> str:
    """The task's name as part of a folder's: that of a user's own, ``module:attribute``, has no colon there."""
    return task.replace(":", "-")


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
