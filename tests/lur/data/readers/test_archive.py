"""Archives: round trips, unsafe members, bombs."""

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import tempfile
import zipfile
from typing import Any, cast

import numpy as np
import pytest

from lur.data.readers import archive
from lur.data.store import StoreError
from tests.lur.data.readers.clients import bounded_memory


def test_round_trip(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    content = np.random.default_rng(0).bytes(2**20 + 1)
    for suffix in ("tar", "tar.gz", "tgz", "tar.bz2", "tar.xz", "zip"):
        path = tmp_path / f"a.b.{suffix}"
        if suffix == "zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
                out.writestr("folder/", b"")
                out.writestr("folder/a", content)
                out.writestr("b", b"")
        else:
            kind = {"tar": "", "tgz": "gz"}.get(suffix, suffix.rpartition(".")[2])
            with tarfile.open(path, cast(Any, f"w:{kind}")) as out:
                directory = tarfile.TarInfo("folder")
                directory.type = tarfile.DIRTYPE
                out.addfile(directory)
                for name, data in (("folder/a", content), ("b", b"")):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    out.addfile(member, io.BytesIO(data))
        with archive.extracted(path) as found:
            assert (found / "folder" / "a").read_bytes() == content
            assert (found / "b").read_bytes() == b""
        assert not list((tmp_path / "temporary").iterdir())


def test_single_compressed_files(tmp_path):
    """Also several streams in one file, and an xz stream followed by padding."""
    content = np.random.default_rng(0).bytes(2**18) + bytes(2**21)
    half = len(content) // 2
    for suffix, compress in ((".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)):
        path = tmp_path / f"a.word_count{suffix}"
        for data in (compress(content), compress(content[:half]) + compress(content[half:])):
            path.write_bytes(data + (bytes(8) if suffix == ".xz" else b""))
            with archive.extracted(path) as found:
                assert [file.name for file in found.iterdir()] == ["a.word_count"]
                assert (found / "a.word_count").read_bytes() == content
        for data in (compress(content)[:-1], compress(content) + b"garbage", b""):
            path.write_bytes(data)
            with pytest.raises(StoreError, match="expected"), archive.extracted(path):
                pass


def tar_member(name: str, **attributes) -> tarfile.TarInfo:
    """Return a member of a tar archive with any attributes."""
    member = tarfile.TarInfo(name)
    for key, value in attributes.items():
        setattr(member, key, value)
    return member


@pytest.mark.parametrize(
    "members",
    [
        [tar_member("/absolute")],
        [tar_member("../up")],
        [tar_member("a/../../up")],
        [tar_member("c:\\windows")],
        [tar_member("a\\..\\b")],
        [tar_member("line\nbreak")],
        [tar_member("link", type=tarfile.SYMTYPE, linkname="/etc/passwd")],
        [tar_member("a"), tar_member("link", type=tarfile.LNKTYPE, linkname="a")],
        [tar_member("device", type=tarfile.CHRTYPE)],
        [tar_member("pipe", type=tarfile.FIFOTYPE)],
        [tar_member("a"), tar_member("a")],
        [tar_member("a"), tar_member("./a")],
        [tar_member("a"), tar_member("a/b")],
        [tar_member("a/b"), tar_member("a")],
        [tar_member("n" * 300)],
        [],
    ],
)
def test_an_unsafe_tar_is_refused(tmp_path, members):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as out:
        for member in members:
            out.addfile(member, io.BytesIO())
    with pytest.raises(StoreError, match="expected") as error, archive.extracted(path):
        pass
    assert str(path) in str(error.value)
    assert [file.name for file in tmp_path.iterdir()] == ["a.tar"]


@pytest.mark.parametrize("name", ["/absolute", "../up", "a/../../up", "link", "twice", "encrypted"])
def test_an_unsafe_zip_is_refused(tmp_path, name):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as out:
        member = zipfile.ZipInfo(name)
        if name == "link":
            member.external_attr = (stat.S_IFLNK | 0o777) << 16
        out.writestr(member, b"/etc/passwd")
        if name == "twice":
            out.writestr("./twice", b"again")
    if name == "encrypted":
        data = bytearray(path.read_bytes())
        data[data.index(b"PK\1\2") + 8] |= 1
        path.write_bytes(data)
    with pytest.raises(StoreError, match="expected") as error, archive.extracted(path):
        pass
    assert str(path) in str(error.value)


@pytest.mark.parametrize("name", ["a.gz", "a.bz2", "a.xz", "a.lzma", "a.tar.gz", "a.tar", "a.zip"])
def test_bombs_are_refused_in_bounded_memory(tmp_path, name):
    path, zeros = tmp_path / name, bytes(2**26)
    member = tarfile.TarInfo("zeros")
    member.size = len(zeros)
    match name:
        case "a.gz":
            path.write_bytes(gzip.compress(zeros, 1))
        case "a.bz2":
            path.write_bytes(bz2.compress(zeros, 1))
        case "a.xz":
            path.write_bytes(lzma.compress(zeros, preset=0))
        case "a.lzma":
            path.write_bytes(lzma.compress(zeros, lzma.FORMAT_ALONE, preset=0))
        case "a.zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
                out.writestr("zeros", zeros)
        case _:
            with tarfile.open(path, "w:gz" if name.endswith("gz") else "w") as out:
                out.addfile(member, io.BytesIO(zeros))
    del zeros
    with (
        bounded_memory(),
        pytest.raises(StoreError, match="at most 1000000 bytes"),
        archive.extracted(path, limit=10**6),
    ):
        pass


def test_a_tar_header_bomb_is_refused_in_bounded_memory(tmp_path):
    """A header too large for memory, which tarfile would read whole."""
    path = tmp_path / "a.tar.gz"
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, 2**27
    with gzip.GzipFile(path, "wb", 1) as out:
        out.write(header.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(8):
            out.write(bytes(2**24))
    with bounded_memory(), pytest.raises(StoreError, match="header"), archive.extracted(path):
        pass


def test_xz_that_needs_too_much_memory_is_refused(tmp_path):
    path = tmp_path / "a.xz"
    path.write_bytes(lzma.compress(b"x", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 2**29}]))
    with pytest.raises(StoreError, match="valid archive"), archive.extracted(path):
        pass


def test_a_full_disk_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "SPARE_DISK_BYTES", 2**60)
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"x"))
    with pytest.raises(StoreError, match="free bytes"), archive.extracted(path):
        pass
