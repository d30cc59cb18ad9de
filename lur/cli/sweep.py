"""`lur sweep`, `lur tune`, `lur decay`: grids of learning rates, and what they say."""

from contextlib import closing
from pathlib import Path
from typing import Any

from lur.cli.bars import bar
from lur.cli.flags import RATES, DecayFlags, Decaying, SweepFlags, Swept, TaskName, rates, run_of
from lur.cli.output import Json, Say, check_json, silent, write_json

ALL = SweepFlags()
ALL_DECAYING = DecayFlags()


def sweep(
    task: TaskName = "",
    config: Path | None = None,
    run_dir: Path | None = None,
    tied: bool = False,
    quiet: bool = False,
    json: Json = None,
    flags: Swept = ALL,
) -> int:
    """Train with every pair of learning rates: lur sweep digits --client-lr 0.01,0.1,1 --server-lr 0.1,1

    All cells see the same clients and mini-batches, and run as one program where that is quicker. Started again with
    the same run folder, a sweep goes on where it was.

    Args:
        task: femnist, cifar100, shakespeare, stackoverflow_nwp, stackoverflow_tp, quadratic or digits.
        config: A TOML file, as `lur config` prints it; flags go before it.
        run_dir: The folder of the sweep; by default runs/sweep-TASK. Of one that was cut it is enough.
        tied: eta = gamma, as in vanilla FedAvg; then --server-lr is left out.
        quiet: Print nothing.
    """
    check_json(json)
    quiet = silent(quiet, json)
    status, found, _ = swept(task, config, run_dir, "sweep", tied, quiet, flags)
    if found is not None:
        write_json(json, cells_of(found))
        if not quiet:
            print(cells_table(found))
    return status


def tune(
    task: TaskName = "",
    config: Path | None = None,
    run_dir: Path | None = None,
    csv: Path | None = None,
    json: Json = None,
    quiet: bool = False,
    flags: Swept = ALL,
) -> int:
    """For each gamma the eta with the lowest mean training loss over the last 100 rounds: lur tune digits

    Of fewer than 400 rounds the last quarter counts.

    Args:
        task: femnist, cifar100, shakespeare, stackoverflow_nwp, stackoverflow_tp, quadratic or digits.
        config: A TOML file, as `lur config` prints it; flags go before it.
        run_dir: The folder of the sweep; by default runs/tune-TASK.
        csv: Write the table to this file as well as to tuned.csv in the folder.
        quiet: Print nothing.
    """
    from lur.runs import sweep_results as tuning

    check_json(json)
    quiet = silent(quiet, json)
    status, found, path = swept(task, config, run_dir, "tune", False, quiet, flags)
    if found is None or not found.finished:
        return status
    rows = tuning.tuned(found)
    write_table(rows, path, csv)
    write_json(json, rows)
    if not quiet:
        print(tuning.as_text(rows, found.window))
    return status


def decay(
    task: TaskName = "",
    config: Path | None = None,
    run_dir: Path | None = None,
    quiet: bool = False,
    json: Json = None,
    flags: Decaying = ALL_DECAYING,
) -> int:
    """LocalUpdateDecay from the largest gamma that does not diverge, with tuned eta: lur decay digits

    Goes through the gammas, largest first, and stops with the first for which some eta trains: its loss stays below
    the limit and ends below where it began.

    Args:
        task: femnist, cifar100, shakespeare, stackoverflow_nwp, stackoverflow_tp, quadratic or digits.
        config: A TOML file, as `lur config` prints it; flags go before it.
        run_dir: Folder of the sweeps, one for each gamma; by default runs/decay-TASK.
        quiet: Print nothing.
    """
    from dataclasses import replace

    from lur.runs import sweep_results as tuning
    from lur.training.sweeps import LARGEST_GAMMAS

    if not task and config is None:
        raise ValueError("expected a task or --config FILE, got neither")
    check_json(json)
    quiet = silent(quiet, json)
    path = run_dir or Path("runs") / f"decay-{run_of(task, config, flags, without=RATES).task}"
    gammas = sorted(rates("client_lr", flags.client_lr, LARGEST_GAMMAS), reverse=True)
    for gamma in gammas:
        one = replace(flags, client_lr=repr(gamma), decay="paper" if flags.decay is None else flags.decay)
        status, found, _ = swept(task, config, path / f"gamma-{gamma:g}", "decay", False, quiet, one)
        if status or found is None:
            return status
        best = tuning.best_of(found.cells, found.sweep.run.rounds)
        if best is None or not tuning.settles(best, found.sweep.run.rounds):
            if not quiet:
                print(f"gamma {gamma:g}: diverges for every eta")
            continue
        rows = tuning.tuned(found)
        write_table(rows, path, None)
        write_json(json, {"client_lr": gamma, "server_lr": best.eta, "loss": tuning.tail(best, found.sweep.run.rounds)})
        if not quiet:
            print(tuning.as_text(rows, found.window))
            print(f"LocalUpdateDecay: gamma {gamma:g}, eta {tuning.power(best.eta)}")
        return 0
    raise ValueError(
        f"--client-lr must have a gamma for which some eta trains, got {', '.join(f'{g:g}' for g in gammas)}"
    )


