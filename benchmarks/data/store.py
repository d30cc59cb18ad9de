"""A store of 342,477 clients: how long it takes to open, its memory, and how fast a round's examples are gathered.

The store is generated once (next-word examples with Zipf-distributed words and heavy-tailed client sizes) and measured
in a new process, so that no other memory is counted.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

import lur
from lur.cache_folder import cache_folder
from lur.data.store import Store, open_store
from lur.data.writer import StoreWriter

CLIENTS, EXAMPLES = 342_477, 20_000_000
LENGTH, WORDS = 21, 10_000
M, K, B = 50, 10, 16


class StoreCost(NamedTuple):
    """Measurements of a store. Memory is the resident memory of the process in MB.

    Attributes:
        clients: Clients in the store.
        examples: Examples in the store.
        open_seconds: Seconds to open it.
        gather_milliseconds: Milliseconds to gather the mini-batches of each round.
        before_mb: Memory before opening.
        opened_mb: Memory after opening.
        after_mb: Memory after the rounds.
    """

    clients: int
    examples: int
    open_seconds: float
    gather_milliseconds: tuple[float, ...]
    before_mb: float
    opened_mb: float
    after_mb: float


def generated_store(clients: int = CLIENTS, examples: int = EXAMPLES, folder: Path | None = None) -> Store:
    """The store, generated on the first call."""
    path = (folder or cache_folder() / "stores") / f"benchmark-{clients}-{examples}"
    if path.exists():
        return open_store(path)
    rng = np.random.default_rng(0)
    shares = rng.lognormal(0, 1, clients)
    sizes = 1 + rng.multinomial(examples - clients, shares / shares.sum())
    with StoreWriter(path, {"dataset": "stackoverflow", "generated": True, "prepared": "stackoverflow_nwp"}) as out:
        for i, n in enumerate(sizes):
            words = (WORDS ** rng.random((n, LENGTH), np.float32)).astype(np.uint16)
            out.add(f"{i:08d}", {"tokens": words})
    return open_store(path)


def resident_mb() -> float:
    """Resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def measure_in_this_process(path: Path, rounds: int) -> StoreCost:
    """Opens the store and gathers the mini-batches of some rounds."""
    from lur.engine.host_store import draw_rounds, read_rounds, sample_rounds
    from lur.engine.sampling_plan import plan_sampling

    method = lur.local_update(lambda w, batch: w.sum(), lur.theta.fedavg(K))
    warm = Store({"tokens": np.zeros((8, 2), np.uint16)}, np.arange(9), open_store(path).names, {})
    seed = np.uint32(0)
    read_rounds(plan_sampling(warm, method, 2, 2), warm, seed, np.arange(1))  # loads jax before memory is measured
    before = resident_mb()
    start = perf_counter()
    store = open_store(path)
    seconds = perf_counter() - start
    opened = resident_mb()
    round_plan = plan_sampling(store, method, M, B)
    chosen = sample_rounds(round_plan, seed, np.zeros(1, np.int32))  # compiled before the clock starts
    draw_rounds(round_plan, seed, np.zeros(1, np.int32), chosen, np.ones((1, M), np.int32))
    times = []
    for t in range(rounds):
        start = perf_counter()
        rows = read_rounds(round_plan, store, seed, np.array([t]))
        times.append(1e3 * (perf_counter() - start))
        assert rows.examples["tokens"].shape == (1, M, K, B, LENGTH)
    return StoreCost(store.clients, store.examples, seconds, tuple(times), before, opened, resident_mb())


def measure(
    clients: int = CLIENTS, examples: int = EXAMPLES, rounds: int = 20, folder: Path | None = None
) -> StoreCost:
    """Generates the store if it does not exist and measures it in a new process."""
    path = generated_store(clients, examples, folder).path
    command = [sys.executable, "-m", "benchmarks.data.store", str(path), str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"the measuring process failed: {done.stderr.strip().splitlines()[-1]}")
    return StoreCost(**json.loads(done.stdout))


def report(cost: StoreCost) -> str:
    """The measurements as lines of text."""
    times = sorted(cost.gather_milliseconds)
    return "\n".join(
        (
            f"store: {cost.clients:,} clients, {cost.examples:,} examples",
            f"  opened in           {cost.open_seconds:8.3f} s",
            f"  resident memory     {cost.opened_mb:8.0f} MB, of which {cost.opened_mb - cost.before_mb:.0f} MB by "
            f"opening; {cost.after_mb:.0f} MB after the rounds",
            f"  gather of a round   {times[len(times) // 2]:8.1f} ms (M = {M}, K = {K}, B = {B}),"
            f" {times[0]:.1f} to {times[-1]:.1f} ms",
        )
    )


if __name__ == "__main__":
    print(json.dumps(measure_in_this_process(Path(sys.argv[1]), int(sys.argv[2]))._asdict()))
