"""Logs: whole lines, exact numbers, positions that can be gone back to, readers that take what there is."""

import json
import math
import os
import resource
import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lur.runs.errors import Damaged
from lur.runs.files import START, Log, Position, encode_line, read_lines, to_json
from lur.runs.reader import block_statistics

ENTRIES = [{"round": k, "loss": np.float32(1 / k)} for k in range(1, 6)]


def written(path, entries=ENTRIES):
    log = Log(path)
    log.append(entries)
    position = log.sync()
    log.close()
    return position


def test_lines_grow_and_can_be_gone_back_to(tmp_path):
    path = tmp_path / "log.jsonl"
    position = written(path)
    whole = path.read_bytes()
    assert position.bytes == len(whole)
    log = Log(path, position)
    log.append([{"round": 6}])
    assert [entry["round"] for entry in read_lines(path)] == [1, 2, 3, 4, 5, 6]  # seen while it is open
    log.close()
    log = Log(path, position)  # a run that goes on from the checkpoint before
    assert path.read_bytes() == whole
    log.append([{"round": 6}])
    later = log.sync()
    log.close()
    assert later == written(tmp_path / "other.jsonl", [*ENTRIES, {"round": 6}])


def test_a_log_that_changed_is_noticed(tmp_path):
    path = tmp_path / "log.jsonl"
    position = written(path)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(Damaged, match=f"expected at least {position.bytes} bytes, found {position.bytes - 1}"):
        Log(path, position)
    path.write_bytes(content.replace(b"0.5", b"0.6"))
    with pytest.raises(Damaged, match="found others"):
        Log(path, position)
    path.unlink()
    with pytest.raises(Damaged, match="found 0"):
        Log(path, position)
    assert Log(path, START).sync() == START


def test_readers_take_what_there_is(tmp_path):
    path = tmp_path / "log.jsonl"
    assert [*read_lines(path)] == []
    written(path)
    content = path.read_bytes()
    for cut in range(len(content) + 1):  # killed in the middle of a write, or being written right now
        path.write_bytes(content[:cut])
        assert [entry["round"] for entry in read_lines(path)] == [*range(1, 1 + content[:cut].count(b"\n"))]
    path.write_bytes(b'{"round": 1}\n{"round": 2\n{"round": 3}\n')
    with pytest.raises(Damaged, match=r"log.jsonl, line 2: expected a JSON object, found b'\{\"round\": 2"):
        [*read_lines(path)]


def strict(content):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(content, parse_constant=refuse)


@given(st.floats(width=32), st.floats())
def test_numbers_come_back(single, double):
    entry = strict(encode_line({"single": np.float32(single), "double": double, "list": np.float32([single, 1.0])}))
    back = np.float32(float(entry["single"]))
    assert back.tobytes() == np.float32(single).tobytes() or (np.isnan(back) and math.isnan(single))
    assert float(entry["double"]) == double or math.isnan(double)
    assert (np.float32(float(entry["list"][0])) == np.float32(single)) or math.isnan(single)


def test_numbers_are_short_and_valid():
    assert to_json(np.float32(0.1)) == 0.1
    entry = {"a": math.nan, "b": -np.inf, "c": np.bool_(True), "d": np.int32(3), "e": np.array(2.5)}
    assert strict(encode_line(entry)) == {"a": "NaN", "b": "-Infinity", "c": True, "d": 3, "e": 2.5}


def test_a_disk_that_refuses_leaves_whole_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    log = Log(path)
    log.append(ENTRIES)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))  # room for half a line
        with pytest.raises(OSError, match=r"log.jsonl"):
            log.append(ENTRIES)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    log.append(ENTRIES)
    assert path.read_bytes() == 2 * before
    assert log.sync() == Position(len(before) * 2, written(tmp_path / "b", ENTRIES * 2).sha256)
    assert os.path.getsize(path) == 2 * len(before)


def test_blocks_of_rounds():
    norms = [1.0, 3.0, 2.0, 2.0, 7.0, math.inf]
    found = block_statistics([{"round": k + 1, "update_norm": to_json(norm)} for k, norm in enumerate(norms)], size=2)
    assert [tuple(block) for block in found] == [(1, 2, 2.0, 1.0, 2), (3, 4, 2.0, 0.0, 2), (5, 6, 7.0, 0.0, 1)]
    rng = np.random.default_rng(0)
    values = rng.normal(size=2500)
    found = block_statistics([{"round": k + 1, "q": value} for k, value in enumerate(values)], "q")
    np.testing.assert_allclose([block.mean for block in found], [v.mean() for v in np.split(values, [1000, 2000])])
    np.testing.assert_allclose([block.spread for block in found], [v.std() for v in np.split(values, [1000, 2000])])
    with pytest.raises(ValueError, match="size must be an integer >= 1, got 0"):
        block_statistics([], size=0)
