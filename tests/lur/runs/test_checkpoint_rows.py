"""Checkpoints of rows on disk: those that were written, and no others, come back bit for bit as rows on disk."""

import dataclasses
import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lur.parallel import client_states
from lur.parallel import disk_rows as module
from lur.parallel.disk_rows import DiskRows, disk_rows
from lur.runs import checkpoint
from lur.runs.checkpoint import load, restore, save
from lur.runs.errors import Damaged
from lur.runs.files import checksum, json_digest
from lur.runs.train_run import train_in_folder
from lur.training.configuration import RunConfig
from lur.training.experiment import initial_state, load_task, resolve

N = 1000
FIRSTS = {
    "vector": np.array([-0.0, np.nan, 1.5], np.float32),
    "half": np.array([[1.5], [-0.0]], jnp.bfloat16),
    "count": np.int64(3),
    "flag": np.bool_(True),
}
WRITTEN = np.array([0, 7, 998, 999])


def initial(folder=None):
    return {"x": np.ones(2, np.float32), "clients": {k: disk_rows(np.asarray(v), N, folder) for k, v in FIRSTS.items()}}


def trained(seed=0):
    """The state after a version in which the rows WRITTEN have random bits."""
    state, rng = initial(), np.random.default_rng(seed)

    def write(rows):
        values = rng.integers(0, 256, (len(WRITTEN), max(rows.first.nbytes, 1)), np.uint8)
        values = values % 2 if rows.dtype == bool else values
        return rows.with_rows(WRITTEN, values.view(rows.dtype).reshape(len(WRITTEN), *rows.first.shape))

    return {**state, "clients": jax.tree.map(write, state["clients"])}


def bits(tree):
    return [(str(leaf.dtype), leaf.shape, np.asarray(leaf).tobytes()) for leaf in jax.tree.leaves(tree)]


def size(path):
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


@pytest.mark.parametrize("block", [1, 16, 2**26])
def test_written_rows_come_back_as_rows_on_disk(tmp_path, monkeypatch, block):
    monkeypatch.setattr(module, "BLOCK_BYTES", block)
    state = trained()
    path = save(tmp_path, 1, state, {})
    like = jax.tree.map(lambda leaf: leaf, initial(tmp_path))
    found = restore(tmp_path, tmp_path, like, pytest.fail).state
    assert bits(found) == bits(state)
    assert size(path / "rows") == len(WRITTEN) * sum(8 + np.asarray(first).nbytes for first in FIRSTS.values())
    for rows in found["clients"].values():
        assert isinstance(rows, DiskRows)
        assert rows.written.tolist() == WRITTEN.tolist()
        assert rows.file.folder == tmp_path


def test_rows_never_pass_through_memory_as_a_whole(tmp_path, monkeypatch):
    """A state of 4 TB, of which two rows are written."""
    monkeypatch.setattr(DiskRows, "__array__", lambda *_: pytest.fail("all rows in memory"))
    state = {"rows": disk_rows(np.zeros(2**20, np.float32), 10**6).with_rows(np.array([5, 9]), np.ones((2, 2**20)))}
    path = save(tmp_path, 1, state, {})
    assert size(path) < 3 * 2**22 + 2**16
    like = {"rows": disk_rows(np.zeros(2**20, np.float32), 10**6, tmp_path)}
    found = restore(tmp_path, tmp_path, like, pytest.fail).state["rows"]
    assert found[np.array([4, 5, 9])].sum() == 2**21
    assert os.fstat(found.file.file.fileno()).st_blocks * 512 <= 2 * 2**22 + 2**16


def test_other_first_rows_than_those_of_the_initial_state_come_back(tmp_path):
    save(tmp_path, 1, {"rows": disk_rows(np.float32([1.25, 2]), 3)}, {})
    found = restore(tmp_path, tmp_path, {"rows": disk_rows(np.float32([0, 0]), 3)}, pytest.fail).state["rows"]
    assert np.asarray(found).tolist() == [[1.25, 2]] * 3


