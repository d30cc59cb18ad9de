"""Command-line flags made from the fields of `lur.training.configuration.RunConfig`."""

from collections.abc import Iterable
from dataclasses import fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from lur.training.configuration import (
    FIELD_DESCRIPTIONS,
    FIELD_TYPES,
    RunConfig,
    config_from_values,
    read_config,
    read_toml,
)

FROM_TASK = ("client_lr", "server_lr", "server", "theta", "clients_per_round", "batch_size", "clients")
"""Fields whose default is the task's value."""
RATES = ("client_lr", "server_lr")
TaskName = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK", help_behavior_hint="")]


def _flag(name: str, default: Any) -> tuple[str, Any, None]:
    """A flag for a field of the configuration; None means that it is not given."""
    instead = "the task's" if name in FROM_TASK else "none" if default is None else str(default)
    described = tyro.conf.arg(help=FIELD_DESCRIPTIONS[name], help_behavior_hint=f"(default: {instead})")
    return name, Annotated[FIELD_TYPES[name] | None, tyro.conf.DisallowNone, described], None


def _rates_flag(name: str, symbol: str, default: str) -> tuple[str, Any, str]:
    """A flag for a list of rates."""
    described = tyro.conf.arg(help=f"Comma-separated values of {symbol}.", help_behavior_hint=f"(default: {default})")
    return name, Annotated[str, described], ""


def _flags_class(without: Iterable[str], *more: tuple[str, Any, str]) -> Any:
    """A dataclass of flags for all fields of the configuration but some, and for others in their place."""
    own = [_flag(field.name, field.default) for field in fields(RunConfig) if field.name not in without]
    return make_dataclass("Flags", [*own, *more], frozen=True)


_ETAS = _rates_flag("server_lr", "eta", "10^-3, 10^-2.5, ..., 10")
RunFlags: Any = _flags_class(("task",))
"""The flags of a run: all fields of its configuration but the task."""
SweepFlags: Any = _flags_class(
    ("task", *RATES), _rates_flag("client_lr", "gamma", "0, 10^-3, ..., 100, as in the paper"), _ETAS
)
"""The flags of a sweep, whose rates are lists."""
DecayFlags: Any = _flags_class(
    ("task", *RATES), _rates_flag("client_lr", "gamma", "100, 10, 1, 0.1, 0.01, as in the paper"), _ETAS
)
"""The flags of `lur decay`, whose client rates have another default."""
RunFlagsArg = Annotated[RunFlags, tyro.conf.OmitArgPrefixes]
SweepFlagsArg = Annotated[SweepFlags, tyro.conf.OmitArgPrefixes]
DecayFlagsArg = Annotated[DecayFlags, tyro.conf.OmitArgPrefixes]


def given_values(flags: Any) -> dict[str, Any]:
    """The flags that were given, with absolute paths."""
    values = {field.name: getattr(flags, field.name) for field in fields(flags)}
    return {
        name: value.absolute() if isinstance(value, Path) else value
        for name, value in values.items()
        if value is not None
    }


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
    values = {name: value for name, value in given_values(flags).items() if name not in without}
    if task:
        values["task"] = task
    if file is not None:
        config = config_from_values(read_toml(file) | values, str(file))
        paths = {name: value.absolute() for name, value in vars(config).items() if isinstance(value, Path)}
        return replace(config, **paths)
    if task:
        return config_from_values(values, "the flags")
    if run_dir is None or not (run_dir / "run.json").exists():
        from lur.tasks import NAMES

        raise ValueError(f"expected a task, one of {', '.join(NAMES)}, or --config FILE, got neither")
    from lur.runs.folder import read_run_info

    read_run_info(run_dir, "train")
    return replace(read_config(run_dir / "config.toml"), **values)


def parse_rates(flag: str, text: str, default: tuple[float, ...]) -> tuple[float, ...]:
    """The rates in a flag's comma-separated list, or the default if it is empty."""
    if not text:
        return default
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{flag} must be comma-separated numbers, got {text!r}") from None
