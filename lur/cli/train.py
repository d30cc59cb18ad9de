"""`lur train TASK`: train, and print or record the progress."""

import sys
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

from lur.cli.arguments import RunFlags, RunFlagsArg, TaskName, requested_config
from lur.cli.output import Json, Printer, check_json, printable, printer, progress_bar, write_json

NO_FLAGS = RunFlags()


def train(
    task: TaskName = "",
    config: Path | None = None,
    run_dir: Path | None = None,
    resume: bool = True,
    tensorboard: bool = False,
    quiet: bool = False,
    json: Json = None,
    configuration: RunFlagsArg = NO_FLAGS,
) -> int:
    """Train a method on a task: lur train digits --run-dir runs/digits

    Without --store, the task's built-in data are used: generated data, and named as such. Run again with the same run
    folder, the command resumes the run; `lur train --run-dir DIR` is enough for that. TASK may also be given as
    --task TASK.

    Args:
        task: femnist, cifar100, shakespeare, stackoverflow_nwp, stackoverflow_tp, quadratic, digits, or your own as
            my_module:task.
        config: A TOML file, as `lur config` prints it; other flags override it.
        run_dir: Keep the configuration, the environment, the log, checkpoints and figures in this folder.
        resume: Resume the run in the folder; --no-resume accepts only a new folder.
        tensorboard: Also write TensorBoard events into the run folder; needs tensorboardX.
        quiet: Print nothing.
    """
    from lur.jax_setup import prepare
    from lur.parallel import processes
    from lur.training.experiment import load_task, resolve
    from lur.training.loop import stop_on_signals

    prepare()
    check_json(json)
    watch = processes.join()
    is_first = processes.is_first()
    if not is_first:
        quiet, json = True, None
    say = printer(quiet, json)
    run_config = requested_config(task, config, run_dir, configuration)
    if run_dir is not None and not resume and is_first and (run_dir / "run.json").exists():
        raise ValueError(f"--run-dir must name a new folder with --no-resume, got {run_dir}, which holds a run")
    if tensorboard and run_dir is None:
        raise ValueError("--tensorboard needs a --run-dir to write into, got none")
    loaded = load_task(run_config)
    experiment = resolve(run_config, loaded)
    say(f"{run_config.task}: {loaded.store.clients:,} clients, {loaded.store.examples:,} examples ({origin(loaded)})")
    if loaded.test is not None:
        without = loaded.store.clients - loaded.test.clients
        some = f"; {without:,} clients have none" if without else ""
        say(f"  {loaded.test.examples:,} further examples are for testing{some}")
    if loaded.held_out is not None:
        say(f"  {loaded.held_out.clients:,} further clients are held out")
    say(f"  layout {experiment.layout}: {experiment.layout_reason}")
    progress = None
    with stop_on_signals(quiet) as stop, progress_bar(quiet, "loss", "rate") as bar:
        line = bar.add_task("rounds", total=run_config.rounds, loss="", rate="")
        timed_from = None
        with closing(_train(experiment, run_dir, stop, tensorboard and is_first, say)) as reports:
            for progress in reports:
                watch.tick()
                count = len(progress.infos.loss)
                if timed_from is None:  # the rate leaves out compilation and the rounds before a resumed run
                    timed_from = progress
                    if progress.rounds > count:
                        bar.reset(line, completed=progress.rounds - count)
                    rate = count / max(progress.seconds, 1e-9)
                else:
                    seconds = progress.seconds - timed_from.seconds
                    rate = (progress.rounds - timed_from.rounds) / max(seconds, 1e-9)
                loss = f"loss {progress.infos.loss.mean():.4f}" if count else ""
                bar.update(line, completed=progress.rounds, loss=loss, rate=f"{rate:.1f} rounds/s")
                if progress.evaluation is not None and progress.rounds < run_config.rounds:
                    say(f"  round {progress.rounds}: {_evaluation_summary(loaded.metric, progress)}")
    if run_dir is not None and stop.signal is None and is_first:
        from lur.runs.figures import save_figures

        save_figures(run_dir)
    if progress is None:
        return _report_ended(run_dir, json) if is_first else 0
    return _report_outcome(experiment, run_dir, progress, stop, say, json)


