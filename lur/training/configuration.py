"""The configuration of a run: what was asked for (`RunConfig`) and what was decided (`ResolvedRun`).

A configuration is a frozen dataclass, a TOML file, command-line flags or a notebook's arguments. A field that is None
takes the task's value. `resolve_config` fills these in, and a run folder keeps the result.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from numbers import Real
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import lur.theta as thetas
from lur.regular_files import read_regular
from lur.training.option_text import did_you_mean as did_you_mean
from lur.training.option_text import parse_adaptation, parse_splits, parse_steps

MAX_FILE_BYTES = 2**20
MAX_INTEGER = 2**53
"""Integers from here on are refused: not every one of them is a float."""
MAX_CLIENTS = 1_000_000
"""Most clients of the built-in data, which are generated one by one and kept in memory or in the cache."""
MAY_CHANGE = ("checkpoint_every", "checkpoint_seconds")
"""Fields that may change when a run is resumed: they do not affect its numbers."""


@dataclass(frozen=True)
class RunConfig:
    """A run as it was asked for: the task, the method, the data and how the run is observed.

    Each field carries its description, which `lur train --help` prints.
    """

    task: Annotated[
        str,
        "femnist, cifar100, shakespeare, stackoverflow_nwp, stackoverflow_tp, quadratic, digits, or your own as "
        "my_module:task.",
    ]
    rounds: Annotated[int, "Number of rounds to run."] = 100
    method: Annotated[str, "A method of `lur methods`, or your own as my_module:factory."] = "local_update"
    client_lr: Annotated[float | None, "Client learning rate gamma."] = None
    server_lr: Annotated[float | None, "Server learning rate eta."] = None
    server: Annotated[
        str | None, "Server optimiser: sgd, momentum, nesterov, adagrad, adam, yogi, or a factory such as optax:lion."
    ] = None
    client: Annotated[
        str | None,
        "Client optimiser: sgd, momentum, nesterov, adagrad, adam, yogi, adamw, rmsprop, or a factory such as "
        "optax:lion.",
    ] = None
    sampling: Annotated[
        Literal["uniform", "iid", "full", "cyclic"], "How the clients of a round are drawn (lur.run)."
    ] = "uniform"
    steps: Annotated[
        str | None, "Numbers of local steps from which each client draws its own in every round, such as 2:10."
    ] = None
    top_k: Annotated[float | None, "Clients send this fraction of their update's entries, with error feedback."] = None
    quantize_bits: Annotated[int | None, "Clients send unbiased, randomly rounded updates of so many bits."] = None
    clip: Annotated[float | None, "Norm C to which every client scales its update down."] = None
    noise: Annotated[float | None, "Noise multiplier z: the server adds Gaussian noise z C / M to the mean."] = None
    theta: Annotated[str | None, "Gradient weights Theta: 1:10 (FedAvg), K=10 (FOMAML) or [1,0,2]."] = None
    local_steps: Annotated[int | None, "Number of local steps K, for methods without Theta."] = None
    send: Annotated[Literal["gradients", "loss_gradients", "delta"] | None, "What clients send (lur.local_update)."] = (
        None
    )
    loss_on: Annotated[
        Literal["first", "all"] | None, "Mini-batches on which the loss before training is estimated."
    ] = None
    extrapolate: Annotated[Literal["models", "updates"] | None, "What extrapolation extrapolates."] = None
    prox: Annotated[float | None, "rho: strength of the pull towards the broadcast model (FedProx)."] = None
    alpha: Annotated[float | None, "Strength of the regularisation (FedDyn)."] = None
    prox_step: Annotated[float | None, "s: step of the proximal operator (FedSplit)."] = None
    option: Annotated[Literal["I", "II"] | None, "How clients renew their control variates (SCAFFOLD)."] = None
    probability: Annotated[float | None, "Probability of a communication (ProxSkip)."] = None
    optimizer: Annotated[str | None, "Base optimiser (Mime, MimeLite), of the names of --client."] = None
    inner_state: Annotated[
        Literal["keep", "reset"] | None, "Whether clients keep the state of their optimiser between rounds (DiLoCo)."
    ] = None
    momentum: Annotated[float | None, "Momentum of the clients' SGD (FedNova)."] = None
    epsilon: Annotated[float | None, "Added to the squared norm of the mean update (FedExP)."] = None
    query: Annotated[Literal["separate", "reuse"] | None, "Mini-batch of the outer loss (MAML)."] = None
    order: Annotated[int | None, "2 differentiates through the local steps, 1 does not (MAML)."] = None
    method_options: Annotated[
        str | None, "Options of the method that have no flag of their own, such as beta=0.3,mode=fast."
    ] = None
    clients_per_round: Annotated[int | None, "Number of clients per round M."] = None
    batch_size: Annotated[int | None, "Mini-batch size B."] = None
    epochs: Annotated[
        int | None,
        "Local epochs: each client goes through its shuffled data this many times instead of drawing K mini-batches "
        "with replacement.",
    ] = None
    weighting: Annotated[
        Literal["uniform", "examples"], "Weight clients equally, as in the paper, or by their number of examples."
    ] = "uniform"
    layout: Annotated[str, "How the clients of a round run: auto, vmap, sequential, chunked:4 or sharded."] = "auto"
    seed: Annotated[int, "Random seed of the run: initial model, client sampling, mini-batches."] = 0
    evaluate_every: Annotated[int | None, "Evaluate over all data every this many rounds, as well as at the end."] = (
        None
    )
    evaluate_on: Annotated[
        str | None, "Splits to evaluate on, of train, test and clients (held-out ones); by default all that there are."
    ] = None
    adapt: Annotated[
        str | None,
        "Numbers of local steps, such as 0,1,5: clients adapt to their own examples with the client optimiser and "
        "gamma, and are then tested on others.",
    ] = None
    decay: Annotated[
        Literal["off", "paper", "reference"], "LocalUpdateDecay: both rates decay on a plateau (lur.decay)."
    ] = "off"
    decay_delta: Annotated[float, "Delta: the smallest decrease of the loss that counts as an improvement."] = 1e-4
    decay_alpha: Annotated[float, "alpha: the factor by which gamma decays."] = 0.1
    decay_beta: Annotated[float, "beta: the factor by which eta decays."] = 0.9
    decay_window: Annotated[int, "W: rounds that the loss is averaged over."] = 100
    decay_patience: Annotated[int, "P: rounds without improvement before a decay."] = 100
    decay_cooldown: Annotated[int, "C: rounds after a decay in which no other one happens."] = 100
    decay_server_delta: Annotated[float | None, "Delta of eta, with --decay reference."] = None
    decay_server_window: Annotated[int | None, "W of eta, with --decay reference."] = None
    decay_server_patience: Annotated[int | None, "P of eta, with --decay reference."] = None
    decay_server_cooldown: Annotated[int | None, "C of eta, with --decay reference."] = None
    loss_limit: Annotated[float, "The run has diverged when its loss exceeds this limit or is not finite."] = 1e6
    store: Annotated[Path | None, "Train on this imported store instead of the built-in data."] = None
    test_store: Annotated[Path | None, "Test examples of the store's clients: another imported store."] = None
    test_fraction: Annotated[
        float | None, "Fraction of each client's examples that is for testing; by default 0.2 of built-in data."
    ] = None
    held_out: Annotated[float, "Fraction of the clients that is held out: never trained on."] = 0.0
    split_seed: Annotated[int, "Random seed of these splits."] = 0
    clients: Annotated[int | None, "Number of clients of the built-in data."] = None
    heterogeneity: Annotated[float, "Heterogeneity of the built-in data; 0 makes all clients alike."] = 1.0
    data_seed: Annotated[int, "Random seed of the built-in data."] = 0
    word_count: Annotated[Path | None, "The file stackoverflow.word_count, for the Stack Overflow tasks."] = None
    tag_count: Annotated[Path | None, "The file stackoverflow.tag_count, for tag prediction."] = None
    crop: Annotated[int, "Side of the random crops of cifar100; the published code's is 32."] = 24
    l2: Annotated[float, "Penalty on the squared weights of cifar100's network; the published code's is 1e-4."] = 0.0
    model: Annotated[
        Literal["default", "dropout_cnn"], "Network of femnist: the paper's, or that of the authors' 2020 trainer."
    ] = "default"
    positions: Annotated[
        Literal["tokens", "all", "all_held", "inputs"],
        "Positions that count in the loss of shakespeare and stackoverflow_nwp (lur.tasks.language).",
    ] = "tokens"
    over_batch: Annotated[
        Literal["mean", "sum"], "Loss of a mini-batch of stackoverflow_tp; the published code's is the sum."
    ] = "mean"
    init: Annotated[
        Literal["default", "glorot_uniform", "glorot_normal"],
        "Initial kernel of stackoverflow_tp: zeros, or random as in the published code.",
    ] = "default"
    normalise: Annotated[
        Literal["sum", "mean"], "Denominator of word frequencies of stackoverflow_tp; mean counts unknown words too."
    ] = "sum"
    checkpoint_every: Annotated[int | None, "Write a checkpoint every this many rounds."] = None
    checkpoint_seconds: Annotated[float, "Write a checkpoint every this many seconds."] = 60.0

    def __post_init__(self) -> None:
        for name, hint in FIELD_TYPES.items():
            value = getattr(self, name)
            if name == "theta" and isinstance(value, str | Sequence):
                weights = thetas.parse(value) or (0.0,) if isinstance(value, str) else value
                value = thetas.text(thetas.nonzero(weights))
            object.__setattr__(self, name, _coerce(name, hint, value))
        for name in POSITIVE:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be an integer >= 1, got {value}")
        for name in NONNEGATIVE:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and >= 0, got {value}")
        if self.clients is not None and self.clients > MAX_CLIENTS:
            raise ValueError(f"clients must be at most {MAX_CLIENTS:,}, got {self.clients:,}; import a store for more")
        if self.rounds >= 2**31:
            raise ValueError(f"rounds must be less than 2^31, got {self.rounds}")
        for name in SEEDS:
            if not 0 <= getattr(self, name) < 2**32:
                raise ValueError(f"{name} must be an integer from 0 to 2^32 - 1, got {getattr(self, name)}")
        if not self.loss_limit > 0:
            raise ValueError(f"loss_limit must be > 0, got {self.loss_limit}")
        splits = parse_splits(self.evaluate_on)
        if splits is not None and "train" not in splits:
            raise ValueError(f"evaluate_on must contain train, whose loss tells divergence, got {self.evaluate_on}")
        parse_adaptation(self.adapt)
        for name in ("test_fraction", "held_out"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"{name} must be >= 0 and below 1, got {value}")
        if self.test_store is not None and (self.store is None or self.test_fraction):
            raise ValueError("test_store must come with store, and without test_fraction")
        for name, tasks in TASK_OPTIONS.items():
            value = getattr(self, name)
            if value != getattr(RunConfig, name) and self.task not in tasks:
                raise ValueError(f"{name} is for {' and '.join(tasks)}, got {value} for the task {self.task}")
        for name in ("theta", "local_steps"):
            value = getattr(self, name)
            if value is not None and self.epochs is not None:
                raise ValueError(f"{name} must be left out with epochs, which decide K per client, got {value}")
        if self.theta is not None and self.local_steps is not None:
            raise ValueError(f"local_steps must be left out with theta, which has K weights, got {self.local_steps}")
        if self.steps is not None and parse_steps(self.steps) and self.epochs is not None:
            raise ValueError(f"steps must be left out with epochs, which decide K per client, got {self.steps}")
        for name in ("clip", "noise"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be finite and > 0, got {value}")
        if self.noise is not None and self.clip is None:
            raise ValueError(f"noise must come with clip, the norm that it is a multiple of, got {self.noise} without")
        if self.top_k is not None and not 0 < self.top_k <= 1:
            raise ValueError(f"top_k must be in (0, 1], got {self.top_k}")
        for name in ("server", "client", "optimizer"):
            if getattr(self, name) is not None:
                check_optimizer(name, getattr(self, name))


FIELD_TYPES = get_type_hints(RunConfig)
"""Type of each field of a `RunConfig`."""
FIELD_DESCRIPTIONS = {name: get_args(hint)[1] for name, hint in get_type_hints(RunConfig, include_extras=True).items()}
"""Description of each field of a `RunConfig`."""
METHOD_OPTIONS = (
    "theta", "local_steps", "send", "loss_on", "extrapolate", "prox", "alpha", "prox_step", "option", "probability",
    "optimizer", "inner_state", "momentum", "epsilon", "query", "order",
)  # fmt: skip
"""Options of methods: arguments of a method's factory. None leaves the method its default."""
POSITIVE = (
    "rounds",
    "local_steps",
    "quantize_bits",
    "clients_per_round",
    "batch_size",
    "epochs",
    "evaluate_every",
    "clients",
    "checkpoint_every",
)
NONNEGATIVE = ("client_lr", "server_lr", "prox", "heterogeneity", "l2", "checkpoint_seconds")
TASK_OPTIONS = {
    "crop": ("cifar100",),
    "l2": ("cifar100",),
    "model": ("femnist",),
    "positions": ("shakespeare", "stackoverflow_nwp"),
    "over_batch": ("stackoverflow_tp",),
    "init": ("stackoverflow_tp",),
    "normalise": ("stackoverflow_tp",),
}
"""The tasks that each option of a task is for: where the paper and its published code differ."""
SEEDS = ("seed", "data_seed", "split_seed")


