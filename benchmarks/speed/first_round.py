"""How long the first round of each task takes to compile: with an empty cache, and with the programs kept.

    lur bench compile

About 5 minutes. Each measurement is a new process; what is counted is the first call of `lur.run` less a second one.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

TASKS = ("quadratic", "digits", "stackoverflow_tp", "femnist", "shakespeare", "stackoverflow_nwp", "cifar100")
CLIENTS = 2


class FirstRound(NamedTuple):
    """Seconds from the call of `lur.run` to the end of its first round, less the round itself."""

    task: str
    cold: float
    cached: float


def compile_once(task: str) -> float:
    """In this process: the first round's seconds less a second round's."""
    import jax

    from lur import tasks
    from lur.data.gather import resident
    from lur.engine.run import run
    from lur.jax_setup import prepare
    from lur.parallel.layouts import choose, replicated
    from lur.training.loop import Run, algorithm

    prepare()
    loaded = tasks.load(task, **({} if task in ("quadratic", "digits") else {"clients": 2 * CLIENTS}))
    algo = algorithm(loaded, Run(task))
    settings = loaded.settings
    params = jax.jit(loaded.init)(jax.random.key(0))
    state = algo.init(params, settings.client_lr, settings.server_lr)
    layout = choose(params, CLIENTS, linear=loaded.linear is not None).layout
    data = resident(loaded.store, replicated(layout))
    took = []
    for _ in range(2):
        start = time.perf_counter()
        end, _ = run(
            algo,
            state,
            loaded.store,
            rounds=1,
            clients_per_round=CLIENTS,
            batch_size=settings.batch_size,
            view=loaded.view,
            layout=layout,
            data=data,
        )
        jax.block_until_ready(end.params)
        took.append(time.perf_counter() - start)
    return took[0] - took[1]


def apart(task: str, compiled: Path) -> float:
    """`compile_once` in a new process that keeps its programs in a folder."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed.first_round", task],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAX_COMPILATION_CACHE_DIR": str(compiled)},
    )
    if done.returncode:
        raise RuntimeError(f"the first round of {task} failed: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(names: Sequence[str] = TASKS, report: Callable[[str], None] = lambda line: None) -> list[FirstRound]:
    """Each task twice with the same folder, empty at first."""
    found = []
    for task in names:
        with tempfile.TemporaryDirectory() as folder:
            found.append(FirstRound(task, apart(task, Path(folder)), apart(task, Path(folder))))
        report(f"{task:18} {found[-1].cold:6.1f} s cold, {found[-1].cached:5.1f} s with its programs kept")
    return found


if __name__ == "__main__":
    print(json.dumps(compile_once(sys.argv[1])))