def origin(task: Any) -> str:
    """Where the data of a task come from, in words."""
    about = task.store.about
    return "generated data" if about.get("generated") else printable(about.get("source", "data"))


def rounds_per_report(seconds: float) -> int:
    """The number of rounds that take about half a second, given the seconds of one round."""
    return int(0.5 / max(seconds, 1e-4))


def _train(experiment: Any, run_dir: Path | None, stop: Any, tensorboard: bool, say: Printer) -> Generator[Any]:
    """The progress of the run, in a folder or not."""
    from lur.parallel import processes

    if run_dir is None:
        from lur.training.loop import train

        for progress in train(experiment, chunk=rounds_per_report):
            yield progress
            if processes.broadcast_from_first(stop.signal) is not None:
                return
        return
    from lur.runs.train_run import train_in_folder

    reports = train_in_folder(run_dir, experiment, stop=stop, chunk=rounds_per_report, notify=say)
    if tensorboard:
        from lur.runs.tensorboard import log_to_tensorboard

        reports = log_to_tensorboard(run_dir, reports)
    yield from reports


def _report_ended(run_dir: Path | None, json: Path | None) -> int:
    """Report a run that had ended before; returns the exit status."""
    from lur.runs.folder import read_result

    assert run_dir is not None  # a run without a folder has at least one round
    result = read_result(run_dir, check_logs=False) or {}
    write_json(json, {"run_dir": run_dir, **result})
    return 1 if result.get("state") == "diverged" else 0


def _report_outcome(
    experiment: Any, run_dir: Path | None, progress: Any, stop: Any, say: Printer, json: Path | None
) -> int:
    """Report how the run ended; returns the exit status."""
    from lur.training.experiment import num_parameters

    config, size = experiment.config, num_parameters(experiment.method.model(progress.state))
    state = "diverged" if progress.diverged else "finished" if stop.signal is None else "stopped"
    outcome = {
        "task": config.task,
        "state": state,
        "rounds": progress.rounds,
        "seconds": progress.seconds,
        "parameters": size,
        "evaluation": progress.evaluation,
        "held_out": progress.held_out,
        "diverged": progress.diverged or None,
        "run_dir": run_dir,
        "configuration": config,
    }
    write_json(json, outcome)
    if progress.diverged:
        kept = "" if run_dir is None else f"; its log is in {run_dir}"
        print(printable(f"lur: diverged in round {progress.rounds:,}: {progress.diverged}{kept}"), file=sys.stderr)
        return 1
    if stop.signal is not None:
        kept = "nothing was saved, because no --run-dir was given" if run_dir is None else f"saved in {run_dir}"
        say(f"  stopped after round {progress.rounds:,} of {config.rounds:,}: {kept}")
        return stop.exit_status
    say(f"  {size:,} parameters, {config.rounds} rounds in {progress.seconds:.1f} s")
    say(f"  after training: {_evaluation_summary(experiment.task.metric, progress)}")
    return 0


def _evaluation_summary(metric: str, progress: Any) -> str:
    """The evaluations of a run in words, each with its split."""
    counted = progress.evaluation
    words = [
        f"loss f(x) = {counted.loss:.4f}{_right('training', metric, counted)} over the {counted.examples:,} training "
        f"examples of {counted.clients:,} clients"
    ]
    for name, one in progress.held_out.items():
        split = name.replace("clients", "held-out clients", 1)
        words.append(
            f"{split}: loss {one.loss:.4f}{_right(one.split.replace('clients', 'test'), metric, one)} over "
            f"{one.examples:,} examples of {one.clients:,} clients"
        )
    return "\n    ".join(words)


def _right(split: str, metric: str, evaluation: Any) -> str:
    """The accuracy of an evaluation in words; nothing if the task has none."""
    return f", {split} {metric} {evaluation.accuracy:.1%}" if evaluation.accuracy == evaluation.accuracy else ""
