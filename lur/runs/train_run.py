"""Training in a run folder: a run that can be killed at any moment, and then resumes to the same numbers.

=====================  ==============================================================================================
``log.jsonl``          one line per round t = 1, 2, ...: ``round``, ``loss`` (of the round's clients before training),
                       ``update_norm`` (of q_t), ``client_lr`` and ``server_lr`` (which the round used), ``decayed``
                       (whether they decay after it); in the last line of a run that diverged, ``diverged`` says why
``evaluation.jsonl``   ``round``, ``f`` (over all data, after that round), ``accuracy`` (if the task has one),
                       ``clients``, ``examples``
``timing.jsonl``       ``round``, ``rounds`` (since the previous line), ``seconds`` (including evaluation), ``time``
=====================  ==============================================================================================

A run resumes if the configuration is the one it began with. The number of rounds may grow, which extends a run,
finished or not: the numbers are those of a run that was as long from the start.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from lur.methods.method import RoundInfo, ServerState
from lur.parallel import processes
from lur.parallel.client_states import broadcast_states_from_first, keep_rows_in
from lur.runs import checkpoint, folder
from lur.runs.environment import environment
from lur.runs.errors import Damaged, RunError
from lur.runs.files import read_lines, to_json
from lur.runs.kept_config import read_kept_config, update_kept_config
from lur.runs.run_writer import RunWriter, Segment, open_writer, record_segments
from lur.training.configuration import (
    MAY_CHANGE,
    ResolvedRun,
    RunConfig,
    config_changes,
    config_from_values,
    to_toml,
)
from lur.training.evaluation import Evaluation
from lur.training.experiment import Experiment, check_processes, initial_state
from lur.training.loop import ChunkSize, Progress, StopRequest, is_evaluation_due, train, with_evaluations

KIND = "train"
LOGS = ("log.jsonl", "evaluation.jsonl", "timing.jsonl")
NO_ROUNDS: Any = RoundInfo(**{name: np.zeros(0) for name in RoundInfo._fields})  # pyright: ignore


class ResumePoint(NamedTuple):
    """What is left to do in a run.

    Attributes:
      stage: "ended" if nothing is; "diverged" if only the end has to be written again; "evaluate" if the final
        evaluation is missing; "train" if rounds are.
      reason: why the run diverged; empty if it did not.
    """

    stage: str
    reason: str = ""


def train_in_folder(
    path: Path,
    experiment: Experiment,
    *,
    stop: StopRequest | None = None,
    chunk: ChunkSize = 10,
    notify: Callable[[str], None] = print,
) -> Iterator[Progress]:
    """Train in a run folder, which is created or resumed. With several processes, the first one keeps the folder.

    Args:
      path: the run folder. Processes other than the first need not see it.
      experiment: from `lur.training.experiment.resolve`.
      stop: ends the run after a checkpoint once it is requested.
      chunk: rounds per progress report, as in `lur.training.loop.train`.
      notify: receives sentences for people: where the run resumes, which checkpoints were damaged, how the
        environment has changed.

    Yields:
      The new progress. A run that has ended yields nothing.
    """
    stop = StopRequest() if stop is None else stop
    check_processes(experiment, path)
    if not processes.is_first():
        yield from _follow_first_process(experiment, stop, chunk)
        return
    folder.has_run(path)  # refuses a folder with other content before a lock is created in it
    with folder.lock_folder(path):
        here = environment(layout=str(experiment.layout))
        resuming = _create_or_check(path, experiment, here)
        if resuming and (ending := _ending(path, experiment.config, notify)):
            notify(f"{path}: {ending}; nothing to do")
            processes.broadcast_from_first(ResumePoint("ended"))
            return
        (path / "result.json").unlink(missing_ok=True)
        start = initial_state(experiment)
        start = start._replace(clients=keep_rows_in(path, start.clients))
        with open_writer(path, LOGS, start, notify) as (writer, state):
            if resuming:
                for change in folder.record_environment_changes(path, here, writer.round):
                    notify(f"{path}: the environment has changed, so the last digits may differ: {change}")
                notify(f"{path}: resuming after round {writer.round:,}")
            try:
                yield from _record_training(writer, experiment, state, stop, chunk)
            except OSError as error:
                saved = writer.saved_round
                kept = "only its logs" if saved is None else f"the checkpoint of round {saved:,}"
                raise OSError(
                    f"{error}; the run stopped after round {writer.round:,} and {path} keeps {kept}: fix the problem "
                    f"and run the same command again"
                ) from error


def read_run_config(path: Path) -> RunConfig:
    """The configuration of a run folder."""
    return config_from_values(read_kept_config(path, KIND), str(path / "config.toml"))


def _create_or_check(path: Path, experiment: Experiment, here: dict[str, Any]) -> bool:
    """Create a run in the locked folder, or check that the run there is this one. Returns whether there is one."""
    config, data = experiment.config, folder.data_digest(experiment.task)
    if not folder.has_run(path):
        folder.create_run(path, KIND, to_toml(config), here, data)
        return False
    kept = read_run_config(path)
    changes = config_changes(kept, config, ignore=("rounds", *MAY_CHANGE))
    done = _rounds_done(path)
    if config.rounds < done:
        changes.append(f"rounds {kept.rounds} -> {config.rounds}, of which {done} are done")
    if changes:
        raise RunError(f"{path}: expected the configuration that the run began with, got {'; '.join(changes)}")
    folder.check_data(path, data)
    update_kept_config(path, to_toml(config))
    return True


def _rounds_done(path: Path) -> int:
    """The number of rounds in the log, or in the last checkpoint if the log is damaged."""
    try:
        done = _last_line(path / "log.jsonl").get("round", 0)
    except Damaged:
        done = None
    if type(done) is int:
        return done
    return max((int(saved.name) for saved in checkpoint.checkpoint_folders(path / "checkpoints")), default=0)


def _ending(path: Path, config: ResolvedRun, notify: Callable[[str], None]) -> str:
    """How a run ended, in words; empty if it has not ended, or must end again because its files are damaged."""
    try:
        result = folder.read_result(path, check_logs=True)
    except Damaged as error:
        notify(f"{error}; the run goes on from its last intact checkpoint")
        return ""
    if result is not None and result["state"] == "diverged":
        return f"diverged in round {result['round']:,}: {result.get('why')}"
    if result is not None and result["round"] == config.rounds:
        return f"finished after {result['round']:,} rounds"
    return ""


def _record_training(
    writer: RunWriter, experiment: Experiment, state: ServerState, stop: StopRequest, chunk: ChunkSize
) -> Iterator[Progress]:
    """Train from where the run stands, record it, and write how it ended."""
    config, progress = experiment.config, None
    agreed = stop if jax.process_count() == 1 else StopRequest()
    point = ResumePoint("train") if not writer.round else _resume_point(writer, config)
    point = ResumePoint(*processes.broadcast_from_first(point))

    def segments() -> Iterator[Segment]:
        nonlocal progress
        seconds_before = 0.0
        for progress in _remaining_progress(point, experiment, _state_of_first(state), chunk):
            agreed.signal = processes.broadcast_from_first(stop.signal)
            yield _segment(progress, config, progress.seconds - seconds_before)
            seconds_before = progress.seconds

    for _ in record_segments(
        writer, segments(), agreed, every=config.checkpoint_every, seconds=config.checkpoint_seconds
    ):
        assert progress is not None  # the segment was made from it
        yield progress
    if progress is not None and (progress.rounds == config.rounds or progress.diverged) and agreed.signal is None:
        folder.write_result(writer.path, _result(progress), writer.positions())


def _follow_first_process(experiment: Experiment, stop: StopRequest, chunk: ChunkSize) -> Iterator[Progress]:
    """Train in a process other than the first, which has the folder and says where the run stands."""
    point = ResumePoint(*processes.broadcast_from_first(None))
    if point.stage == "ended":
        return
    state = _state_of_first(initial_state(experiment))
    for progress in _remaining_progress(point, experiment, state, chunk):
        stop.signal = processes.broadcast_from_first(None)
        yield progress
        if stop.signal is not None:
            return


def _state_of_first(state: ServerState) -> ServerState:
    """The state of the first process; the other processes' states give shapes and dtypes."""
    server = processes.broadcast_arrays_from_first(state._replace(clients=()))
    return server._replace(clients=broadcast_states_from_first(state.clients))


