"""Seconds and peak memory of a round of lur, measured in a new process and printed as JSON.

    python -m benchmarks.speed.round_cost femnist 10 10 20 sequential 3

Every measurement needs a new process: peak memory never falls, and compiled programs stay in memory.
"""

import json
import os
import subprocess
import sys
import time
from typing import NamedTuple

from benchmarks.speed.workloads import WORKLOADS, Sizes

TURN_SECONDS, MAX_ROUNDS = 1.0, 8
"""Length of a turn, and the most rounds in it: every call allocates its memory anew, which distorts short calls."""


class RoundCost(NamedTuple):
    """Cost of a round at given sizes.

    Attributes:
        M: Clients per round.
        K: Local steps.
        B: Batch size.
        seconds: Seconds per round in the fastest turn.
        first: Seconds of the first round, compilation included.
        memory: Peak memory of the process in bytes.
    """

    M: int
    K: int
    B: int
    seconds: float
    first: float
    memory: int


def measure(task: str, sizes: Sizes, layout: str, turns: int) -> RoundCost:
    """The cost of a round, measured in this process."""
    import jax
    import numpy as np

    import lur
    from benchmarks.speed.case import SEED, store_of
    from benchmarks.speed.memory import peak_memory
    from lur.data.gather import resident
    from lur.engine.run import run
    from lur.jax_setup import compile_small_loops_whole
    from lur.parallel.layouts import parse_layout

    compile_small_loops_whole()
    workload = WORKLOADS[task]
    store = store_of(workload.examples(np.random.default_rng(SEED), sizes.examples), sizes)
    init, loss = workload.model("auto")
    method = lur.local_update(loss, lur.theta.fedavg(sizes.K))
    state = method.init(jax.jit(init)(jax.random.key(SEED)), workload.client_lr, workload.client_lr)
    data = resident(store)
    max_rounds = max(MAX_ROUNDS, workload.rounds)

    def seconds_per_round(rounds: int) -> float:
        start = time.perf_counter()
        end, _ = run(
            method,
            state,
            store,
            rounds=rounds,
            clients_per_round=sizes.M,
            batch_size=sizes.B,
            layout=parse_layout(layout),
            data=data,
            capacity=max_rounds,
        )
        jax.block_until_ready(end.params)
        return (time.perf_counter() - start) / rounds

    first = seconds_per_round(1)
    rounds = min(max_rounds, max(1, round(TURN_SECONDS / seconds_per_round(1))))
    best = min(seconds_per_round(rounds) for _ in range(turns))
    return RoundCost(*sizes, best, first, peak_memory(os.getpid()) or 0)


def measure_in_new_process(task: str, sizes: Sizes, layout: str = "sequential", turns: int = 3) -> RoundCost:
    """The cost of a round, measured in a new process."""
    arguments = [task, *map(str, sizes), layout, str(turns)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed.round_cost", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"measuring {' '.join(arguments)} failed: {done.stderr.strip()[-500:]}")
    return RoundCost(**json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    task, M, K, B, layout, turns = sys.argv[1:]
    print(json.dumps(measure(task, Sizes(int(M), int(K), int(B)), layout, int(turns))._asdict()))
