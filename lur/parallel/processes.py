"""Several processes that run as one: connecting them, and agreeing on what only one of them knows.

`jax.distributed` connects the processes, and the clients axis spans the devices of all of them
(`lur.parallel.layouts`). Every process takes the same steps in the same order. What depends on a single process, such
as its clock, its signals or its run folder, is decided by process 0 and broadcast to the others.

A process that `lur launch --processes N` started finds its place in the environment variable ``LUR_PLACE`` and sends
the launcher signs of life through a pipe. With ``LUR_PLACE=auto:1800`` (`lur launch` without a number, with its
patience) `jax.distributed` finds its own settings.
"""

import ctypes
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import PyTree

from lur.parallel.rendezvous import meet

VARIABLE = "LUR_PLACE"
AUTO = "auto"
LOST = 75
"""Exit status of a process that lost another process."""
BROKEN = 1
"""Exit status of a process with an unexpected error."""
PATIENCE = 1800
"""Seconds after which another process counts as lost, unless the launcher says otherwise."""
CONNECT_SECONDS = 300
"""Seconds within which the processes that a cluster started must have connected, unless the patience is shorter."""
CLUSTER_HEARTBEAT_SECONDS = 100
"""Seconds without a heartbeat after which jax counts a process that a cluster started as lost."""
HEARTBEAT_SECONDS = 0.5
MALLOPT_MMAP_THRESHOLD = -3
"""The parameter M_MMAP_THRESHOLD of glibc's `mallopt`."""
MMAP_BYTES = 2**20
"""Larger blocks of memory are requested from the system directly, and returned to it when they are freed."""
MESSAGE_BYTES = 4096
"""The largest JSON value that process 0 broadcasts."""


class Place(NamedTuple):
    """The place of a process among those that `lur launch` started.

    Attributes:
      coordinator: host and port of `jax.distributed`'s coordinator.
      process: index of this process.
      processes: number of processes.
      pipe: file descriptor for signs of life; None if a cluster started the process.
      patience: seconds after which another process counts as lost.
      cores: the CPU cores of this process; None for all.
      local_devices: indices of the accelerators of this process; None for all.
    """

    coordinator: str
    process: int
    processes: int
    pipe: int | None
    patience: int
    cores: Sequence[int] | None = None
    local_devices: Sequence[int] | None = None

    @property
    def is_local(self) -> bool:
        """Whether `lur launch --processes` started the process, on this machine."""
        return self.pipe is not None


class Heartbeat:
    """Tells the launcher regularly that this process is alive, and how often it made progress.

    Without a pipe it does nothing. A process whose launcher is gone exits.
    """

    def __init__(self, pipe: int | None = None):
        self.ticks = 0
        if pipe is not None:
            threading.Thread(target=self._beat, args=(pipe,), daemon=True).start()

    def tick(self) -> None:
        """Record progress: some rounds are done."""
        self.ticks += 1

    def _beat(self, pipe: int) -> None:
        while True:
            try:
                os.write(pipe, f"{self.ticks}\n".encode())
            except OSError:
                os._exit(LOST)
            time.sleep(HEARTBEAT_SECONDS)