@dataclass(frozen=True)
class ResolvedRun(RunConfig):
    """A run whose every setting is decided. A remaining None is a value of its own, not a question.

    Attributes:
      client_lr: client learning rate gamma.
      server_lr: server learning rate eta.
      server: name of the server optimiser; None for that of the method.
      theta: gradient weights Theta as text; None with `epochs`, where K depends on the client, and for methods without.
      local_steps: K, for methods without Theta; None with `epochs`.
      clients_per_round: M.
      batch_size: B.
      test_fraction: fraction of each client's examples that is for testing.
      epochs: local epochs; None draws K mini-batches with replacement.
      evaluate_every: rounds between evaluations; None evaluates at the end only.
      checkpoint_every: rounds between checkpoints; None writes them by `checkpoint_seconds` alone.
    """

    client_lr: float = field(kw_only=True)
    server_lr: float = field(kw_only=True)
    clients_per_round: int = field(kw_only=True)
    batch_size: int = field(kw_only=True)
    test_fraction: float = field(kw_only=True)


def resolve_config(config: RunConfig, settings: Any, clients: int | None = None) -> ResolvedRun:
    """The configuration with the task's and the method's settings in place of what was left open.

    Args:
      config: what was asked for.
      settings: `lur.tasks.Settings` of the task.
      clients: number of clients of its store, which take part in every round of some methods.

    Returns:
      The resolved configuration. Resolving it again changes nothing.
    """
    from lur.training.method_choice import method_settings

    defaults: dict[str, Any] = {
        name: getattr(settings, name) for name in ("client_lr", "server_lr", "clients_per_round", "batch_size")
    }
    defaults["test_fraction"] = default_test_fraction(config)
    asked = {name: value for name, value in asdict(config).items() if value is not None}
    return ResolvedRun(**(defaults | asked | method_settings(config, settings, clients)))


