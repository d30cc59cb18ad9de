"""Figure 1: the 1-D example. x*(gamma, K) in closed form, and where an implementation of LocalUpdate converges.

Lines are the closed form. Dots are the implementation's LocalUpdate under full participation, run to its limit. Bars
are the mean and the standard deviation over the second half of a run with one random client per round (M = B = 1), as
in the paper.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from theory import examples
from theory.precision import float64
from theory.reports.style import DrawingStyle
from theory.trials.experiments import density_limit, quadratic_loss
from theory.trials.implementation import REFERENCE, Implementation

ROUNDS = 20_000
FORGETTING = 0.01  # eta times the surrogate Hessian: the run forgets its start within 1 / FORGETTING rounds


@float64
def stochastic_tail(
    gamma: float, K: int, seed: int = 0, implementation: Implementation = REFERENCE
) -> tuple[float, float]:
    """Returns mean and standard deviation of x_t over the second half of a run with M = B = 1."""
    method = implementation.local_update(quadratic_loss, (1.0,) * K)
    eta = FORGETTING / float(examples.density_closed_form(gamma, K).hessian)
    state = method.init(jnp.array([examples.TRUE_MINIMIZER]), gamma, eta)

    @jax.jit
    def run(state: Any, key: Any) -> Any:
        def body(state, key):
            client = jnp.sqrt(0.25 + 3.75 * jax.random.uniform(key))  # the inverse distribution function
            batches = jnp.broadcast_to(client, (1, K, 1, 1, 1)), jnp.broadcast_to(1 / client, (1, K, 1, 1))
            state, _ = method.round(state, batches)
            return state, state.params[0]

        return jax.lax.scan(body, state, jax.random.split(key, ROUNDS))[1]

    tail = np.asarray(run(state, jax.random.key(seed)))[ROUNDS // 2 :]
    return float(tail.mean()), float(tail.std())


@float64
def points(implementation: Implementation = REFERENCE) -> dict[str, list[dict[str, float]]]:
    """Returns both panels as numbers: gamma = 1/2 with K varying, and K = 20 with gamma varying."""
    settings = {
        "vary_K": [(0.5, K) for K in (1, 2, 3, 5, 10, 20)],
        "vary_gamma": [(gamma, 20) for gamma in (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)],
    }
    rows: dict[str, list[dict[str, float]]] = {}
    for panel, pairs in settings.items():
        rows[panel] = []
        for gamma, K in pairs:
            mean, spread = stochastic_tail(gamma, K, implementation=implementation)
            exact = float(examples.density_closed_form(gamma, K).argmin)
            row = {
                "gamma": gamma,
                "K": K,
                "closed_form": exact,
                "limit": density_limit(implementation, gamma, K),
                "mean": mean,
                "spread": spread,
            }
            rows[panel].append(row)
    return rows


@float64
def draw(
    folder: Path, rows: dict[str, list[dict[str, float]]], style: DrawingStyle, stem: str = "figure1"
) -> tuple[Path, Path]:
    """Draws the figure.

    Args:
      folder: where STEM.svg, STEM.png and, with the numbers, STEM.csv go.
      rows: the numbers, from `points`.
      style: how figures look, such as `lur.plots`.
      stem: the name of the files.
    """
    figure, axes = style.panels(2, sharey=True)
    gammas = np.linspace(0, 1, 101)
    curves = {
        "vary_K": ("K", [(K, 0.5, K) for K in range(1, 21)], "number of local steps $K$", r"$\gamma = 0.5$"),
        "vary_gamma": ("gamma", [(g, g, 20) for g in gammas], r"client learning rate $\gamma$", "$K = 20$"),
    }
    for axis, (panel, (name, curve, label, title)) in zip(axes, curves.items(), strict=True):
        axis.axhline(examples.TRUE_MINIMIZER, color=style.COLOURS[6], linestyle=":", label="true minimiser $x^*$")
        axis.axhline(examples.AVERAGE_MINIMIZER, color=style.COLOURS[2], linestyle="--", label="average minimiser $c$")
        exact = [float(examples.density_quadrature(gamma, K).argmin) for _, gamma, K in curve]
        axis.plot([value for value, *_ in curve], exact, color=style.COLOURS[0], label=r"$x^*(\gamma, \Theta_{1:K})$")
        at = [row[name] for row in rows[panel]]
        axis.errorbar(
            at, [row["mean"] for row in rows[panel]], [row["spread"] for row in rows[panel]],
            fmt="none", color=style.COLOURS[1], capsize=2, label="LocalUpdate, $M = 1$: mean and spread",
        )  # fmt: skip
        axis.plot(at, [row["limit"] for row in rows[panel]], "o", color=style.COLOURS[1], label="LocalUpdate, limit")
        axis.set(xlabel=label, title=title)
    axes[0].set(ylabel="$x$")
    axes[1].legend(fontsize=7, loc="lower right")
    header = list(rows["vary_K"][0])
    lines = [",".join(header)] + [
        ",".join(f"{row[key]:.15g}" for key in header) for panel in rows.values() for row in panel
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}.csv").write_text("\n".join(lines) + "\n")
    return style.save(figure, folder, stem)
