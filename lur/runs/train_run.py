"""`lur train` in a run folder: a run that can be killed at any moment and goes on to the same numbers.

=====================  ==============================================================================================
``log.jsonl``          a line per round t = 1, 2, ...: ``round``, ``loss`` (of the round's clients before training),
                       ``update_norm`` (of q_t), ``client_lr`` and ``server_lr`` (which the round used), ``decayed``
                       (whether they decay after it); the last line of a run that diverged has ``diverged``, why
``evaluation.jsonl``   ``round``, ``f`` (over all data, after that round), ``accuracy`` (if it has
                       one), ``clients``, ``examples``
``timing.jsonl``       ``round``, ``rounds`` (since the line before), ``seconds`` (with any evaluation), ``time``
=====================  ==============================================================================================

A folder is continued if the configuration is the one it was begun with. More rounds may be asked for than before,
which extends a run, finished or not: the numbers are those of a run that was that long from the start.
"""

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lur.data.store_cache import digest
from lur.methods.server import Info
from lur.parallel import processes
from lur.parallel.layouts import choose
from lur.runs import checkpoint, folder
from lur.runs.environment import environment
from lur.runs.errors import Damaged, RunError
from lur.runs.files import write_file
from lur.runs.log import lines, plain
from lur.runs.session import Session, Step, recorded, resumed
from lur.runs.stopping import Stop
from lur.tasks.task import Task
from lur.training import configuration as configs
from lur.training.configuration import Run
from lur.training.evaluation import evaluate
from lur.training.loop import Progress, initial_state, is_due, train, trouble

KIND = "train"
NO_ROUNDS: Any = Info(**{name: np.zeros(0) for name in Info._fields})  # pyright: ignore
LOGS = ("log.jsonl", "evaluation.jsonl", "timing.jsonl")


def train_in(
    path: Path,
    task: Task,
    config: Run,
    *,
    stop: Stop | None = None,
    chunk: int | Callable[[float], int] = 10,
    say: Callable[[str], None] = print,
) -> Iterator[Progress]:
    """`lur.training.loop.train` in a run folder, begun or continued; yields what is new. A finished run yields nothing.

    `say` is told what was found: where the run goes on, what of it was damaged, where the environment changed.
    Of several processes the first keeps the folder; the others need not see it.
    """
    stop = Stop() if stop is None else stop
    config = configs.settled(config, task.settings)
    if not processes.is_first():
        yield from followed(task, config, stop, chunk)
        return
    folder.is_begun(path)  # refuse a stranger's folder before anything is made in it
    with folder.held(path):
        here = environment(layout=str(layout_of(task, config)))
        begun = prepare(path, task, config, here)
        if begun and is_over(path, config):
            say(f"{path}: {ending(folder.read_json(path / 'result.json'))}; nothing is left to do")
            processes.told([OVER, None])
            return
        (path / "result.json").unlink(missing_ok=True)
        with resumed(path, LOGS, initial_state(task, config), say) as (session, state):
            if begun:
                for change in folder.resume_environment(path, here, session.round):
                    say(f"{path}: not as the run began, its last digits may differ: {change}")
                say(f"{path}: goes on after round {session.round:,}")
            state = jax.tree.map(jax.numpy.asarray, state)
            try:
                yield from rounds_of(session, task, config, state, stop, chunk)
            except OSError as error:
                kept = "nothing but its logs" if session.saved is None else f"the checkpoint of round {session.saved:,}"
                raise OSError(
                    f"{error}; the run stopped after round {session.round:,}, {path} keeps {kept}: mend that and "
                    f"start it again"
                ) from error


def rounds_of(
    session: Session, task: Task, config: Run, state: Any, stop: Stop, chunk: int | Callable[[float], int]
) -> Iterator[Progress]:
    """The rounds that are left, recorded; then how it ended."""
    at: Progress | None = None
    agreed = stop if jax.process_count() == 1 else Stop()
    way = processes.told(way_on(session, config))

    def steps() -> Iterator[Step]:
        nonlocal at
        before = 0.0
        for at in progresses(way, task, config, processes.told_arrays(state), chunk):
            agreed.signal = processes.told(stop.signal)
            yield step_of(at, config, at.seconds - before)
            before = at.seconds

    for _ in recorded(session, steps(), agreed, every=config.checkpoint_every, seconds=config.checkpoint_seconds):
        assert at is not None  # the step was made from it
        yield at
    if at is not None and (at.rounds == config.rounds or at.diverged) and agreed.signal is None:
        write_file(session.path / "result.json", json.dumps(result_of(at), indent=1) + "\n")


def followed(task: Task, config: Run, stop: Stop, chunk: int | Callable[[float], int]) -> Iterator[Progress]:
    """The run of a process other than the first, which has the folder and tells where the run stands."""
    way = processes.told(None)
    if way[0] == OVER:
        return
    for at in progresses(way, task, config, processes.told_arrays(initial_state(task, config)), chunk):
        stop.signal = processes.told(None)
        yield at
        if stop.signal is not None:
            return


OVER, ENDED, LAST, ON = "over", "ended", "last", "on"


def way_on(session: Session, config: Run) -> list[str | None]:
    """Where the run stands: it diverged in its last round (and why), its last evaluation is missing, or it goes on."""
    done = session.round
    last, evaluated = (last_line(session.path / name) for name in ("log.jsonl", "evaluation.jsonl"))
    if "diverged" in last:
        return [ENDED, str(last["diverged"])]
    missing = done == config.rounds or (evaluated.get("round") == done and "diverged" in evaluated)
    return [LAST if missing else ON, None]


