"""`lur predict`: the exact expected error of a run on quadratics, its bound, and a simulation of it."""

from pathlib import Path
from typing import Any, Literal

import tyro

from lur.cli.output import Json, check_json, printer, write_json


def predict(
    problem: tyro.conf.Positional[str] = "two-clients",
    client_lr: float = 0.25,
    server_lr: float = 0.1,
    theta: str = "1:2",
    clients_per_round: int = 1,
    batch_size: int = 1,
    rounds: int = 50,
    sampling: Literal["iid", "without-replacement", "full"] = "iid",
    noise: float = 0.0,
    start: float = 3.0,
    runs: int = 4000,
    seed: int = 0,
    out: Path | None = None,
    quiet: bool = False,
    json: Json = None,
) -> int:
    """Predict E||x_t - x*||^2 exactly, with the paper's bound and a simulation: lur predict two-clients

    The exit status is 0 even if the prediction is outside the simulation's 99% interval, as happens once in a hundred
    times.

    Args:
        problem: two-clients (Section 4), random, random-examples, or a JSON file of A, c and p, or A_z, c_z, p_z and p.
        client_lr: Client learning rate gamma.
        server_lr: Server learning rate eta.
        theta: The weights Theta: 1:10 (FedAvg), K=10 (FOMAML) or [1,0,2].
        clients_per_round: Clients per round M.
        batch_size: Examples per mini-batch B.
        rounds: Number of rounds T.
        sampling: How the clients of a round are drawn; with full, all of them take part.
        noise: Variance of one example's gradient in each coordinate.
        start: Every coordinate of x_1.
        runs: Number of simulated runs; 0 for no simulation.
        seed: Seed of the simulation and of the random problems.
        out: Folder for the figure (SVG, PNG) and the numbers (CSV).
        quiet: Print nothing.
    """
    from lur.cli.siblings import check_folder, require_sibling

    require_sibling("theory")
    import numpy as np

    import lur
    import theory
    from lur.theta import nonzero, parse
    from theory.trials import implementation_of, prediction

    for name, value, least in (("--rounds", rounds, 1), ("--runs", runs, 0), ("--batch-size", batch_size, 1)):
        if value < least:
            raise ValueError(f"{name} must be >= {least}, got {value}")
    if not noise >= 0:
        raise ValueError(f"--noise must be >= 0, got {noise}")
    if out is not None:
        check_folder("--out", out)
    sampling_name: Any = sampling.replace("-", " ")
    setting = prediction.Setting(
        client_lr, server_lr, nonzero(parse(theta)), clients_per_round, batch_size, rounds, sampling_name
    )
    quadratics = _read_problem(problem, seed)
    d = (quadratics.c if isinstance(quadratics, theory.Problem) else quadratics.c_z).shape[-1]
    x, C = np.full(d, start), noise * np.eye(d) if noise else None
    check_json(json)
    say = printer(quiet, json)
    say(f"{problem}: {len(quadratics.p)} clients, d = {d}; gamma = {client_lr:g}, eta = {server_lr:g}, "
        f"Theta = {theta}, M = {clients_per_round}, B = {batch_size}, {sampling}")  # fmt: skip
    exact = np.asarray(prediction.exact(quadratics, x, setting, C))
    columns = {"exact": exact}
    try:
        columns["bound"] = np.asarray(prediction.bound(quadratics, x, setting, C))
    except ValueError as error:
        say(f"  the paper's bound does not apply: {error}")
    if runs:
        errors = prediction.squared_errors(
            quadratics, x, setting, runs, noise=C, seed=seed, implementation=implementation_of(lur)
        )
        columns |= prediction.interval(errors)._asdict()
    printed_rounds = np.unique(np.geomspace(1, rounds + 1, 10).round().astype(int))
    titles = {"exact": "exact", "bound": "bound", "mean": f"mean of {runs}", "low": "99% from", "high": "to"}
    say("  " + "  ".join([f"{'t':>5}", *(f"{titles[name]:>13}" for name in columns)]))
    for t in printed_rounds:
        say("  " + "  ".join([f"{t:5d}", *(f"{values[t - 1]:13.6g}" for values in columns.values())]))
    limit = None
    try:
        limit = theory.stationary_mean_square_error(
            quadratics, client_lr, setting.theta, server_lr,
            M=clients_per_round, B=batch_size, sampling=sampling_name, noise=C,
        )  # fmt: skip
        say(f"  in the long run {float(limit):.6g}")
    except ValueError as error:
        say(f"  no limit in the long run: {error}")
    write_json(json, {"problem": problem, **setting._asdict(), **columns, "long_run": limit})
    if out is not None:
        for path in _write(out, columns):
            say(str(path))
    return 0


def _read_problem(name: str, seed: int) -> Any:
    """Returns a problem by its name, or from a JSON file."""
    import json

    import theory
    from lur.training.configuration import did_you_mean
    from theory.trials.prediction import random_problem

    if name == "two-clients":
        return theory.two_clients()
    if name in ("random", "random-examples"):
        return random_problem(seed, m=None if name == "random" else 4)
    if not Path(name).is_file():
        near = did_you_mean(name, ("two-clients", "random", "random-examples"))
        raise ValueError(f"problem must be two-clients, random, random-examples or a JSON file, got {name!r}{near}")
    fields = json.loads(Path(name).read_text())
    for kind, required in ((theory.Problem, {"A", "c"}), (theory.StochasticProblem, {"A_z", "c_z"})):
        if isinstance(fields, dict) and required <= fields.keys() <= required | {"p", "p_z"}:
            return kind(**fields)
    raise ValueError(f"{name} must hold A and c, or A_z and c_z, with p and p_z if not uniform")


def _write(folder: Path, columns: dict[str, Any]) -> list[Path]:
    """Writes the curves as a figure and as a table."""
    import numpy as np

    from lur import plots

    figure, axis = plots.panels(1)
    t = np.arange(1, len(columns["exact"]) + 1)
    if "low" in columns:
        axis.fill_between(t, columns["low"], columns["high"], color=plots.COLOURS[1], alpha=0.4, linewidth=0,
                          label="simulation, 99% interval")  # fmt: skip
    axis.plot(t, columns["exact"], label="exact")
    if "bound" in columns:
        axis.plot(t, columns["bound"], color=plots.COLOURS[2], linestyle="--", label="bound, Theorems 6 and 4")
    axis.set(xlabel="round $t$", ylabel=r"$E\|x_t - x^*\|^2$", yscale="log")
    axis.legend(fontsize=7)
    paths = plots.save(figure, folder, "predict")
    table = folder / "predict.csv"
    rows = [
        ",".join(["t", *columns]),
        *(",".join([str(k), *(f"{v[k - 1]:.15g}" for v in columns.values())]) for k in t),
    ]
    table.write_text("\n".join(rows) + "\n")
    return [*paths, table]
