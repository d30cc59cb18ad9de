"""Whether all processes of a run run the same.

Processes that were started with different settings, data or versions would train to a wrong number, or wait for each
other forever. Before the first round each process therefore sends a description of what it is about to run, and all of
them end with the differences if there are any.
"""

import dataclasses
import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from types import CodeType
from typing import Any

import jax
import numpy as np

from lur.parallel.processes import gather_from_processes, limit_wait

Description = Mapping[str, str]
"""What a process runs: values as text, by the name of the field."""
MAX_TEXT = 120
"""Longer values are cut, and end with a checksum of the whole."""
MAX_DEPTH = 16
"""Settings that are nested deeper than this are described by their types."""
CONFIG = ("jax_enable_x64", "jax_default_matmul_precision", "jax_default_prng_impl", "jax_numpy_dtype_promotion")


def check_agreement(description: Description) -> None:
    """Raise ValueError in all processes, with the differences, unless all pass the same description.

    A single process agrees with itself. A process that waits too long for the others exits with a sentence.
    """
    if jax.process_count() == 1:
        return
    content = json.dumps(description).encode()
    with limit_wait("to compare what they run"):
        lengths = gather_from_processes(np.array([len(content)]))
        gathered = gather_from_processes(np.frombuffer(content.ljust(int(lengths.max())), np.uint8))
        found = differences([json.loads(row.tobytes()) for row in gathered])
        if found:
            jax.distributed.shutdown()  # all processes do, so that none is aborted because another one has left
            raise ValueError(f"processes must run the same, got {'; '.join(found)}")


def differences(descriptions: Sequence[Description]) -> list[str]:
    """Return where processes differ from process 0: ``seed 0 in process 0 and 1 in process 1``."""
    first, found = descriptions[0], []
    for index, other in enumerate(descriptions):
        for name in {**first, **other}:
            expected, value = (_shortened(each.get(name, "none")) for each in (first, other))
            if expected != value:
                found.append(f"{name} {expected} in process 0 and {value} in process {index}")
    return found


def versions() -> dict[str, str]:
    """Return the versions and settings of the software that the numbers depend on."""
    packages = {"lur": "lur-jax", "jax": "jax", "jaxlib": "jaxlib", "numpy": "numpy", "optax": "optax"}
    found = {name: version(package) for name, package in packages.items()}
    found |= {"python": platform.python_version(), "platform": jax.default_backend()}
    return found | {name: str(getattr(jax.config, name)) for name in CONFIG}


def describe(name: str, value: Any) -> dict[str, str]:
    """Return a description of a value, such as a method: one entry for each field of its named tuples.

    Functions are described by their name, code and closure, arrays by their content. No entry depends on where an
    object lies in memory.
    """
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        found = {name: type(value).__qualname__}
        for field in value._fields:  # pyright: ignore[reportAttributeAccessIssue]
            found |= describe(f"{name}.{field}", getattr(value, field))
        return found
    return {name: _text(value, ())}


def _text(value: Any, parents: tuple[int, ...]) -> str:
    """Return a value as text; `parents` are the identities of the values that contain it."""
    if isinstance(value, bytes) and len(value) > MAX_TEXT:
        return f"{len(value)} bytes#{_checksum(value.hex())}"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic | np.dtype | type):
        return repr(value)
    if id(value) in parents or len(parents) == MAX_DEPTH:
        return type(value).__qualname__
    inside = partial(_text, parents=(*parents, id(value)))
    if isinstance(value, np.ndarray | jax.Array):
        return array_text(value)
    if isinstance(value, tuple | list):
        return f"{type(value).__qualname__}({', '.join(map(inside, value))})"
    if isinstance(value, set | frozenset):
        return f"{type(value).__qualname__}({', '.join(sorted(map(inside, value)))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{inside(key)}: {inside(item)}' for key, item in value.items()))}}}"
    if isinstance(value, partial):
        return f"partial{inside((value.func, value.args, value.keywords))}"
    if isinstance(value, CodeType):
        return _checksum(f"{value.co_code.hex()}{value.co_names}{inside(value.co_consts)}")
    if hasattr(value, "__self__") and hasattr(value, "__func__"):
        return f"{inside(value.__self__)}.{value.__name__}"
    if hasattr(value, "__wrapped__"):
        return inside(value.__wrapped__)
    if hasattr(value, "__code__"):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        content = inside((value.__code__, value.__defaults__, value.__kwdefaults__, cells))
        return f"{value.__module__}.{value.__qualname__}#{_checksum(content)}"
    if dataclasses.is_dataclass(value) and hasattr(value, "store"):  # a task, whose store is compared by its content
        return type(value).__qualname__
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        return f"{type(value).__qualname__}{inside(fields)}"
    return type(value).__qualname__


def array_text(array: Any) -> str:
    """Return dtype, shape and a checksum of an array; of one that other processes hold parts of, no checksum."""
    shape = f"{array.dtype}{list(array.shape)}"
    if isinstance(array, jax.Array):
        if jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
            return array_text(jax.random.key_data(array))
        if not (array.is_fully_addressable or array.is_fully_replicated):
            return shape
    return f"{shape}#{hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:12]}"


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 20]}...#{_checksum(text)}"


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
