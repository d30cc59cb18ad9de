"""`lur tune TASK`: the best server learning rate for each client learning rate."""

from pathlib import Path
from typing import Any

from lur.cli.arguments import SweepFlags, SweepFlagsArg, TaskName
from lur.cli.output import Json, check_json, prints_no_text, write_json
from lur.cli.sweep import run_requested_sweep

NO_FLAGS = SweepFlags()


def tune(
    task: TaskName = "",
    config: Path | None = None,
    run_dir: Path | None = None,
    csv: Path | None = None,
    json: Json = None,
    quiet: bool = False,
    configuration: SweepFlagsArg = NO_FLAGS,
) -> int:
    """Find, for each gamma, the eta with the lowest training loss over the last 100 rounds: lur tune digits

    Of fewer than 400 rounds the last quarter counts.

    Args:
        task: femnist, cifar100, shakespeare, stackoverflow_nwp, stackoverflow_tp, quadratic, digits, or your own as
            my_module:task.
        config: A TOML file, as `lur config` prints it; other flags override it.
        run_dir: The folder of the sweep; by default runs/tune-TASK.
        csv: Write the table to this file, as well as to tuned.csv in the folder.
        quiet: Print nothing.
    """
    from lur.runs.sweep_results import as_csv, as_text, tune_server_lr

    check_json(json)
    quiet = prints_no_text(quiet, json)
    status, results, path = run_requested_sweep(task, config, run_dir, "tune", False, quiet, configuration)
    if results is None or not results.finished:
        return status
    rows = tune_server_lr(results)
    write_tables(rows, path)
    if csv is not None:
        csv.write_text(as_csv(rows))
    write_json(json, rows)
    if not quiet:
        print(as_text(rows, results.window))
    return status


def write_tables(rows: Any, path: Path) -> None:
    """Write the tuned rates into the folder, as CSV and as JSON."""
    from lur.runs.files import write_file
    from lur.runs.sweep_results import as_csv, as_json

    write_file(path / "tuned.csv", as_csv(rows))
    write_file(path / "tuned.json", as_json(rows))
