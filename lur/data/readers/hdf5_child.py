"""The child process in which `tff_hdf5` runs libhdf5: ``python hdf5_child.py FILE LIMIT [count]``.

On a damaged or malicious file libhdf5 may crash or loop, follow links to other files, or inflate a few bytes to
gigabytes. In this process it does no harm: the process can open one file only, cannot write files, and has bounded
memory; its parent notices when it dies, and kills it if it stalls. The module imports nothing of lur.

The process writes frames to standard output: eight bytes with the length of a JSON header, the header, and the raw
arrays that the header announces. The first header has the number of clients. Two headers per client follow: its name,
before any of its data are read, and its features. The last header is an error or the end.
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
ROWS_PER_READ = 1024
MAX_RATIO = 1100
"""More than deflate can compress: a dataset that is larger than the file by this factor cannot be stored in it."""
FILTERS = (h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32, h5py.h5z.FILTER_LZF)
LAYOUTS = (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED)


class RefusedError(Exception):
    """Content that is refused; the message says what was expected."""


def confine(limit: int) -> None:
    """Limit the memory of this process, and let it open one more file only, on systems that can."""
    for codec in ("ascii", "utf-8"):
        codecs.lookup(codec)  # h5py could not load it later, since a codec is a file
    with contextlib.suppress(ImportError):
        import resource

        spare = os.dup(0)
        os.close(spare)
        for name, maximum in (("AS", 3 * limit + 2**30), ("FSIZE", 0), ("CORE", 0), ("NOFILE", spare + 1)):
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (maximum, maximum))


def send(out: BinaryIO, header: dict[str, Any], *arrays: np.ndarray) -> None:
    """Write one frame."""
    encoded = json.dumps(header).encode()
    out.write(len(encoded).to_bytes(8, "little"))
    out.write(encoded)
    for array in arrays:
        out.write(array.tobytes())
    out.flush()


def serve(file: str, limit: int, only_count: bool, out: BinaryIO) -> None:
    """Write the frames of a file."""
    try:
        limit = min(limit, 2**20 + MAX_RATIO * os.path.getsize(file))
        with h5py.File(file, "r", locking=False, rdcc_nbytes=2**25) as content:
            examples = member(content, "examples", h5py.Group)
            names = sorted_names(examples)
            send(out, {"clients": len(names)})
            for name in () if only_count else names:
                send(out, {"next": readable(name)})
                header, arrays = read_features(member(examples, name, h5py.Group), limit)
                send(out, {"features": header}, *arrays)
            send(out, {"end": True})
    except BrokenPipeError:
        raise
    except Exception as error:
        message = (
            str(error) if isinstance(error, RefusedError) else f"expected valid HDF5, {type(error).__name__}: {error}"
        )
        send(out, {"error": readable(message)[:1000]})


def sorted_names(group: h5py.Group) -> list[Any]:
    """Return the names in a group, sorted as bytes. h5py returns names that are not UTF-8 as bytes, others as text."""
    return sorted(group, key=raw)


def raw(name: str | bytes) -> bytes:
    """Return a name as it is in the file."""
    return name if isinstance(name, bytes) else name.encode(errors="surrogateescape")


def readable(name: str | bytes) -> str:
    """Return a name as text; bytes that are not UTF-8 become backslash escapes."""
    return raw(name).decode(errors="backslashreplace")


def member(group: h5py.Group, name: str | bytes, kind: type) -> Any:
    """Return a group or dataset of this file; soft and external links are refused."""
    link = group.get(name, getlink=True)
    if link is None:
        raise RefusedError(f"expected a {kind.__name__.lower()} {readable(name)!r} in {group.name}, found none")
    if not isinstance(link, h5py.HardLink):
        raise RefusedError(f"expected no links, found the {type(link).__name__} {readable(name)!r}")
    item = group[name]
    if not isinstance(item, kind):
        raise RefusedError(f"expected {readable(name)!r} to be a {kind.__name__.lower()}")
    return item


def read_features(group: h5py.Group, limit: int) -> tuple[list[list[Any]], list[np.ndarray]]:
    """Return the datasets of a client: the header's entry of each (name, kind, dtype, shape), and the arrays."""
    header, arrays, size = [], [], 0
    for name in sorted_names(group):
        if len(header) == 1000:
            raise RefusedError("expected at most 1000 features")
        dataset = member(group, name, h5py.Dataset)
        size += stored_bytes(name, dataset, limit - size)
        is_text = h5py.check_string_dtype(dataset.dtype) is not None
        parts = read_texts(name, dataset, limit - size) if is_text else [np.asarray(dataset[()])]
        size += sum(array.nbytes for array in parts) if is_text else 0
        shape = [len(array) for array in parts] if is_text else list(dataset.shape)
        header.append([readable(name), "text" if is_text else "dense", parts[0].dtype.name, shape])
        arrays.extend(array.astype(array.dtype.newbyteorder("<"), copy=False) for array in parts)
    return header, arrays


def stored_bytes(name: str | bytes, dataset: h5py.Dataset, limit: int) -> int:
    """Return the size of a dataset, not yet read. It must be stored in this file, hold numbers or text, and fit."""
    properties = dataset.id.get_create_plist()
    if properties.get_layout() not in LAYOUTS or properties.get_external_count():
        raise RefusedError(f"expected the data of {readable(name)!r} in this file, found them elsewhere")
    filters = [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
    if any(code not in FILTERS for code in filters):
        raise RefusedError(f"expected {readable(name)!r} compressed with gzip or lzf, found the filters {filters}")
    shape, dtype = dataset.shape, dataset.dtype
    is_text = h5py.check_string_dtype(dtype) is not None
    if not shape or len(shape) > 8 or not (is_text or dtype.kind in "biuf") or (is_text and prod(shape[1:]) != 1):
        raise RefusedError(
            f"expected numbers or texts, one row per example, in {readable(name)!r}, found {dtype} {shape}"
        )
    size = prod(shape) * (dtype.itemsize + (ROW_BYTES if is_text else 0))
    chunk = prod(properties.get_chunk()) * dtype.itemsize if properties.get_layout() == h5py.h5d.CHUNKED else 0
    if max(size, chunk) > limit:
        raise RefusedError(f"expected at most {limit} bytes in {readable(name)!r}, found {max(size, chunk)}")
    return size


def read_texts(name: str | bytes, dataset: h5py.Dataset, limit: int) -> list[np.ndarray]:
    """Return the rows of a dataset of strings: their offsets, and their content end to end."""
    offsets, content = [0], bytearray()
    for row in text_rows(dataset):
        content += row
        offsets.append(len(content))
        if len(content) > limit:
            raise RefusedError(f"expected at most {limit} more bytes of text in {readable(name)!r}, found more")
    return [np.array(offsets, np.int64), np.frombuffer(bytes(content), np.uint8)]


def text_rows(dataset: h5py.Dataset) -> Iterator[bytes]:
    """Yield the strings of a dataset, reading `ROWS_PER_READ` at a time."""
    for start in range(0, len(dataset), ROWS_PER_READ):
        for row in dataset[start : start + ROWS_PER_READ].reshape(-1).tolist():
            yield raw(row)


if __name__ == "__main__":
    confine(int(sys.argv[2]))
    with contextlib.suppress(BrokenPipeError):
        serve(sys.argv[1], int(sys.argv[2]), "count" in sys.argv[3:], sys.stdout.buffer)
