"""Random generators: one per client and one for what clients share, so that no client depends on another."""

import zlib
from numbers import Integral, Real

import numpy as np

Features = dict[str, np.ndarray | list[bytes]]
"""A client's examples: per feature an array with the examples along axis 0, or a list of byte strings."""


def check_arguments(num_clients: int, seed: int, heterogeneity: float, **sizes: int | None) -> None:
    """Raise a ValueError unless the arguments that all generators share are valid.

    Args:
      num_clients: the number of clients.
      seed: the seed.
      heterogeneity: the heterogeneity.
      **sizes: options that are numbers of examples, or None for the default.
    """
    counts = {"num_clients": num_clients, **{name: size for name, size in sizes.items() if size is not None}}
    for name, count in counts.items():
        if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
            raise ValueError(f"{name} must be an integer >= 1, got {count!r}")
    if not isinstance(seed, Integral) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"seed must be an integer >= 0, got {seed!r}")
    is_number = isinstance(heterogeneity, Real) and not isinstance(heterogeneity, bool)
    if not is_number or not np.isfinite(heterogeneity) or heterogeneity < 0:
        raise ValueError(f"heterogeneity must be a finite number >= 0, got {heterogeneity!r}")


def generator_for(dataset: str, seed: int, *key: int) -> np.random.Generator:
    """Return the random generator of one part of a dataset, such as a client.

    Args:
      dataset: the name of the dataset.
      seed: the seed.
      *key: what identifies the part, such as a client's number; no key for what all clients share.
    """
    return np.random.default_rng(np.random.SeedSequence(int(seed), spawn_key=(zlib.crc32(dataset.encode()), *key)))


def mixture_weights(rng: np.random.Generator, size: int, concentration: float, heterogeneity: float) -> np.ndarray:
    """Return a client's weights over `size` items: Dirichlet(concentration / heterogeneity), uniform at 0."""
    if heterogeneity < 1e-9:
        return np.full(size, 1 / size)
    return rng.dirichlet(np.full(size, concentration / heterogeneity))


def lognormal_size(rng: np.random.Generator, median: float, spread: float, low: int, high: int) -> int:
    """Return a client's number of examples: lognormal with this median and log-scale, clipped to [low, high]."""
    return int(np.clip(np.rint(median * np.exp(spread * rng.standard_normal())), low, high))