def join() -> Heartbeat:
    """Connect this process with the others, if it was started as one of several."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return Heartbeat()
    place = detect_place() if text.startswith(AUTO) else Place(**json.loads(text))
    heartbeat = Heartbeat(place.pipe)
    return_freed_memory()
    if place.cores is not None:
        os.sched_setaffinity(0, place.cores)
    seconds = place.patience if place.is_local else min(place.patience, CONNECT_SECONDS)
    meet(place.coordinator, place.process, place.processes, seconds, is_local=place.is_local)
    with limit_wait("to connect", seconds):
        jax.distributed.initialize(
            place.coordinator,
            place.processes,
            place.process,
            place.local_devices,
            cluster_detection_method="deactivate",
            coordinator_bind_address=place.coordinator if place.is_local else None,
            initialization_timeout=2 * seconds,  # jax aborts the interpreter then, so this must not come first
            heartbeat_timeout_seconds=place.patience if place.is_local else CLUSTER_HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=place.patience if place.is_local else CONNECT_SECONDS,
        )
        _check_devices()
    return heartbeat


def detect_place() -> Place:
    """The place of this process among those that the launcher of a cluster started, as `jax.distributed` finds it."""
    from jax._src.clusters import ClusterEnv  # jax has no public name for what `initialize` detects

    detected = ClusterEnv.auto_detect_unset_distributed_params(
        os.environ.get("JAX_COORDINATOR_ADDRESS"), None, None, None, None, CONNECT_SECONDS
    )
    if None in detected[:3]:
        raise ValueError(
            "expected to be one of the processes that the launcher of a cluster started, found no variables of one; "
            "lur launch --processes N starts N processes on this machine"
        )
    coordinator, processes, process, local_devices = detected
    return Place(coordinator, process, processes, None, int(_patience()), None, local_devices)  # pyright: ignore


def _check_devices() -> None:
    """Raise ValueError, in all processes, unless all have the same number of devices."""
    counts = Counter(device.process_index for device in jax.devices())
    if len(set(counts.values())) > 1:
        jax.distributed.shutdown()  # all processes do, so that none is aborted because another one has left
        listed = ", ".join(str(counts[index]) for index in sorted(counts))
        raise ValueError(f"processes must have equal numbers of devices, got {listed} in processes 0 to {max(counts)}")


@contextmanager
def limit_wait(purpose: str, seconds: float | None = None) -> Iterator[None]:
    """Exit with a sentence if the block, which waits for other processes, takes too long.

    Args:
      purpose: what the processes wait for, after "waited ... s for other processes".
      seconds: how long at most; by default the launcher's patience.
    """
    seconds = _patience() if seconds is None else seconds

    def give_up() -> None:
        print(f"lur: waited {seconds:g} s for other processes {purpose}", file=sys.stderr)
        exit_now(LOST)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _patience() -> float:
    """Seconds after which another process counts as lost."""
    text = os.environ.get(VARIABLE, AUTO)
    if text.startswith(AUTO):
        return float(text[len(AUTO) + 1 :] or PATIENCE)
    return float(Place(**json.loads(text)).patience)


def return_freed_memory() -> None:
    """Make glibc return large freed blocks to the system.

    Examples that are read ahead are allocated in one thread and freed in others. By default glibc soon takes such
    blocks from its heaps, which then grow by some megabytes in 1,000 rounds. Other C libraries have no such setting.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(MALLOPT_MMAP_THRESHOLD, MMAP_BYTES)


def exit_now(status: int) -> NoReturn:
    """Exit without `jax.distributed`'s shutdown, which waits for other processes that may be waiting for this one."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def is_first() -> bool:
    """Return whether this is process 0, which keeps the run folder; a single process is."""
    return jax.process_index() == 0


def broadcast_from_first(value: Any) -> Any:
    """Return process 0's `value`, which must be representable as JSON."""
    if jax.process_count() == 1:
        return value
    content = json.dumps(value).encode() if is_first() else b""
    if len(content) > MESSAGE_BYTES:
        raise ValueError(f"value must be at most {MESSAGE_BYTES} bytes as JSON, got {len(content)}")
    message = multihost_utils.broadcast_one_to_all(np.frombuffer(content.ljust(MESSAGE_BYTES), np.uint8))
    return json.loads(np.asarray(message).tobytes())


def broadcast_arrays_from_first(tree: PyTree) -> PyTree:
    """Return process 0's arrays, bit for bit. The other processes' arrays give shapes and dtypes only."""
    if jax.process_count() == 1:
        return tree

    def broadcast(leaf: Any) -> np.ndarray:
        leaf = np.asarray(leaf)
        sent = multihost_utils.broadcast_one_to_all(np.frombuffer(leaf.tobytes(), np.uint8))
        return np.frombuffer(np.asarray(sent).tobytes(), leaf.dtype).reshape(leaf.shape)

    return jax.tree.map(broadcast, tree)


def gather_from_processes(array: np.ndarray) -> np.ndarray:
    """Return the arrays of all processes, stacked along a leading axis, bit for bit."""
    if jax.process_count() == 1:
        return array[None]
    gathered = multihost_utils.process_allgather(np.frombuffer(array.tobytes(), np.uint8))
    return np.frombuffer(np.asarray(gathered).tobytes(), array.dtype).reshape(jax.process_count(), *array.shape)


def place_arrays(tree: PyTree, sharding: Any) -> PyTree:
    """Place arrays that all processes hold alike on the devices of a sharding.

    A single process may pass a tree of shardings. With None the tree is returned as it is.
    """
    if sharding is None:
        return tree
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)

    def place(leaf: Any) -> jax.Array:
        value = np.asarray(leaf)
        return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])

    return jax.tree.map(place, tree)
