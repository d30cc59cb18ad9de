"""`lur train TASK`: one training run, with a progress bar and a summary; `lur config TASK`: its configuration."""

import sys
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Any

from lur.cli.bars import bar
from lur.cli.flags import Flags, Given, TaskName, changed, run_of
from lur.cli.output import Json, check_json, speaker, write_json
from lur.training.configuration import Run

NOTHING = Flags()


def train(
    task: TaskName = "",
    config: Path | None = None,
    run_dir: Path | None = None,
    resume: bool = True,
    tensorboard: bool = False,
    quiet: bool = False,
    json: Json = None,
    flags: Given = NOTHING,
) -> int:
    """Train on one of the seven tasks: lur train digits --run-dir runs/digits

    Without a store the task's built-in data are used: generated stand-ins, named as such. Started again with the
    same run folder, a run goes on where it was; the folder alone, `lur train --run-dir DIR`, is enough.

    Args:
        task: femnist, cifar100, shakespeare, stackoverflow_nwp, stackoverflow_tp, quadratic or digits.
        config: A TOML file, as `lur config` prints it; flags go before it.
        run_dir: Keep the configuration, the environment, the log, checkpoints and figures in this folder.
        resume: Go on with the run in the folder; --no-resume takes a new folder only.
        tensorboard: Also write for TensorBoard, into the run folder; needs tensorboardX.
        quiet: Print nothing.
    """
    from lur.jax_setup import prepare
    from lur.parallel import processes
    from lur.runs.stopping import stoppable
    from lur.training.loop import parameters

    prepare()
    check_json(json)
    watch = processes.join()
    if not processes.is_first():
        quiet, json = True, None
    say = speaker(quiet, json)
    run, loaded = asked(task, config, run_dir, flags)
    if run_dir is not None and not resume and processes.is_first() and (run_dir / "run.json").exists():
        raise ValueError(f"--run-dir must name a new folder with --no-resume, got {run_dir}, which holds a run")
    describe(loaded, run, say)
    at = None
    with stoppable(quiet) as stop, bar(quiet, "loss", "rate") as progress:
        line = progress.add_task("rounds", total=run.rounds, loss="", rate="")
        pace = Pace()
        with closing(progresses(loaded, run, run_dir, stop, tensorboard, say)) as found:
            for at in found:
                watch.tick()
                count = len(at.infos.loss)
                loss = f"loss {at.infos.loss.mean():.4f}" if count else ""
                if (
                    pace.first is None and at.rounds > count
                ):  # what an earlier part did says nothing about the time left
                    progress.reset(line, completed=at.rounds - count)
                rate = f"{pace.rate(at.rounds, count, at.seconds):.1f} rounds/s"
                progress.update(line, completed=at.rounds, loss=loss, rate=rate)
                if at.evaluation is not None and at.rounds < run.rounds:
                    say(f"  round {at.rounds}: {summary(loaded.metric, at.evaluation)}")
    if run_dir is not None and stop.signal is None and processes.is_first():
        from lur.runs import figures

        figures.keep(run_dir)
    if at is None:
        return ended(run_dir, json) if processes.is_first() else 0
    stopped = "stopped" if stop.signal is not None else "finished"
    write_json(json, outcome(run, run_dir, at, "diverged" if at.diverged else stopped))
    if at.diverged:
        kept = "" if run_dir is None else f"; {run_dir} keeps its log"
        print(f"lur: diverged in round {at.rounds:,}: {at.diverged}{kept}", file=sys.stderr)
        return 1
    if stop.signal is not None:
        again = "nothing of it is kept, as no --run-dir was given" if run_dir is None else f"{run_dir} keeps it"
        say(f"  stopped after round {at.rounds:,} of {run.rounds:,}: {again}")
        return stop.status
    say(f"  {parameters(at.state.params):,} parameters, {run.rounds} rounds in {at.seconds:.1f} s")
    say(f"  after training: {summary(loaded.metric, at.evaluation)}")
    return 0


def config(
    task: TaskName = "",
    config: Path | None = None,
    run_dir: Path | None = None,
    json: Json = None,
    flags: Given = NOTHING,
) -> int:
    """Print a run's configuration as TOML, with the task's own settings: lur config digits

    Args:
        task: femnist, cifar100, shakespeare, stackoverflow_nwp, stackoverflow_tp, quadratic or digits.
        config: A TOML file to start from.
        run_dir: A run folder to start from.
    """
    from lur.training import configuration as configs

    run, loaded = asked(task, config, run_dir, flags)
    settled = configs.settled(run, loaded.settings)
    write_json(json, settled)
    if json is None:
        print(configs.text(settled), end="")
    return 0


