"""Random streams: one per client and one for what clients share, so that a client never depends on the others."""

import zlib
from numbers import Integral, Real

import numpy as np

Features = dict[str, np.ndarray | list[bytes]]
"""A client's examples: per feature an array with the examples along axis 0, or a list of byte strings."""


def check(num_clients: int, seed: int, heterogeneity: float, **sizes: int | None) -> None:
    """What all generators ask of their arguments; `sizes` are options that count examples (None: the default)."""
    counts = {"num_clients": num_clients, **{name: size for name, size in sizes.items() if size is not None}}
    for name, count in counts.items():
        if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
            raise ValueError(f"{name} must be an integer >= 1, got {count!r}")
    if not isinstance(seed, Integral) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"seed must be an integer >= 0, got {seed!r}")
    number = isinstance(heterogeneity, Real) and not isinstance(heterogeneity, bool)
    if not number or not np.isfinite(heterogeneity) or heterogeneity < 0:
        raise ValueError(f"heterogeneity must be a finite number >= 0, got {heterogeneity!r}")


def stream(kind: str, seed: int, *place: int) -> np.random.Generator:
    """The random stream of one place (a client, say) in one kind of data. Without a place: of what is shared."""
    return np.random.default_rng(np.random.SeedSequence(int(seed), spawn_key=(zlib.crc32(kind.encode()), *place)))


def mixture(rng: np.random.Generator, size: int, concentration: float, heterogeneity: float) -> np.ndarray:
    """A client's weights over `size` things: Dirichlet(concentration / heterogeneity), uniform at heterogeneity 0."""
    if heterogeneity < 1e-9:
        return np.full(size, 1 / size)
    return rng.dirichlet(np.full(size, concentration / heterogeneity))


def heavy_tailed(rng: np.random.Generator, median: float, spread: float, least: int, most: int) -> int:
    """A client's number of examples: lognormal with this median and log-scale, clipped."""
    return int(np.clip(np.rint(median * np.exp(spread * rng.standard_normal())), least, most))