def default_test_fraction(config: RunConfig) -> float:
    """The fraction of examples that is for testing where none is asked for."""
    from lur.tasks import SPLIT_AT_RANDOM, SPLIT_IN_ORDER, TEST_FRACTION

    return TEST_FRACTION if config.store is None and config.task in (*SPLIT_AT_RANDOM, *SPLIT_IN_ORDER) else 0.0


def with_changes(config: RunConfig, **changes: Any) -> RunConfig:
    """The configuration, resolved or not, as a `RunConfig` with other values in some fields."""
    return RunConfig(**(asdict(config) | changes))


def config_from_values(values: Mapping[str, Any], source: str = "the configuration") -> RunConfig:
    """A configuration from names and values, as a file holds them.

    Args:
      values: the fields' values by name.
      source: what error messages call the origin of the values.
    """
    for name, value in values.items():
        if name not in FIELD_TYPES:
            hint = did_you_mean(name, FIELD_TYPES)
            raise ValueError(f"{source}: expected the name of a setting, got {name} = {value!r}{hint}")
    if "task" not in values:
        raise ValueError(f"{source}: expected a task, got none")
    try:
        return RunConfig(**values)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def read_toml(path: Path, *, follow: bool = False) -> dict[str, Any]:
    """The names and values of a TOML file, not yet checked. `follow` allows a symbolic link."""
    try:
        content = read_regular(path, MAX_FILE_BYTES, follow=follow)
    except FileNotFoundError:
        raise ValueError(f"{path}: expected a configuration, found no such file") from None
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # tomllib's own, of integers with many digits, of deep nesting
        raise ValueError(f"{path}: expected TOML, {error}") from None


