"""Every reader refuses every file of another kind, and names it."""

from pathlib import Path

import numpy as np
import pytest

from lur.data.readers import archive, counts, fedjax_sqlite, leaf_json, tff_hdf5, tff_sqlite
from lur.data.store import StoreError
from tests.lur.data.readers import writers
from tests.lur.data.readers.clients import random_features


def one_file_of_each_kind(tmp: Path) -> dict[str, Path]:
    """Return one file of each kind, an empty file, a folder, and a path that does not exist."""
    rng = np.random.default_rng(0)
    digits = {"w": random_features("emnist", 1, rng)}
    files = {
        "hdf5": writers.hdf5(tmp / "a.h5", digits),
        "tff": writers.tff_sqlite(tmp / "a.sqlite", {"train": digits}),
        "tff_xz": writers.tff_sqlite(tmp / "a.sqlite.xz", {"train": digits}),
        "fedjax": writers.fedjax_sqlite(tmp / "b.sqlite", {b"w": digits["w"]}),
        "leaf": writers.leaf_json(tmp / "a.json", digits),
        "empty": tmp / "empty",
        "folder": tmp / "folder",
        "nothing": tmp / "nothing",
    }
    files["empty"].touch()
    files["folder"].mkdir()
    return files


READERS = {
    "hdf5": tff_hdf5.clients,
    "tff": lambda path: tff_sqlite.clients(path, "train"),
    "fedjax": fedjax_sqlite.clients,
    "leaf": leaf_json.clients,
    "words": lambda path: counts.word_count(path, 10),
    "tags": lambda path: counts.tag_count(path, 10),
    "archive": lambda path: archive.extracted(path).__enter__(),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_file_of_another_kind_is_refused(tmp_path, reader):
    for kind, path in one_file_of_each_kind(tmp_path).items():
        if kind == reader or (reader in ("tff", "archive") and kind == "tff_xz"):
            continue
        with pytest.raises(StoreError) as error:
            list(READERS[reader](path))
        assert str(path) in str(error.value)
        assert "expected" in str(error.value)


@pytest.mark.parametrize(("module", "suffix"), [(tff_hdf5, "h5"), (fedjax_sqlite, "sqlite"), (leaf_json, "json")])
def test_counting_clients_of_another_kind_of_file(tmp_path, module, suffix):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"not that")
    if module is leaf_json:
        assert module.count(path) is None
        return
    with pytest.raises(StoreError, match="expected") as error:
        module.count(path)
    assert str(path) in str(error.value)
