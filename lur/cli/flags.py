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


def _flags_class(without: Iterable[str] = (), **rates: tuple[str, str]) -> Any:
    """A dataclass of flags for the fields of the configuration; a flag that is not given is None.

    Args:
        without: fields that have no flag, besides the task.
        rates: flags for lists of rates, each with the symbol of the rate and the default in words.
    """
    flags = []
    for field in fields(RunConfig):
        if field.name != "task" and field.name not in without:
            default = "the task's" if field.name in FROM_TASK else "none" if field.default is None else field.default
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
