"""How long the first round of each task takes to compile: with an empty compilation cache, and with a filled one.

    lur bench compile

About 5 minutes. Every measurement runs in a new process and is the time of the first call of `lur.run` minus that of a
second call.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

TASKS = ("quadratic", "digits", "stackoverflow_tp", "femnist", "shakespeare", "stackoverflow_nwp", "cifar100")
CLIENTS = 2


class CompileTime(NamedTuple):
    """Seconds from the call of `lur.run` to the end of its first round, minus the round itself.

    Attributes:
        task: Name of the task.
        cold: With an empty compilation cache.
        cached: With the programs of the first process in the cache.
    """

    task: str
    cold: float
    cached: float


def compile_seconds(task: str) -> float:
    """Seconds of the first round minus those of the second, in this process."""
    import jax

    from lur import tasks
    from lur.data.gather import resident
    from lur.engine.run import run
    from lur.jax_setup import prepare
    from lur.parallel.layouts import choose_layout
    from lur.parallel.mesh import replicated
    from lur.training.configuration import RunConfig
    from lur.training.experiment import resolve

    prepare()
    options: dict[str, Any] = {} if task in ("quadratic", "digits") else {"clients": 2 * CLIENTS}
    loaded = tasks.load(task, **options)
    algo = resolve(RunConfig(task), loaded).method
    settings = loaded.settings
    params = jax.jit(loaded.init)(jax.random.key(0))
    state = algo.init(params, settings.client_lr, settings.server_lr)
    layout = choose_layout(params, CLIENTS, linear=loaded.linear is not None).layout
    data = resident(loaded.store, replicated(layout))
    seconds = []
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
        seconds.append(time.perf_counter() - start)
    return seconds[0] - seconds[1]


def compile_seconds_in_new_process(task: str, cache: Path | str) -> float:
    """`compile_seconds` in a new process whose compilation cache is the folder `cache`."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed.compile_time", task],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache)},
    )
    if done.returncode:
        raise RuntimeError(f"the first round of {task} failed: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(names: Sequence[str] = TASKS, report: Callable[[str], None] = lambda line: None) -> list[CompileTime]:
    """Runs each task in two processes that share a compilation cache, empty at first."""
    times = []
    for task in names:
        with tempfile.TemporaryDirectory() as cache:
            cold, cached = (compile_seconds_in_new_process(task, cache) for _ in range(2))
        times.append(CompileTime(task, cold, cached))
        report(f"{task:18} {cold:6.1f} s with an empty cache, {cached:5.1f} s with its programs cached")
    return times


if __name__ == "__main__":
    print(json.dumps(compile_seconds(sys.argv[1])))
