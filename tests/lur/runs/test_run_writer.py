"""A run folder with a state and lines of no task at all: killed between any two file operations, it ends the same."""

import itertools
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from lur.parallel.disk_rows import DiskRows, disk_rows
from lur.runs import checkpoint
from lur.runs.run_writer import Segment, open_writer, record_segments
from lur.training.loop import StopRequest

NAMES = ("log.jsonl", "cells.jsonl")
INDEX = np.arange(3)
FIRST = {"cells": INDEX.astype(np.float32), "round": np.int32(0)}


class Killed(BaseException):
    """What the process would not live to see."""


def segments(state, rounds):
    """A made-up run whose rounds depend on all earlier ones; two lines in one log, one in the other."""
    if state["round"] == rounds:
        yield Segment(rounds, state, {}, {"log.jsonl": [{"end": rounds}]})
    while state["round"] < rounds:
        t = int(state["round"]) + 1
        values = np.sin(np.asarray(state["cells"]) * 1.7 + t).astype(np.float32)
        on_disk = isinstance(state["cells"], DiskRows)
        state = {"cells": state["cells"].with_rows(INDEX, values) if on_disk else values, "round": np.int32(t)}
        cells = [{"round": t, "cell": k, "x": values[k]} for k in range(2)]
        closing = {"log.jsonl": [{"end": t}]} if t == rounds else {}
        yield Segment(t, state, {"log.jsonl": [{"round": t}], "cells.jsonl": cells}, closing)


def attempt(path, rounds=4, stop=None, every=1, notify=lambda line: None, on_disk=False):
    path.mkdir(exist_ok=True)
    rows = disk_rows(np.zeros((), np.float32), 3).with_rows(INDEX, FIRST["cells"])
    with open_writer(path, NAMES, {**FIRST, "cells": rows} if on_disk else FIRST, notify) as (writer, state):
        return [*record_segments(writer, segments(state, rounds), stop or StopRequest(), every=every)]


def content(path):
    """The logs, and the final state."""
    found = checkpoint.restore(path / "checkpoints", path, FIRST, pytest.fail)
    return [(path / name).read_bytes() for name in NAMES], found.round, found.state["cells"].tobytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole")
    attempt(path)
    return content(path)


class Moments:
    """File operations, counted; from the fatal one on nothing is done any more, cleaning up neither."""

    def __init__(self, patch, fatal):
        self.count, self.fatal = 0, fatal
        for owner, name in (
            (os, "write"), (os, "fsync"), (os, "ftruncate"), (os, "open"), (os, "truncate"), (Path, "rename"),
            (Path, "mkdir"), (shutil, "rmtree"), (checkpoint, "write_arrays"),
        ):  # fmt: skip
            patch.setattr(owner, name, self.counted(getattr(owner, name), name))

    def counted(self, function, name):
        def call(*arguments, **options):
            self.count += 1
            if self.count >= self.fatal:
                if name == "write" and self.count == self.fatal:
                    function(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])  # half of it
                raise Killed
            return function(*arguments, **options)

        return call


@pytest.mark.parametrize(
    ("stride", "on_disk"),
    [(7, False), *(pytest.param(*case, marks=pytest.mark.full) for case in ((1, False), (7, True), (1, True)))],
)
def test_killed_between_any_two_file_operations(tmp_path, whole, stride, on_disk):
    """Ever later, until an attempt lives to its end: how many operations there are is orbax's to say, and varies."""
    for fatal in itertools.count(1, stride):
        path = tmp_path / str(fatal)
        with pytest.MonkeyPatch.context() as patch:
            moments = Moments(patch, fatal)
            try:
                attempt(path, on_disk=on_disk)
            except Killed:
                survived = False
            else:
                survived = True
                assert moments.count < fatal
        attempt(path, on_disk=on_disk)
        assert any(path.glob("checkpoints/*/rows/*.bytes")) == on_disk
        assert content(path) == whole, fatal
        assert not [*path.rglob("*.partial")]
        shutil.rmtree(path)
        if survived:
            break
    assert fatal > 60


def test_stopped_and_extended(tmp_path, whole):
    stop = StopRequest()
    with open_writer(tmp_path, NAMES, FIRST, pytest.fail) as (writer, state):
        for segment in record_segments(writer, segments(state, 4), stop):
            if segment.round == 2:
                stop.signal = 2
    assert (segment.round, writer.saved_round) == (2, 2)
    assert [segment.round for segment in attempt(tmp_path, rounds=3)] == [3]
    assert (tmp_path / "log.jsonl").read_text().splitlines()[-1] == '{"end": 3}'
    assert [segment.round for segment in attempt(tmp_path, rounds=4)] == [
        4
    ]  # the line that closed three rounds is gone
    assert content(tmp_path) == whole
