"""Several processes as one run: which of them this is, and what they tell each other besides the sums of rounds.

`jax.distributed` connects the processes; the clients axis spans the devices of all (`lur.parallel.layouts`). Every
process does the same steps in the same order. What depends on one process, its clock, its signals or its run folder, is
decided by process 0 and told to all.

Started by `lur launch --processes N`, a process finds its place in ``LUR_PLACE`` and tells the launcher over a pipe
that it lives; with ``LUR_PLACE=auto`` (`lur launch` without a number) `jax.distributed` finds its own settings.
"""

import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import PyTree

VARIABLE = "LUR_PLACE"
AUTO = "auto"
M_MMAP_THRESHOLD = -3
"""Of glibc's `mallopt`."""
BEAT = 0.5
"""Seconds between two signs of life."""
LOST = 75
"""The exit status of a process that lost another."""
BROKEN = 1
"""That of one with an error that nobody foresaw."""
LARGE = 2**20
"""Bytes from which on memory is asked of the system, and given back to it."""
LONGEST = 4096
"""Bytes of what process 0 may tell."""


class Place(NamedTuple):
    """Where a process stands among those that `lur launch` started."""

    coordinator: str
    process: int
    processes: int
    pipe: int
    patience: int
    cores: Sequence[int] | None = None


class Watch:
    """Tells the launcher, twice a second, that this process lives and how often it ticked. Without one it is idle.

    A process whose launcher is gone ends.
    """

    def __init__(self, pipe: int | None = None):
        self.pipe, self.ticks = pipe, 0
        if pipe is not None:
            threading.Thread(target=self.beat, args=(pipe,), daemon=True).start()

    def tick(self) -> None:
        """Some rounds are done."""
        self.ticks += 1

    def beat(self, pipe: int) -> None:
        """Until the launcher is gone."""
        while True:
            try:
                os.write(pipe, f"{self.ticks}\n".encode())
            except OSError:
                os._exit(LOST)
            time.sleep(BEAT)


def join() -> Watch:
    """Connect this process with the others, if it was started as one of several."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return Watch()
    if text == AUTO:
        give_memory_back()
        jax.distributed.initialize()
        return Watch()
    place = Place(**json.loads(text))
    watch = Watch(place.pipe)
    give_memory_back()
    if place.cores is not None:
        os.sched_setaffinity(0, place.cores)
    jax.distributed.initialize(
        place.coordinator,
        place.processes,
        place.process,
        cluster_detection_method="deactivate",
        coordinator_bind_address=place.coordinator,
        initialization_timeout=place.patience,
        heartbeat_timeout_seconds=place.patience,
        shutdown_timeout_seconds=place.patience,
    )
    return watch


def give_memory_back() -> None:
    """Keep glibc from holding on to large blocks.

    Examples read ahead are made in one thread and freed in others. By default glibc soon takes such blocks from its
    heaps, which then grow by some megabytes in 1,000 rounds. Other C libraries have no such setting.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE)


def end_at_once(status: int) -> NoReturn:
    """End without `jax.distributed`'s own end, which waits for the others: they may wait for this one."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def is_first() -> bool:
    """Whether this is process 0, which keeps the run folder; alone it is."""
    return jax.process_index() == 0


def broadcast_from_first(value: Any) -> Any:
    """What process 0 has as `value`: anything that JSON can say."""
    if jax.process_count() == 1:
        return value
    content = json.dumps(value).encode() if is_first() else b""
    if len(content) > LONGEST:
        raise ValueError(f"value must be at most {LONGEST} bytes as JSON, got {len(content)}")
    found = multihost_utils.broadcast_one_to_all(np.frombuffer(content.ljust(LONGEST), np.uint8))
    return json.loads(np.asarray(found).tobytes())


def broadcast_arrays_from_first(tree: PyTree) -> PyTree:
    """The arrays of process 0, to the bit; those of the others say shapes and dtypes only."""
    if jax.process_count() == 1:
        return tree

    def one(leaf: Any) -> np.ndarray:
        leaf = np.asarray(leaf)
        found = multihost_utils.broadcast_one_to_all(np.frombuffer(leaf.tobytes(), np.uint8))
        return np.frombuffer(np.asarray(found).tobytes(), leaf.dtype).reshape(leaf.shape)

    return jax.tree.map(one, tree)


def gather_from_processes(array: np.ndarray) -> np.ndarray:
    """The arrays of all processes, stacked along a leading axis, to the bit."""
    if jax.process_count() == 1:
        return array[None]
    found = multihost_utils.process_allgather(np.frombuffer(array.tobytes(), np.uint8))
    return np.frombuffer(np.asarray(found).tobytes(), array.dtype).reshape(jax.process_count(), *array.shape)


def put_on_devices(tree: PyTree, sharding: Any) -> PyTree:
    """What every process has alike, on the devices of a sharding; one process may have a tree of shardings."""
    if sharding is None:
        return tree
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)

    def one(leaf: Any) -> jax.Array:
        value = np.asarray(leaf)
        return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])

    return jax.tree.map(one, tree)