class Pace:
    """Rounds per second, from the first progress on: what was there before, and compilation, do not count."""

    def __init__(self) -> None:
        self.first: tuple[int, float] | None = None

    def rate(self, rounds: int, count: int, seconds: float) -> float:
        if self.first is None:
            self.first = rounds, seconds
            return count / max(seconds, 1e-9)
        return (rounds - self.first[0]) / max(seconds - self.first[1], 1e-9)


def asked(task: str, config: Path | None, run_dir: Path | None, flags: Any) -> tuple[Run, Any]:
    """The run that is asked for and its loaded task. A run folder stands in where neither task nor file is given."""
    from lur import tasks

    if not task and config is None:
        if run_dir is None or not (run_dir / "run.json").exists():
            raise ValueError(f"expected a task, one of {', '.join(tasks.NAMES)}, or --config FILE, got neither")
        from lur.runs.train_run import configured

        run = changed(configured(run_dir), flags)
    else:
        run = run_of(task, config, flags)
    return run, tasks.load(run.task, **data_options(run))


def describe(loaded: Any, run: Run, say: Callable[[str], None]) -> None:
    """Say what is trained on, and how the clients axis runs."""
    import jax

    from lur.parallel.layouts import choose

    about = loaded.store.about
    origin = "generated data" if about.get("generated") else str(about.get("source", "data"))
    say(f"{run.task}: {loaded.store.clients:,} clients, {loaded.store.examples:,} examples ({origin})")
    M = run.clients_per_round or loaded.settings.clients_per_round
    chosen = choose(jax.eval_shape(loaded.init, jax.random.key(0)), M, run.layout, linear=loaded.linear is not None)
    say(f"  layout {chosen.layout}: {chosen.why}")


def progresses(
    loaded: Any, run: Run, run_dir: Path | None, stop: Any, tensorboard: bool, say: Callable[[str], None]
) -> Generator[Any]:
    """The run as it goes, in a folder or not."""
    from lur.parallel import processes
    from lur.training.loop import train

    def chunk(seconds: float) -> int:
        return int(0.5 / max(seconds, 1e-4))

    if run_dir is None:
        if tensorboard:
            raise ValueError("--tensorboard needs a --run-dir to write into, got none")
        for at in train(loaded, run, chunk=chunk):
            yield at
            if processes.told(stop.signal) is not None:
                return
        return
    from lur.runs.train_run import train_in

    if tensorboard and processes.is_first():
        from lur.runs.tensorboard import mirrored

        yield from mirrored(run_dir, train_in(run_dir, loaded, run, stop=stop, chunk=chunk, say=say))
    else:
        yield from train_in(run_dir, loaded, run, stop=stop, chunk=chunk, say=say)


def ended(run_dir: Path | None, json: Path | None) -> int:
    """The exit status of a run that had already ended."""
    from lur.runs.folder import read_json

    assert run_dir is not None  # a run without a folder has at least one round
    result = read_json(run_dir / "result.json")
    write_json(json, {"run_dir": run_dir, **result})
    return 1 if result.get("state") == "diverged" else 0


def outcome(run: Run, run_dir: Path | None, at: Any, state: str) -> dict[str, Any]:
    """How a run ended, for JSON."""
    from lur.training.loop import parameters

    return {
        "task": run.task,
        "state": state,
        "rounds": at.rounds,
        "seconds": at.seconds,
        "parameters": parameters(at.state.params),
        "evaluation": at.evaluation,
        "diverged": at.diverged or None,
        "run_dir": run_dir,
        "configuration": run,
    }


def summary(metric: str, found: Any) -> str:
    """An evaluation in words."""
    right = f", {metric} {found.accuracy:.1%}" if found.accuracy == found.accuracy else ""
    return f"loss f(x) = {found.loss:.4f}{right} over {found.examples:,} examples of {found.clients:,} clients"


def data_options(run: Run) -> dict[str, Any]:
    """What `lur.tasks.load` takes, from the configuration."""
    from lur.data.readers import counts
    from lur.data.store import open_store

    options: dict[str, Any] = {"clients": run.clients, "heterogeneity": run.heterogeneity, "seed": run.data_seed}
    if run.store is not None:
        if run.task == "quadratic":
            raise ValueError(f"--store is not for quadratic, whose problem is generated, got {run.store}")
        options["store"] = open_store(run.store)
    for flag, path, tasks, name, read in (
        ("--word-count", run.word_count, ("stackoverflow_nwp", "stackoverflow_tp"), "vocabulary", counts.word_count),
        ("--tag-count", run.tag_count, ("stackoverflow_tp",), "tags", counts.tag_count),
    ):
        if path is not None:
            if run.task not in tasks:
                raise ValueError(f"{flag} is for {' and '.join(tasks)}, got the task {run.task}")
            options[name] = [word.encode() for word in read(path, 10_000 if name == "vocabulary" else 500)]
    return options
