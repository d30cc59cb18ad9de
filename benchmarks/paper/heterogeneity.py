"""The paper's effect at several heterogeneities: with eta fixed, a larger gamma leads early and loses late.

One run for each heterogeneity of the built-in data and each gamma evaluates the true loss f(x) every few rounds.
`verdict` computes from the curves whether the effect appears and whether it fades as clients become more similar.
"""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lur import plots, tasks
from lur.training.configuration import RunConfig
from lur.training.experiment import resolve
from lur.training.loop import train


class Setting(NamedTuple):
    """The runs of an experiment, which compares the smallest with the largest gamma.

    Attributes:
        task: Name of the task.
        gammas: Client rates.
        eta: The fixed server rate.
        heterogeneities: Heterogeneities of the clients.
        rounds: Rounds of each run.
        every: Rounds between evaluations.
        clients: Clients of the data; None for the task's.
        clients_per_round: M; None for the task's.
        batch_size: B; None for the task's.
        method: Name of the method.
        client: Name of the client optimiser; None for the method's.
        server: Name of the server optimiser; None for the method's or the task's.
    """

    task: str
    gammas: tuple[float, ...]
    eta: float
    heterogeneities: tuple[float, ...]
    rounds: int = 300
    every: int = 10
    clients: int | None = None
    clients_per_round: int | None = None
    batch_size: int | None = None
    method: str = "local_update"
    client: str | None = None
    server: str | None = "sgd"


class Curve(NamedTuple):
    """Evaluations of one run.

    Attributes:
        heterogeneity: Heterogeneity of the clients.
        gamma: The client rate.
        rounds: Rounds after which the model was evaluated.
        losses: f(x) after these rounds.
        accuracies: Accuracy after these rounds.
    """

    heterogeneity: float
    gamma: float
    rounds: tuple[int, ...]
    losses: tuple[float, ...]
    accuracies: tuple[float, ...]


SETTINGS = {
    "digits": Setting("digits", (0.01, 0.1, 1.0), 0.7, (0.0, 1.0, 10.0), clients=10),
    "femnist": Setting(
        "femnist", (0.01, 0.1), 0.03, (0.0, 2.0), every=15, clients=20, clients_per_round=5, batch_size=5
    ),
}


def curve(setting: Setting, heterogeneity: float, gamma: float) -> Curve:
    """Runs one client rate at one heterogeneity."""
    task = tasks.load(setting.task, clients=setting.clients, heterogeneity=heterogeneity)
    config = RunConfig(
        setting.task,
        rounds=setting.rounds,
        client_lr=gamma,
        server_lr=setting.eta,
        method=setting.method,
        client=setting.client,
        server=setting.server,
        clients_per_round=setting.clients_per_round,
        batch_size=setting.batch_size,
        evaluate_every=setting.every,
    )
    parts = train(resolve(config, task), chunk=setting.every)
    evaluated = [(part.rounds, part.evaluation) for part in parts if part.evaluation]
    return Curve(
        heterogeneity,
        gamma,
        tuple(rounds for rounds, _ in evaluated),
        tuple(e.loss for _, e in evaluated),
        tuple(e.accuracy for _, e in evaluated),
    )


def curves(setting: Setting, report: Callable[[str], None] = lambda line: None) -> list[Curve]:
    """All runs of an experiment."""
    finished = []
    for heterogeneity in setting.heterogeneities:
        for gamma in setting.gammas:
            finished.append(curve(setting, heterogeneity, gamma))
            last = finished[-1]
            end = f"f = {last.losses[-1]:.4f}, {last.accuracies[-1]:.1%}"
            report(f"heterogeneity {heterogeneity:g}, gamma {gamma:g}: {end}")
    return finished


class Comparison(NamedTuple):
    """The largest gamma compared with the smallest at one heterogeneity.

    Attributes:
        heterogeneity: Heterogeneity of the clients.
        lead: Last round up to which the larger gamma is ahead from the start; 0 if it never is.
        late: Its final loss divided by that of the smaller gamma.
    """

    heterogeneity: float
    lead: int
    late: float


def comparisons(curves: Sequence[Curve]) -> list[Comparison]:
    """One comparison per heterogeneity. The final loss is the mean over the last fifth of the curve."""
    compared = []
    for heterogeneity in dict.fromkeys(c.heterogeneity for c in curves):
        ordered = sorted((c for c in curves if c.heterogeneity == heterogeneity), key=lambda c: c.gamma)
        small, large = ordered[0], ordered[-1]
        lead = 0
        for t, a, b in zip(small.rounds, small.losses, large.losses, strict=True):
            if not b < a:
                break
            lead = t
        tail = max(1, len(small.losses) // 5)
        compared.append(Comparison(heterogeneity, lead, sum(large.losses[-tail:]) / sum(small.losses[-tail:])))
    return compared


def verdict(curves: Sequence[Curve]) -> list[str]:
    """Sentences that say, from the curves, whether the effect appears."""
    rows = sorted(comparisons(curves), key=lambda row: row.heterogeneity)
    last = max(c.rounds[-1] for c in curves)
    lines = [
        f"heterogeneity {row.heterogeneity:g}: the largest gamma "
        + (f"leads up to round {row.lead}" if row.lead else "never leads from the start")
        + f"; at the end its loss is {row.late:.2f} times that of the smallest"
        for row in rows
    ]
    top, bottom = rows[-1], rows[0]
    appears = 0 < top.lead < last and top.late > 1
    fades = abs(bottom.late - 1) < abs(top.late - 1) / 2 or bottom.late <= 1
    lines.append(
        f"ahead early and behind late at the highest heterogeneity: {'yes' if appears else 'no'}; "
        f"the late loss fades with the heterogeneity: {'yes' if fades else 'no'}"
    )
    return lines


def write(setting: Setting, curves: Sequence[Curve], folder: Path) -> list[Path]:
    """Writes the curves as a figure (SVG and PNG) and as CSV."""
    figure, axes = plots.panels(len(setting.heterogeneities), sharey=True)
    axes = [axes] if len(setting.heterogeneities) == 1 else axes
    for ax, heterogeneity in zip(axes, setting.heterogeneities, strict=True):
        for each in (c for c in curves if c.heterogeneity == heterogeneity):
            ax.plot(each.rounds, each.losses, label=rf"$\gamma$ = {each.gamma:g}")
        ax.set(title=f"heterogeneity {heterogeneity:g}", xlabel="round", yscale="log")
    axes[0].set_ylabel("f(x)")
    axes[0].legend()
    own = "" if setting.method == "local_update" else setting.method
    title = rf"{setting.task} ({data_source(setting.task)}), $\eta$ = {setting.eta:g}"
    figure.suptitle(f"{title}, {own}" if own else title, fontsize=9)
    name = f"heterogeneity-{setting.task}" + (f"-{own.replace(':', '-')}" if own else "")
    paths: list[Any] = [*plots.save(figure, folder, name), folder / f"{name}.csv"]
    with paths[-1].open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("heterogeneity", "gamma", "eta", "round", "loss", "accuracy"))
        for each in curves:
            for t, loss, accuracy in zip(each.rounds, each.losses, each.accuracies, strict=True):
                rows.writerow((each.heterogeneity, each.gamma, setting.eta, t, f"{loss:.6g}", f"{accuracy:.6g}"))
    return paths


def data_source(task: str) -> str:
    """A description of the data for the title."""
    return "real digits, split among clients" if task == "digits" else "generated data"
