"""The pictures of the docs on surrogates, best weights and extrapolation: `python -m benchmarks.doc_pictures DIR`.

`lur predict --out DIR` and `lur diagnose TASK --out DIR` draw their own.
"""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lur
import theory
from lur import plots
from lur.methods import extrapolation
from theory import clients, methods
from theory.distance import minimizer_distance
from theory.extrapolation import combined_minimizer, extrapolated_shift
from theory.optimal import optimal_theta, worst_condition
from theory.precision import float64
from theory.reports import best_rates
from theory.trials.experiments import quadratic_loss
from theory.trials.prediction import random_problem

K = 5


@float64
def surrogates() -> dict[str, tuple[Any, Any, Any]]:
    """Returns, by client, condition number and distance ||x^ - x*|| for growing gamma, and whether there is a loss."""
    problem: Any = best_rates.random_problem(1)
    D = np.diag([0.5, 1.0, 2.0])
    zoo = {
        "FedAvg": lambda g: clients.sgd(g, (1.0,) * K),
        "FOMAML": lambda g: clients.sgd(g, (0.0,) * (K - 1) + (1.0,)),
        r"FedProx, $\rho = 0.3$": lambda g: clients.sgd(g, (1.0,) * K, rho=0.3),
        r"momentum, $\beta = 0.5$": lambda g: clients.momentum(g, 0.5, (1.0,) * K, send="delta"),
        "preconditioned, sum": lambda g: clients.preconditioned(g, (1.0,) * K, D),
        "preconditioned, delta": lambda g: clients.preconditioned(g, (1.0,) * K, D, send="delta"),
    }
    x, curves = theory.minimizer(problem), {}
    for name, client in zoo.items():
        rows = [theory.surrogate_of(client(g), problem, steps=K) for g in np.linspace(0.02, 0.95, 7)]
        curves[name] = (
            [float(row.condition_number) for row in rows],
            [float(jnp.linalg.norm(row.minimizer - x)) for row in rows],
            [row.has_loss for row in rows],
        )
    return curves


def draw_surrogates(folder: Path) -> tuple[Path, ...]:
    """Draws where clients converge and how well conditioned their surrogates are, as gamma grows."""
    figure, axis = plots.panels(1)
    figure.set_size_inches(5.4, 3.4)
    for colour, (name, (kappa, distance, loss)) in zip(plots.COLOURS, surrogates().items(), strict=False):
        style = "o-" if all(loss) else "x:"
        axis.plot(kappa, distance, style, color=colour, markersize=4, label=name + ("" if all(loss) else " (no loss)"))
    axis.set(xlabel="condition number of the surrogate", ylabel=r"distance of its minimiser from $x^*$")
    axis.legend(fontsize=7)
    return plots.save(figure, folder, "surrogate")


