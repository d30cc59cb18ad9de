"""One measurement of lur in a process of its own: seconds a round, the first round's, and peak memory, as JSON.

    python -m benchmarks.speed.point femnist 10 10 20 sequential 3

A process of its own since peak memory never falls, and since compiled programs stay.
"""

import json
import os
import subprocess
import sys
import time
from typing import NamedTuple

from benchmarks.speed.work import WORKS, Sizes

TURN, MOST = 1.0, 8
"""Seconds of a turn, and the most rounds in it: each call takes its memory anew, which would weigh on short ones."""


class Point(NamedTuple):
    """What was measured at M, K, B: the fastest round, the first with its compilation, peak memory in bytes."""

    M: int
    K: int
    B: int
    seconds: float
    first: float
    memory: int


def measure(task: str, sizes: Sizes, layout: str, turns: int) -> Point:
    """Measure in this process."""
    import jax
    import numpy as np

    from benchmarks.speed.case import SEED, store_of
    from benchmarks.speed.memory import peak_memory
    from lur.data.gather import resident
    from lur.engine.run import run
    from lur.jax_setup import compile_small_loops_whole
    from lur.methods.server import local_update
    from lur.parallel.layouts import parse
    from lur.theta import fedavg

    compile_small_loops_whole()
    work = WORKS[task]
    store = store_of(work.examples(np.random.default_rng(SEED), sizes.examples), sizes)
    init, loss = work.model("auto")
    algo = local_update(loss, fedavg(sizes.K))
    state = algo.init(jax.jit(init)(jax.random.key(SEED)), work.client_lr, work.client_lr)
    data = resident(store)
    most = max(MOST, work.rounds)

    def seconds(rounds: int) -> float:
        start = time.perf_counter()
        end, _ = run(
            algo,
            state,
            store,
            rounds=rounds,
            clients_per_round=sizes.M,
            batch_size=sizes.B,
            layout=parse(layout),
            data=data,
            capacity=most,
        )
        jax.block_until_ready(end.params)
        return (time.perf_counter() - start) / rounds

    first = seconds(1)
    rounds = min(most, max(1, round(TURN / seconds(1))))
    return Point(*sizes, min(seconds(rounds) for _ in range(turns)), first, peak_memory(os.getpid()) or 0)


def apart(task: str, sizes: Sizes, layout: str = "sequential", turns: int = 3) -> Point:
    """Measure in a new process."""
    arguments = [task, *map(str, sizes), layout, str(turns)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed.point", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"measuring {' '.join(arguments)} failed: {done.stderr.strip()[-500:]}")
    return Point(**json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    name, M, K, B, how, count = sys.argv[1:]
    print(json.dumps(measure(name, Sizes(int(M), int(K), int(B)), how, int(count))._asdict()))
