"""The method of a configuration: its factory, the options that it has, and the method with its settings.

The options of a method are the arguments of its factory. A method of the table (`lur.methods.registry`) is called by
the names of its arguments, a user's own as ``factory(loss_fn, local_steps, **options)``.
"""

import ast
import difflib
import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import optax

from lur import theta as thetas
from lur.methods import decay
from lur.methods.aggregation import clipped, quantized, top_k, with_noise
from lur.methods.method import Method
from lur.methods.optimizers import CLIENT_OPTIMIZERS, SERVER_OPTIMIZERS, Optimizer, checked_optimizer
from lur.methods.registry import METHODS, MethodEntry
from lur.tasks.task import Settings
from lur.training.configuration import METHOD_OPTIONS, ResolvedRun, RunConfig, did_you_mean
from lur.training.user_code import call, load_attribute

LOCAL_STEPS = ("local_steps", "steps")
"""What the factories of the table call K."""


class MethodChoice(NamedTuple):
    """The method that a configuration names.

    Attributes:
      name: its name.
      factory: its factory.
      arguments: the factory's arguments by name.
      entry: its entry in the table; None for a user's own.
    """

    name: str
    factory: Callable[..., Any]
    arguments: Mapping[str, inspect.Parameter]
    entry: MethodEntry | None

    def takes(self, option: str) -> bool:
        """Whether the method has an option."""
        if option == "local_steps" and (self.entry is None or self.arguments.keys() & {"theta", *LOCAL_STEPS}):
            return True
        return option in self.arguments or any(each.kind is each.VAR_KEYWORD for each in self.arguments.values())

    @property
    def options(self) -> list[str]:
        """The names of its options."""
        steps = ["local_steps"] if self.takes("local_steps") else []
        kept = [each.name for each in self.arguments.values() if each.kind is not each.VAR_KEYWORD]
        return steps + [name for name in kept if name not in ("loss_fn", "seed", *LOCAL_STEPS)]


def choose_method(config: RunConfig) -> MethodChoice:
    """The method that a configuration names; an option that the method does not have is refused."""
    choice = method_named(config.method)
    given = {option: getattr(config, option) for option in ("client", "server", *METHOD_OPTIONS)}
    given["decay"] = None if config.decay == "off" else config.decay
    for option, value in (given | parse_options(config.method_options or "")).items():
        if value is not None and not choice.takes(option):
            nearest = difflib.get_close_matches(option, choice.options, n=1, cutoff=0.0)
            has = f"the nearest it has is {nearest[0]} (of {', '.join(choice.options)})" if nearest else "it has none"
            raise ValueError(f"{option} is no option of the method {choice.name}, got {value}; {has}")
    return choice


def method_named(name: str) -> MethodChoice:
    """The method of the table, or a user's own."""
    if name in METHODS:
        module, _, function = METHODS[name].factory.partition(":")
        factory = getattr(import_module(module), function)
        return MethodChoice(name, factory, inspect.signature(factory).parameters, METHODS[name])
    if ":" in name:
        return MethodChoice(name, *_own_factory(name), None)
    raise ValueError(
        f"method must be one of {', '.join(METHODS)} or your own as my_module:factory, got {name!r}"
        f"{did_you_mean(name, METHODS)}"
    )


def method_settings(config: RunConfig, settings: Settings, clients: int | None) -> dict[str, Any]:
    """The values, in a resolved configuration, of the fields that depend on the method.

    Args:
      config: what was asked for.
      settings: those of the task.
      clients: number of clients of its store.
    """
    choice = choose_method(config)
    filled: dict[str, Any] = {"server": config.server}
    if config.server is None and "server" in choice.arguments:
        own = choice.arguments["server"].default
        filled["server"] = settings.server if own in (optax.sgd, inspect.Parameter.empty) else None
    needs_all = config.sampling == "full" or (choice.entry is not None and choice.entry.full_participation)
    if needs_all and config.clients_per_round is None and clients is not None:
        filled["clients_per_round"] = clients
    if choice.entry is not None:
        filled |= {name: value for name, value in choice.entry.defaults.items() if getattr(config, name) is None}
    K = settings.local_steps if config.local_steps is None else config.local_steps
    if config.epochs is not None or not choice.takes("local_steps"):
        return filled
    if "theta" not in choice.arguments:
        return filled | {"local_steps": K}
    weights = choice.entry.theta if choice.entry and choice.entry.theta else thetas.fedavg
    theta = weights(K) if config.theta is None else thetas.parse(config.theta)
    if config.local_steps not in (None, len(theta)):
        raise ValueError(f"local_steps must be {len(theta)} with the method {choice.name}, got {config.local_steps}")
    if choice.entry and choice.entry.theta and theta != weights(len(theta)):
        expected = thetas.text(weights(len(theta)))
        raise ValueError(f"theta must be {expected} or left out with the method {choice.name}, got {config.theta}")
    return filled | {"theta": thetas.text(theta), "local_steps": None}


