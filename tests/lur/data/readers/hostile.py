"""Files made to harm who imports them, each with the format that it is imported as.

A maker is ``make(folder, rng) -> path``. It may put other files into the folder: `SECRET`, whose content must not get
into a store, lies above it, and whatever runs or writes from the file would make `CANARY` there.
"""

import gzip
import io
import json
import os
import pickle
import sqlite3
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import h5py
import msgpack
import numpy as np

from tests.lur.data.readers import writers
from tests.lur.data.readers.clients import deflated_zeros, random_features
from tests.lur.data.readers.damage import mutated

SECRET, CANARY = "secret.txt", "canary.txt"
SECRET_CONTENT = b"this must not be read " * 4
Maker = Callable[[Path, np.random.Generator], Path]

SUFFIXES = {
    "tff-hdf5": ".h5",
    "tff-sqlite": ".sqlite",
    "fedjax": ".sqlite",
    "leaf": ".json",
    "roles-json": ".json",
    "users-json": ".json",
    "pen-npz": ".npz",
}
NAMES = ("../../canary.txt", "/tmp/x", "\x1b[2J\x1b]0;x\x07", "a\0b", "é" * 300, "", " ", "%s%n", "$(touch canary.txt)")
"""Client ids and names of features that are more than a name where they are pasted into something."""


class Payload:
    """An object whose pickle runs a command when it is loaded."""

    def __init__(self, folder: Path):
        self.command = f"touch {folder.parent / CANARY}"

    def __reduce__(self):
        return os.system, (self.command,)


def name_of(rng: np.random.Generator) -> str:
    return NAMES[rng.integers(len(NAMES))]


def pick(rng: np.random.Generator, choices):
    return choices[rng.integers(len(choices))]


def honest(format: str, path: Path, rng: np.random.Generator) -> Path:
    """A small sound file of a format."""
    n = int(rng.integers(1, 4))
    other = {id: random_features("other", n, rng) for id in ("a", "b")}
    match format:
        case "tff-hdf5":
            return writers.hdf5(path, other)
        case "tff-sqlite":
            return writers.tff_sqlite(path, {"train": other})
        case "fedjax":
            return writers.fedjax_sqlite(path, {id.encode(): features for id, features in other.items()})
        case "leaf":
            return writers.leaf_json(path, {"a": random_features(pick(rng, ("leaf", "emnist")), n, rng)})
        case "roles-json":
            path.write_text(json.dumps({"train": {"a": ["x"] * n, "b": []}}))
        case "users-json":
            path.write_text(json.dumps({"a": [{"tokens": "a", "title": "b", "tags": "c", "score": 1}] * n}))
        case "pen-npz":
            np.savez_compressed(path, **pen(n, rng))
    return path


