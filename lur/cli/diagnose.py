"""`lur diagnose TASK`: train for some rounds, then analyse the local surrogate at the model."""

from pathlib import Path
from typing import Any

from lur.cli.arguments import TaskName, folder_name
from lur.cli.output import Json, check_json, printer, write_json


def diagnose(
    task: TaskName,
    rounds: int = 100,
    clients: int = 8,
    examples: int = 32,
    depth: int = 20,
    probes: int = 4,
    gammas: tuple[float, ...] = (),
    steps: tuple[int, ...] = (1, 5, 10),
    seed: int = 0,
    out: Path | None = None,
    quiet: bool = False,
    json: Json = None,
) -> int:
    """Check whether the quadratic theory carries over to a network: lur diagnose digits

    Trains for some rounds with the task's settings on its built-in data. Then estimates, for FedAvg with each number
    of steps and each gamma: the extreme eigenvalues of the mean Jacobian of InnerLoop, its asymmetry, and how well
    the Hessians at the model alone predict the Jacobian and the updates.

    Args:
        task: femnist, cifar100, shakespeare, stackoverflow_nwp, quadratic, digits, or your own as my_module:task.
        rounds: Rounds of training before the analysis; 0 analyses the initial model.
        clients: Number of clients that the Jacobian is averaged over.
        examples: Number of examples of each client.
        depth: Number of Lanczos steps.
        probes: Number of random vectors for the estimates of norms.
        gammas: Client learning rates; by default 1/3, 1 and 3 times the task's.
        steps: Numbers of local steps K.
        seed: Random seed of training and of all random choices.
        out: Folder for the figure (SVG, PNG) and the numbers (CSV).
        quiet: Print nothing.
    """
    import jax

    from lur.analysis.diagnosis import diagnose as analyse
    from lur.cli.siblings import check_folder
    from lur.theta import fedavg
    from lur.training.configuration import RunConfig
    from lur.training.experiment import load_task, num_parameters, resolve
    from lur.training.loop import train

    if rounds < 0:
        raise ValueError(f"--rounds must be >= 0, got {rounds}")
    if out is not None:
        check_folder("--out", out)
    thetas = [fedavg(K) for K in steps]
    check_json(json)
    say = printer(quiet, json)
    run = RunConfig(task, rounds=rounds or 1, seed=seed)
    loaded = load_task(run)
    params: Any = loaded.init(jax.random.key(seed))
    if rounds:
        experiment = resolve(run, loaded)
        *_, last = train(experiment)
        params = experiment.method.model(last.state)
        if last.evaluation is None:
            raise ValueError(f"--rounds must end before the run diverges, got {rounds}: {last.diverged}")
        say(f"{task}: {num_parameters(params):,} parameters, {rounds} rounds, loss f(x) = {last.evaluation.loss:.4f}")
    rows = analyse(
        loaded, params, gammas=gammas or None, thetas=thetas, clients=clients, examples=examples, depth=depth,
        probes=probes, seed=seed,
    )  # fmt: skip
    say(f"  {'K':>3} {'gamma':>8}  {'eigenvalues of J':>21}  {'predicted by E[Q H]':>21} "
        f"{'asymmetry':>10} {'J off by':>9} {'q off by':>9}")  # fmt: skip
    for row in rows:
        J, P = row.jacobian, row.predicted
        say(f"  {len(row.theta):3d} {row.gamma:8.4g}  [{J.smallest:9.3g},{J.largest:9.4g}]  "
            f"[{P.smallest:9.3g},{P.largest:9.4g}] {row.asymmetry:10.2g} {row.jacobian_gap:9.2g} "
            f"{row.update_gap:9.2g}")  # fmt: skip
    say(f"  {sum(row.products for row in rows):,} Hessian-vector products; Lanczos ends are within "
        f"{max(row.jacobian.largest_error for row in rows):.1g} (largest) and "
        f"{max(row.jacobian.smallest_error for row in rows):.1g} (smallest) of eigenvalues")  # fmt: skip
    write_json(json, rows)
    if out is not None:
        for path in _write_figure_and_table(out, folder_name(task), rows):
            say(str(path))
    return 0


def _write_figure_and_table(folder: Path, task: str, results: list[Any]) -> list[Path]:
    """Write the numbers as a figure and as a CSV table. Returns the files."""
    from lur import plots

    figure, axes = plots.panels(3)
    first = results[0].jacobian.largest
    for colour, K in zip(plots.COLOURS, dict.fromkeys(len(row.theta) for row in results), strict=False):
        rows = sorted((row for row in results if len(row.theta) == K), key=lambda row: row.gamma)
        gammas = [row.gamma for row in rows]
        mark = "o" if len(rows) > 1 else "s"
        largest = [row.jacobian.largest / (K * first) for row in rows]
        axes[0].plot(gammas, largest, mark, color=colour, label=f"$K = {K}$")
        axes[0].plot(gammas, [row.predicted.largest / (K * first) for row in rows], "--", color=colour)
        axes[1].plot(gammas, [row.asymmetry for row in rows], f"{mark}-", color=colour, label=f"$K = {K}$")
        if K > 1:
            axes[2].plot(gammas, [row.update_gap for row in rows], "o-", color=colour, label=f"update, $K = {K}$")
            axes[2].plot(gammas, [row.jacobian_gap for row in rows], "o:", color=colour, label=f"Jacobian, $K = {K}$")
    axes[0].set(title=r"largest eigenvalue over $K L$", ylim=(0, 1.3))
    axes[1].set(title=r"asymmetry $\|J - J^\top\|/\|J\|$", ylim=(0, None))
    for axis in axes:
        axis.set(xlabel=r"client learning rate $\gamma$", xscale="log")
        axis.legend(fontsize=7)
    axes[2].set(
        title="relative error of the prediction", yscale="log", ylim=(None, 10)
    )  # an error above 1 is no prediction
    paths = plots.save(figure, folder, f"diagnose-{task}")
    table = folder / f"diagnose-{task}.csv"
    lines = ["K,gamma,smallest,largest,predicted_smallest,predicted_largest,asymmetry,jacobian_gap,update_gap"]
    for row in results:
        J, P = row.jacobian, row.predicted
        numbers = (J.smallest, J.largest, P.smallest, P.largest, row.asymmetry, row.jacobian_gap, row.update_gap)
        lines.append(f"{len(row.theta)},{row.gamma:.6g}," + ",".join(f"{value:.6g}" for value in numbers))
    table.write_text("\n".join(lines) + "\n")
    return [*paths, table]
