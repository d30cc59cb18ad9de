"""`lur data` and `lur train`: from a file in its format to a store and a trained model."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from lur.data.importing import READERS
from lur.data.store import open_store
from tests.lur.data.readers import writers

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


def drawings(writer_ids=("a", "b"), n=4):
    rng = np.random.default_rng(0)
    return {
        id: {"pixels": rng.random((n, 28, 28), np.float32), "label": rng.integers(0, 62, n).astype(np.int32)}
        for id in writer_ids
    }


def check(store, drawn):
    opened = open_store(store)
    assert [opened.id(i) for i in range(opened.clients)] == sorted(drawn)
    assert opened.about["dataset"] == "emnist"
    for id, examples in opened.items():
        np.testing.assert_array_equal(examples["pixels"], drawn[id]["pixels"])
        np.testing.assert_array_equal(examples["label"], drawn[id]["label"])


@pytest.mark.parametrize("format", ["tff-hdf5", "tff-sqlite", "fedjax", "leaf"])
def test_every_format_becomes_the_same_store(lur, tmp_path, format):
    drawn = drawings()
    match format:
        case "tff-hdf5":
            file = writers.hdf5(tmp_path / "fed_emnist_train.h5", drawn)
        case "tff-sqlite":
            rows = {id: {"pixels": e["pixels"].reshape(-1, 784), "label": e["label"]} for id, e in drawn.items()}
            file = writers.tff_sqlite(tmp_path / "emnist.sqlite", {"all_train": rows})
        case "fedjax":
            file = writers.fedjax_sqlite(tmp_path / "f.sqlite", {id.encode(): e for id, e in drawn.items()})
        case "leaf":
            file = writers.leaf_json(tmp_path / "all_data.json", drawn)
    options = ["--split", "all_train"] if format == "tff-sqlite" else []
    status, out, _ = lur("data", "import", format, file, tmp_path / "s.store", *options)
    assert (status, out) == (0, f"{tmp_path / 's.store'}: 2 clients, 8 examples\n")
    check(tmp_path / "s.store", drawn)


def test_an_archive_holds_both_splits(lur, tmp_path):
    drawn = drawings()
    writers.hdf5(tmp_path / "fed_emnist_train.h5", drawn)
    writers.hdf5(tmp_path / "fed_emnist_test.h5", drawings(("t",)))
    with tarfile.open(tmp_path / "fed_emnist.tar.bz2", "w:bz2") as archive:
        for name in ("fed_emnist_train.h5", "fed_emnist_test.h5"):
            archive.add(tmp_path / name, name)
    assert lur("data", "import", "tff-hdf5", tmp_path / "fed_emnist.tar.bz2", "s.store", "--quiet")[:2] == (0, "")
    check(tmp_path / "s.store", drawn)
    status, _, err = lur("data", "import", "tff-hdf5", tmp_path / "fed_emnist.tar.bz2", "v.store", "--split", "val")
    assert status == 2
    assert "found fed_emnist_test.h5, fed_emnist_train.h5" in err
    assert not (tmp_path / "v.store").exists()


def test_info_list_and_show(lur, tmp_path):
    writers.hdf5(tmp_path / "e.h5", drawings())
    lur("data", "import", "tff-hdf5", tmp_path / "e.h5", "s.store")
    status, out, _ = lur("data", "info", "s.store", "--verify")
    assert status == 0
    assert "2 clients, 8 examples" in out
    assert "all checksums match" in out
    assert json.loads(lur("data", "info", "s.store", "--json")[1])["clients"] == 2
    assert all(name in lur("data", "list")[1] for name in READERS)
    assert lur("data", "show", "femnist", "--store", "s.store", "--out", "sheet.png")[:2] == (0, "sheet.png\n")
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")
    pixels = tmp_path / "s.store" / "pixels.bin"
    content = bytearray(pixels.read_bytes())
    content[0] ^= 1
    pixels.write_bytes(content)
    status, _, err = lur("data", "info", "s.store", "--verify")
    assert status == 2
    assert "pixels.bin: expected SHA-256" in err


@pytest.mark.parametrize("task", ["cifar100", "shakespeare", "stackoverflow_tp"])
def test_show_draws_the_built_in_data(lur, tmp_path, task):
    assert lur("data", "show", task, "--clients", 5)[:2] == (0, f"{task}.png\n")
    assert (tmp_path / f"{task}.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["import", "tff-hdf5", "none.h5", "s"], "none.h5: expected a tff-hdf5 file, found nothing"),
        (["import", "tff-hdf5", "text.h5", "s"], "text.h5"),
        (["import", "leaf", "text.h5", "s"], "text.h5"),
        (["import", "fedjax", "text.h5", "s"], "text.h5"),
        (["import", "tff-sqlite", "text.h5", "s"], "text.h5"),
        (["import", "roles-json", "text.h5", "s"], "text.h5"),
        (["import", "pen-npz", "text.h5", "s"], "text.h5"),
        (["import", "tfds", "nothing_prepared", "s", "--data-dir", "."], "nothing_prepared"),
        (["import", "leaf", "text.h5", "text.h5"], "text.h5: expected a new store, found an existing one"),
        (["info", "none"], "none: expected the folder of a store, found nothing"),
        (["show", "digits"], "task must be one of femnist"),
    ],
)
def test_an_invalid_command_is_refused_in_one_sentence(lur, tmp_path, arguments, says):
    (tmp_path / "text.h5").write_text("not HDF5")
    status, _, err = lur("data", *arguments)
    assert status == 2
    assert says in err
    assert err.startswith("lur: ")
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.name not in ("cache", "jax")) == ["text.h5"]


def test_train_on_built_in_data(lur, tmp_path):
    status, out, _ = lur("train", "digits", "--rounds", 30, "--clients", 10, "--evaluate-every", 15)
    assert status == 0
    assert "10 clients, 1,437 examples (scikit-learn" in out
    assert "round 15: loss f(x) = " in out
    assert "650 parameters, 30 rounds" in out
    assert lur("train", "quadratic", "--rounds", 3, "--theta", "K=2", "--server", "sgd")[0] == 0
    assert lur("train", "digits", "--rounds", 2, "--epochs", 1, "--weighting", "examples", "--quiet")[:2] == (0, "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["digit"], "task must be one of"),
        (["digits", "--theta", "2:3"], "theta must be"),
        (["digits", "--rounds", "0"], "rounds must be an integer >= 1, got 0"),
        (["digits", "--client-lr", "nan"], "client_lr must be finite"),
        (["digits", "--clients-per-round", "51"], "clients_per_round must be at most"),
        (["digits", "--word-count", "x"], "--word-count is for stackoverflow_nwp and stackoverflow_tp"),
        (["quadratic", "--store", "x"], "--store is not for quadratic"),
        (["femnist", "--store", "x"], "x: expected the folder of a store, found nothing"),
    ],
)
def test_train_refuses_in_one_sentence(lur, arguments, says):
    status, _, err = lur("train", *arguments)
    assert status == 2
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("task", "format", "file", "clients", "options"),
    [
        ("shakespeare", "roles-json", "shakespeare_roles.json.gz", 908, ["--client-lr", "1"]),
        ("femnist", "pen-npz", "uji_pen_v1_28x28.npz", 11, []),
        ("stackoverflow_nwp", "users-json", "stackexchange_users.json.gz", 1471, []),
        ("stackoverflow_tp", "users-json", "stackexchange_users.json.gz", 1471, []),
    ],
)
@pytest.mark.full
def test_real_samples_train(lur, tmp_path, task, format, file, clients, options):
    """Real data, 50 rounds of two clients: the loss falls."""
    if not (SHARED / file).exists():
        pytest.skip(f"the sample {file} is not here")
    assert lur("data", "import", format, SHARED / file, "s.store")[0] == 0
    assert open_store(tmp_path / "s.store").clients == clients
    size = ["--clients-per-round", "2", "--store", "s.store", *options]
    losses = []
    for rounds in (1, 50):
        status, out, _ = lur("train", task, "--rounds", rounds, *size)
        assert status == 0
        losses.append(float(out.rpartition("f(x) = ")[2].split(",")[0]))
    assert losses[1] < 0.95 * losses[0]
