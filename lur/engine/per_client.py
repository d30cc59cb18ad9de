"""One number per client of the population, as a setting of a compiled program."""

from typing import Any, NamedTuple

import numpy as np


class PerClient(NamedTuple):
    """Numbers of all clients, which compare by value, as settings do: equal ones share a compiled program.

    Attributes:
      dtype: name of the dtype.
      content: the numbers' bytes.
    """

    dtype: str
    content: bytes

    @property
    def array(self) -> np.ndarray:
        """The numbers, one per client."""
        return np.frombuffer(self.content, self.dtype)


def per_client(values: Any, dtype: Any) -> PerClient:
    """Return numbers of all clients as a setting."""
    array = np.asarray(values, dtype)
    return PerClient(array.dtype.name, array.tobytes())
