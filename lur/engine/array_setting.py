"""Arrays as settings of a compiled program, such as one number per client of the population."""

from typing import Any, NamedTuple

import numpy as np


class ArraySetting(NamedTuple):
    """An array of one axis that compares by value, as settings do: equal ones share a compiled program.

    Attributes:
      dtype: name of the dtype.
      content: the bytes.
    """

    dtype: str
    content: bytes

    @property
    def array(self) -> np.ndarray:
        """The setting as a numpy array, read-only."""
        return np.frombuffer(self.content, self.dtype)


def array_setting(values: Any, dtype: Any) -> ArraySetting:
    """Return an array of one axis as a setting."""
    array = np.asarray(values, dtype)
    return ArraySetting(array.dtype.name, array.tobytes())