def read_config(path: Path) -> RunConfig:
    """The configuration in a TOML file that the user names."""
    return config_from_values(read_toml(path, follow=True), str(path))


def to_toml(config: RunConfig) -> str:
    """The configuration as TOML. Fields that are None are left out, because TOML has no null."""
    lines = []
    for name, value in asdict(config).items():
        if isinstance(value, int | float):
            lines.append(f"{name} = {value!r}\n")
        elif value is not None:
            quoted = str(value).replace("\\", "\\\\").replace('"', '\\"')
            escaped = (c if c.isprintable() or 0xD800 <= ord(c) < 0xE000 else f"\\U{ord(c):08x}" for c in quoted)
            lines.append(f'{name} = "{"".join(escaped)}"\n')
    return "".join(lines)


def config_changes(before: RunConfig, after: RunConfig, ignore: Sequence[str] = MAY_CHANGE) -> list[str]:
    """The fields in which two configurations differ, each as text: ``client_lr 0.1 -> 0.5``."""
    pairs = ((name, getattr(before, name), getattr(after, name)) for name in FIELD_TYPES if name not in ignore)
    words = ((name, *("none" if value is None else str(value) for value in (x, y))) for name, x, y in pairs if x != y)
    return [f"{name} {x} -> {y}" for name, x, y in words]


