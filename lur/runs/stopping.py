"""Ctrl-C and a polite kill: the run stops at the next chance, where it can write a checkpoint."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ASKED = b"lur: stopping after the rounds under way; once more to stop at once\n"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Which signal asked to stop, if any."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def status(self) -> int:
        """The exit status that a shell gives such a process."""
        return 128 + (self.signal or 0)


@contextmanager
def stoppable(quiet: bool = False) -> Iterator[Stop]:
    """Let the first signal ask; the second interrupts at once. In another thread than the main one nothing asks."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.signal is not None:
            raise KeyboardInterrupt
        stop.signal = number
        if not quiet:
            os.write(2, ASKED)  # print may be under way, and must not be entered twice

    before = {number: signal.signal(number, ask) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
