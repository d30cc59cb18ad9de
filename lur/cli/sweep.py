"""`lur sweep TASK`: train with every pair of learning rates."""

from contextlib import closing
from pathlib import Path
from typing import Any

from lur.cli.arguments import RATES, SweepFlags, SweepFlagsArg, TaskName, folder_name, parse_rates, requested_config
from lur.cli.output import Json, Printer, check_json, printer, prints_no_text, progress_bar, write_json
from lur.cli.train import origin, rounds_per_report

NO_FLAGS = SweepFlags()


def sweep(
    task: TaskName = "",
    config: Path | None = None,
    run_dir: Path | None = None,
    tied: bool = False,
    quiet: bool = False,
    json: Json = None,
    configuration: SweepFlagsArg = NO_FLAGS,
) -> int:
    """Train with every pair of learning rates: lur sweep digits --client-lr 0.01,0.1,1 --server-lr 0.1,1

    All cells see the same clients and mini-batches, and run as one program where that is faster. Run again with the
    same run folder, the command resumes the sweep.

    Args:
        task: femnist, cifar100, shakespeare, stackoverflow_nwp, stackoverflow_tp, quadratic, digits, or your own as
            my_module:task.
        config: A TOML file, as `lur config` prints it; other flags override it.
        run_dir: The folder of the sweep; by default runs/sweep-TASK. It is enough to resume a sweep.
        tied: Use eta = gamma, as vanilla FedAvg does, instead of --server-lr.
        quiet: Print nothing.
    """
    check_json(json)
    quiet = prints_no_text(quiet, json)
    status, results, _ = run_requested_sweep(task, config, run_dir, "sweep", tied, quiet, configuration)
    if results is not None:
        write_json(json, _cells_record(results))
        if not quiet:
            print(_cells_table(results))
    return status


def run_requested_sweep(
    task: str, config: Path | None, path: Path | None, command: str, tied: bool, quiet: bool, flags: Any
) -> tuple[int, Any, Path]:
    """Run the sweep that the flags ask for.

    Args:
        task: name of the task; may be empty if `config` or `path` says it.
        config: a TOML file.
        path: the run folder; by default runs/COMMAND-TASK.
        command: name of the command.
        tied: whether eta = gamma.
        quiet: print nothing.
        flags: the flags of the command.

    Returns:
        The exit status, the results (None if the sweep was stopped), and the run folder.
    """
    from lur import tasks
    from lur.jax_setup import prepare
    from lur.runs.figures import save_figures
    from lur.runs.sweep_results import read_sweep
    from lur.runs.sweep_run import read_sweep_config
    from lur.training.experiment import load_task
    from lur.training.loop import stop_on_signals
    from lur.training.sweep_plan import ETAS, GAMMAS, SweepConfig, plan_sweep

    prepare()
    say = printer(quiet, None)
    if task or config is not None:
        run = requested_config(task, config, None, flags, without=RATES)
        gammas = parse_rates("--client-lr", flags.client_lr, GAMMAS)
        etas = () if tied and not flags.server_lr else parse_rates("--server-lr", flags.server_lr, ETAS)
        asked = SweepConfig(run, gammas, etas, tied)
        path = path or Path("runs") / f"{command}-{folder_name(run.task)}"
    elif path is not None and (path / "run.json").exists():
        if flags != type(flags)() or tied:
            raise ValueError(f"the task must be given with other flags, got only --run-dir {path}")
        asked = read_sweep_config(path)
    else:
        raise ValueError(f"expected a task, one of {', '.join(tasks.NAMES)}, or --config FILE, got neither")
    plan = plan_sweep(asked, load_task(asked.run))
    with stop_on_signals(quiet) as stop:
        _run_with_progress_bar(path, plan, stop, say, quiet)
    if stop.signal is not None:
        say(f"  stopped: saved in {path}")
        return stop.exit_status, None, path
    save_figures(path)
    return 0, read_sweep(path), path


def _run_with_progress_bar(path: Path, plan: Any, stop: Any, say: Printer, quiet: bool) -> None:
    """Run a sweep in its folder, with a progress bar."""
    from lur.runs.sweep_run import sweep_in_folder

    cells, rounds, store = len(plan.sweep.cells), plan.sweep.run.rounds, plan.experiment.task.store
    say(
        f"{plan.sweep.run.task}: {cells} cells, {store.clients:,} clients, {store.examples:,} examples "
        f"({origin(plan.experiment.task)})"
    )
    with progress_bar(quiet, "loss") as bar:
        line = bar.add_task("cell rounds", total=cells * rounds, loss="")
        reports = sweep_in_folder(path, plan, stop=stop, chunk=rounds_per_report, notify=say)
        with closing(reports):
            for progress in reports:
                position = progress.position
                first = int(position.group) * len(position.alive)
                group = min(len(position.alive), cells - first)
                done = first * rounds + group * int(position.round)
                bar.update(line, completed=done, loss=f"{int(position.alive.sum())} not diverged")


def _cells_table(results: Any) -> str:
    """The final loss of every cell: one row per gamma, one column per eta."""
    from lur.runs.sweep_results import final_loss, format_rate

    rounds, sweep = results.sweep.run.rounds, results.sweep

    def entry(cell: Any) -> str:
        return f"x {cell.diverged[0]}" if cell.diverged else f"{final_loss(cell, rounds):.4g}"

    if sweep.tied:
        return _aligned([["gamma = eta", "loss"], *([f"{cell.gamma:g}", entry(cell)] for cell in results.cells)])
    by_rates = {(cell.gamma, cell.eta): cell for cell in results.cells}
    rows = [[f"{gamma:g}", *(entry(by_rates[gamma, eta]) for eta in sweep.server_lr)] for gamma in sweep.client_lr]
    head = ["gamma \\ eta", *(format_rate(eta) for eta in sweep.server_lr)]
    return f"mean loss over the last {results.window} rounds\n{_aligned([head, *rows])}"


def _cells_record(results: Any) -> dict[str, Any]:
    """The cells of a sweep, for JSON: the loss of one that diverged is null."""
    from lur.runs.sweep_results import final_loss

    rounds = results.sweep.run.rounds
    rows = [
        {"client_lr": cell.gamma, "server_lr": cell.eta, "loss": final_loss(cell, rounds), "diverged": cell.diverged}
        for cell in results.cells
    ]
    return {
        "run_dir": results.path,
        "finished": results.finished,
        "rounds": rounds,
        "last": results.window,
        "cells": rows,
    }


def _aligned(rows: list[list[str]]) -> str:
    """A table with right-aligned columns."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