def test_states_move_between_disk_and_memory(tmp_path):
    """A checkpoint of either kind is read as the other, such as one that an earlier version of lur wrote."""
    state = trained()
    dense = jax.tree.map(np.asarray, state)
    save(tmp_path / "disk", 1, state, {})
    found = restore(tmp_path / "disk", tmp_path, dense, pytest.fail).state
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(found))
    assert bits(found) == bits(state)
    version_1 = save(tmp_path / "memory", 1, dense, {})
    assert json.loads((version_1 / "manifest.json").read_text())["version"] == 1
    found = restore(tmp_path / "memory", tmp_path, initial(), pytest.fail).state
    assert all(isinstance(leaf, DiskRows) for leaf in found["clients"].values())
    assert bits(found) == bits(state)


def test_damaged_rows_are_found_and_the_checkpoint_before_is_used(tmp_path):
    save(tmp_path, 1, trained(1), {})
    for name in ("array_00000.index", "array_00003.bytes"):
        file = save(tmp_path, 2, trained(2), {}) / "rows" / name
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        said = []
        found = restore(tmp_path, tmp_path, initial(), said.append)
        assert (found.round, len(said)) == (1, 1)
        assert f"{name}: expected SHA-256" in said[0]
        assert bits(found.state) == bits(trained(1))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("index", np.array([0, 7, 7, 999]), "expected increasing indices from 0 to 999"),
        ("index", np.array([-1, 7, 998, 999]), "expected increasing indices from 0 to 999"),
        ("index", np.array([0, 7, 998, 1000]), "expected increasing indices from 0 to 999"),
        ("index", np.array([0, 7, 998]), "array_00003.bytes: expected 36 bytes, found 48"),
        ("index", np.arange(N + 1), "expected at most 8,000 bytes"),
        ("index", np.zeros(9, np.uint8), "expected 8 bytes per index, found 9 bytes"),
        ("bytes", np.zeros(5, np.uint8), "expected 48 bytes, found 5"),
        ("bytes", None, "expected the rows of an array, found no such file"),
    ],
)
def test_planted_rows_with_right_digests_are_refused(tmp_path, name, content, says):
    path = save(tmp_path, 1, trained(), {})
    file = path / "rows" / f"array_00003.{name}"
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["arrays"]["array_00003"]["path"] == "['clients']['vector']"
    del manifest["sha256"], manifest["files"][f"rows/{file.name}"]
    file.unlink()
    if content is not None:
        file.write_bytes(content.tobytes())
        manifest["files"][f"rows/{file.name}"] = checksum(file)
    (path / "manifest.json").write_text(json.dumps({**manifest, "sha256": json_digest(manifest)}))
    with pytest.raises(Damaged, match=says):
        load(path, tmp_path, initial())


def test_a_full_disk_leaves_the_other_checkpoints(tmp_path, monkeypatch):
    save(tmp_path, 1, trained(1), {})

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_rows", refuse)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path, 2, trained(2), {})
    assert [path.name for path in tmp_path.iterdir()] == ["00000001"]
    assert bits(restore(tmp_path, tmp_path, initial(), pytest.fail).state) == bits(trained(1))


def test_a_run_keeps_its_rows_in_its_folder_and_resumes_with_them(tmp_path, monkeypatch):
    """The shapes of its state can be asked for without a file, and its store stays on the host with the states."""
    config = RunConfig("quadratic", method="scaffold", clients=8, clients_per_round=3, checkpoint_every=2)
    task = load_task(config)

    def final_state(name, *ends):
        for rounds in ends:
            experiment = resolve(dataclasses.replace(config, rounds=rounds), task)
            *_, last = train_in_folder(tmp_path / name, experiment, notify=lambda _: None)
        return last.state

    on_device = final_state("device", 6)
    monkeypatch.setattr(client_states, "DEVICE_BYTES", 0)
    experiment = resolve(config, task)
    assert experiment.data_on_host
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), jax.eval_shape(lambda: initial_state(experiment)))
    whole, resumed = final_state("whole", 6), final_state("resumed", 3, 6)
    assert shapes == jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), whole)
    assert bits(resumed) == bits(whole)
    for name, state in (("whole", whole), ("resumed", resumed)):
        assert all(rows.file.folder == tmp_path / name for rows in jax.tree.leaves(state.clients))
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(on_device), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5, atol=1e-6)
