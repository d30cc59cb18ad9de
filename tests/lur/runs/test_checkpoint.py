"""Checkpoints: any pytree comes back bit for bit; what is damaged is found and skipped."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lur.runs import checkpoint
from lur.runs.checkpoint import load, restore, save
from lur.runs.errors import Damaged, RunError
from lur.runs.files import Log, json_digest


class Pair(NamedTuple):
    first: object
    second: object


def tree(seed=0):
    rng = np.random.default_rng(seed)
    return Pair(
        {"a/b.c": jnp.asarray(rng.normal(size=(3, 4)), jnp.float32), "half": jnp.asarray([1.5, seed], jnp.bfloat16)},
        (None, np.int32(seed), [jnp.zeros((0, 3)), jnp.array([True, False]), np.float64(np.nan)]),
    )


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())


@pytest.fixture
def run(tmp_path):
    """A folder with a log of two lines and the checkpoints of rounds 1 and 2, and what was said."""
    log = Log(tmp_path / "log.jsonl")
    for k in (1, 2):
        log.append([{"round": k}])
        save(tmp_path / "checkpoints", k, tree(k), {"log.jsonl": log.sync()})
    log.close()
    return tmp_path


def restored(run):
    said = []
    return restore(run / "checkpoints", run, tree(), said.append), said


def test_any_pytree_comes_back(run):
    found, said = restored(run)
    same(found.state, tree(2))
    assert (found.round, found.positions["log.jsonl"].bytes, said) == (2, 26, [])


def test_only_the_last_stay(tmp_path):
    for k in (5, 40, 300, 2000):
        save(tmp_path, k, {"x": np.float32(k)}, {}, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000300", "00002000"]
    save(tmp_path, 2000, {"x": np.float32(1)}, {}, keep=2)  # again: replaced
    assert restore(tmp_path, tmp_path, {"x": np.float32(0)}, print).state["x"] == 1


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_every_damaged_file_is_found(run):
    """One bit anywhere, a file cut short, one that is gone, one too many: the one before is taken, and it is said."""
    whole = run.parent / "whole"
    shutil.copytree(run, whole)
    files = sorted(path.relative_to(run) for path in (run / "checkpoints" / "00000002").rglob("*") if path.is_file())
    assert len(files) > 5
    for file in files:
        for harm in (flip, Path.unlink, lambda path: os.truncate(path, path.stat().st_size - 1)):
            shutil.rmtree(run)
            shutil.copytree(whole, run)
            harm(run / file)
            found, said = restored(run)
            same(found.state, tree(1))
            assert found.round == 1
            assert len(said) == 1
            assert said[0].startswith("skipped the checkpoint of round 2: ")
            assert "00000002" in said[0]
            assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["00000001", "damaged-00000002"]
    shutil.rmtree(run)
    shutil.copytree(whole, run)
    (run / "checkpoints" / "00000002" / "state" / "more").touch()
    assert restored(run)[0].round == 1


def test_damaged_ones_do_not_push_out_good_ones(run):
    for k in (2, 3):
        flip(save(run / "checkpoints", k, tree(k), {}) / "manifest.json")
    found, said = restored(run)
    assert (found.round, len(said)) == (1, 2)
    save(run / "checkpoints", 2, tree(7), {}, keep=1)
    found, said = restored(run)
    same(found.state, tree(7))
    assert said == []


def test_a_checkpoint_ahead_of_its_log_is_passed_over(run):
    os.truncate(run / "log.jsonl", 20)
    found, said = restored(run)
    assert found.round == 1
    assert "log.jsonl: expected at least 26 bytes, found 20" in said[0]


def test_none_is_none(tmp_path):
    assert restored(tmp_path) == (None, [])
    (tmp_path / "checkpoints" / "00000003").mkdir(parents=True)
    found, said = restored(tmp_path)
    assert found is None
    assert "manifest.json: expected a manifest, found no such file" in said[0]


def test_links_are_not_followed(run, tmp_path):
    target = run / "checkpoints" / "00000002" / "state" / "_METADATA"
    content = target.read_bytes()
    (run / "elsewhere").write_bytes(content)
    target.unlink()
    target.symlink_to(run / "elsewhere")
    with pytest.raises(Damaged, match="found a symbolic link"):
        load(run / "checkpoints" / "00000002", run, tree())


def test_another_model_or_version_is_refused_and_nothing_is_moved(run):
    folder = run / "checkpoints"
    with pytest.raises(RunError, match=r"expected the array .*'\[0\]', 'shape': \[5\]") as error:
        restore(folder, run, [np.zeros(5, np.float32)], print)
    assert not isinstance(error.value, Damaged)
    file = folder / "00000002" / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest.pop("sha256")
    manifest["version"] = 2
    file.write_text(json.dumps({**manifest, "sha256": json_digest(manifest)}))
    with pytest.raises(RunError, match="expected lur-checkpoint version 1, found lur-checkpoint version 2"):
        restored(run)
    assert sorted(path.name for path in folder.iterdir()) == ["00000001", "00000002"]


def test_a_failed_save_leaves_the_others(run, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_arrays", refuse)
    with pytest.raises(OSError, match="No space left"):
        save(run / "checkpoints", 3, tree(3), {})
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["00000001", "00000002"]
    same(restored(run)[0].state, tree(2))


def test_checkpoints_of_version_1_stay_readable(tmp_path):
    """A checkpoint as version 1 of the format was first written, with orbax 0.12.8."""
    shutil.copytree(Path(__file__).parent / "run_version_1", tmp_path / "run")
    state = {
        "weights": np.arange(6, dtype=np.float32).reshape(2, 3),
        "half": np.asarray([1.5, -2], jnp.bfloat16),
        "count": np.asarray(7, np.int32),
        "none": np.zeros((0, 3), np.float32),
    }
    found = restore(tmp_path / "run" / "checkpoints", tmp_path / "run", jax.tree.map(np.zeros_like, state), pytest.fail)
    assert found.round == 1
    same(found.state, state)


def test_only_documented_names_of_orbax_are_used():
    sources = {path: path.read_text() for path in (Path(checkpoint.__file__).parents[1]).rglob("*.py")}
    assert [path.name for path, source in sources.items() if "import orbax" in source] == ["orbax_arrays.py"]
    (source,) = (source for path, source in sources.items() if path.name == "orbax_arrays.py")
    assert set(re.findall(r"\bocp\.([\w.]+)", source)) == {
        "Checkpointer",
        "StandardCheckpointHandler",
        "args.StandardRestore",
        "args.StandardSave",
        "options.MultiprocessingOptions",
    }
