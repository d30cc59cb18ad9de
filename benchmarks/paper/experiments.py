"""The runs behind the figures: for each task one sweep over (gamma, eta), and LocalUpdateDecay.

They are made once, in run folders, and resumed where they were cut; all figures and tables are drawn from them.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.paper.scales import Scale, case
from lur import tasks
from lur.runs import sweep_results as tuning
from lur.runs.stopping import Stop
from lur.runs.sweep_results import Cell, Swept
from lur.runs.sweep_run import sweep_in
from lur.training.configuration import Run
from lur.training.sweeps import Sweep


class Interrupted(KeyboardInterrupt):
    """The sweep under way wrote its checkpoint."""


class Decayed(NamedTuple):
    """LocalUpdateDecay of a task: the first gamma of which some eta trains, its best cell, and those that diverged."""

    gamma: float | None
    cell: Cell | None
    swept: Swept | None
    refused: tuple[float, ...]


class Lab:
    """Where the runs of a scale are kept, and what else they need."""

    def __init__(
        self,
        runs: Path,
        scale: Scale,
        say: Callable[[str], None] = print,
        stop: Stop | None = None,
        only: Sequence[str] = (),
        stores: dict[str, Path] | None = None,
    ):
        self.runs, self.say = runs, say
        self.scale: Scale = scale
        self.only = tuple(only)
        self.stop = Stop() if stop is None else stop
        self.stores = stores or {}
        self.found: dict[Path, Swept] = {}

    def task(self, run: Run) -> Any:
        """The task of a run, its data loaded once."""
        from lur.data.store import open_store

        options: dict[str, Any] = {"clients": run.clients, "heterogeneity": run.heterogeneity, "seed": run.data_seed}
        if run.store is not None:
            options["store"] = open_store(run.store)
        return loaded(run.task, **options)

    def run_of(self, name: str) -> Run:
        """What the runs of a task share at this scale."""
        run = case(name, self.scale).run
        return replace(run, store=self.stores[name], clients=None) if name in self.stores else run

    def swept(self, path: Path, sweep: Sweep) -> Swept:
        """A sweep, run or resumed or read, once."""
        if path in self.found:
            return self.found[path]
        with closing(sweep_in(path, self.task(sweep.run), sweep, stop=self.stop, chunk=pace, say=self.say)) as parts:
            for _ in parts:
                pass
        if self.stop.signal is not None:
            raise Interrupted
        self.found[path] = tuning.read_sweep(path)
        return self.found[path]

    def grid(self, name: str) -> Swept:
        """The sweep of a task over gamma and eta."""
        own = case(name, self.scale)
        return self.swept(self.runs / f"{name}-grid", Sweep(self.run_of(name), own.gammas, own.etas))

    def decay(self, name: str) -> Decayed:
        """LocalUpdateDecay of a task, from its largest gamma that does not diverge, eta tuned."""
        own = case(name, self.scale)
        rule: dict[str, Any] = {"decay": "paper"}
        rule |= {f"decay_{name}": own.wait for name in ("window", "patience", "cooldown")}
        run, refused = replace(self.run_of(name), **rule), []
        for gamma in sorted(own.first_gammas, reverse=True):
            found = self.swept(self.runs / f"{name}-decay-{gamma:g}", Sweep(run, (gamma,), own.decay_etas))
            best = tuning.best_of(found.cells, run.rounds)
            if best is not None and tuning.settles(best, run.rounds):
                return Decayed(gamma, best, found, tuple(refused))
            refused.append(gamma)
        return Decayed(None, None, None, tuple(refused))

    def data(self, name: str) -> str:
        """What the data of a task are, in words."""
        store = self.task(self.run_of(name)).store
        kind = "generated data" if store.about.get("generated") else str(store.about.get("source", "data"))
        return f"{kind}, {store.clients:,} clients, {store.examples:,} examples"


@cache
def loaded(name: str, **options: Any) -> Any:
    """A task, with its data in memory once."""
    return tasks.load(name, **options)


def pace(seconds: float) -> int:
    """Rounds between two chances to stop."""
    return int(1.0 / max(seconds, 1e-4))
