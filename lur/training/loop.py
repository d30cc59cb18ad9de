"""The training loop: the rounds of an experiment, with evaluations, until the end or until it diverges.

Ctrl-C or SIGTERM stops a run at its next report of progress, where it can write a checkpoint.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from types import FrameType, MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from lur.methods.method import RoundInfo, ServerState
from lur.parallel import processes
from lur.training.configuration import ResolvedRun
from lur.training.evaluation import Evaluation, evaluate
from lur.training.experiment import (
    MAX_ROUNDS_PER_CALL,
    Experiment,
    check_processes,
    initial_state,
    place_data,
    place_state,
    run_rounds,
)
from lur.training.held_out import held_out_evaluations

ChunkSize = int | Callable[[float], int]
"""Rounds between two reports of progress: a number, or a function of the seconds that a round takes."""

STOPPING = b"lur: stopping after the current rounds; press Ctrl-C again to stop immediately\n"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Progress(NamedTuple):
    """Where a run stands after some rounds.

    Attributes:
      rounds: number of rounds done since the beginning of the run.
      state: the state after them.
      infos: what the rounds since the last progress report, as numpy arrays with a leading axis of rounds.
      evaluation: f(x) and accuracy, over the data trained on, after the last of these rounds; None where not due.
      seconds: time since training began or was resumed.
      diverged: why the run ends here; None if it has not diverged.
      held_out: the evaluations on other splits, by name; empty where not due.
    """

    rounds: int
    state: ServerState
    infos: RoundInfo
    evaluation: Evaluation | None
    seconds: float
    diverged: str | None = None
    held_out: Mapping[str, Evaluation] = MappingProxyType({})


def train(experiment: Experiment, *, start: ServerState | None = None, chunk: ChunkSize = 10) -> Iterator[Progress]:
    """Train, and report progress after every `chunk` rounds and where an evaluation or a checkpoint is due.

    A run diverges in the first round whose loss or update is not finite, or whose loss exceeds the limit, and ends
    there. Otherwise its last progress has an evaluation.

    Args:
      experiment: from `lur.training.experiment.resolve`.
      start: state to continue from; by default the initial state. Where a run was interrupted changes no number.
      chunk: rounds per progress report; a function of the seconds per round keeps a progress bar moving.
    """
    config = experiment.config
    if start is None:  # `train_in_folder`, which gives a start, has compared more
        check_processes(experiment)
    state = place_state(experiment, initial_state(experiment) if start is None else start)
    data = place_data(experiment)
    stops = [every for every in (config.evaluate_every, config.checkpoint_every) if every]
    began, done = monotonic(), int(state.round)
    size = 1 if callable(chunk) else min(chunk, MAX_ROUNDS_PER_CALL)
    while done < config.rounds:
        size = processes.broadcast_from_first(size)
        stop = min(config.rounds, done + size, *(done - done % every + every for every in stops))
        before, chunk_began = state, monotonic()
        state, infos = run_rounds(experiment, data, before, stop - done)
        divergence = first_divergence(infos, config.loss_limit)
        if divergence is not None:
            last, reason = divergence
            if last + 1 < stop - done:
                state, infos = run_rounds(experiment, data, before, last + 1)
            yield Progress(done + last + 1, state, infos, None, monotonic() - began, reason)
            return
        if callable(chunk):
            size = min(MAX_ROUNDS_PER_CALL, max(1, chunk((monotonic() - chunk_began) / (stop - done))))
        done = stop
        progress = Progress(done, state, infos, None, monotonic() - began)
        if done == config.rounds or is_evaluation_due(config, done):
            progress = with_evaluations(experiment, progress)
        reason = progress.diverged
        yield progress._replace(seconds=monotonic() - began)
        if reason is not None:
            return


def with_evaluations(experiment: Experiment, progress: Progress) -> Progress:
    """The progress with its evaluations, and with the reason if f(x) shows that the run has diverged."""
    params = experiment.method.model(progress.state)
    evaluation = evaluate(experiment.task, params)
    reason = divergence_reason("f(x)", evaluation.loss, experiment.config.loss_limit)
    held_out = {} if reason else held_out_evaluations(experiment.task, experiment.config, params)
    return progress._replace(evaluation=evaluation, diverged=reason, held_out=held_out)


def is_evaluation_due(config: ResolvedRun, round: int) -> bool:
    """Whether `evaluate_every` asks for an evaluation after this round. The end of a run has one in any case."""
    return config.evaluate_every is not None and round % config.evaluate_every == 0


def first_divergence(infos: RoundInfo, limit: float) -> tuple[int, str] | None:
    """The index of the first round that diverged, and why; None if none did."""
    bad = ~(np.isfinite(infos.loss) & np.isfinite(infos.update_norm) & (infos.loss <= limit))
    if not bad.any():
        return None
    k = int(bad.argmax())
    return k, divergence_reason("loss", infos.loss[k], limit) or f"update_norm is {infos.update_norm[k]}"


def divergence_reason(name: str, loss: Any, limit: float) -> str | None:
    """Why a loss counts as diverged: it is not finite or exceeds the limit. None if it does not."""
    if not np.isfinite(loss):
        return f"{name} is {loss}"
    return f"{name} is {loss:.6g}, above the limit {limit:g}" if loss > limit else None


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