def progresses(
    way: list[str | None], task: Task, config: Run, state: Any, chunk: int | Callable[[float], int]
) -> Iterator[Progress]:
    """The run from where it stands. One that was killed between its last checkpoint and its end is ended again."""
    word, why = way
    done = int(state.round)
    if word == ENDED:
        yield Progress(done, state, NO_ROUNDS, None, 0.0, why)
    elif word == LAST:
        found = evaluate(task, state.params)
        yield Progress(done, state, NO_ROUNDS, found, 0.0, trouble("f(x)", found.loss, config.loss_limit))
    else:
        yield from train(task, config, start=state, chunk=chunk)


def last_line(path: Path) -> dict[str, Any]:
    """The last line of a log; of none an empty one."""
    return next(iter(deque(lines(path), maxlen=1)), {})


def step_of(at: Progress, config: Run, seconds: float) -> Step:
    """The lines of some rounds."""
    count = len(at.infos.loss)
    evaluations = [] if at.evaluation is None else [evaluation_line(at)]
    if count == 0:
        return Step(at.rounds, at.state, {}, {} if is_due(config, at.rounds) else {"evaluation.jsonl": evaluations})
    timing = {"round": at.rounds, "rounds": count, "seconds": round(seconds, 6), "time": round(time.time(), 3)}
    new = {"log.jsonl": round_lines(at), "timing.jsonl": [timing]}
    if is_due(config, at.rounds):
        return Step(at.rounds, at.state, {**new, "evaluation.jsonl": evaluations})
    return Step(at.rounds, at.state, new, {"evaluation.jsonl": evaluations})


def round_lines(at: Progress) -> list[dict[str, Any]]:
    """A line per round; the last says so if the run diverged in it."""
    count = len(at.infos.loss)
    names = ("loss", "update_norm", "client_lr", "server_lr", "decayed")
    found = [
        {"round": at.rounds - count + k + 1, **{name: plain(getattr(at.infos, name)[k]) for name in names}}
        for k in range(count)
    ]
    if at.diverged and at.evaluation is None:
        found[-1]["diverged"] = at.diverged
    return found


def evaluation_line(at: Progress) -> dict[str, Any]:
    """f(x) after a round; says so if that is where the run diverged."""
    found = at.evaluation
    assert found is not None
    line: dict[str, Any] = {"round": at.rounds, "f": found.loss}
    if found.accuracy == found.accuracy:  # a task without answers has none
        line["accuracy"] = found.accuracy
    line |= {"clients": found.clients, "examples": found.examples}
    return line | ({"diverged": at.diverged} if at.diverged else {})


def result_of(at: Progress) -> dict[str, Any]:
    """How a run ended."""
    found: dict[str, Any] = {"state": "diverged" if at.diverged else "finished", "round": at.rounds}
    if at.diverged:
        found["why"] = at.diverged
    return found if at.evaluation is None else found | {name: plain(v) for name, v in evaluation_line(at).items()}


def ending(result: dict[str, Any]) -> str:
    """A result in words."""
    if result.get("state") == "diverged":
        return f"diverged in round {result.get('round'):,}: {result.get('why')}"
    return f"finished after {result.get('round'):,} rounds"


def prepare(path: Path, task: Task, config: Run, here: dict[str, Any]) -> bool:
    """Begin a run in the held folder, or check that the one there is this one; whether it was there."""
    data = hashlib.sha256(json.dumps(digest(task.store), sort_keys=True).encode()).hexdigest()
    if not folder.is_begun(path):
        folder.begin(path, KIND, configs.text(config), here, data)
        return False
    about = folder.about(path, KIND)
    kept = configs.read(path / "config.toml")
    changes = configs.difference(kept, config, ignore=("rounds", *configs.WITHOUT_EFFECT))
    done = rounds_done(path)
    if config.rounds < done:
        changes.append(f"rounds {kept.rounds} -> {config.rounds}, of which {done} are done")
    if changes:
        raise RunError(f"{path}: expected the configuration it was begun with, got {'; '.join(changes)}")
    if about.get("data") != data:
        raise RunError(f"{path}: expected the data it was begun with, got a store with other content")
    if kept != config:
        write_file(path / "config.toml", configs.text(config))
    return True


def rounds_done(path: Path) -> int:
    """The last round in the log or, if the log is damaged, of a checkpoint."""
    try:
        return last_line(path / "log.jsonl").get("round", 0)
    except Damaged:
        return max((int(one.name) for one in checkpoint.checkpoint_folders(path / "checkpoints")), default=0)


def is_over(path: Path, config: Run) -> bool:
    """Whether the run has ended: diverged, or with all the rounds that are asked for."""
    if not (path / "result.json").exists():
        return False
    result = folder.read_json(path / "result.json")
    return result.get("state") == "diverged" or result.get("round") == config.rounds


def layout_of(task: Task, config: Run) -> Any:
    """The layout that the run takes here."""
    shapes = jax.eval_shape(task.init, jax.random.key(0))
    M = config.clients_per_round or task.settings.clients_per_round
    return choose(shapes, M, config.layout, linear=task.linear is not None).layout


def configured(path: Path, **changes: Any) -> Run:
    """The configuration of a run folder, with changes."""
    folder.about(path, KIND)
    return replace(configs.read(path / "config.toml"), **changes)
