"""Archives from elsewhere, unpacked with care: regular files only, below one temporary folder, of bounded size."""

import bz2
import io
import lzma
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from lur.data.readers.features import file_at
from lur.data.store import StoreError

LIMIT = 200 * 10**9
MEMBERS = 100_000
BLOCK = 2**20
LZMA_MEMORY = 2**28
SPARE = 2**28
"""Bytes to leave free on the disk."""


class Gunzip:
    """zlib's decompressor of gzip with the interface of those of bz2 and lzma."""

    def __init__(self):
        self.stream, self.rest = zlib.decompressobj(wbits=31), b""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        content = self.stream.decompress(self.rest + data, max_length)
        self.rest = self.stream.unconsumed_tail
        return content

    @property
    def eof(self) -> bool:
        return self.stream.eof

    @property
    def needs_input(self) -> bool:
        return not self.eof and not self.rest

    @property
    def unused_data(self) -> bytes:
        return self.stream.unused_data


def xz() -> lzma.LZMADecompressor:
    """A decompressor of .xz and of the older .lzma; a stream cannot ask for more memory than `xz -9` uses."""
    return lzma.LZMADecompressor(lzma.FORMAT_AUTO, memlimit=LZMA_MEMORY)


CODECS: dict[str, Callable[[], Any]] = {".gz": Gunzip, ".bz2": bz2.BZ2Decompressor, ".xz": xz, ".lzma": xz}
SHORT = {".tgz": (".tar", ".gz"), ".tbz2": (".tar", ".bz2"), ".txz": (".tar", ".xz")}
BROKEN = (
    OSError,
    EOFError,
    lzma.LZMAError,
    zlib.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
)
"""What the standard library raises on a broken archive."""


@contextmanager
def extracted(path: Path, *, limit: int = LIMIT) -> Iterator[Path]:
    """A temporary folder with the files of a .tar (.gz, .bz2, .xz) or .zip, or the one of a .gz, .bz2, .xz or .lzma.

    It is removed at the end. Absolute paths, ``..``, links, devices, names that come twice, more than `limit` bytes
    in total and archives cut short are a StoreError.
    """
    file_at(path, "an archive")
    suffixes = SHORT.get(path.suffix) or tuple(path.suffixes[-2:])
    codec = CODECS.get(suffixes[-1]) if suffixes else None
    is_tar = ".tar" in (suffixes[-2:-1] if codec else suffixes[-1:])
    if not (codec or is_tar or path.suffix == ".zip"):
        raise StoreError(f"{path}: expected a name that ends in .tar, .zip, {', '.join(CODECS)}, found {path.name!r}")
    with tempfile.TemporaryDirectory(prefix="lur-") as name:
        folder = Path(name)
        try:
            unpack(path, folder, codec, is_tar, limit)
        except StoreError:
            raise
        except BROKEN as error:
            raise StoreError(f"{path}: expected a sound archive, {type(error).__name__}: {error}") from error
        yield folder


def unpack(path: Path, folder: Path, codec: Callable[[], Any] | None, is_tar: bool, limit: int) -> None:
    """All files of the archive into the folder."""
    with path.open("rb") as file:
        chunks = inflated(path, file, codec) if codec else iter(lambda: file.read(BLOCK), b"")
        if is_tar:
            unpack_tar(path, Forward(path, chunks, limit), folder, limit)
        elif codec:
            copy(path, chunks, folder / (path.stem or "content"), limit)
        else:
            unpack_zip(path, file, folder, limit)


def inflated(path: Path, file: BinaryIO, codec: Callable[[], Any]) -> Iterator[bytes]:
    """The content of a compressed file, in blocks: one or more streams end to end, as the compressors allow."""
    stream, data = codec(), b""
    while True:
        data = data or (file.read(BLOCK) if stream.needs_input else b"")
        if not data and stream.needs_input:
            raise StoreError(f"{path}: expected more compressed data, found the end of the file")
        block = stream.decompress(data, BLOCK)
        data = b""
        if block:
            yield block
        if stream.eof:
            data = stream.unused_data or file.read(BLOCK)
            while data and not data.strip(b"\0"):
                data = file.read(BLOCK)
            if not data:
                return
            stream, data = codec(), data.lstrip(b"\0")


