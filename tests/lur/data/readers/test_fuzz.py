"""Damaged files: a reader either reads a file or raises a StoreError, and leaves no partial store behind."""

import io
import json
import os
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from lur.data.readers import archive, counts, example_proto, fedjax_sqlite, leaf_json, tff_hdf5, tff_sqlite
from lur.data.store import StoreError
from lur.data.writer import write_store
from tests.lur.data.readers import writers
from tests.lur.data.readers.damage import mutated

FILES, SEED = 1000, 0
LIMIT = 2**26
SLOWEST = 5.0

SMALL = {
    "a": {"count": np.array([1, -2], np.int32), "word": [b"one", b"two"]},
    "b": {"count": np.array([300], np.int32), "word": [b""]},
}
POSTS = {
    id: {name: [b"x" * i, b"a b c"] for i, name in enumerate(("creation_date", "tags", "title", "tokens", "type"))}
    | {"score": np.array([-1, 2**40])}
    for id in ("u1", "u2")
}
PIXELS = np.linspace(0, 1, 784, dtype=np.float32).round(1)
DIGITS = {"w": {"pixels": PIXELS.reshape(1, 28, 28), "label": np.array([61], np.int32)}}
ROLES = {"PLAY_ROLE": {"x": [b"a" * 80, b"b" * 80], "y": [b"\n", b"c"]}}


def store_error(file: Path, read: Callable[[Path], object]) -> str | None:
    """Return the message of the StoreError that reading a file raises, or None. It must name the file."""
    try:
        read(file)
    except StoreError as error:
        if str(file) not in str(error):
            raise
        return str(error)
    return None


def assert_some_of_both(good: int, bad: int) -> None:
    """The damage is noticed often enough, but some damaged files can still be read."""
    print(f"{good} read, {bad} refused")
    assert good >= 5
    assert bad >= 200


def outcomes(folder: Path, seeds: list[Path], read: Callable[[Path], object], files: int = FILES) -> tuple[int, int]:
    """Read mutations of the seeds. Returns how many were read and how many raised a StoreError; other errors pass."""
    rng = np.random.default_rng(SEED)
    good = bad = 0
    before = set(folder.iterdir())
    for i in range(files):
        seed = seeds[i % len(seeds)]
        file = folder / f"mutated-{seed.name}"
        file.write_bytes(mutated(seed.read_bytes(), rng))
        start = time.process_time()
        refused = store_error(file, read) is not None
        good, bad = good + (not refused), bad + refused
        assert time.process_time() - start < SLOWEST, f"file {i} took {time.process_time() - start} s"
        file.unlink()
        assert set(folder.iterdir()) == before, f"file {i} left files behind"
    return good, bad


def imported(clients: Callable[[Path], Iterator]) -> Callable[[Path], None]:
    """Return a function that imports a file into a store and removes the store."""

    def read(file: Path) -> None:
        store = write_store(file.with_suffix(".store"), clients(file), {})
        assert store.path is not None
        for path in store.path.iterdir():
            path.unlink()
        store.path.rmdir()

    return read


def test_tff_sqlite(tmp_path):
    seeds = [
        writers.tff_sqlite(tmp_path / "small.sqlite", {"train": SMALL, "test": SMALL}),
        writers.tff_sqlite(tmp_path / "posts.sqlite", {"train": POSTS}, packed=False),
        writers.tff_sqlite(tmp_path / "small.sqlite.xz", {"train": SMALL}),
        writers.tff_sqlite(tmp_path / "digits.sqlite.lzma", {"train": DIGITS}),
    ]
    read = imported(lambda file: tff_sqlite.clients(file, "train", limit=LIMIT, unpacked_limit=LIMIT))
    good, bad = outcomes(tmp_path, seeds, read)
    assert_some_of_both(good, bad)


def test_fedjax_sqlite(tmp_path):
    small = {id.encode(): features for id, features in SMALL.items()}
    seeds = [
        writers.fedjax_sqlite(tmp_path / "small.sqlite", small),
        writers.fedjax_sqlite(tmp_path / "digits.sqlite", {b"\xff": DIGITS["w"]}),
    ]
    good, bad = outcomes(tmp_path, seeds, imported(lambda file: fedjax_sqlite.clients(file, limit=LIMIT)))
    assert_some_of_both(good, bad)


def test_fedjax_data(tmp_path):
    """Damage before compression, so that zlib's checksum does not detect it."""
    (tmp_path / "seed").write_bytes(writers.fedjax_data(SMALL["a"]))

    def read(file: Path) -> None:
        row = (b"a", zlib.compress(file.read_bytes(), 1), 2)
        fedjax_sqlite.decode_client(file, row, LIMIT)

    good, bad = outcomes(tmp_path, [tmp_path / "seed"], read)
    assert_some_of_both(good, bad)


def test_example_proto(tmp_path):
    names = ("pixels", "label", "text")
    values = (np.linspace(-1, 1, 5, dtype=np.float32), np.array([-1, 300, 2**62]), b"text")
    for packed in (True, False):
        proto = writers.example(dict(zip(names, values, strict=True)), packed=packed)
        (tmp_path / f"seed{packed}").write_bytes(proto)

    def read(file: Path) -> None:
        try:
            example_proto.decode(file.read_bytes())
        except example_proto.MalformedExampleError as error:
            raise StoreError(f"{file}: {error}") from error

    good, bad = outcomes(tmp_path, [tmp_path / "seedTrue", tmp_path / "seedFalse"], read)
    assert_some_of_both(good, bad)


