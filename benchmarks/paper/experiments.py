"""The runs behind the figures: for each task a sweep over (gamma, eta), and LocalUpdateDecay.

They run once, in run folders, and resume after an interruption; all figures and tables read them.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.paper.scales import Scale, case
from lur import tasks
from lur.runs import sweep_results
from lur.runs.sweep_results import CellResult, SweepResults
from lur.runs.sweep_run import sweep_in_folder
from lur.training.configuration import RunConfig
from lur.training.loop import StopRequest
from lur.training.sweep_plan import SweepConfig, plan_sweep


class Interrupted(KeyboardInterrupt):
    """The user interrupted a sweep, which wrote its checkpoint."""


class DecayResult(NamedTuple):
    """LocalUpdateDecay of a task.

    Attributes:
        gamma: The largest first gamma with which some eta trains; None if there is none.
        cell: The best cell with this gamma.
        swept: The sweep over eta with this gamma.
        refused: Larger gammas that no eta trains.
    """

    gamma: float | None
    cell: CellResult | None
    swept: SweepResults | None
    refused: tuple[float, ...]


class PaperRuns:
    """The runs of one scale.

    Attributes:
        folder: Folder of the run folders.
        scale: Name of the scale.
        say: Receives lines of progress.
        stop: Set by a signal that asks to stop.
        tasks: Tasks that figures are restricted to; all tasks of the scale if empty.
        stores: Imported stores by task.
    """

    def __init__(
        self,
        folder: Path,
        scale: Scale,
        say: Callable[[str], None] = print,
        stop: StopRequest | None = None,
        tasks: Sequence[str] = (),
        stores: dict[str, Path] | None = None,
    ):
        self.folder, self.say = folder, say
        self.scale: Scale = scale
        self.tasks = tuple(tasks)
        self.stop = StopRequest() if stop is None else stop
        self.stores = stores or {}
        self._sweeps: dict[Path, SweepResults] = {}

    def task(self, run: RunConfig) -> Any:
        """The task of a run; its data are loaded once."""
        from lur.data.store import open_store

        options: dict[str, Any] = {"clients": run.clients, "heterogeneity": run.heterogeneity, "seed": run.data_seed}
        if run.store is not None:
            options["store"] = open_store(run.store)
        return load_once(run.task, **options)

    def config(self, name: str) -> RunConfig:
        """The configuration that the runs of a task share at this scale."""
        config = case(name, self.scale).run
        return replace(config, store=self.stores[name], clients=None) if name in self.stores else config

    def sweep(self, path: Path, sweep: SweepConfig) -> SweepResults:
        """A sweep: run, resumed or read from its folder, once."""
        if path in self._sweeps:
            return self._sweeps[path]
        with closing(
            sweep_in_folder(
                path,
                plan_sweep(sweep, self.task(sweep.run)),
                stop=self.stop,
                chunk=rounds_between_stops,
                notify=self.say,
            )
        ) as parts:
            for _ in parts:
                pass
        if self.stop.signal is not None:
            raise Interrupted
        self._sweeps[path] = sweep_results.read_sweep(path)
        return self._sweeps[path]

    def grid(self, name: str) -> SweepResults:
        """The sweep of a task over gamma and eta."""
        sizes = case(name, self.scale)
        return self.sweep(self.folder / f"{name}-grid", SweepConfig(self.config(name), sizes.gammas, sizes.etas))

    def decay(self, name: str) -> DecayResult:
        """LocalUpdateDecay of a task from its largest gamma that does not diverge, with the best eta."""
        sizes = case(name, self.scale)
        rule: dict[str, Any] = {"decay": "paper"}
        rule |= {f"decay_{name}": sizes.wait for name in ("window", "patience", "cooldown")}
        run, refused = replace(self.config(name), **rule), []
        for gamma in sorted(sizes.first_gammas, reverse=True):
            swept = self.sweep(self.folder / f"{name}-decay-{gamma:g}", SweepConfig(run, (gamma,), sizes.decay_etas))
            best = sweep_results.best_cell(swept.cells, run.rounds)
            if best is not None and sweep_results.has_trained(best, run.rounds):
                return DecayResult(gamma, best, swept, tuple(refused))
            refused.append(gamma)
        return DecayResult(None, None, None, tuple(refused))

    def describe_data(self, name: str) -> str:
        """A description of the data of a task."""
        store = self.task(self.config(name)).store
        kind = "generated data" if store.about.get("generated") else str(store.about.get("source", "data"))
        return f"{kind}, {store.clients:,} clients, {store.examples:,} examples"


@cache
def load_once(name: str, **options: Any) -> Any:
    """The task of this name with these options; loads its data once."""
    return tasks.load(name, **options)


def rounds_between_stops(seconds: float) -> int:
    """Rounds after which a sweep checks whether to stop, given the seconds of a round: about a second."""
    return int(1.0 / max(seconds, 1e-4))