def swept(
    task: str, config: Path | None, path: Path | None, kind: str, tied: bool, quiet: bool, flags: Any
) -> tuple[int, Any, Path]:
    """Run the sweep that the flags ask for; the exit status, what the folder then holds, and which that is."""
    from lur import tasks
    from lur.cli.train import data_options
    from lur.jax_setup import prepare
    from lur.runs import figures
    from lur.runs.stopping import stoppable
    from lur.runs.sweep_results import read_sweep
    from lur.runs.sweep_run import configured
    from lur.training.sweeps import ETAS, GAMMAS, Sweep

    prepare()
    say: Say = (lambda line: None) if quiet else print
    if task or config is not None:
        run = run_of(task, config, flags, without=RATES)
        gammas = rates("client_lr", flags.client_lr, GAMMAS)
        etas = () if tied and not flags.server_lr else rates("server_lr", flags.server_lr, ETAS)
        asked = Sweep(run, gammas, etas, tied)
        path = path or Path("runs") / f"{kind}-{run.task}"
    elif path is not None and (path / "run.json").exists():
        if flags != type(flags)() or tied:
            raise ValueError(f"the task must be given with other flags, got only --run-dir {path}")
        asked = configured(path)
    else:
        raise ValueError(f"expected a task, one of {', '.join(tasks.NAMES)}, or --config FILE, got neither")
    loaded = tasks.load(asked.run.task, **data_options(asked.run))
    with stoppable(quiet) as stop:
        run_sweep(path, loaded, asked, stop, say, quiet)
    if stop.signal is not None:
        say(f"  stopped: {path} keeps it")
        return stop.status, None, path
    figures.keep(path)
    return 0, read_sweep(path), path


def run_sweep(path: Path, loaded: Any, asked: Any, stop: Any, say: Say, quiet: bool) -> None:
    """A sweep in its folder, with a bar."""
    from lur.runs.sweep_run import sweep_in

    def chunk(seconds: float) -> int:
        return int(0.5 / max(seconds, 1e-4))

    cells, rounds = len(asked.cells), asked.run.rounds
    about = loaded.store.about
    origin = "generated data" if about.get("generated") else str(about.get("source", "data"))
    size = f"{loaded.store.clients:,} clients, {loaded.store.examples:,} examples"
    say(f"{asked.run.task}: {cells} cells, {size} ({origin})")
    with bar(quiet, "loss") as progress:
        line = progress.add_task("cell rounds", total=cells * rounds, loss="")
        with closing(sweep_in(path, loaded, asked, stop=stop, chunk=chunk, say=say)) as parts:
            for part in parts:
                at = part.cursor
                size = len(at.alive)
                done = int(at.group) * size * rounds + min(size, cells - int(at.group) * size) * int(at.round)
                progress.update(line, completed=done, loss=f"{int(at.alive.sum())} alive")


def cells_table(found: Any) -> str:
    """The mean loss at the end of every cell: a row per gamma, a column per eta."""
    from lur.runs.sweep_results import power, tail

    rounds, sweep = found.sweep.run.rounds, found.sweep
    if sweep.tied:
        rows = [[f"{cell.gamma:g}", shown(cell, tail(cell, rounds))] for cell in found.cells]
        return aligned([["gamma = eta", "loss"], *rows])
    by = {(cell.gamma, cell.eta): cell for cell in found.cells}
    rows = [
        [f"{gamma:g}", *(shown(by[gamma, eta], tail(by[gamma, eta], rounds)) for eta in sweep.server_lr)]
        for gamma in sweep.client_lr
    ]
    head = [["gamma \\ eta", *(power(eta) for eta in sweep.server_lr)]]
    return f"mean loss over the last {found.window} rounds\n{aligned([*head, *rows])}"


def cells_of(found: Any) -> dict[str, Any]:
    """The cells of a sweep, for JSON: the loss of one that diverged is null."""
    from lur.runs.sweep_results import tail

    rounds = found.sweep.run.rounds
    rows = [
        {"client_lr": cell.gamma, "server_lr": cell.eta, "loss": tail(cell, rounds), "diverged": cell.diverged}
        for cell in found.cells
    ]
    return {"run_dir": found.path, "finished": found.finished, "rounds": rounds, "last": found.window, "cells": rows}


def shown(cell: Any, loss: float) -> str:
    """A cell's loss, or when it diverged."""
    return f"x {cell.diverged[0]}" if cell.diverged else f"{loss:.4g}"


def aligned(rows: list[list[str]]) -> str:
    """Columns of a terminal table, right-aligned."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return "\n".join("  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows)


def write_table(rows: Any, path: Path, csv: Path | None) -> None:
    """The tuned rates beside the sweep, and where else they are asked for."""
    from lur.runs import sweep_results as tuning

    for file, text in (
        (path / "tuned.csv", tuning.as_csv(rows)), (path / "tuned.json", tuning.as_json(rows)),
        (csv, tuning.as_csv(rows)),
    ):  # fmt: skip
        if file is not None:
            file.write_text(text)
