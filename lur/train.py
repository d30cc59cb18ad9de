"""One training run: a task, an algorithm, so many rounds; reported as it goes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import optax

from lur import optimizers
from lur.client import Optimizer
from lur.data.gather import resident, size_in_bytes
from lur.data.sampling import steps_of_epochs
from lur.deferred import linear_update
from lur.engine import DEVICE_BYTES, run
from lur.evaluate import Evaluation, evaluate
from lur.layouts import choose, replicated
from lur.server import Info, LocalUpdate, State, local_update
from lur.tasks.task import Task
from lur.theta import fedavg

SERVERS: dict[str, Optimizer] = {"sgd": optax.sgd, "yogi": optimizers.yogi, "adam": optax.adam}


@dataclass(frozen=True)
class Run:
    """How to train. None takes the task's own setting."""

    rounds: int = 100
    client_lr: float | None = None
    server_lr: float | None = None
    server: Literal["sgd", "yogi", "adam"] | None = None
    theta: Sequence[float] | None = None
    clients_per_round: int | None = None
    batch_size: int | None = None
    epochs: int | None = None
    weighting: Literal["uniform", "examples"] = "uniform"
    layout: str = "auto"
    seed: int = 0
    evaluate_every: int | None = None


class Progress(NamedTuple):
    """Where a run stands after some rounds: state, the rounds' infos (numpy), f(x) if evaluated, seconds so far."""

    rounds: int
    state: State
    infos: Info
    evaluation: Evaluation | None
    seconds: float


def parameters(params: Any) -> int:
    """The number of parameters of a model."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def algorithm(task: Task, config: Run) -> LocalUpdate:
    """The local update method of a run."""
    theta = config.theta
    batch_size = config.batch_size or task.settings.batch_size
    if config.epochs is not None:
        if theta is not None:
            raise ValueError(f"theta must be left out with epochs, which decide K per client, got {theta}")
        theta = fedavg(steps_of_epochs(config.epochs, int(task.store.sizes.max()), batch_size))
    server = SERVERS[config.server or task.settings.server]
    theta = fedavg(task.settings.steps) if theta is None else theta
    return local_update(task.loss, theta, server) if task.linear is None else linear_update(task.linear, theta, server)


def train(task: Task, config: Run, *, chunk: int | Callable[[float], int] = 10) -> Iterator[Progress]:
    """Train, yielding after every `chunk` rounds; the last progress carries an evaluation.

    `chunk` may be a function of the seconds that a round took, so that a bar moves about once a second.
    """
    if isinstance(config.rounds, bool) or int(config.rounds) != config.rounds or config.rounds < 1:
        raise ValueError(f"rounds must be an integer >= 1, got {config.rounds!r}")
    every = config.evaluate_every
    if every is not None and every < 1:
        raise ValueError(f"evaluate_every must be >= 1, got {every}")
    settings = task.settings
    algo = algorithm(task, config)
    params = task.init(jax.random.key(config.seed))
    state = algo.init(
        params,
        settings.client_lr if config.client_lr is None else config.client_lr,
        settings.server_lr if config.server_lr is None else config.server_lr,
    )
    M = config.clients_per_round or settings.clients_per_round
    layout = choose(params, M, config.layout, linear=task.linear is not None).layout
    data = resident(task.store, replicated(layout)) if size_in_bytes(task.store) <= DEVICE_BYTES else "host"
    capacity = min(config.rounds, 256)
    began, done, size = monotonic(), 0, 1 if callable(chunk) else min(chunk, capacity)
    while done < config.rounds:
        stop = min(config.rounds, done + size, *([done - done % every + every] if every else []))
        start = monotonic()
        state, infos = run(
            algo,
            state,
            task.store,
            rounds=stop - done,
            clients_per_round=M,
            batch_size=config.batch_size or settings.batch_size,
            seed=config.seed,
            view=task.view,
            layout=layout,
            epochs=config.epochs,
            weighting=config.weighting,
            data=data,
            capacity=capacity,
        )
        infos = jax.tree.map(np.asarray, infos)
        if callable(chunk):
            size = min(capacity, max(1, chunk((monotonic() - start) / (stop - done))))
        done = stop
        due = done == config.rounds or (every is not None and done % every == 0)
        yield Progress(done, state, infos, evaluate(task, state.params) if due else None, monotonic() - began)
