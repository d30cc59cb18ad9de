"""An experiment: a task and a configuration with everything decided - the method, the layout, where the data live.

`resolve` is called once per command. Training, run folders, sweeps and evaluation take the `Experiment` and decide
nothing again. How methods, layouts and the engine are called is known here and nowhere else in training.
"""

from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import optax

from lur.data.gather import Resident, resident, size_in_bytes
from lur.data.sampling import steps_of_epochs
from lur.engine.fast.linear import linear_update
from lur.engine.fast.single_gradient import large_batch_update
from lur.engine.run import DEVICE_BYTES, run
from lur.methods import decay, optimizers
from lur.methods.client import Optimizer
from lur.methods.server import Info, LocalUpdate, State, local_update
from lur.parallel.layouts import Layout, choose, replicated, where
from lur.parallel.processes import placed
from lur.tasks import load
from lur.tasks.task import Task
from lur.theta import fedavg, parse
from lur.training.configuration import ResolvedRun, RunConfig, resolve_config

SERVER_OPTIMIZERS: dict[str, Optimizer] = {"sgd": optax.sgd, "yogi": optimizers.yogi, "adam": optax.adam}
MAX_ROUNDS_PER_CALL = 256
"""Most rounds of one call of the engine: the same for all runs, so that interrupting a run changes no bit of it."""

Data = Resident | Literal["host"]
"""A store in device memory, or "host" for one that stays on the host."""


class Experiment(NamedTuple):
    """Everything that is decided before the first round.

    Attributes:
      task: store, model and loss.
      config: the resolved configuration.
      method: the local update method.
      layout: how the clients of a round run on the devices.
      layout_reason: why this layout was chosen, for people.
      data_on_host: whether the store stays on the host because it is large or because several processes share it.
    """

    task: Task
    config: ResolvedRun
    method: LocalUpdate
    layout: Layout
    layout_reason: str
    data_on_host: bool


def resolve(config: RunConfig, task: Task) -> Experiment:
    """Decide configuration, method, layout and data placement of a run.

    Args:
      config: what was asked for.
      task: the loaded task, see `load_task`.
    """
    resolved = resolve_config(config, task.settings)
    shapes = jax.eval_shape(task.init, jax.random.key(0))
    layout, reason = choose(shapes, resolved.clients_per_round, resolved.layout, linear=task.linear is not None)
    on_host = size_in_bytes(task.store) > DEVICE_BYTES or jax.process_count() > 1
    return Experiment(task, resolved, build_method(task, resolved), layout, reason, on_host)


def load_task(config: RunConfig) -> Task:
    """The task of a configuration, with its data: the store named there, or the built-in data."""
    from lur.data.readers import counts
    from lur.data.store import open_store

    options: dict[str, Any] = {
        "clients": config.clients,
        "heterogeneity": config.heterogeneity,
        "seed": config.data_seed,
    }
    if config.store is not None:
        if config.task == "quadratic":
            raise ValueError(f"--store is not for quadratic, whose problem is generated, got {config.store}")
        options["store"] = open_store(config.store)
    for flag, path, names, option, read, size in (
        ("--word-count", config.word_count, ("stackoverflow_nwp", "stackoverflow_tp"), "vocabulary",
         counts.word_count, 10_000),
        ("--tag-count", config.tag_count, ("stackoverflow_tp",), "tags", counts.tag_count, 500),
    ):  # fmt: skip
        if path is not None:
            if config.task not in names:
                raise ValueError(f"{flag} is for {' and '.join(names)}, got the task {config.task}")
            options[option] = [word.encode() for word in read(path, size)]
    return load(config.task, **options)


def build_method(task: Task, config: ResolvedRun) -> LocalUpdate:
    """The local update method of a run, in the quickest form that computes it."""
    if config.epochs is not None:
        theta = fedavg(steps_of_epochs(config.epochs, int(task.store.sizes.max()), config.batch_size))
    else:
        theta = parse(config.theta or "")
    server = SERVER_OPTIMIZERS[config.server]
    rule = None
    if config.decay != "off":
        rule = decay.plateau(
            config.decay,
            config.decay_delta,
            config.decay_alpha,
            config.decay_beta,
            config.decay_window,
            config.decay_patience,
            config.decay_cooldown,
        )
    if task.linear is not None:
        return linear_update(task.linear, theta, server, decay=rule)
    if rule is None and (config.client_lr == 0 or len(theta) == 1):
        return large_batch_update(task.loss, theta, server)
    return local_update(task.loss, theta, server, decay=rule)


def initial_state(experiment: Experiment) -> State:
    """The state before the first round."""
    config = experiment.config
    params = experiment.task.init(jax.random.key(config.seed))
    return experiment.method.init(params, config.client_lr, config.server_lr)


def place_state(experiment: Experiment, state: State) -> State:
    """The state on the devices of the layout."""
    return placed(state, where(state, experiment.layout))


def place_data(experiment: Experiment) -> Data:
    """The store on the devices of the layout, unless it stays on the host."""
    if experiment.data_on_host:
        return "host"
    return resident(experiment.task.store, replicated(experiment.layout))


def run_rounds(experiment: Experiment, data: Data, state: State, rounds: int) -> tuple[State, Info]:
    """Run rounds with the engine.

    Args:
      experiment: the experiment.
      data: from `place_data`.
      state: the state before the rounds.
      rounds: how many, at most `MAX_ROUNDS_PER_CALL`.

    Returns:
      The state after the rounds, and their infos as numpy arrays with a leading axis of rounds.
    """
    config = experiment.config
    state, infos = run(
        experiment.method,
        state,
        experiment.task.store,
        rounds=rounds,
        seed=config.seed,
        clients_per_round=config.clients_per_round,
        batch_size=config.batch_size,
        epochs=config.epochs,
        weighting=config.weighting,
        view=experiment.task.view,
        layout=experiment.layout,
        data=data,
        capacity=MAX_ROUNDS_PER_CALL,
    )
    return state, jax.tree.map(np.asarray, infos)


def num_parameters(params: Any) -> int:
    """The number of parameters of a model."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