def pen(n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    pixels = rng.integers(0, 256, (n, 28, 28)).astype(np.uint8)
    return {"pixels": pixels, "label": rng.integers(0, 9, n), "writer": rng.integers(0, 2, n)}


def damaged(format: str) -> Maker:
    """A sound file with some of its bytes flipped, cut, copied or replaced."""

    def make(folder: Path, rng: np.random.Generator) -> Path:
        path = honest(format, folder / f"a{SUFFIXES[format]}", rng)
        path.write_bytes(mutated(path.read_bytes(), rng))
        return path

    return make


def pickled(format: str) -> Maker:
    """A pickle under the format's name, alone or in front of a sound file."""

    def make(folder: Path, rng: np.random.Generator) -> Path:
        path = honest(format, folder / f"a{SUFFIXES[format]}", rng)
        path.write_bytes(pickle.dumps(Payload(folder)) + (path.read_bytes() if rng.random() < 0.5 else b""))
        return path

    return make


def no_regular_file(format: str) -> Maker:
    """A pipe, a folder, a link to nothing, to itself, to a device or to an endless one."""

    def make(folder: Path, rng: np.random.Generator) -> Path:
        path = folder / f"a{SUFFIXES[format]}"
        match rng.integers(5):
            case 0:
                os.mkfifo(path)
            case 1:
                path.mkdir()
                os.mkfifo(path / "b.json")
            case 2:
                path.symlink_to(folder / "nothing")
            case 3:
                path.symlink_to(path)
            case 4:
                path.symlink_to(pick(rng, ("/dev/zero", "/dev/stdin", "/proc/self/mem")))
        return path

    return make


def archived(format: str) -> Maker:
    """A sound file in a tar or zip archive, with members that lead out of it or are no files."""

    def make(folder: Path, rng: np.random.Generator) -> Path:
        content = honest(format, folder / f"inside{SUFFIXES[format]}", rng).read_bytes()
        good = f"train{SUFFIXES[format]}"
        target = pick(rng, ("../../canary.txt", f"{folder.parent}/{CANARY}", "a/../../../canary.txt", "x\n", ".."))
        if rng.random() < 0.3:
            path = folder / "a.zip"
            with zipfile.ZipFile(path, "w") as out:
                out.writestr(good, content)
                member = zipfile.ZipInfo(target if rng.random() < 0.5 else "link")
                member.external_attr = pick(rng, (0, 0o120777 << 16, 0o010644 << 16))
                out.writestr(member, f"../../{SECRET}")
            return path
        path = folder / pick(rng, ("a.tar", "a.tar.gz", "a.tar.bz2", "a.tar.xz"))
        with tarfile.open(path, f"w:{path.suffix[1:] if path.suffix != '.tar' else ''}") as out:
            members = [tarfile.TarInfo(target)]
            kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.REGTYPE)
            link = tarfile.TarInfo(pick(rng, ("link", good, f"inside/train{SUFFIXES[format]}")))
            link.type, link.linkname = pick(rng, kinds), pick(rng, (f"../../{SECRET}", str(folder.parent / SECRET)))
            sound = tarfile.TarInfo(good)
            sound.size = len(content)
            for member in rng.permutation(np.array([*members, link, sound], object)):
                out.addfile(member, io.BytesIO(content if member is sound else b""))
        return path

    return make


