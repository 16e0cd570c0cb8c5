"""Zip and tar files read in place: nothing is unpacked to disk, and a member that points outside is refused."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, cast

from engram.errors import EngramError
from engram.files import open_regular

MAX_MEMBER_BYTES = 256 * 2**20
"""No image or list of a benchmark comes near; a small archive can announce terabytes."""
MAX_HELD_BYTES = 2**30
"""of all members that are held at once; those of Omniglot have 10 MB"""
MAX_MEMBERS = 1_000_000


def check_member(name: str, archive: Path) -> None:
    """Refuse absolute names and ``..``: an archive that holds them was not made by an honest tool."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or PureWindowsPath(name).drive:
        raise EngramError(
            f"{archive} holds the member '{name}', which points outside the archive: do not trust this file"
        )


class ZipSet:
    """Several zips as one folder of files: names are listed once, contents are read on request."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._archives = [(path, _open_zip(path)) for path in paths]
        self._places: dict[str, int] = {}
        for place, (path, archive) in enumerate(self._archives):
            if len(archive.namelist()) > MAX_MEMBERS:
                raise EngramError(
                    f"{path} holds {len(archive.namelist())} members where {MAX_MEMBERS} are admitted: "
                    f"do not trust this file"
                )
            for name in archive.namelist():
                check_member(name, path)
                if not name.endswith("/"):
                    self._places.setdefault(name, place)  # the first archive wins, in sorted order

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._places)

    def label(self, name: str) -> str:
        """How an error calls the member: archive and name."""
        return f"{self._archives[self._places[name]][0]}:{name}"

    def read_all(self, suffix: str) -> dict[str, bytes]:
        """All members whose names end in ``suffix``."""
        contents: dict[str, bytes] = {}
        held = 0
        for name in (name for name in self.names if name.endswith(suffix)):
            path, archive = self._archives[self._places[name]]
            held = _held(held, archive.getinfo(name).file_size, path)
            contents[name] = self.read(name)
        return contents

    def read(self, name: str) -> bytes:
        path, archive = self._archives[self._places[name]]
        _check_size(name, archive.getinfo(name).file_size, path)
        try:
            return archive.read(name)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError) as error:
            raise EngramError(f"{path}:{name} cannot be read ({error}): fetch the archive again") from error


def _held(before: int, size: int, path: Path) -> int:
    """Bytes held with one more member; more than the budget is an error before it is read."""
    if before + size > MAX_HELD_BYTES:
        raise EngramError(
            f"the members of {path} announce more than the {MAX_HELD_BYTES} bytes that are admitted in all: "
            f"do not trust this file"
        )
    return before + size


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(open_regular(path))
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        raise EngramError(f"{path} cannot be opened as a zip ({error}): fetch the archive again") from error


class _WatchedStream:
    """A stream that remembers its last read: tarfile takes a cut or garbled header for the end of the archive."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.seek, self.tell = stream.seek, stream.tell
        self.last_read = b""

    def read(self, size: int = -1) -> bytes:
        self.last_read = self._stream.read(size)
        return self.last_read


def read_tar(path: Path, suffix: str) -> dict[str, bytes]:
    """All members whose names end in ``suffix``, in one pass over a tar (plain, gz, bz2 or xz)."""
    contents: dict[str, bytes] = {}
    held = 0
    try:
        with open_regular(path) as raw, _open_tar_stream(raw, path.suffix) as stream:
            watched = _WatchedStream(stream)
            with tarfile.open(fileobj=cast(IO[bytes], watched), mode="r:") as archive:
                for number, member in enumerate(archive):
                    check_member(member.name, path)
                    if number >= MAX_MEMBERS:
                        raise EngramError(f"{path} holds more than {MAX_MEMBERS} members: do not trust this file")
                    _check_size(member.name, member.size, path)
                    held = _held(held, member.size, path)  # what is passed over is unpacked too
                    if member.isfile() and member.name.endswith(suffix):
                        contents[member.name.removeprefix("./")] = _tar_content(archive, member)
            if watched.last_read != bytes(tarfile.BLOCKSIZE):  # the empty block every tar ends with
                raise tarfile.ReadError("it ends too early")
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        raise EngramError(f"{path} cannot be read as a tar archive ({error}): fetch it again") from error
    return contents


def _open_tar_stream(raw: IO[bytes], suffix: str) -> IO[bytes]:
    openers: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}
    return cast(IO[bytes], openers.get(suffix, lambda stream, _: stream)(raw, "rb"))


def _check_size(name: str, size: int, path: Path) -> None:
    if size > MAX_MEMBER_BYTES:
        raise EngramError(
            f"{path}:{name} announces {size} bytes where {MAX_MEMBER_BYTES} are admitted: do not trust this file"
        )


def _tar_content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    content = stream.read() if stream is not None else b""
    if len(content) != member.size:
        raise tarfile.ReadError("it ends too early")
    return content