class Forward(io.RawIOBase):
    """Blocks as a file that is read once, forwards: what tarfile needs, and no more than `limit` bytes of it."""

    def __init__(self, path: Path, chunks: Iterator[bytes], limit: int):
        self.path, self.chunks, self.limit = path, chunks, limit
        self.block, self.used, self.position = b"", 0, 0

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes. tarfile reads the content of files by blocks; larger are only headers made to fill memory."""
        if not 0 <= size <= BLOCK:
            raise StoreError(f"{self.path}: expected a header of at most {BLOCK} bytes, found {size}")
        parts, missing = [], size
        while missing:
            if self.used == len(self.block):
                self.block, self.used = next(self.chunks, b""), 0
                if not self.block:
                    break
            parts.append(self.block[self.used : self.used + missing])
            self.used += len(parts[-1])
            missing -= len(parts[-1])
        self.position += size - missing
        if self.position > self.limit + BLOCK:
            raise StoreError(f"{self.path}: expected at most {self.limit} bytes, found more")
        return b"".join(parts)

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = 0, /) -> int:
        if whence != 0 or offset < self.position:
            raise StoreError(f"{self.path}: expected an archive that can be read once through, found a step back")
        while self.position < offset and self.read(min(BLOCK, offset - self.position)):
            pass
        return self.position


def unpack_tar(path: Path, stream: Forward, folder: Path, limit: int) -> None:
    """The regular files of a tar archive."""
    found = 0
    with tarfile.open(fileobj=stream, mode="r:") as tar:
        for member in tar:
            found += 1
            target = folder / safe(path, member.name, found)
            if member.isdir():
                continue
            if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
                raise StoreError(f"{path}, {member.name!r}: expected a regular file, found a link or a device")
            if hasattr(tarfile, "data_filter"):  # from 3.11.4 on; what it refuses, `safe` and the line above do
                tarfile.data_filter(member, str(folder))
            source = tar.extractfile(member)
            assert source is not None
            limit -= copy(path, blocks(source), target, limit, member.size)
    if stream.read(1):
        while stream.read(BLOCK):
            pass
    if not found:
        raise StoreError(f"{path}: expected at least one file in the archive, found none")


def unpack_zip(path: Path, file: BinaryIO, folder: Path, limit: int) -> None:
    """The regular files of a zip archive."""
    with zipfile.ZipFile(file) as archive:
        for found, member in enumerate(archive.infolist(), 1):
            target = folder / safe(path, member.filename, found)
            mode = member.external_attr >> 16
            if member.is_dir():
                continue
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                raise StoreError(f"{path}, {member.filename!r}: expected a regular file, found a link or a device")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & 1:
                raise StoreError(f"{path}, {member.filename!r}: expected a file deflated or stored, and not encrypted")
            with archive.open(member) as source:
                limit -= copy(path, blocks(source), target, limit, member.file_size)
        if not archive.infolist():
            raise StoreError(f"{path}: expected at least one file in the archive, found none")


def safe(path: Path, name: str, found: int) -> Path:
    """The relative path of a member, if it stays in the folder."""
    parts = PurePosixPath(name).parts
    if not name.isprintable() or any(c in name for c in "\\:") or not parts or name.startswith("/") or ".." in parts:
        raise StoreError(f"{path}, {name!r}: expected a relative path within the archive")
    if found > MEMBERS:
        raise StoreError(f"{path}: expected at most {MEMBERS} files, found more")
    return Path(*parts)


def blocks(source: Any) -> Iterator[bytes]:
    """The content of an open file."""
    return iter(lambda: source.read(BLOCK), b"")


def copy(path: Path, chunks: Iterable[bytes], target: Path, limit: int, expected: int | None = None) -> int:
    """Write a new file of at most `limit` bytes, `expected` where known, and return its size."""
    if expected is not None and expected > limit:
        raise StoreError(f"{path}, {target.name!r}: expected at most {limit} bytes, found {expected}")
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        raise StoreError(f"{path}, {target.name!r}: expected each name once, found it twice")
    size = checked_at = 0
    room(path, target, expected or 0)
    with target.open("xb") as out:
        for block in chunks:
            size += len(block)
            if size > limit:
                raise StoreError(f"{path}, {target.name!r}: expected at most {limit} bytes, found more")
            out.write(block)
            if size - checked_at > 2**26:
                checked_at = size
                room(path, target, 0)
    if expected is not None and size != expected:
        raise StoreError(f"{path}, {target.name!r}: expected {expected} bytes, found {size}")
    return size


def room(path: Path, target: Path, size: int) -> None:
    """There is space on the disk for `size` bytes, and some to spare."""
    free = shutil.disk_usage(target.parent).free
    if free < size + SPARE:
        raise StoreError(f"{path}: expected {size + SPARE} free bytes on the disk of {target.parent}, found {free}")
