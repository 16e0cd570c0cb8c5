"""Files as they are met on disk: only regular ones are opened, within a budget of bytes, and only ours are deleted; and
where checkpoints lie: in a person's folders, or in the box that comes with the package."""

from __future__ import annotations

import errno
import gzip
import json
import os
import stat
import tokenize
import tomllib
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, cast

from engram.errors import EngramError

UNPACKING = (zipfile.BadZipFile, zlib.error, NotImplementedError, tokenize.TokenError, SyntaxError)
"""what a damaged archive, or the header of an array, raises beside OSError and ValueError"""
MOST_BYTES = 256 * 2**20
"""of a file that is read whole: no picture, list or record comes near"""
SQUEEZED = ".gz"
"""ends the name of a gzip file"""
TIMES = 64
"""what such a file may stand for: a few bytes could stand for gigabytes"""


def open_regular(path: Path) -> IO[bytes]:
    """A file to read from. A pipe, a device, or a link to one, could go on for ever: an OSError that says so."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe without a writer would hang here
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return cast(IO[bytes], os.fdopen(descriptor, "rb"))


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """A whole file; an OSError says so where it has more than ``most`` bytes."""
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it has {size} bytes where {most} are admitted", str(path))
        return stream.read(size)  # not ``most``: room is made for as much as is asked for


def read_squeezed(path: Path, most: int = MOST_BYTES) -> bytes:
    """What a gzip file stands for; ValueError where that is damaged, cut short, or more than `TIMES` what it has."""
    held = read_bytes(path, most)
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        data = unpacking.decompress(held, TIMES * len(held))
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not unpacking.eof or unpacking.unused_data:
        raise ValueError(f"its {len(held)} bytes are no whole gzip file, or stand for more than {TIMES} times as many")
    return data


def squeezed(data: bytes) -> bytes:
    """As a gzip file, the same whenever it is made; empty where `read_squeezed` would refuse it, or it does not pay."""
    small = gzip.compress(data, mtime=0)
    return small if len(small) < len(data) <= TIMES * len(small) else b""


def read_text(path: Path, encoding: str = "utf-8") -> str:
    return read_bytes(path).decode(encoding)


def read_json(path: Path) -> Any:
    """What a JSON file holds; OSError or ValueError where it cannot be read or is none."""
    try:
        return json.loads(read_bytes(path))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_versioned(path: Path, newest: int, key: str = "version", called: str = "version", way_out: str = "") -> Any:
    """A table of JSON that says its version; ValueError where it says none, one sentence where it is a later one."""
    raw = read_json(path)
    if not isinstance(raw, dict) or not isinstance(raw.get(key), int):
        raise ValueError(f"it has no {key}")
    if raw[key] > newest:
        raise EngramError(f"{path} has {called} {raw[key]} but this Engram reads up to {newest}: {way_out}")
    return raw


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """A TOML file; ``what`` it is stands in the sentence where it cannot be read."""
    try:
        return tomllib.loads(read_text(path))
    except OSError as error:
        raise EngramError(f"the {what} {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EngramError(f"the {what} {path} is not valid TOML: {error}") from error


def check_zip(stream: IO[bytes], most: int = 2**30, times: int = 0) -> None:
    """ValueError where a zip announces more than ``most`` bytes, or where given more than ``times`` what it has: a few
    bytes may stand for gigabytes."""
    held = os.fstat(stream.fileno()).st_size
    with zipfile.ZipFile(stream) as archive:
        announced = sum(member.file_size for member in archive.infolist())
    stream.seek(0)
    if announced > (times * held + 2**20 if times else most):
        raise ValueError(f"it announces {announced} bytes in a file of {held}")


def check_overwritable(path: Path, suffix: str, mark: str) -> None:
    """Refuse a file to write by its name, and one that is there without the ``mark`` that ours begin with."""
    if path.suffix != suffix or path.is_dir():
        raise EngramError(f"{path} cannot be written: its name must end in {suffix}")
    if not os.path.lexists(path):
        return
    try:
        with open_regular(path) as stream:
            head = stream.read(1000).decode(errors="replace")
    except OSError as error:
        raise EngramError(f"{path} cannot be written over: {error.strerror}") from error
    if head and mark not in head:
        raise EngramError(f"{path} exists and Engram did not write it, so it is kept: name another file")


def remove_own(folder: Path, own: Iterable[str]) -> None:
    """Delete a folder of ours: the files that Engram writes there, ``own`` as patterns, then the folder.

    Whatever else lies in it stays, and so does a folder behind a link.
    """
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in [path for pattern in own for path in folder.glob(pattern)]:
        path.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


WEIGHTS = Path(__file__).parent / "weights"
"""the box: small checkpoints in half precision"""


def located(path: Path) -> Path:
    """``weights/NAME`` is that of the box where the working directory has no such folder."""
    boxed = WEIGHTS.joinpath(*path.parts[1:])
    return boxed if path.parts[:1] == ("weights",) and not path.exists() and boxed.exists() else path


def model_folder(model: str) -> Path:
    """The folder that a person named; an empty name, as of a variable that was never set, is not the current one."""
    if not model.strip():
        raise EngramError("the name of the MODEL is empty: give a run or checkpoint folder, or . for this one")
    return Path(model)
