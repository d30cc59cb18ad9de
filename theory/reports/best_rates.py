"""The gain of the best rates and weights over the best cell of a grid: `python -m theory.reports.best_rates`.

Random problems, T rounds from 0 with M clients per round and noisy gradients, K = 5 local steps. Each is solved by a
25 x 25 grid of (gamma, eta) for FedAvg and by `theory.optimal_rates`, and so is the paper's 1-D example.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from theory.examples import density_nodes
from theory.precision import float64
from theory.problems import Problem
from theory.rates import BestRates, grid_errors, optimal_rates

T, M, B, K = 8, 3, 2, 5
NOISE = 0.05
CELLS = 25


class Comparison(NamedTuple):
    """Exact errors on one problem; gamma stays within the grid's range except in `unlimited`.

    Attributes:
      grid: the error of FedAvg in the best cell of the grid.
      fedavg: FedAvg with the best gamma and eta.
      best: the best gamma, eta and Theta.
      unlimited: the same with any gamma.
    """

    grid: float
    fedavg: BestRates
    best: BestRates
    unlimited: BestRates


@float64
def random_problem(seed: int, n: int = 5, d: int = 3) -> Problem:
    """Returns clients with eigenvalues in [0.1, 1] and normal minimisers around (1, 1, 1)."""
    rng = np.random.default_rng([seed, 8])
    frames, _ = np.linalg.qr(rng.normal(size=(n, d, d)))
    A = np.einsum("nik,nk,njk->nij", frames, 10 ** rng.uniform(-1, 0, (n, d)), frames)
    return Problem(jnp.asarray((A + A.swapaxes(-1, -2)) / 2), jnp.asarray(1 + rng.normal(size=(n, d))))


@float64
def one_dimensional() -> Problem:
    """Returns the paper's 1-D example, f_i(x) = i x^2 / 2 - x with density 8i/15 on [1/2, 2], at 16 nodes."""
    nodes, mass = density_nodes(16)
    return Problem(nodes[:, None, None], 1 / nodes[:, None], mass)


def compare(problem: Problem) -> Comparison:
    """Compares the grid with gradient descent on the exact error."""
    noise = NOISE * np.eye(problem.c.shape[1])
    L = float(np.linalg.eigvalsh(np.asarray(problem.A)).max())
    fedavg = (1.0,) * K
    gammas, etas = np.geomspace(0.01, 1.5, CELLS) / L, np.geomspace(0.01, 3.0, CELLS) / L
    cells = grid_errors(problem, T, M, B, gammas, etas, fedavg, noise=noise)
    top = float(gammas[-1])
    return Comparison(
        float(np.nanmin(np.asarray(cells))),
        optimal_rates(problem, T, M, B, theta=fedavg, noise=noise, largest_gamma=top),
        optimal_rates(problem, T, M, B, K=K, noise=noise, largest_gamma=top),
        optimal_rates(problem, T, M, B, K=K, noise=noise),
    )


NAMES = {
    "fedavg": "FedAvg, best gamma and eta",
    "best": "best gamma, eta and Theta",
    "unlimited": "the same, gamma without limit",
}


def report(problems: int = 50) -> list[Comparison]:
    """Prints and returns the comparison on random problems."""
    comparisons = [compare(random_problem(seed)) for seed in range(problems)]
    print(f"by how much the best of {CELLS} x {CELLS} cells is worse, on {problems} random problems:")
    for field, name in NAMES.items():
        values = np.array([c.grid / getattr(c, field).error for c in comparisons])
        low, middle, high = 100 * (np.quantile(values, [0, 0.5, 1]) - 1)
        print(f"  {name:30} {low:.3g}% to {high:.3g}%, median {middle:.3g}%; cells that win: {(values < 1).sum()}")
    example = compare(one_dimensional())
    print(f"the 1-D example: grid {example.grid:.6g}, FedAvg {example.fedavg.error:.6g}, best {example.best.error:.6g} "
          f"(gamma = {example.best.gamma:.4g}, eta = {example.best.eta:.4g}, "
          f"Theta = {np.array2string(example.best.theta, precision=3)})")  # fmt: skip
    return comparisons


if __name__ == "__main__":
    report()
