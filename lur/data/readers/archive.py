"""Safe unpacking of untrusted archives: regular files only, inside one temporary folder, of bounded size."""

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

from lur.data.readers.features import existing_file
from lur.data.store import StoreError

MAX_UNPACKED_BYTES = 200 * 10**9
MAX_MEMBERS = 100_000
BLOCK_BYTES = 2**20
MAX_LZMA_MEMORY = 2**28
SPARE_DISK_BYTES = 2**28
"""Bytes to leave free on the disk."""


class GzipDecompressor:
    """A decompressor of gzip with the interface of `bz2.BZ2Decompressor` and `lzma.LZMADecompressor`."""

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


def xz_decompressor() -> lzma.LZMADecompressor:
    """Return a decompressor of .xz and .lzma that refuses streams which need more memory than those of `xz -9`."""
    return lzma.LZMADecompressor(lzma.FORMAT_AUTO, memlimit=MAX_LZMA_MEMORY)


CODECS: dict[str, Callable[[], Any]] = {
    ".gz": GzipDecompressor,
    ".bz2": bz2.BZ2Decompressor,
    ".xz": xz_decompressor,
    ".lzma": xz_decompressor,
}
SHORT_SUFFIXES = {".tgz": (".tar", ".gz"), ".tbz2": (".tar", ".bz2"), ".txz": (".tar", ".xz")}
ARCHIVE_ERRORS = (
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
"""The errors of the standard library on a malformed archive."""


@contextmanager
def extracted(path: Path, *, limit: int = MAX_UNPACKED_BYTES) -> Iterator[Path]:
    """Yield a temporary folder with the files of an archive, or the one file of a compressed file.

    The folder is removed at the end.

    Args:
      path: a .tar, .tar.gz, .tar.bz2, .tar.xz, .zip, .gz, .bz2, .xz or .lzma file.
      limit: the largest total number of bytes.

    Raises:
      StoreError: the archive is malformed or truncated, exceeds the limit, or has an absolute path, a ``..``, a link, a
        device or a repeated name.
    """
    existing_file(path, "an archive")
    suffixes = SHORT_SUFFIXES.get(path.suffix) or tuple(path.suffixes[-2:])
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
        except ARCHIVE_ERRORS as error:
            raise StoreError(f"{path}: expected a valid archive, {type(error).__name__}: {error}") from error
        yield folder


def unpack(path: Path, folder: Path, codec: Callable[[], Any] | None, is_tar: bool, limit: int) -> None:
    """Unpack all files of the archive into the folder."""
    with path.open("rb") as file:
        blocks = decompressed_blocks(path, file, codec) if codec else file_blocks(file)
        if is_tar:
            unpack_tar(path, ForwardStream(path, blocks, limit), folder, limit)
        elif codec:
            write_file(path, blocks, folder / (path.stem or "content"), limit)
        else:
            unpack_zip(path, file, folder, limit)


def decompressed_blocks(path: Path, file: BinaryIO, codec: Callable[[], Any]) -> Iterator[bytes]:
    """Yield the content of a compressed file in blocks. The file may have several streams, end to end."""
    stream, data = codec(), b""
    while True:
        data = data or (file.read(BLOCK_BYTES) if stream.needs_input else b"")
        if not data and stream.needs_input:
            raise StoreError(f"{path}: expected more compressed data, found the end of the file")
        block = stream.decompress(data, BLOCK_BYTES)
        data = b""
        if block:
            yield block
        if stream.eof:
            data = stream.unused_data or file.read(BLOCK_BYTES)
            while data and not data.strip(b"\0"):
                data = file.read(BLOCK_BYTES)
            if not data:
                return
            stream, data = codec(), data.lstrip(b"\0")


class ForwardStream(io.RawIOBase):
    """Blocks as a file of at most `limit` bytes that can be read once, forwards, as tarfile does."""

    def __init__(self, path: Path, blocks: Iterator[bytes], limit: int):
        self.path, self.blocks, self.limit = path, blocks, limit
        self.block, self.used, self.position = b"", 0, 0

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, at most a block: only headers made to fill memory need more."""
        if not 0 <= size <= BLOCK_BYTES:
            raise StoreError(f"{self.path}: expected a header of at most {BLOCK_BYTES} bytes, found {size}")
        parts, missing = [], size
        while missing:
            if self.used == len(self.block):
                self.block, self.used = next(self.blocks, b""), 0
                if not self.block:
                    break
            parts.append(self.block[self.used : self.used + missing])
            self.used += len(parts[-1])
            missing -= len(parts[-1])
        self.position += size - missing
        if self.position > self.limit + BLOCK_BYTES:
            raise StoreError(f"{self.path}: expected at most {self.limit} bytes, found more")
        return b"".join(parts)

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = 0, /) -> int:
        if whence != 0 or offset < self.position:
            raise StoreError(f"{self.path}: expected an archive that can be read in one pass, found a step back")
        while self.position < offset and self.read(min(BLOCK_BYTES, offset - self.position)):
            pass
        return self.position


def unpack_tar(path: Path, stream: ForwardStream, folder: Path, limit: int) -> None:
    """Unpack the regular files of a tar archive."""
    count = 0
    with tarfile.open(fileobj=stream, mode="r:") as tar:
        for member in tar:
            count += 1
            target = folder / safe_member_path(path, member.name, count)
            if member.isdir():
                continue
            if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
                raise StoreError(f"{path}, {member.name!r}: expected a regular file, found a link or a device")
            if hasattr(tarfile, "data_filter"):  # from 3.11.4 on; a second check of the same
                tarfile.data_filter(member, str(folder))
            source = tar.extractfile(member)
            assert source is not None
            limit -= write_file(path, file_blocks(source), target, limit, member.size)
    if stream.read(1):
        while stream.read(BLOCK_BYTES):
            pass
    if not count:
        raise StoreError(f"{path}: expected at least one file in the archive, found none")


def unpack_zip(path: Path, file: BinaryIO, folder: Path, limit: int) -> None:
    """Unpack the regular files of a zip archive."""
    with zipfile.ZipFile(file) as archive:
        for count, member in enumerate(archive.infolist(), 1):
            target = folder / safe_member_path(path, member.filename, count)
            mode = member.external_attr >> 16
            if member.is_dir():
                continue
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                raise StoreError(f"{path}, {member.filename!r}: expected a regular file, found a link or a device")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & 1:
                raise StoreError(
                    f"{path}, {member.filename!r}: expected a deflated or stored file that is not encrypted"
                )
            with archive.open(member) as source:
                limit -= write_file(path, file_blocks(source), target, limit, member.file_size)
        if not archive.infolist():
            raise StoreError(f"{path}: expected at least one file in the archive, found none")


def safe_member_path(path: Path, name: str, count: int) -> Path:
    """Return the relative path of the member number `count`, or raise a StoreError if it leaves the folder."""
    parts = PurePosixPath(name).parts
    if not name.isprintable() or any(c in name for c in "\\:") or not parts or name.startswith("/") or ".." in parts:
        raise StoreError(f"{path}, {name!r}: expected a relative path within the archive")
    if count > MAX_MEMBERS:
        raise StoreError(f"{path}: expected at most {MAX_MEMBERS} files, found more")
    return Path(*parts)


def file_blocks(source: Any) -> Iterator[bytes]:
    """Return the content of an open file, in blocks."""
    return iter(lambda: source.read(BLOCK_BYTES), b"")


def write_file(path: Path, blocks: Iterable[bytes], target: Path, limit: int, expected: int | None = None) -> int:
    """Write a new file of at most `limit` bytes, of `expected` bytes if given, and return its size."""
    if expected is not None and expected > limit:
        raise StoreError(f"{path}, {target.name!r}: expected at most {limit} bytes, found {expected}")
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        raise StoreError(f"{path}, {target.name!r}: expected each name once, found it twice")
    size = checked_at = 0
    check_disk_space(path, target, expected or 0)
    with target.open("xb") as out:
        for block in blocks:
            size += len(block)
            if size > limit:
                raise StoreError(f"{path}, {target.name!r}: expected at most {limit} bytes, found more")
            out.write(block)
            if size - checked_at > 2**26:
                checked_at = size
                check_disk_space(path, target, 0)
    if expected is not None and size != expected:
        raise StoreError(f"{path}, {target.name!r}: expected {expected} bytes, found {size}")
    return size


def check_disk_space(path: Path, target: Path, size: int) -> None:
    """Raise a StoreError unless the disk has room for `size` bytes and `SPARE_DISK_BYTES` more."""
    free = shutil.disk_usage(target.parent).free
    if free < size + SPARE_DISK_BYTES:
        raise StoreError(
            f"{path}: expected {size + SPARE_DISK_BYTES} free bytes on the disk of {target.parent}, found {free}"
        )
