"""A run's configuration as flags: made from `lur.config.Run`, so that a field and its flag are one thing."""

from dataclasses import fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_args

import tyro

from lur.config import Run, from_values, hints, read_values

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


def run_of(task: str, config: Path | None, flags: Any) -> Run:
    """The run that a command asks for: a file's, changed by the task and the flags that are given."""
    values = given(flags) | ({"task": task} if task else {})
    if config is None:
        return from_values(values, "the flags")
    return placed(from_values(read_values(config) | values, str(config)))


def changed(run: Run, flags: Any) -> Run:
    """A run changed by the flags that are given."""
    return replace(run, **given(flags))
