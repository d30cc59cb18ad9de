"""A store of 342,477 clients: how long it takes to open, what it occupies, how fast a round is gathered.

The store is made once (generated next-word examples: Zipf words, heavy-tailed clients) and measured in a process
of its own, so that memory is the store's alone.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

from lur.cache_folder import cache_folder
from lur.data.store import Store, open_store
from lur.data.writer import StoreWriter

CLIENTS, EXAMPLES = 342_477, 20_000_000
LENGTH, WORDS = 21, 10_000
M, K, B = 50, 10, 16


class Figures(NamedTuple):
    """What was measured. Memory is resident, in MB: of the process before, after opening, and after the rounds."""

    clients: int
    examples: int
    open_seconds: float
    gather_milliseconds: tuple[float, ...]
    before_mb: float
    opened_mb: float
    after_mb: float


def made(clients: int = CLIENTS, examples: int = EXAMPLES, folder: Path | None = None) -> Store:
    """The store, made on the first call."""
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
    """The resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def measured(path: Path, rounds: int) -> Figures:
    """Open the store and gather the batches of some rounds; runs in a process of its own."""
    from lur.engine.batches import plan
    from lur.engine.host_store import chosen_in, drawn_in, host_rows
    from lur.methods.server import local_update
    from lur.theta import fedavg

    algo = local_update(lambda w, batch: w.sum(), fedavg(K))
    warm = Store({"tokens": np.zeros((8, 2), np.uint16)}, np.arange(9), open_store(path).names, {})
    seed = np.uint32(0)
    host_rows(plan(warm, algo, 2, 2), warm, seed, np.arange(1))  # jax itself, before memory is looked at
    before = resident_mb()
    start = perf_counter()
    store = open_store(path)
    seconds = perf_counter() - start
    opened = resident_mb()
    made_plan = plan(store, algo, M, B)
    chosen = chosen_in(made_plan, seed, np.zeros(1, np.int32))  # compiled before the clock starts
    drawn_in(made_plan, seed, np.zeros(1, np.int32), chosen, np.ones((1, M), np.int32))
    times = []
    for t in range(rounds):
        start = perf_counter()
        rows = host_rows(made_plan, store, seed, np.array([t]))
        times.append(1e3 * (perf_counter() - start))
        assert rows.examples["tokens"].shape == (1, M, K, B, LENGTH)
    return Figures(store.clients, store.examples, seconds, tuple(times), before, opened, resident_mb())


def measure(clients: int = CLIENTS, examples: int = EXAMPLES, rounds: int = 20, folder: Path | None = None) -> Figures:
    """Make the store if need be, and measure it in a fresh process."""
    path = made(clients, examples, folder).path
    command = [sys.executable, "-m", "benchmarks.data.store", str(path), str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"the measuring process failed: {done.stderr.strip().splitlines()[-1]}")
    return Figures(**json.loads(done.stdout))


def report(found: Figures) -> str:
    """The figures in words."""
    times = sorted(found.gather_milliseconds)
    return "\n".join(
        (
            f"store: {found.clients:,} clients, {found.examples:,} examples",
            f"  opened in           {found.open_seconds:8.3f} s",
            f"  resident memory     {found.opened_mb:8.0f} MB, of which {found.opened_mb - found.before_mb:.0f} MB by "
            f"opening; {found.after_mb:.0f} MB after the rounds",
            f"  gather of a round   {times[len(times) // 2]:8.1f} ms (M = {M}, K = {K}, B = {B}),"
            f" {times[0]:.1f} to {times[-1]:.1f} ms",
        )
    )


if __name__ == "__main__":
    print(json.dumps(measured(Path(sys.argv[1]), int(sys.argv[2]))._asdict()))
