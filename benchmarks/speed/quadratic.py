"""LocalUpdate on random least squares: lur against the same rounds as Python loops over numpy arrays.

    lur bench speed --task quadratic

About 10 seconds. Both end at the same model; expect lur to be tens of times faster.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import lur
from benchmarks.speed.stopwatch import best_seconds


class Speed(NamedTuple):
    """Rounds per second of each contender.

    Attributes:
        lur: lur, one call per round.
        lur_scan: lur, all rounds in one scan.
        python: Python loops over numpy arrays.
        difference: Largest difference of the final models, relative to the largest parameter.
    """

    lur: float
    lur_scan: float
    python: float
    difference: float


class Size(NamedTuple):
    """Sizes of the problem.

    Attributes:
        d: Dimension.
        M: Clients per round.
        K: Local steps.
        B: Batch size.
    """

    d: int = 50
    M: int = 10
    K: int = 10
    B: int = 1


DEFAULT = Size()


def problem(size: Size, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Mini-batches of a least-squares problem: features (M, K, B, d) and targets (M, K, B)."""
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((size.M, size.K, size.B, size.d)).astype(np.float32) / np.sqrt(size.d)
    return features.astype(np.float32), generator.standard_normal((size.M, size.K, size.B)).astype(np.float32)


def mean_squared_error(x, batch):
    """Half the mean squared error of a linear model."""
    features, targets = batch
    return 0.5 * jnp.mean((features @ x - targets) ** 2)


def python_rounds(
    x: np.ndarray, batches: tuple[np.ndarray, np.ndarray], gamma: float, eta: float, rounds: int
) -> np.ndarray:
    """Algorithms 1 and 2 as printed: three nested loops over numpy arrays."""
    features, targets = batches
    for _ in range(rounds):
        q = np.zeros_like(x)
        for i in range(len(features)):
            y = x.copy()
            for k in range(len(features[i])):
                g = features[i, k].T @ (features[i, k] @ y - targets[i, k]) / len(targets[i, k])
                q += g / np.float32(len(features))
                y -= np.float32(gamma) * g
        x = x - np.float32(eta) * q
    return x


def measure(size: Size = DEFAULT, rounds: int = 200, turns: int = 5) -> Speed:
    """Times the contenders in turns: lur with one call per round, lur with all rounds in one scan, and Python loops."""
    gamma, eta = 0.1, 0.1
    batches = problem(size)
    method = lur.local_update(mean_squared_error, lur.theta.fedavg(size.K))
    start = method.init(np.zeros(size.d, np.float32), gamma, eta)
    on_device = jax.device_put(batches)

    def one_call_per_round():
        state = start
        for _ in range(rounds):
            state, _ = method.round(state, on_device)
        return jax.block_until_ready(state.params)

    @jax.jit
    def scanned(state, batches):
        return jax.lax.scan(lambda s, _: (method.round(s, batches)[0], None), state, length=rounds)[0].params

    def one_scan():
        return jax.block_until_ready(scanned(start, on_device))

    def python_loops():
        return python_rounds(np.zeros(size.d, np.float32), batches, gamma, eta, rounds)

    contenders = {"lur": one_call_per_round, "lur_scan": one_scan, "python": python_loops}
    finals = {name: np.asarray(run()) for name, run in contenders.items()}
    gap = max(float(np.abs(finals[name] - finals["python"]).max()) for name in contenders)
    best = best_seconds(contenders, turns)
    speeds = {name: rounds / seconds for name, seconds in best.items()}
    return Speed(**speeds, difference=gap / float(np.abs(finals["python"]).max()))