def json_text(format: str) -> Maker:
    """JSON that is deep, repeated, not finite, not Unicode, or of other types than expected."""

    def make(folder: Path, rng: np.random.Generator) -> Path:
        path = folder / "a.json"
        name, deep = json.dumps(name_of(rng)), int(rng.integers(10, 200_000))
        number = pick(rng, ("1e999", "-1", "9" * 5000, "NaN", "Infinity", "1.5", "true", "null", "{}", '"\\ud800"'))
        inner = pick(rng, ("[" * deep, "[" * deep + "]" * deep, '{"a":' * deep, f"[{number}]", number, "[[]]", "[{}]"))
        user = pick(rng, (inner, f'{{"x": [{inner}], "y": {inner}}}', f'[{{"tokens": {inner}}}]', f"[{inner}]"))
        top = {
            "leaf": f'{{"users": [{name}], "num_samples": [{number}], "user_data": {{{name}: {user}}}}}',
            "roles-json": f'{{"train": {{{name}: {user}, {name}: {user}}}}}',
            "users-json": f"{{{name}: {user}}}",
        }[format]
        encoded = pick(rng, (top, inner, top[: len(top) // 2], f"{top}{top}", f"\ufeff{top}")).encode()
        path.write_bytes(gzip.compress(encoded) if rng.random() < 0.3 else encoded)
        return path

    return make


def database(format: str) -> Maker:
    """A SQLite file whose schema is code, whose rows are of other types, or that is not alone."""

    def make(folder: Path, rng: np.random.Generator) -> Path:
        path = honest(format, folder / "a.sqlite", rng)
        table, id = ("examples", "client_id") if format == "tff-sqlite" else ("federated_data", "client_id")
        blob = "serialized_example_proto" if format == "tff-sqlite" else "data"
        secret = f"readfile('{folder.parent / SECRET}')"
        endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c"
        scripts = (
            f"ALTER TABLE {table} RENAME TO real; CREATE VIEW {table} AS SELECT *, ({endless}) AS more FROM real",
            f"ALTER TABLE {table} RENAME TO real; CREATE VIEW {table} AS SELECT * FROM real WHERE {secret}",
            f"ALTER TABLE {table} ADD COLUMN more AS (load_extension('x'))",
            f"CREATE INDEX extra ON {table} (substr({blob}, 1))",
            f"UPDATE {table} SET {blob} = zeroblob(100000000)",
            f"UPDATE {table} SET {blob} = 'text'",
            f"UPDATE {table} SET {blob} = {int(rng.integers(-9, 9))}",
            f"UPDATE {table} SET {id} = CAST(x'ff' AS TEXT)",
            f"UPDATE {table} SET {id} = ''",
            f"DROP TABLE {table}",
            f"DROP TABLE {table}; CREATE VIRTUAL TABLE {table} USING fts3({id}, {blob}, split_name, num_examples)",
            f"CREATE TRIGGER t AFTER INSERT ON {table} BEGIN SELECT load_extension('x'); END",
        )
        with closing(sqlite3.connect(path)) as connection:
            try:
                connection.executescript(pick(rng, scripts))
            except sqlite3.Error:  # what this version of SQLite does not allow to write remains a sound file
                connection.rollback()
        if rng.random() < 0.2:
            beside = path.with_name(path.name + pick(rng, ("-wal", "-journal")))
            pick(rng, (beside.mkdir, lambda: os.mkfifo(beside), lambda: beside.symlink_to(folder.parent / SECRET)))()
        return path

    return make


def message(folder: Path, rng: np.random.Generator) -> Path:
    """FedJAX's msgpack with other types, sizes that are not those of the bytes, or pickles."""
    values = (
        msgpack.ExtType(1, msgpack.packb(((2**40,), "float32", b""))),
        msgpack.ExtType(1, msgpack.packb(((1,), "object", pickle.dumps(Payload(folder))))),
        msgpack.ExtType(1, msgpack.packb(((1,), "O", bytes(8)))),
        msgpack.ExtType(1, msgpack.packb(((-1,), "int32", bytes(4)))),
        msgpack.ExtType(1, msgpack.packb(((1, 0, 2**50), "int32", b""))),
        msgpack.ExtType(4, msgpack.packb(((1,), [1]))),
        msgpack.ExtType(4, msgpack.packb(((3,), [b"a"]))),
        msgpack.ExtType(2, msgpack.packb((1.0, 2.0))),
        msgpack.ExtType(127, pickle.dumps(Payload(folder))),
        {"a": {}},
        [[]] * 3,
        b"\xff",
        float("nan"),
    )
    packed = msgpack.packb({name_of(rng): pick(rng, values), "b": pick(rng, values)})
    data = zlib.compress(packed) if rng.random() < 0.8 else pick(rng, (packed, b"", deflated_zeros(1)))
    return writers.fedjax_rows(folder / "a.sqlite", [(name_of(rng).encode(), data, int(rng.integers(-1, 3)))])


def proto(folder: Path, rng: np.random.Generator) -> Path:
    """TFF's SQLite with a proto of random fields, lengths and nesting."""

    def random_field(depth: int) -> bytes:
        content = rng.bytes(int(rng.integers(0, 9)))
        for _ in range(depth):
            content = pick(rng, (writers.field, lambda number, content: writers.varint(number << 3 | 2) + content))(
                int(rng.integers(0, 5)), content
            )
        return content

    path = writers.tff_sqlite(folder / "a.sqlite", {"train": {"a": {"count": np.array([1])}}})
    with closing(sqlite3.connect(path)) as connection, connection:
        blob = b"".join(random_field(int(rng.integers(0, 60))) for _ in range(rng.integers(1, 4)))
        connection.execute("UPDATE examples SET serialized_example_proto = ?", (blob,))
    return path


def hdf5(folder: Path, rng: np.random.Generator) -> Path:
    """HDF5 with links to other files, data elsewhere, types that are no numbers, and names that are paths."""
    path, secret = writers.hdf5(folder / "a.h5", {"a": {"x": np.zeros(2, np.float32)}}), folder.parent / SECRET
    with h5py.File(folder / "other.h5", "w") as other:
        other["x"] = np.frombuffer(SECRET_CONTENT, np.uint8)
    with h5py.File(path, "a") as file:
        client = file.create_group("examples/b")
        match rng.integers(11):
            case 0:
                client["x"] = h5py.SoftLink("/examples/a/x")
            case 1:
                client["x"] = h5py.ExternalLink(str(folder / "other.h5"), "/x")
            case 2:
                client.create_dataset("x", (2,), "u1", external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
            case 3:
                layout = h5py.VirtualLayout((88,), "u1")
                layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "x", (88,))
                client.create_virtual_dataset("x", layout)
            case 4:
                client["x"] = np.array([(1, 2.0)], [("a", "i4"), ("b", "f4")])
            case 5:
                client.create_dataset("x", (1,), h5py.ref_dtype)
            case 6:
                client["x"] = np.array([1j, 2])
            case 7:
                client.create_dataset("x", (2**40,), "f4", chunks=(2**20,), compression="gzip")
            case 8:
                client.create_dataset("x", (2**34,), h5py.string_dtype(), chunks=(2**10,))
            case 9:
                client.create_group("x/" * int(rng.integers(1, 200)))
            case 10:
                client["x"] = np.void(pickle.dumps(Payload(folder)))
        if rng.random() < 0.3:
            file["examples/c"] = h5py.SoftLink("/examples")
    return path


def arrays(folder: Path, rng: np.random.Generator) -> Path:
    """An npz with pickled objects, headers that are expressions, sizes that are not those of the bytes, or a bomb."""
    path, contents = folder / "a.npz", {}
    for name, array in pen(3, rng).items():
        file = io.BytesIO()
        np.save(file, array)
        contents[f"{name}.npy"] = file.getvalue()
    name = pick(rng, [*contents])
    match rng.integers(6):
        case 0:
            file = io.BytesIO()
            np.save(file, np.array([Payload(folder)] * 3, object), allow_pickle=True)
            contents[name] = file.getvalue()
        case 1:
            command = f"__import__('os').system('touch {folder.parent / CANARY}')"
            header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': (3, {command})}}\n".encode()
            contents[name] = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(24)
        case 2:
            descr = pick(rng, ("'|O'", "'<M8[s]'", "[('a', '|O')]", "'<U4'", "'|V8'", "'<c16'", "'<i8'", "None"))
            shape = pick(rng, ("(3,)", "(2**60,)", "(-3,)", "()", "(10**30,)", "3", "(3, 28, 28)", "(0, 28, 28)"))
            header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
            contents[name] = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(24)
        case 3:
            contents[name] = pickle.dumps(Payload(folder))
        case 4:
            contents[name] = b"(" * 60_000
        case 5:
            contents = {pick(rng, (f"../{key}", f"/{key}", key, "")): value for key, value in contents.items()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for key, value in contents.items():
            out.writestr(zipfile.ZipInfo(key), value)
    return path


def bomb(format: str) -> Maker:
    """A small file that unpacks to more than a gibibyte."""

    def make(folder: Path, rng: np.random.Generator) -> Path:
        zeros = deflated_zeros(70)
        if format == "fedjax":
            return writers.fedjax_rows(folder / "a.sqlite", [(b"a", zeros, 1)])
        path = folder / "a.json"
        path.write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + zeros[2:-4] + bytes(8))
        return path

    return make


MAKERS: list[tuple[str, Maker]] = [
    *((format, maker(format)) for format in SUFFIXES for maker in (damaged, damaged, pickled, no_regular_file)),
    *((format, archived(format)) for format in SUFFIXES for _ in range(2)),
    *((format, json_text(format)) for format in ("leaf", "roles-json", "users-json") for _ in range(4)),
    *((format, database(format)) for format in ("tff-sqlite", "fedjax") for _ in range(5)),
    *(("fedjax", message) for _ in range(5)),
    *(("tff-sqlite", proto) for _ in range(5)),
    *(("tff-hdf5", hdf5) for _ in range(5)),
    *(("pen-npz", arrays) for _ in range(8)),
]
BOMBS = [(format, bomb(format)) for format in ("fedjax", "roles-json", "users-json")]
