"""`lur decay TASK`: LocalUpdateDecay from the largest client learning rate that trains."""

from dataclasses import replace
from pathlib import Path

from lur.cli.arguments import RATES, DecayFlags, DecayFlagsArg, TaskName, folder_name, parse_rates, requested_config
from lur.cli.output import Json, check_json, prints_no_text, write_json
from lur.cli.sweep import run_requested_sweep
from lur.cli.tune import write_tables

NO_FLAGS = DecayFlags()


def decay(
    task: TaskName = "",
    config: Path | None = None,
    run_dir: Path | None = None,
    quiet: bool = False,
    json: Json = None,
    configuration: DecayFlagsArg = NO_FLAGS,
) -> int:
    """Run LocalUpdateDecay from the largest gamma that does not diverge, with tuned eta: lur decay digits

    Tries the gammas, largest first, until some eta trains: the loss stays below the limit and ends lower than it began.

    Args:
        task: femnist, cifar100, shakespeare, stackoverflow_nwp, stackoverflow_tp, quadratic, digits, or your own as
            my_module:task.
        config: A TOML file, as `lur config` prints it; other flags override it.
        run_dir: The folder of the sweeps, one for each gamma; by default runs/decay-TASK.
        quiet: Print nothing.
    """
    from lur.regular_files import kind_of
    from lur.runs.sweep_results import as_text, best_cell, final_loss, format_rate, has_trained, tune_server_lr
    from lur.training.sweep_plan import DECAY_GAMMAS

    if not task and config is None:
        raise ValueError("expected a task or --config FILE, got neither")
    check_json(json)
    quiet = prints_no_text(quiet, json)
    asked = requested_config(task, config, None, configuration, without=RATES)
    path = run_dir or Path("runs") / f"decay-{folder_name(asked.task)}"
    gammas = sorted(parse_rates("--client-lr", configuration.client_lr, DECAY_GAMMAS), reverse=True)
    for gamma in gammas:
        decay_rule = "paper" if configuration.decay is None else configuration.decay
        chosen = replace(configuration, client_lr=repr(gamma), decay=decay_rule)
        folder = path / f"gamma-{gamma:g}"
        if (found := kind_of(folder)) not in (None, "a folder"):
            raise ValueError(f"{folder}: expected the folder of a sweep, found {found}")
        status, results, _ = run_requested_sweep(task, config, folder, "decay", False, quiet, chosen)
        if status or results is None:
            return status
        rounds = results.sweep.run.rounds
        best = best_cell(results.cells, rounds)
        if best is None or not has_trained(best, rounds):
            if not quiet:
                print(f"gamma {gamma:g}: diverges for every eta")
            continue
        rows = tune_server_lr(results)
        write_tables(rows, path)
        write_json(json, {"client_lr": gamma, "server_lr": best.eta, "loss": final_loss(best, rounds)})
        if not quiet:
            print(as_text(rows, results.window))
            print(f"LocalUpdateDecay: gamma {gamma:g}, eta {format_rate(best.eta)}")
        return 0
    raise ValueError(
        f"--client-lr must have a gamma for which some eta trains, got {', '.join(f'{g:g}' for g in gammas)}"
    )