def _resume_point(writer: RunWriter, config: ResolvedRun) -> ResumePoint:
    """What is left to do in a run with some rounds, according to its logs."""
    last, evaluated = (_last_line(writer.path / name) for name in ("log.jsonl", "evaluation.jsonl"))
    if "diverged" in last:
        return ResumePoint("diverged", str(last["diverged"]))
    diverged_in_evaluation = evaluated.get("round") == writer.round and "diverged" in evaluated
    return ResumePoint("evaluate" if writer.round == config.rounds or diverged_in_evaluation else "train")


def _remaining_progress(
    point: ResumePoint, experiment: Experiment, state: ServerState, chunk: ChunkSize
) -> Iterator[Progress]:
    """The run from where it stands. One that was killed between its last checkpoint and its end is ended again."""
    done = int(state.round)
    if point.stage == "diverged":
        yield Progress(done, state, NO_ROUNDS, None, 0.0, point.reason)
    elif point.stage == "evaluate":
        yield with_evaluations(experiment, Progress(done, state, NO_ROUNDS, None, 0.0))
    else:
        yield from train(experiment, start=state, chunk=chunk)


def _last_line(path: Path) -> dict[str, Any]:
    """The last line of a log; an empty one if it has none."""
    return next(iter(deque(read_lines(path), maxlen=1)), {})


