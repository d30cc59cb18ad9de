"""LocalUpdate on a random quadratic: lur against the same rounds as a plain Python loop over numpy arrays.

    lur bench speed --task quadratic

About 10 seconds. The two end at the same model; lur should be tens of times faster.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import lur
from benchmarks.speed.stopwatch import best_seconds


class Speed(NamedTuple):
    """Rounds per second of both, and how far apart their final models are, relatively."""

    lur: float
    lur_scan: float
    python: float
    difference: float


class Size(NamedTuple):
    """Dimension, clients a round, local steps and examples a mini-batch."""

    d: int = 50
    M: int = 10
    K: int = 10
    B: int = 1


DEFAULT = Size()


def problem(size: Size, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Mini-batches of least squares: features (M, K, B, d) and targets (M, K, B)."""
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((size.M, size.K, size.B, size.d)).astype(np.float32) / np.sqrt(size.d)
    return features.astype(np.float32), generator.standard_normal((size.M, size.K, size.B)).astype(np.float32)


def squares(x, batch):
    """Half the mean squared error of a linear model."""
    features, targets = batch
    return 0.5 * jnp.mean((features @ x - targets) ** 2)


def python_rounds(
    x: np.ndarray, batches: tuple[np.ndarray, np.ndarray], gamma: float, eta: float, rounds: int
) -> np.ndarray:
    """Algorithms 1 and 2 as one would write them down: three nested loops and numpy."""
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
    """Run the contenders in turns: lur a round at a time, lur with all rounds in one scan, and plain Python."""
    gamma, eta = 0.1, 0.1
    batches = problem(size)
    algorithm = lur.local_update(squares, lur.theta.fedavg(size.K))
    start = algorithm.init(np.zeros(size.d, np.float32), gamma, eta)
    on_device = jax.device_put(batches)

    def one_at_a_time():
        state = start
        for _ in range(rounds):
            state, _ = algorithm.round(state, on_device)
        return jax.block_until_ready(state.params)

    @jax.jit
    def scanned(state, batches):
        return jax.lax.scan(lambda s, _: (algorithm.round(s, batches)[0], None), state, length=rounds)[0].params

    def in_one_scan():
        return jax.block_until_ready(scanned(start, on_device))

    def plain_python():
        return python_rounds(np.zeros(size.d, np.float32), batches, gamma, eta, rounds)

    contenders = {"lur": one_at_a_time, "lur_scan": in_one_scan, "python": plain_python}
    finals = {name: np.asarray(run()) for name, run in contenders.items()}
    gap = max(float(np.abs(finals[name] - finals["python"]).max()) for name in contenders)
    best = best_seconds(contenders, turns)
    speeds = {name: rounds / seconds for name, seconds in best.items()}
    return Speed(**speeds, difference=gap / float(np.abs(finals["python"]).max()))
