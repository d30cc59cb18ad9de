"""Command-line flags made from the fields of `lur.training.configuration.Run`."""

from dataclasses import fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_args

import tyro

from lur.training.configuration import Run, from_values, hints, read_values

OWN = ("client_lr", "server_lr", "server", "theta", "clients_per_round", "batch_size", "clients")
"""Fields that a task has its own values for."""


def flag(name: str, hint: Any, default: Any) -> tuple[str, Any, None]:
    """A field that may be left out, with what is then taken as its hint."""
    kind, help = get_args(hint)[:2]
    instead = "the task's" if name in OWN else "none" if default is None else str(default)
    described = tyro.conf.arg(help=help, help_behavior_hint=f"(default: {instead})")
    return name, Annotated[kind | None, tyro.conf.DisallowNone, described], None


Flags: Any = make_dataclass(
    "Flags",
    [flag(field.name, hints(extras=True)[field.name], field.default) for field in fields(Run) if field.name != "task"],
    frozen=True,
)
"""All fields of a run but its task; None is one that was not given."""

TaskName = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK", help_behavior_hint="")]

RATES = ("client_lr", "server_lr")


def rates_flag(name: str, instead: str) -> tuple[str, Any, str]:
    """A list of rates."""
    symbol = {"client_lr": "gamma", "server_lr": "eta"}[name]
    described = tyro.conf.arg(
        help=f"Values of {symbol}, with commas between them.", help_behavior_hint=f"(default: {instead})"
    )
    return name, Annotated[str, described], ""


def without_rates(*more: tuple[str, Any, str]) -> Any:
    """The flags of a run but its rates, and others in their place."""
    own = [
        flag(field.name, hints(extras=True)[field.name], field.default)
        for field in fields(Run)
        if field.name not in ("task", *RATES)
    ]
    return make_dataclass("Flags", [*own, *more], frozen=True)


SweepFlags: Any = without_rates(
    rates_flag("client_lr", "0, 10^-3, ..., 100, the paper's"), rates_flag("server_lr", "10^-3, 10^-2.5, ..., 10")
)
DecayFlags: Any = without_rates(
    rates_flag("client_lr", "100, 10, 1, 0.1, 0.01, the paper's"), rates_flag("server_lr", "10^-3, 10^-2.5, ..., 10")
)
Swept = Annotated[SweepFlags, tyro.conf.OmitArgPrefixes]
Decaying = Annotated[DecayFlags, tyro.conf.OmitArgPrefixes]


def rates(name: str, text: str, default: tuple[float, ...]) -> tuple[float, ...]:
    """The rates of a flag: numbers with commas between them."""
    if not text:
        return default
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        option = f"--{name.replace('_', '-')}"
        raise ValueError(f"{option} must be numbers with commas between them, got {text!r}") from None


Given = Annotated[Flags, tyro.conf.OmitArgPrefixes]


def given(flags: Any) -> dict[str, Any]:
    """The flags that were given, paths from here as absolute ones."""
    found = {field.name: getattr(flags, field.name) for field in fields(flags)}
    return {name: absolute(value) for name, value in found.items() if value is not None}


def absolute(value: Any) -> Any:
    """A path as it is from anywhere; anything else as it is."""
    return value.absolute() if isinstance(value, Path) else value


def placed(run: Run) -> Run:
    """The run with absolute paths."""
    return replace(run, **{field.name: absolute(getattr(run, field.name)) for field in fields(run)})


def run_of(task: str, config: Path | None, flags: Any, without: tuple[str, ...] = ()) -> Run:
    """The run that a command asks for: a file's, changed by the task and the flags given but those `without`."""
    values = {name: value for name, value in given(flags).items() if name not in without}
    values |= {"task": task} if task else {}
    if config is None:
        return from_values(values, "the flags")
    return placed(from_values(read_values(config) | values, str(config)))


def changed(run: Run, flags: Any) -> Run:
    """A run changed by the flags that are given."""
    return replace(run, **given(flags))
