"""One training run: a task, an algorithm, so many rounds; reported as it goes."""

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from lur.data.gather import resident, size_in_bytes
from lur.data.sampling import steps_of_epochs
from lur.engine.fast.linear import linear_update
from lur.engine.fast.single_gradient import large_batch_update
from lur.engine.run import DEVICE_BYTES, run
from lur.methods import decay, optimizers
from lur.methods.client import Optimizer
from lur.methods.server import Info, LocalUpdate, State, local_update
from lur.parallel import processes
from lur.parallel.layouts import choose, replicated, where
from lur.tasks.task import Task
from lur.theta import fedavg, parse
from lur.training.configuration import Run as Run
from lur.training.configuration import settled
from lur.training.evaluation import Evaluation, evaluate

SERVERS: dict[str, Optimizer] = {"sgd": optax.sgd, "yogi": optimizers.yogi, "adam": optax.adam}
CAPACITY = 256
"""The most rounds of one call: the same for all runs, so that where a run is cut changes no bit of it."""


class Progress(NamedTuple):
    """Where a run stands after some rounds.

    `infos` (numpy) are those of the rounds since the last progress, `evaluation` is f(x) if it was evaluated,
    `seconds` are those so far, `diverged` says why the run ends here.
    """

    rounds: int
    state: State
    infos: Info
    evaluation: Evaluation | None
    seconds: float
    diverged: str | None = None


def parameters(params: Any) -> int:
    """The number of parameters of a model."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def algorithm(task: Task, config: Run) -> LocalUpdate:
    """The local update method of a run."""
    config = settled(config, task.settings)
    if config.epochs is not None:
        assert config.batch_size is not None  # settled
        theta = fedavg(steps_of_epochs(config.epochs, int(task.store.sizes.max()), config.batch_size))
    else:
        theta = parse(config.theta or "")
    server = SERVERS[config.server or ""]
    rule = plateau(config)
    if task.linear is not None:
        return linear_update(task.linear, theta, server, decay=rule)
    if rule is None and (config.client_lr == 0 or len(theta) == 1):
        return large_batch_update(task.loss, theta, server)
    return local_update(task.loss, theta, server, decay=rule)


def plateau(config: Run) -> decay.Plateau | None:
    """The decay rule of a run."""
    if config.decay == "off":
        return None
    return decay.plateau(
        config.decay,
        config.decay_delta,
        config.decay_alpha,
        config.decay_beta,
        config.decay_window,
        config.decay_patience,
        config.decay_cooldown,
    )


def initial_state(task: Task, config: Run) -> State:
    """The state before the first round."""
    config = settled(config, task.settings)
    return algorithm(task, config).init(task.init(jax.random.key(config.seed)), config.client_lr, config.server_lr)


def train(
    task: Task, config: Run, *, start: State | None = None, chunk: int | Callable[[float], int] = 10
) -> Iterator[Progress]:
    """Train, yielding after every `chunk` rounds and wherever an evaluation or a checkpoint is due.

    The last progress carries an evaluation, unless the run has diverged: then it ends with the first round whose
    loss or update is not finite, or whose loss is above the limit. `start` continues a run: where it was cut changes
    nothing. `chunk` may be a function of the seconds that a round took, so that a bar moves about once a second.
    """
    config = settled(config, task.settings)
    algo = algorithm(task, config)
    state = initial_state(task, config) if start is None else start
    M, B = config.clients_per_round, config.batch_size
    assert M is not None  # settled
    assert B is not None
    layout = choose(state.params, M, config.layout, linear=task.linear is not None).layout
    state = processes.placed(state, where(state, layout))
    small = size_in_bytes(task.store) <= DEVICE_BYTES and jax.process_count() == 1
    data = resident(task.store, replicated(layout)) if small else "host"

    def advanced(state: State, rounds: int) -> tuple[State, Info]:
        state, infos = run(
            algo,
            state,
            task.store,
            rounds=rounds,
            clients_per_round=M,
            batch_size=B,
            seed=config.seed,
            view=task.view,
            layout=layout,
            epochs=config.epochs,
            weighting=config.weighting,
            data=data,
            capacity=CAPACITY,
        )
        return state, jax.tree.map(np.asarray, infos)

    marks = [every for every in (config.evaluate_every, config.checkpoint_every) if every]
    began, done, size = monotonic(), int(state.round), 1 if callable(chunk) else min(chunk, CAPACITY)
    while done < config.rounds:
        size = processes.told(size)
        stop = min(config.rounds, done + size, *(done - done % every + every for every in marks))
        before, began_chunk = state, monotonic()
        state, infos = advanced(before, stop - done)
        found = divergence(infos, config.loss_limit)
        if found is not None:
            last, why = found
            if last + 1 < stop - done:
                state, infos = advanced(before, last + 1)
            yield Progress(done + last + 1, state, infos, None, monotonic() - began, why)
            return
        if callable(chunk):
            size = min(CAPACITY, max(1, chunk((monotonic() - began_chunk) / (stop - done))))
        done = stop
        evaluation = evaluate(task, state.params) if done == config.rounds or is_due(config, done) else None
        why = None if evaluation is None else trouble("f(x)", evaluation.loss, config.loss_limit)
        yield Progress(done, state, infos, evaluation, monotonic() - began, why)
        if why is not None:
            return


def is_due(config: Run, done: int) -> bool:
    """Whether f(x) is evaluated after so many rounds, be they the last or not."""
    return config.evaluate_every is not None and done % config.evaluate_every == 0


def divergence(infos: Info, limit: float) -> tuple[int, str] | None:
    """The first of the rounds that diverged, and why."""
    bad = ~(np.isfinite(infos.loss) & np.isfinite(infos.update_norm) & (infos.loss <= limit))
    if not bad.any():
        return None
    k = int(bad.argmax())
    return k, trouble("loss", infos.loss[k], limit) or f"update_norm is {infos.update_norm[k]}"


def trouble(name: str, loss: Any, limit: float) -> str | None:
    """What is wrong with a loss, if anything."""
    if not np.isfinite(loss):
        return f"{name} is {loss}"
    return f"{name} is {loss:.6g}, above the limit {limit:g}" if loss > limit else None
