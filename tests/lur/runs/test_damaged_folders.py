"""Run folders with one damaged file: the same command ends with the same bytes, or refuses in one sentence.

`pytest -m faults -s tests/lur/runs/test_damaged_folders.py` damages 240 folders, and prints how they ended.
"""

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from lur.regular_files import kind_of
from lur.runs.checkpoint import checkpoint_folders
from lur.runs.orbax_arrays import local_checkpointer, loggers_disabled
from tests.lur.data.readers.damage import mutated

SMALL = ["quadratic", "--clients", 8, "--clients-per-round", 3, "--theta", "1:2", "--checkpoint-every", 3]
RATES = ["--client-lr", "0,0.1", "--server-lr", "0.1,1e25"]
FILES = ("log.jsonl", "evaluation.jsonl", "result.json", "config.toml")
JSON = (b"[]", b"{}", b"null", b'"text"', b"NaN", b'{"round": NaN}\n', b'{"round": "1"}\n', b"[" * 10**5, b"\xff\xfe\0")
HARMS = ("flips", "cut", "empty", "missing", "link", "dangling link", "link to a folder", "pipe", "folder", "JSON")


class Command(NamedTuple):
    """A command that runs in a folder.

    Attributes:
        arguments: the command without its folder.
        figure: the name of the figure that it draws.
        rounds: the number of rounds that the damaged folders have.
        extended: the number of rounds that finished runs are then extended to; None if they cannot be.
    """

    arguments: list
    figure: str
    rounds: int
    extended: int | None


COMMANDS = {
    "train": Command(["train", *SMALL, "--server", "yogi"], "run", 10, 13),
    "sweep": Command(["sweep", *SMALL, *RATES], "sweep", 7, None),
}


def final_arrays(path):
    """The arrays of the last checkpoint, as bytes."""
    last = checkpoint_folders(path / "checkpoints")[-1]
    with loggers_disabled("absl", "asyncio"), local_checkpointer() as checkpointer:
        stored = checkpointer.restore((last / "state").absolute())
    return last.name, {name: np.asarray(value).tobytes() for name, value in stored.items()}


def texts(path):
    """The files that must be the same in two runs: the logs without timings, the result, the configuration."""
    return [(path / name).read_bytes() for name in FILES]


def snapshot(path):
    """Everything below a folder: the kind of each entry, and the content of each file."""
    return {
        str(one.relative_to(path)): (kind_of(one), one.read_bytes() if kind_of(one) == "a file" else b"")
        for one in sorted(path.rglob("*"))
    }


def harmed(path, harm, victim, rng):
    """Replace a file by what `harm` makes of it: other bytes, nothing, or a link, pipe or folder in its place."""
    before = path.read_bytes()
    path.unlink()
    match harm:
        case "flips":
            path.write_bytes(mutated(before, rng))
        case "cut":
            path.write_bytes(before[: rng.integers(0, max(1, len(before)))])
        case "empty":
            path.write_bytes(b"")
        case "link":
            path.symlink_to(victim)
        case "dangling link":
            path.symlink_to(victim.parent / "new")
        case "link to a folder":
            path.symlink_to(victim.parent)
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "JSON":
            path.write_bytes(JSON[rng.integers(0, len(JSON))])


class Folders(NamedTuple):
    """Folders to damage, and what they must become.

    Attributes:
        stopped: a run that was killed half way.
        finished: a finished one.
        expected: by number of rounds, the content of a run to which nothing happened.
    """

    stopped: Path
    finished: Path
    expected: dict


def made(lur, tmp_path, command):
    """Make the folders of a command."""
    expected = {}
    for rounds in filter(None, (command.rounds, command.extended)):
        path = tmp_path / f"whole-{rounds}"
        assert lur(*command.arguments, "--rounds", rounds, "--run-dir", path)[0] == 0
        expected[rounds] = texts(path), final_arrays(path)
    finished, stopped = tmp_path / f"whole-{command.rounds}", tmp_path / "stopped"
    shutil.copytree(finished, stopped)  # as after a kill between its last rounds: their checkpoint is not yet there
    (stopped / "result.json").unlink()
    shutil.rmtree(checkpoint_folders(stopped / "checkpoints")[-1])
    return Folders(stopped, finished, expected)


def one_damage(lur, tmp_path, command, folders, k, rng):
    """Damage a file, run the same command again, and return how that ended."""
    bad, outside = tmp_path / "in" / "bad", tmp_path / "outside"
    shutil.rmtree(tmp_path / "in", ignore_errors=True)
    shutil.rmtree(outside, ignore_errors=True)
    outside.mkdir()
    (outside / "thesis.tex").write_text("years of work")
    is_finished = bool(k // len(HARMS) % 2)  # each kind of damage to both
    shutil.copytree(folders.finished if is_finished else folders.stopped, bad)
    files = sorted(path for path in bad.rglob("*") if path.is_file())
    top = [path for path in files if path.parent == bad]
    among = top if rng.random() < 0.6 else files
    file, harm = among[rng.integers(0, len(among))], HARMS[k % len(HARMS)]
    harmed(file, harm, outside / "thesis.tex", rng)
    steps = [command.rounds] if command.extended is None or not is_finished else [command.rounds, command.extended]
    ended = "resumed"
    what = f"{k}: {harm} {file.relative_to(bad)} of a {'finished' if is_finished else 'stopped'} run"
    for rounds in steps:
        status, out, err = lur(*command.arguments, "--rounds", rounds, "--run-dir", bad)
        if status == 0:
            assert texts(bad) == folders.expected[rounds][0], what
            if "nothing to do" not in out:  # otherwise no checkpoint is read; a longer run reads it
                assert final_arrays(bad) == folders.expected[rounds][1], what
        else:
            assert (status, err.count("\n")) == (2, 1), (what, out, err)
            ended = "refused"
    status, _, err = lur("report", bad, "--out", tmp_path / "in" / "page.html")
    assert (status, err.count("\n")) in ((0, 0), (2, 1)), (what, err)
    assert snapshot(outside) == {"thesis.tex": ("a file", b"years of work")}, what
    assert {path.name for path in (tmp_path / "in").iterdir()} <= {"bad", "page.html"}, what
    return ended, harm


def attacked(lur, tmp_path, name, count, seed):
    """How so many damaged folders of a command ended, by kind of damage."""
    command = COMMANDS[name]
    (tmp_path / "in").mkdir()
    folders = made(lur, tmp_path, command)
    rng = np.random.default_rng([seed, *name.encode()])
    return Counter(one_damage(lur, tmp_path, command, folders, k, rng) for k in range(count))


@pytest.mark.promote
@pytest.mark.parametrize("name", ["train", pytest.param("sweep", marks=pytest.mark.full)])
def test_a_few_damaged_folders(lur, tmp_path, name):
    assert sum(attacked(lur, tmp_path, name, len(HARMS), 1).values()) == len(HARMS)


@pytest.mark.faults
@pytest.mark.promote
@pytest.mark.parametrize("name", COMMANDS)
def test_a_hundred_and_twenty_damaged_folders(lur, tmp_path, name):
    counts = attacked(lur, tmp_path, name, 120, 0)
    total = Counter()
    for (ended, _), count in counts.items():
        total[ended] += count
    print(f"\n{name}: {total['resumed']} of {total.total()} damaged folders resumed, {total['refused']} refused")
    for harm in HARMS:
        print(f"  {harm}: {counts['resumed', harm]} resumed, {counts['refused', harm]} refused")
    assert total.total() == 120
    assert min(total.values()) >= 20
