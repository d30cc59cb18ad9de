"""Seconds of a round of every method, on one task after the other; methods take turns, and the fastest turn counts.

A method runs as `lur.run` runs it, in the form that suits it, with the task's sizes. The first, `fedavg`, is
`lur.local_update` with the sum of gradients, which has the fastest forms.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax

import lur
from benchmarks.method_cases import CASES
from benchmarks.speed.stopwatch import best_seconds
from benchmarks.speed.table import machine
from lur import tasks
from lur.data.gather import resident
from lur.methods.method import Method
from lur.tasks.task import Task

SEED = 0


def method_of(name: str, task: Task, K: int) -> Method:
    """Return a method on a task."""
    return lur.local_update(task.loss, lur.theta.fedavg(K)) if name == "fedavg" else CASES[name].make(task.loss, K)


def contender(name: str, task: Task, rounds: int, data: Any) -> Callable[[], Any] | None:
    """Return a call that runs rounds of a method from its first state; None if it needs all clients in every round."""
    settings = task.settings.for_store(task.store)
    method = method_of(name, task, settings.local_steps)
    if method.full_participation and settings.clients_per_round != task.store.clients:
        return None
    eta = settings.client_lr if CASES[name].sends_gradients or name == "fedavg" else 1.0
    params = jax.jit(task.init)(jax.random.key(SEED))
    state = method.init(params, settings.client_lr, eta, clients=task.store.clients)
    options = {"clients_per_round": settings.clients_per_round, "batch_size": settings.batch_size, "view": task.view}

    def run() -> Any:
        after, _ = lur.run(method, state, task.store, rounds=rounds, seed=SEED, data=data, **options)
        return jax.block_until_ready(after.params)

    return run


def measure(names: Sequence[str], rounds: int, turns: int, say: Callable[[str], Any] = print) -> dict[str, Any]:
    """Return the record of all tasks: sizes, and seconds per round of every method.

    Args:
      names: of the tasks.
      rounds: in a turn.
      turns: of each method.
      say: is called with lines for the user.
    """
    found: dict[str, Any] = {}
    for name in names:
        task = tasks.load(name)
        data = resident(task.store)
        runs = {method: contender(method, task, rounds, data) for method in CASES}
        timed = {method: run for method, run in runs.items() if run is not None}
        for run in timed.values():
            run()  # compiles
        seconds = {method: best / rounds for method, best in best_seconds(timed, turns).items()}
        settings = task.settings.for_store(task.store)
        sizes = {"M": settings.clients_per_round, "K": settings.local_steps, "B": settings.batch_size}
        found[name] = {"N": task.store.clients, **sizes, "seconds": seconds}
        say(f"{name}: " + ", ".join(f"{key} = {value}" for key, value in sizes.items()))
        for method, value in seconds.items():
            say(f"  {method:16} {value:10.3g} s/round  {value / seconds['fedavg']:6.2f}x")
    return {"machine": machine(), "rounds": rounds, "turns": turns, "tasks": found}