def test_leaf_json(tmp_path):
    seeds = [writers.leaf_json(tmp_path / "digits.json", DIGITS), writers.leaf_json(tmp_path / "roles.json", ROLES)]
    good, bad = outcomes(tmp_path, seeds, imported(leaf_json.clients))
    assert_some_of_both(good, bad)
    outcomes(tmp_path, seeds, leaf_json.count, 200)


def test_counts(tmp_path):
    words, tags = tmp_path / "words", tmp_path / "tags.json"
    words.write_text("".join(f"word{i} {100 - i}\n" for i in range(20)))
    tags.write_text(json.dumps({f"tag{i}": i % 7 for i in range(20)}))
    for seed, read in ((words, counts.word_count), (tags, counts.tag_count)):
        good, bad = outcomes(tmp_path, [seed], lambda file, read=read: read(file, 20))
        assert_some_of_both(good, bad)


def test_archive(tmp_path):
    seeds = []
    for mode in ("", "gz", "bz2", "xz"):
        seeds.append(tmp_path / f"a.tar{mode and '.'}{mode}")
        with tarfile.open(seeds[-1], cast(Any, f"w:{mode}")) as tar:
            for name in ("a.txt", "folder/b.txt", "n" * 120):
                member = tarfile.TarInfo(name)
                member.size = 700
                tar.addfile(member, io.BytesIO(bytes(range(70)) * 10))
    seeds.append(tmp_path / "a.zip")
    with zipfile.ZipFile(seeds[-1], "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("a.txt", b"text" * 100)
        out.writestr("folder/b.txt", b"more")

    def read(file: Path) -> None:
        with archive.extracted(file, limit=LIMIT) as folder:
            assert folder.resolve() not in file.parents
            assert all(not path.is_symlink() for path in folder.rglob("*"))

    good, bad = outcomes(tmp_path, seeds, read)
    assert_some_of_both(good, bad)


HARNESS = """
import os, pathlib, signal, sys
sys.path.insert(0, sys.argv[1])
import hdf5_child
for file in sorted(pathlib.Path(sys.argv[2]).glob("*.h5")):
    source, sink = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(source)
        signal.setitimer(signal.ITIMER_PROF, 1)
        signal.alarm(60)
        hdf5_child.confine(int(sys.argv[3]))
        with open(sink, "wb") as out:
            hdf5_child.serve(str(file), int(sys.argv[3]), False, out)
        os._exit(0)
    os.close(sink)
    with open(source, "rb") as frames:
        file.with_suffix(".frames").write_bytes(frames.read())
    print(file.name, os.waitpid(pid, 0)[1] & 127)
"""


def hdf5_seeds(folder: Path) -> list[Path]:
    """Return small files in the different storage layouts of HDF5."""
    chunked = {"chunks": True, "compression": "gzip", "shuffle": True}
    return [
        writers.hdf5(folder / "small.h5", SMALL),
        writers.hdf5(folder / "latest.h5", SMALL, libver="latest"),
        writers.hdf5(folder / "chunked.h5", {id: dict(features) for id, features in SMALL.items()}, **chunked),
        writers.hdf5(folder / "fixed.h5", {"a": SMALL["a"]}, text="fixed", libver="latest"),
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the batch is read in forked processes")
def test_tff_hdf5(tmp_path):
    """The child of the HDF5 reader, forked once per file from one process; a crash, or a loop stopped after a second
    of work, shows as its signal.
    """
    rng = np.random.default_rng(SEED)
    seeds = hdf5_seeds(tmp_path)
    batch = tmp_path / "batch"
    batch.mkdir()
    for i in range(FILES):
        (batch / f"{i:04}.h5").write_bytes(mutated(seeds[i % len(seeds)].read_bytes(), rng))
    command = [sys.executable, "-P", "-c", HARNESS, str(tff_hdf5.CHILD_PROGRAM.parent), str(batch), str(LIMIT)]
    environment = {**os.environ, "HDF5_PLUGIN_PRELOAD": "::", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    signals = dict(line.split() for line in done.stdout.splitlines())
    assert len(signals) == FILES
    crashed = sorted(name for name, signal in signals.items() if signal != "0")

    def clients(file: Path) -> Iterator:
        return tff_hdf5.with_equal_features(file, tff_hdf5.read_clients(file, io.BytesIO(file.read_bytes()), LIMIT))

    good = bad = 0
    for name in sorted(signals):
        frames = (batch / name).with_suffix(".frames")
        refused = store_error(frames, imported(clients)) is not None
        good, bad = good + (not refused), bad + refused
    assert_some_of_both(good, bad)
    assert not [*batch.glob("*.store"), *batch.glob(".*")]
    for name in [*crashed[:1], *sorted(signals)[:4]]:
        error = store_error(batch / name, lambda file: list(tff_hdf5.clients(file, limit=LIMIT, timeout=2)))
        assert error or name not in crashed
    print(f"{len(crashed)} crashes {crashed[:10]}")


def test_tff_hdf5_frames(tmp_path):
    """The output of the HDF5 child process is not trusted either."""
    seed = tmp_path / "seed.frames"
    with tff_hdf5.child_process(hdf5_seeds(tmp_path)[0], LIMIT, "clients") as (_, stream):
        content = stream.read()
    for path in list(tmp_path.iterdir()):
        path.unlink()
    seed.write_bytes(content)

    def read(file: Path) -> None:
        for _ in tff_hdf5.read_clients(file, io.BytesIO(file.read_bytes()), LIMIT):
            pass

    good, bad = outcomes(tmp_path, [seed], read)
    assert_some_of_both(good, bad)
