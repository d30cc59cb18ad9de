"""Work spread over processes, which end with the process that started them."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context, parent_process
from typing import Any


def do_nothing() -> None:
    """The default preparation of a process."""


def _start_worker(prepare: Callable[[], None]) -> None:
    """Leave Ctrl-C to the parent, end with it however it ends, and prepare jax."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    prepare()


def results(
    function: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    jobs: int,
    prepare: Callable[[], None] = do_nothing,
) -> Iterator[Any]:
    """Yields ``function(*arguments[i])`` for every i as they are done; in this process, in order, if `jobs` is 1.

    Args:
      function: a function of a module, so that a new process can import it.
      arguments: the arguments of each call.
      jobs: the number of processes.
      prepare: a function of a module, called once in each process before it computes, such as one that keeps compiled
        programs.
    """
    if jobs == 1 or len(arguments) == 1:
        prepare()
        for call in arguments:
            yield function(*call)
        return
    with ProcessPoolExecutor(min(jobs, len(arguments)), get_context("spawn"), _start_worker, (prepare,)) as pool:
        futures = [pool.submit(function, *call) for call in arguments]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in active_children():
                worker.terminate()
            raise
