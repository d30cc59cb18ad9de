"""A run's configuration: one frozen dataclass, which is also a TOML file, flags and a notebook's arguments.

None takes the task's own setting; `settled` fills them in, and that is what a run folder keeps.
"""

import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from numbers import Real
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from lur import theta as thetas

LARGEST_FILE = 2**20
LARGEST = 2**53
"""Whole numbers stay below."""
WITHOUT_EFFECT = ("checkpoint_every", "checkpoint_seconds")
"""What may change between the parts of a run: it moves no number."""


@dataclass(frozen=True)
class Run:
    """What to train on, how, and how it is watched."""

    task: Annotated[str, "femnist, cifar100, shakespeare, stackoverflow_nwp, stackoverflow_tp, quadratic or digits."]
    rounds: Annotated[int, "Rounds to run."] = 100
    client_lr: Annotated[float | None, "gamma."] = None
    server_lr: Annotated[float | None, "eta."] = None
    server: Annotated[Literal["sgd", "yogi", "adam"] | None, "The server's optimiser."] = None
    theta: Annotated[str | None, "The weights Theta: 1:10 (FedAvg), K=10 (FOMAML) or [1,0,2]."] = None
    clients_per_round: Annotated[int | None, "M."] = None
    batch_size: Annotated[int | None, "B."] = None
    epochs: Annotated[
        int | None, "Go so many times through each client's shuffled data instead of K draws with replacement."
    ] = None
    weighting: Annotated[
        Literal["uniform", "examples"], "Weigh clients alike, as the paper, or by their numbers of examples."
    ] = "uniform"
    layout: Annotated[str, "How the clients axis runs: auto, vmap, sequential, chunked:4, sharded."] = "auto"
    seed: Annotated[int, "Of the run: initial model, clients, mini-batches."] = 0
    evaluate_every: Annotated[int | None, "Evaluate f(x) over all data every so many rounds; always at the end."] = None
    decay: Annotated[
        Literal["off", "paper", "reference"], "LocalUpdateDecay: both rates decay on a plateau (lur.decay)."
    ] = "off"
    decay_delta: Annotated[float, "Delta, the least improvement that counts."] = 1e-4
    decay_alpha: Annotated[float, "alpha, the factor of gamma."] = 0.1
    decay_beta: Annotated[float, "beta, the factor of eta."] = 0.9
    decay_window: Annotated[int, "W, in rounds."] = 100
    decay_patience: Annotated[int, "P, in rounds."] = 100
    decay_cooldown: Annotated[int, "C, in rounds."] = 100
    loss_limit: Annotated[float, "A loss above it, or one that is no number, ends the run as diverged."] = 1e6
    store: Annotated[Path | None, "An imported store to train on."] = None
    clients: Annotated[int | None, "Clients of the built-in data."] = None
    heterogeneity: Annotated[float, "The dial of the built-in data: 0 makes all clients alike."] = 1.0
    data_seed: Annotated[int, "Of the built-in data."] = 0
    word_count: Annotated[Path | None, "The file stackoverflow.word_count, for the Stack Overflow tasks."] = None
    tag_count: Annotated[Path | None, "The file stackoverflow.tag_count, for tag prediction."] = None
    checkpoint_every: Annotated[int | None, "Write a checkpoint every so many rounds."] = None
    checkpoint_seconds: Annotated[float, "Write a checkpoint every so many seconds."] = 60.0

    def __post_init__(self) -> None:
        for name, hint in hints().items():
            value = getattr(self, name)
            if name == "theta" and isinstance(value, str | Sequence):
                weights = thetas.parse(value) or (0.0,) if isinstance(value, str) else value
                value = thetas.text(thetas.nonzero(weights))
            object.__setattr__(self, name, conforming(name, hint, value))
        for name in POSITIVE:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be an integer >= 1, got {value}")
        for name in NONNEGATIVE:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and >= 0, got {value}")
        if self.rounds >= 2**31:
            raise ValueError(f"rounds must be less than 2^31, got {self.rounds}")
        for name in SEEDS:
            if not 0 <= getattr(self, name) < 2**32:
                raise ValueError(f"{name} must be an integer from 0 to 2^32 - 1, got {getattr(self, name)}")
        if not self.loss_limit > 0:
            raise ValueError(f"loss_limit must be > 0, got {self.loss_limit}")
        if self.epochs is not None and self.theta is not None:
            raise ValueError(f"theta must be left out with epochs, which decide K per client, got {self.theta}")