@float64
def draw_optimal(folder: Path, problems: int = 50) -> tuple[Path, ...]:
    """Draws the trade-off law with the methods on it, and the gain of the best rates over a grid."""
    mu, L = 1.0, 10.0
    kappa = L / mu
    figure, axes = plots.panels(2)
    chi = np.geomspace(0.1, 1, 50)
    axes[0].plot(chi, kappa * chi, color="0.6", linewidth=5, alpha=0.5, label=r"$\tilde\kappa = \kappa\chi_\mu$")
    curves = {
        "FedAvg": [(g, (1.0,) * K) for g in np.linspace(0.0, 1 / L, 6)],
        "FOMAML": [(g, lur.theta.fomaml(K)) for g in np.linspace(0.0, 1 / (K * L), 6)],
    }
    for colour, (name, settings) in zip(plots.COLOURS, curves.items(), strict=False):
        points = [(theory.chi_mu(g, t, mu, L), worst_condition(g, t, mu, L)) for g, t in settings]
        axes[0].plot(*np.array(points, float).T, "o", color=colour, label=name)
    rho = np.array([0.2, 1.0, 3.0, 10.0, 50.0])
    spectrum = np.linspace(mu, L, 400)
    prox = np.stack([np.diagonal(methods.moreau_hessian(np.diag(spectrum), r)) for r in rho])
    s = prox / spectrum
    axes[0].plot(s[:, -1] / s[:, 0], prox.max(1) / prox.min(1), "D", color=plots.COLOURS[2], label="FedProx")
    floors = [0.2, 0.3, 0.5, 0.8]
    best = [optimal_theta(mu, L, 1 / L, K, chi_mu_min=floor) for floor in floors] + [optimal_theta(mu, L, 1 / L, K)]
    axes[0].plot([b.chi_mu for b in best], [b.condition_number for b in best], "^", color=plots.COLOURS[3],
                 label=r"best $\Theta$, $\gamma = 1/L$")  # fmt: skip
    axes[0].axhline(float(methods.chebyshev_condition(mu, L, K)), color="0.3", linestyle=":", label="Chebyshev")
    axes[0].set(xscale="log", yscale="log", xlabel=r"$\chi_\mu$ (1: no bias)", title=r"$\kappa = 10$, $K = 5$")
    axes[0].set(ylabel=r"condition number $\tilde\kappa$ in the worst case")
    axes[0].legend(fontsize=6)
    comparisons = [best_rates.compare(best_rates.random_problem(seed)) for seed in range(problems)]
    for colour, (field, name) in zip(plots.COLOURS, best_rates.NAMES.items(), strict=False):
        wins = np.sort([100 * (c.grid / getattr(c, field).error - 1) for c in comparisons])
        axes[1].plot(np.arange(1, problems + 1), wins, ".", color=colour, label=name)
    axes[1].set(yscale="log", xlabel="problems, sorted", ylabel="the best cell is worse by (%)")
    axes[1].set(title=f"{best_rates.CELLS} x {best_rates.CELLS} grid of FedAvg")
    axes[1].legend(fontsize=6)
    return plots.save(figure, folder, "optimal")


@float64
def draw_extrapolation(folder: Path) -> tuple[Path, ...]:
    """Draws the distance from x* against gamma: lines in closed form, dots by lur under full participation."""
    problem: Any = random_problem(0)
    theta, x = (1.0,) * K, theory.minimizer(problem)
    lines = {
        "plain": lambda g: minimizer_distance(problem, g, theta),
        "two models": lambda g: jnp.linalg.norm(extrapolated_shift(problem, g, theta)),
        "two messages": lambda g: jnp.linalg.norm(combined_minimizer(problem, g, theta) - x),
    }
    extrapolate: Any = {"two models": "models", "two messages": "updates"}
    methods_by_name = {
        name: extrapolation.extrapolated_update(quadratic_loss, theta, extrapolate=extrapolate[name])
        if name in extrapolate
        else lur.local_update(quadratic_loss, theta)
        for name in lines
    }
    batches = tuple(jnp.broadcast_to(v[:, None, None], (len(v), K, 1, *v.shape[1:])) for v in (problem.A, problem.c))
    figure, axis = plots.panels(1)
    gammas = np.geomspace(0.002, 0.15, 40)
    for colour, (name, line) in zip(plots.COLOURS, lines.items(), strict=False):
        axis.plot(gammas, [float(line(g)) for g in gammas], color=colour, label=name)
        run = methods_by_name[name].round

        @jax.jit
        def end(state, run=run):
            return jax.lax.fori_loop(0, 600, lambda _, s: run(s, batches, problem.p)[0], state)

        for gamma in (0.005, 0.02, 0.08):
            params = end(methods_by_name[name].init(jnp.zeros_like(x), gamma, 0.1)).params
            params = extrapolation.extrapolated_model(params) if name == "two models" else params
            axis.plot(gamma, float(jnp.linalg.norm(params - x)), "o", color=colour)
    axis.set(xscale="log", yscale="log", xlabel=r"client learning rate $\gamma$", ylabel=r"distance from $x^*$")
    axis.legend(fontsize=7)
    return plots.save(figure, folder, "extrapolation")


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    for draw in (draw_surrogates, draw_extrapolation, draw_optimal):  # the last takes a minute
        for path in draw(folder):
            print(path)