def _segment(progress: Progress, config: ResolvedRun, seconds: float) -> Segment:
    """The log lines of some rounds. An evaluation that is due only because the run ends is a final line."""
    count = len(progress.infos.loss)
    evaluation = progress.evaluation
    evaluations = [] if evaluation is None else [_evaluation_line(progress, evaluation)]
    lines: dict[str, list[dict[str, Any]]] = {}
    if count:
        names = ("loss", "update_norm", "client_lr", "server_lr", "decayed")
        first = progress.rounds - count + 1
        log = [
            {"round": first + k, **{name: to_json(getattr(progress.infos, name)[k]) for name in names}}
            for k in range(count)
        ]
        if progress.diverged and evaluation is None:
            log[-1]["diverged"] = progress.diverged
        now, seconds = round(time.time(), 3), round(seconds, 6)
        timing = {"round": progress.rounds, "rounds": count, "seconds": seconds, "time": now}
        lines = {"log.jsonl": log, "timing.jsonl": [timing]}
    if not is_evaluation_due(config, progress.rounds):
        return Segment(progress.rounds, progress.state, lines, {"evaluation.jsonl": evaluations})
    if count:
        lines["evaluation.jsonl"] = evaluations
    return Segment(progress.rounds, progress.state, lines)


def _evaluation_line(progress: Progress, evaluation: Evaluation) -> dict[str, Any]:
    """f(x) after a round, with the reason if the run diverged there."""
    line = {"round": progress.rounds, **_evaluation_values(evaluation)}
    line |= {name: _evaluation_values(one) for name, one in progress.held_out.items()}
    return line | ({"diverged": progress.diverged} if progress.diverged else {})


def _evaluation_values(evaluation: Evaluation) -> dict[str, Any]:
    """The numbers of an evaluation; without accuracies if the task has none."""
    values = {
        "f": evaluation.loss,
        "accuracy": evaluation.accuracy,
        "clients": evaluation.clients,
        "examples": evaluation.examples,
        "example_loss": evaluation.example_loss,
        "client_accuracy": evaluation.client_accuracy,
        "loss_quantiles": list(evaluation.loss_quantiles),
        "accuracy_quantiles": list(evaluation.accuracy_quantiles),
        "worst_loss": evaluation.worst_loss,
        "worst_accuracy": evaluation.worst_accuracy,
    }
    has_answers = evaluation.accuracy == evaluation.accuracy
    return {name: value for name, value in values.items() if has_answers or "accuracy" not in name}


def _result(progress: Progress) -> dict[str, Any]:
    """How a run ended, as result.json has it."""
    result: dict[str, Any] = {"state": "diverged" if progress.diverged else "finished", "round": progress.rounds}
    if progress.diverged:
        result["why"] = progress.diverged
    if progress.evaluation is None:
        return result
    return result | to_json(_evaluation_line(progress, progress.evaluation))
