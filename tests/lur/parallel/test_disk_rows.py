"""Rows on disk: versions that share rows, in a sparse file whose space is used again."""

import errno
import gc
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lur.parallel import disk_rows as module
from lur.parallel.disk_rows import disk_rows

FIRST = np.array([-0.0, np.nan, 1.5], np.float32)
N = 7


def space(rows):
    """Bytes that the file takes on the disk."""
    return os.fstat(rows.file.file.fileno()).st_blocks * 512


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 9), st.sets(st.integers(0, N - 1)), st.booleans()), max_size=30))
def test_every_version_is_an_array_of_its_own(steps):
    """Against numpy arrays that are copied: any version may be written, and any may be dropped."""
    versions = [(disk_rows(FIRST, N), np.tile(FIRST, (N, 1)))]
    for k, (source, index, drop) in enumerate(steps):
        rows, copy = versions[source % len(versions)]
        chosen = np.array(sorted(index), np.int64)
        new = np.full((len(chosen), 3), k, np.float32)
        expected = copy.copy()
        expected[chosen] = new
        versions.append((rows.with_rows(chosen, new), expected))
        del rows
        if drop:
            versions.pop(source % len(versions))
        for found, expected in versions:
            assert np.asarray(found).tobytes() == expected.tobytes()
            assert found[chosen].tobytes() == expected[chosen].tobytes()


def test_dropped_versions_leave_their_space_to_others():
    rows = disk_rows(np.zeros(1024, np.float32), 50)
    generator = np.random.default_rng(0)
    for k in range(200):
        index = generator.choice(50, 10, replace=False)
        rows = rows.with_rows(index, np.full((10, 1024), k))
    gc.collect()
    assert rows.file.versions.sum() == (rows.places >= 0).sum() == 50
    assert len(rows.file.versions) == module.GROWTH
    assert space(rows) <= module.GROWTH * 4096


def test_rows_that_were_not_written_take_no_space():
    rows = disk_rows(np.zeros(2**20, np.float32), 10_000)
    assert rows.nbytes == 10_000 * 2**22
    assert space(rows) == 0
    rows = rows.with_rows(np.array([9_999]), np.ones((1, 2**20)))
    assert space(rows) <= 2**22 + 2**16
    assert rows[np.array([9_999, 0])].sum() == 2**20


def test_the_file_is_gone_with_its_rows(tmp_path):
    rows = disk_rows(FIRST, N, tmp_path).with_rows(np.array([0]), np.ones((1, 3)))
    assert [*tmp_path.iterdir()] == []  # without a name, also a killed process leaves nothing
    assert rows[np.array([0])].sum() == 3


def test_a_full_disk_is_an_error_and_the_version_before_it_stays(monkeypatch):
    rows = disk_rows(FIRST, N).with_rows(np.array([1]), np.ones((1, 3)))
    before = np.asarray(rows).tobytes()

    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        with pytest.raises(OSError, match="No space left"):
            rows.with_rows(np.array([1, 2]), np.zeros((2, 3)))
    assert np.asarray(rows).tobytes() == before
