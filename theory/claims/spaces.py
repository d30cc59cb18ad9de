"""Where instances come from: unconstrained numbers in, legal problems out.

Eigenvalues, rotations, probabilities and rates are reached through exp, angles, softmax and sigmoid, so that a
gradient step anywhere gives a problem that meets the paper's assumptions. The names of the fields are the
paper's; `theory.trials.certify` rounds them to fractions by name.

=========  =============  ==========================================================
field      shape          meaning
=========  =============  ==========================================================
A          (n, d, d)      client matrices, eigenvalues in [1, kappa]
c          (n, d)         client minimisers
p          (n,)           client probabilities
gamma      ()             client rate, in (0, edge)
theta      (K,)           weights
x          (d,)           a model
A_z, c_z   (m, d, d), .   the examples of one client, p_z (m,) their probabilities
=========  =============  ==========================================================
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from theory.claims.claim import Space

KAPPA = 1e3  # the largest condition number visited

Edge = Callable[[dict[str, int], Any], Any]


def inverse_L(dims: dict[str, int], L: Any) -> Any:
    """gamma < 1 / L."""
    return 1 / L


def inverse_KL(dims: dict[str, int], L: Any) -> Any:
    """gamma < 1 / (K L)."""
    return 1 / (dims["K"] * L)


def up_to(numerator: int, denominator: int = 1) -> Edge:
    """gamma < (numerator / denominator) / L: beyond the lemma's range."""
    return lambda dims, L: numerator / (denominator * L)


def _shapes(dims: dict[str, int]) -> dict[str, tuple[tuple[int, ...], float]]:
    d, n, m, K = (dims.get(name, 1) for name in ("d", "n", "m", "K"))
    return {
        "spread": ((), 2.0),
        "eigenvalues": ((n, d), 2.0),
        "angles": ((n, d * (d - 1) // 2), 2.0),
        "c": ((n, d), 1.0),
        "p": ((n,), 1.0),
        "gamma": ((), 2.0),
        "theta": ((K,), 1.5),
        "x": ((d,), 2.0),
        "eigenvalues_z": ((m, d), 1.5),
        "angles_z": ((m, d * (d - 1) // 2), 2.0),
        "c_z": ((m, d), 1.0),
        "p_z": ((m,), 1.0),
    }


_RAW = {
    "A": ("spread", "eigenvalues", "angles"),
    "A_z": ("eigenvalues_z", "angles_z"),
}


def matrices(eigenvalues: Any, angles: Any) -> Any:
    """Symmetric matrices (..., d, d) with given eigenvalues (..., d), turned by d(d-1)/2 plane rotations."""
    d = eigenvalues.shape[-1]
    built = eigenvalues[..., None] * jnp.eye(d)
    planes = [(i, j) for i in range(d) for j in range(i)]
    for index, (i, j) in enumerate(planes):
        cos, sin = jnp.cos(angles[..., index]), jnp.sin(angles[..., index])
        turn = jnp.zeros_like(built) + jnp.eye(d)
        turn = turn.at[..., i, i].set(cos).at[..., j, j].set(cos).at[..., i, j].set(sin).at[..., j, i].set(-sin)
        built = turn @ built @ turn.swapaxes(-1, -2)
    return (built + built.swapaxes(-1, -2)) / 2


def space(
    fields: str,
    dims: tuple[dict[str, int], ...],
    edge: Edge = inverse_L,
    legal: Callable[[Any, Any], bool] | None = None,
    extra: Mapping[str, Callable[[Any, dict[str, Any], dict[str, int]], Any]] | None = None,
) -> Space:
    """The space of instances with these fields, e.g. ``space("A c p gamma theta", ...)``, gamma below `edge`.

    `extra` adds numbers of a claim's own, in order: ``{"eps": lambda raw, built, dims: jax.nn.sigmoid(raw)}`` makes one
    from a standard normal number and the fields built before it. `legal` checks what they must satisfy.
    """
    names, extra = fields.split(), dict(extra or {})

    def draw(generator: np.random.Generator, dims: dict[str, int], count: int) -> dict[str, Any]:
        shapes = _shapes(dims)
        raw = [part for name in names for part in _RAW.get(name, (name,))]
        drawn = {part: shapes[part][1] * generator.standard_normal((count, *shapes[part][0])) for part in raw}
        return drawn | {name: 2 * generator.standard_normal(count) for name in extra}

    def build(raw: dict[str, Any], dims: dict[str, int]) -> dict[str, Any]:
        built, L = {}, 1.0
        if "A" in names:
            kappa = jnp.exp(jnp.log(KAPPA) * jax.nn.sigmoid(raw["spread"]))
            eigenvalues = kappa ** jax.nn.sigmoid(raw["eigenvalues"])
            built["A"], L = matrices(eigenvalues, raw["angles"]), eigenvalues.max()
        if "A_z" in names:
            eigenvalues = jnp.exp(raw["eigenvalues_z"])
            built["A_z"] = matrices(eigenvalues, raw["angles_z"])
        for name in ("c", "x", "c_z"):
            if name in names:
                built[name] = raw[name]
        for name in ("p", "p_z"):
            if name in names:
                built[name] = jax.nn.softmax(raw[name])
        if "p_z" in names and "A_z" in names:
            L = jnp.linalg.eigvalsh(jnp.tensordot(built["p_z"], built["A_z"], 1)).max()
        if "gamma" in names:
            built["gamma"] = edge(dims, L) * jax.nn.sigmoid(raw["gamma"])
        if "theta" in names:
            built["theta"] = jnp.exp(raw["theta"])
        for name, make in extra.items():
            built[name] = make(raw[name], built, dims)
        return built

    def in_range(xp: Any, I: Any) -> bool:
        if "A" in names:
            spectrum = xp.eigvalsh(I.A)
            if not all(v > 0 for v in spectrum.ravel()):
                return False
            if "gamma" in names:
                L = xp.maximum(*spectrum.ravel())
                if not (I.gamma >= 0 and edge(I.dims, L) - I.gamma > 0):
                    return False
        if "A_z" in names and not all(v > 0 for v in xp.eigvalsh(I.A_z).ravel()):
            return False
        for name in ("p", "p_z"):
            if name in names and not all(v > 0 for v in getattr(I, name)):
                return False
        if "theta" in names and not all(v >= 0 for v in I.theta):
            return False
        return legal is None or legal(xp, I)

    return Space(dims, draw, build, in_range)