POSITIVE = ("rounds", "clients_per_round", "batch_size", "epochs", "evaluate_every", "clients", "checkpoint_every")
NONNEGATIVE = ("client_lr", "server_lr", "heterogeneity", "checkpoint_seconds")
SEEDS = ("seed", "data_seed")


def hints(extras: bool = False) -> dict[str, Any]:
    """The type of each field, with its description where `extras`."""
    return get_type_hints(Run, include_extras=extras)


def conforming(name: str, hint: Any, value: Any) -> Any:
    """The value as the field has it: a whole number may stand for a float, text for a path."""
    options = [hint] if get_origin(hint) is Literal else get_args(hint) or [hint]
    if value is None and NoneType in options:
        return None
    kind = next(option for option in options if option is not NoneType)
    if get_origin(kind) is Literal:
        if value in get_args(kind):
            return value
        near = nearest(str(value), get_args(kind))
        raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}, got {value!r}{near}")
    if kind in (int, float) and isinstance(value, Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if kind is float or (number.is_integer() and abs(number) < LARGEST):
            return kind(number)
    elif (kind is Path and isinstance(value, str | Path)) or (kind is str and isinstance(value, str)):
        return kind(value)
    expected = {int: "an integer", float: "a number", str: "text", Path: "a path"}[kind]
    raise ValueError(f"{name} must be {expected}, got {value!r}")


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of a refusal: which of the names was perhaps meant."""
    near = difflib.get_close_matches(name, [*names], n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


def from_values(values: Mapping[str, Any], where: str = "the configuration") -> Run:
    """A run from names and values, as a file has them."""
    names = [field.name for field in fields(Run)]
    for name, value in values.items():
        if name not in names:
            raise ValueError(f"{where}: expected the keys of a run, got {name} = {value!r}{nearest(name, names)}")
    if "task" not in values:
        raise ValueError(f"{where}: expected a task, got none")
    try:
        return Run(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def read_values(path: Path) -> dict[str, Any]:
    """The names and values of a TOML file, not yet checked."""
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise ValueError(f"{path}: expected a configuration of at most {LARGEST_FILE:,} bytes, found {size:,}")
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path}: expected a configuration, found no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected TOML, {error}") from None


def read(path: Path) -> Run:
    """A run from a TOML file."""
    return from_values(read_values(path), str(path))


def text(run: Run) -> str:
    """The run as TOML. What is not set is left out: TOML has no word for nothing."""
    return "".join(f"{name} = {toml(value)}\n" for name, value in asdict(run).items() if value is not None)


def toml(value: str | Path | float | int) -> str:
    """A value as TOML writes it."""
    if isinstance(value, int | float):
        return repr(value)
    plain = str(value).replace("\\", "\\\\").replace('"', '\\"')
    escaped = (f"\\u{ord(c):04x}" if ord(c) < 32 or ord(c) == 127 else c for c in plain)
    return f'"{"".join(escaped)}"'


def settled(run: Run, settings: Any) -> Run:
    """The run with the task's own settings (`lur.tasks.Settings`) where it has none."""
    own = {
        "client_lr": settings.client_lr,
        "server_lr": settings.server_lr,
        "server": settings.server,
        "clients_per_round": settings.clients_per_round,
        "batch_size": settings.batch_size,
    }
    if run.epochs is None:
        own["theta"] = thetas.text(thetas.fedavg(settings.local_steps))
    return replace(run, **{name: value for name, value in own.items() if getattr(run, name) is None})


def difference(a: Run, b: Run, ignore: Sequence[str] = WITHOUT_EFFECT) -> list[str]:
    """How b differs from a, a sentence for each field: ``client_lr 0.1 -> 0.5``."""
    pairs = ((field.name, getattr(a, field.name), getattr(b, field.name)) for field in fields(Run))
    return [f"{name} {shown(x)} -> {shown(y)}" for name, x, y in pairs if x != y and name not in ignore]


def shown(value: Any) -> str:
    """A value in a sentence."""
    return "none" if value is None else str(value)
