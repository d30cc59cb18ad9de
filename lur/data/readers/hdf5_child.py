"""The child process in which `tff_hdf5` lets libhdf5 read: ``python hdf5_child.py FILE LIMIT [count]``.

libhdf5 may crash or loop on a file made or damaged for it, follow links to other files, and inflate a few bytes to
gigabytes. Here it can do no harm: the process may open one file and no other, write none, and use a bounded amount of
memory; whoever started it sees it die, and kills it if it stalls. It stands alone, importing nothing of lur.

To standard output go frames: eight bytes with the length of a JSON header, the header, and the arrays it announces,
raw. The first header has the number of clients; then come two per client, its name before anything of it is read and
its features; the last is an error or the end.
"""

import codecs
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from math import prod
from typing import Any, BinaryIO

import h5py
import numpy as np

ROW_BYTES = 64
ROWS = 1024
RATIO = 1100
"""More than deflate can compress: a dataset that is larger than the file by this factor is not in it."""
FILTERS = (h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32, h5py.h5z.FILTER_LZF)
LAYOUTS = (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED)


class Refused(Exception):
    """Something that is not what it should be: says what was expected."""


def confine(limit: int) -> None:
    """Bound what this process may do, where the system can: memory, and no file but one more."""
    for codec in ("ascii", "utf-8"):
        codecs.lookup(codec)  # a codec is a file: h5py could not load it any more
    with contextlib.suppress(ImportError):
        import resource

        spare = os.dup(0)
        os.close(spare)
        for name, most in (("AS", 3 * limit + 2**30), ("FSIZE", 0), ("CORE", 0), ("NOFILE", spare + 1)):
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def send(out: BinaryIO, header: dict[str, Any], *arrays: np.ndarray) -> None:
    """One frame."""
    text = json.dumps(header).encode()
    out.write(len(text).to_bytes(8, "little"))
    out.write(text)
    for array in arrays:
        out.write(array.tobytes())
    out.flush()


def serve(file: str, limit: int, only_count: bool, out: BinaryIO) -> None:
    """The frames of a file."""
    try:
        limit = min(limit, 2**20 + RATIO * os.path.getsize(file))
        with h5py.File(file, "r", locking=False, rdcc_nbytes=2**25) as content:
            examples = member(content, "examples", h5py.Group)
            names = in_order(examples)
            send(out, {"clients": len(names)})
            for name in () if only_count else names:
                send(out, {"next": readable(name)})
                header, arrays = features(member(examples, name, h5py.Group), limit)
                send(out, {"features": header}, *arrays)
            send(out, {"end": True})
    except BrokenPipeError:
        raise
    except Exception as error:
        text = str(error) if isinstance(error, Refused) else f"expected sound HDF5, {type(error).__name__}: {error}"
        send(out, {"error": readable(text)[:1000]})


def in_order(group: h5py.Group) -> list[Any]:
    """The names in a group, sorted as bytes: h5py gives those that are not UTF-8 as bytes, the others as text."""
    return sorted(group, key=raw)


def raw(name: str | bytes) -> bytes:
    """A name as it is in the file."""
    return name if isinstance(name, bytes) else name.encode(errors="surrogateescape")


def readable(name: str | bytes) -> str:
    """A name as text; bytes that are not UTF-8 have become backslash escapes."""
    return raw(name).decode(errors="backslashreplace")


def member(group: h5py.Group, name: str | bytes, kind: type) -> Any:
    """A group or dataset that lies in this very file: soft and external links are refused."""
    link = group.get(name, getlink=True)
    if link is None:
        raise Refused(f"expected a {kind.__name__.lower()} {readable(name)!r} in {group.name}, found none")
    if not isinstance(link, h5py.HardLink):
        raise Refused(f"expected no links, found that {readable(name)!r} is a {type(link).__name__}")
    found = group[name]
    if not isinstance(found, kind):
        raise Refused(f"expected {readable(name)!r} to be a {kind.__name__.lower()}")
    return found


def features(group: h5py.Group, limit: int) -> tuple[list[list[Any]], list[np.ndarray]]:
    """The datasets of a client: what the header says of each (name, kind, dtype, shape), and the arrays."""
    header, arrays, size = [], [], 0
    for name in in_order(group):
        if len(header) == 1000:
            raise Refused("expected at most 1000 features")
        dataset = member(group, name, h5py.Dataset)
        size += stored(name, dataset, limit - size)
        text = h5py.check_string_dtype(dataset.dtype) is not None
        found = texts(name, dataset, limit - size) if text else [np.asarray(dataset[()])]
        size += sum(array.nbytes for array in found) if text else 0
        shape = [len(array) for array in found] if text else list(dataset.shape)
        header.append([readable(name), "text" if text else "dense", found[0].dtype.name, shape])
        arrays.extend(array.astype(array.dtype.newbyteorder("<"), copy=False) for array in found)
    return header, arrays


def stored(name: str | bytes, dataset: h5py.Dataset, limit: int) -> int:
    """The bytes that a dataset takes, before any is read: it must be in this file, of plain values, and fit."""
    plan = dataset.id.get_create_plist()
    if plan.get_layout() not in LAYOUTS or plan.get_external_count():
        raise Refused(f"expected the data of {readable(name)!r} in this file, found that they are elsewhere")
    filters = [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]
    if any(code not in FILTERS for code in filters):
        raise Refused(f"expected {readable(name)!r} compressed with gzip or lzf, found the filters {filters}")
    shape, dtype = dataset.shape, dataset.dtype
    text = h5py.check_string_dtype(dtype) is not None
    if not shape or len(shape) > 8 or not (text or dtype.kind in "biuf") or (text and prod(shape[1:]) != 1):
        raise Refused(f"expected numbers or texts, one row per example, in {readable(name)!r}, found {dtype} {shape}")
    size = prod(shape) * (dtype.itemsize + (ROW_BYTES if text else 0))
    chunk = prod(plan.get_chunk()) * dtype.itemsize if plan.get_layout() == h5py.h5d.CHUNKED else 0
    if max(size, chunk) > limit:
        raise Refused(f"expected at most {limit} bytes in {readable(name)!r}, found {max(size, chunk)}")
    return size


def texts(name: str | bytes, dataset: h5py.Dataset, limit: int) -> list[np.ndarray]:
    """The rows of a dataset of strings: where each begins, and their content laid end to end."""
    offsets, content = [0], bytearray()
    for row in rows(dataset):
        content += row
        offsets.append(len(content))
        if len(content) > limit:
            raise Refused(f"expected at most {limit} more bytes of text in {readable(name)!r}, found more")
    return [np.array(offsets, np.int64), np.frombuffer(bytes(content), np.uint8)]


def rows(dataset: h5py.Dataset) -> Iterator[bytes]:
    """Strings one by one, read some at a time."""
    for start in range(0, len(dataset), ROWS):
        for row in dataset[start : start + ROWS].reshape(-1).tolist():
            yield raw(row)


if __name__ == "__main__":
    confine(int(sys.argv[2]))
    with contextlib.suppress(BrokenPipeError):
        serve(sys.argv[1], int(sys.argv[2]), "count" in sys.argv[3:], sys.stdout.buffer)
