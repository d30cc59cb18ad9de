"""The paper's effect against the dial: with eta fixed, a larger gamma leads early and loses late, if clients differ.

For each setting of the built-in data's heterogeneity and each gamma: one run, the true loss f(x) every few rounds.
`verdict` computes from the curves whether the effect is there and whether it fades with the dial.
"""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lur import plots, tasks
from lur.training.loop import Run, train


class Setting(NamedTuple):
    """What is run: eta is fixed, the smallest and the largest gamma are compared."""

    task: str
    gammas: tuple[float, ...]
    eta: float
    dials: tuple[float, ...]
    rounds: int = 300
    every: int = 10
    clients: int | None = None
    clients_per_round: int | None = None
    batch_size: int | None = None


class Curve(NamedTuple):
    """f(x) and accuracy after so many rounds, of one run."""

    dial: float
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


def curve(setting: Setting, dial: float, gamma: float) -> Curve:
    """One run."""
    task = tasks.load(setting.task, clients=setting.clients, heterogeneity=dial)
    config = Run(
        setting.task,
        rounds=setting.rounds,
        client_lr=gamma,
        server_lr=setting.eta,
        server="sgd",
        clients_per_round=setting.clients_per_round,
        batch_size=setting.batch_size,
        evaluate_every=setting.every,
    )
    found = [(at.rounds, at.evaluation) for at in train(task, config, chunk=setting.every) if at.evaluation]
    return Curve(
        dial,
        gamma,
        tuple(rounds for rounds, _ in found),
        tuple(e.loss for _, e in found),
        tuple(e.accuracy for _, e in found),
    )


def curves(setting: Setting, report: Callable[[str], None] = lambda line: None) -> list[Curve]:
    """All runs of a setting."""
    found = []
    for dial in setting.dials:
        for gamma in setting.gammas:
            found.append(curve(setting, dial, gamma))
            last = found[-1]
            report(f"heterogeneity {dial:g}, gamma {gamma:g}: f = {last.losses[-1]:.4f}, {last.accuracies[-1]:.1%}")
    return found


class Comparison(NamedTuple):
    """The largest gamma against the smallest at one dial: where it led, and its loss over the other's at the end.

    `lead` is the last round up to which the larger gamma was ahead from the start on, 0 if it never was.
    """

    dial: float
    lead: int
    late: float


def comparisons(found: Sequence[Curve]) -> list[Comparison]:
    """One comparison per dial. The end is the mean over the last fifth of the curve."""
    made = []
    for dial in dict.fromkeys(c.dial for c in found):
        own = sorted((c for c in found if c.dial == dial), key=lambda c: c.gamma)
        small, large = own[0], own[-1]
        lead = 0
        for t, a, b in zip(small.rounds, small.losses, large.losses, strict=True):
            if not b < a:
                break
            lead = t
        tail = max(1, len(small.losses) // 5)
        made.append(Comparison(dial, lead, sum(large.losses[-tail:]) / sum(small.losses[-tail:])))
    return made


def verdict(found: Sequence[Curve]) -> list[str]:
    """The effect in sentences, each computed."""
    rows = sorted(comparisons(found), key=lambda row: row.dial)
    last = max(c.rounds[-1] for c in found)
    lines = [
        f"heterogeneity {row.dial:g}: the largest gamma "
        + (f"leads up to round {row.lead}" if row.lead else "never leads from the start")
        + f"; at the end its loss is {row.late:.2f} times that of the smallest"
        for row in rows
    ]
    top, bottom = rows[-1], rows[0]
    appears = 0 < top.lead < last and top.late > 1
    fades = abs(bottom.late - 1) < abs(top.late - 1) / 2 or bottom.late <= 1
    lines.append(
        f"ahead early and behind late at the highest dial: {'yes' if appears else 'no'}; "
        f"the late loss fades with the dial: {'yes' if fades else 'no'}"
    )
    return lines


def write(setting: Setting, found: Sequence[Curve], folder: Path) -> list[Path]:
    """The curves as a picture (SVG and PNG) and as CSV."""
    figure, axes = plots.panels(len(setting.dials), sharey=True)
    axes = [axes] if len(setting.dials) == 1 else axes
    for ax, dial in zip(axes, setting.dials, strict=True):
        for each in (c for c in found if c.dial == dial):
            ax.plot(each.rounds, each.losses, label=rf"$\gamma$ = {each.gamma:g}")
        ax.set(title=f"heterogeneity {dial:g}", xlabel="round", yscale="log")
    axes[0].set_ylabel("f(x)")
    axes[0].legend()
    figure.suptitle(rf"{setting.task} ({origin(setting.task)}), $\eta$ = {setting.eta:g}", fontsize=9)
    name = f"heterogeneity-{setting.task}"
    paths: list[Any] = [*plots.save(figure, folder, name), folder / f"{name}.csv"]
    with paths[-1].open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("heterogeneity", "gamma", "eta", "round", "loss", "accuracy"))
        for each in found:
            for t, loss, accuracy in zip(each.rounds, each.losses, each.accuracies, strict=True):
                rows.writerow((each.dial, each.gamma, setting.eta, t, f"{loss:.6g}", f"{accuracy:.6g}"))
    return paths


def origin(task: str) -> str:
    """What the data are."""
    return "real digits, dealt to clients" if task == "digits" else "generated data"