def check_optimizer(field: str, name: str) -> None:
    """Refuse an optimiser that is neither in the table of the server's or the clients' nor ``module:factory``."""
    from lur.methods.optimizers import CLIENT_OPTIMIZERS, SERVER_OPTIMIZERS

    table = SERVER_OPTIMIZERS if field == "server" else CLIENT_OPTIMIZERS
    if name not in table and ":" not in name:
        raise ValueError(f"{field} must be one of {', '.join(table)}, got {name!r}{did_you_mean(name, table)}")


def _coerce(name: str, hint: Any, value: Any) -> Any:
    """The value in the field's type: an integer may stand for a float, a string for a path."""
    options = [hint] if get_origin(hint) is Literal else get_args(hint) or [hint]
    if value is None and NoneType in options:
        return None
    kind = next(option for option in options if option is not NoneType)
    if get_origin(kind) is Literal:
        if value in get_args(kind):
            return value
        hint = did_you_mean(str(value), get_args(kind))
        raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}, got {value!r}{hint}")
    if kind in (int, float) and isinstance(value, Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if kind is float or (number.is_integer() and abs(number) < MAX_INTEGER):
            return kind(number)
    elif (kind is Path and isinstance(value, str | Path)) or (kind is str and isinstance(value, str)):
        return kind(value)
    expected = {int: "an integer", float: "a number", str: "text", Path: "a path"}[kind]
    raise ValueError(f"{name} must be {expected}, got {value!r}")
