"""Stopping on Ctrl-C or SIGTERM: a run stops at its next report of progress, where it can write a checkpoint."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = b"lur: stopping after the current rounds; press Ctrl-C again to stop immediately\n"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether the run was asked to stop.

    Attributes:
      signal: number of the signal that asked for it; None if none did.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def exit_status(self) -> int:
        """The exit status by which a shell reports the signal."""
        return 128 + (self.signal or 0)


@contextmanager
def stop_on_signals(quiet: bool = False) -> Iterator[StopRequest]:
    """Turn the first SIGINT or SIGTERM into a stop request; the second one interrupts.

    Outside the main thread signals are left alone, and nothing requests a stop.

    Args:
      quiet: do not announce the stop on standard error.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.signal is not None:
            raise KeyboardInterrupt
        stop.signal = number
        if not quiet:
            os.write(2, STOPPING)  # print is not reentrant, and the signal may arrive inside it

    previous = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