def make_method(loss_fn: Callable[..., Any], config: ResolvedRun, epoch_steps: int | None) -> Method:
    """The local update method of a run, with what wraps it (`lur.methods.aggregation`).

    Args:
      loss_fn: the loss of the task.
      config: the configuration.
      epoch_steps: K, if the configuration has epochs.
    """
    method = unwrapped_method(loss_fn, config, epoch_steps)
    if config.top_k is not None:
        method = top_k(method, config.top_k)
    if config.quantize_bits is not None:
        method = quantized(method, config.quantize_bits)
    if config.clip is not None:
        method = clipped(method, config.clip)
    return method if config.noise is None else with_noise(method, config.noise, seed=config.seed)


def unwrapped_method(loss_fn: Callable[..., Any], config: ResolvedRun, epoch_steps: int | None) -> Method:
    """The local update method of a run, whose clients send their updates as they are.

    Args:
      loss_fn: the loss of the task.
      config: the configuration.
      epoch_steps: K, if the configuration has epochs.
    """
    choice = choose_method(config)
    options = {name: getattr(config, name) for name in METHOD_OPTIONS if name not in ("theta", "local_steps")}
    options |= {name: optimizer_of(name, getattr(config, name)) for name in ("server", "client", "optimizer")}
    options["decay"] = None if config.decay == "off" else decay_rule(config)
    options = {name: value for name, value in options.items() if value is not None}
    options |= parse_options(config.method_options or "")
    if choice.entry is None:
        K = config.local_steps if epoch_steps is None else epoch_steps
        made = call(choice.name, choice.factory, loss_fn, K, **options)
        if not isinstance(made, Method):
            raise ValueError(f"{choice.name}: expected a factory that returns a lur.Method, got {type(made).__name__}")
        return made
    if "theta" in choice.arguments:
        weights = choice.entry.theta or thetas.fedavg
        options["theta"] = thetas.parse(config.theta or "") if epoch_steps is None else weights(epoch_steps)
    for name in LOCAL_STEPS:
        if name in choice.arguments:
            options[name] = config.local_steps if epoch_steps is None else epoch_steps
    if "seed" in choice.arguments:
        options["seed"] = config.seed
    return choice.factory(loss_fn, **options)


def parse_options(text: str) -> dict[str, Any]:
    """The options in ``name=value,name=value``; a value is a Python number or name such as True, or else text."""
    options = {}
    for part in text.split(",") if text else ():
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name.isidentifier() and equals):
            raise ValueError(f"method_options must be name=value,name=value, got {text!r}")
        try:
            options[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[name] = value
    return options


def optimizer_of(field: str, name: str | None) -> Optimizer | None:
    """The optimiser that a field names; None leaves the method its own."""
    if name is None:
        return None
    if ":" in name:
        return checked_optimizer(field, load_attribute(name))
    return (SERVER_OPTIMIZERS if field == "server" else CLIENT_OPTIMIZERS)[name]


def decay_rule(config: RunConfig) -> decay.Plateau:
    """The decay rule of a configuration that has one."""
    return decay.plateau(
        "paper" if config.decay == "paper" else "reference",
        config.decay_delta,
        config.decay_alpha,
        config.decay_beta,
        config.decay_window,
        config.decay_patience,
        config.decay_cooldown,
        server_delta=config.decay_server_delta,
        server_window=config.decay_server_window,
        server_patience=config.decay_server_patience,
        server_cooldown=config.decay_server_cooldown,
    )


def _own_factory(name: str) -> tuple[Callable[..., Any], Mapping[str, inspect.Parameter]]:
    """A user's own factory, and its options: the arguments after ``(loss_fn, local_steps)``."""
    factory = load_attribute(name)
    if not callable(factory):
        raise ValueError(f"{name}: expected a factory of a lur.Method, got {type(factory).__name__}")
    try:
        arguments = [*inspect.signature(factory).parameters.items()]
    except (TypeError, ValueError):
        raise ValueError(
            f"{name}: expected a Python function of (loss_fn, local_steps, ...), got {factory!r}"
        ) from None
    return factory, dict(arguments[2:])
