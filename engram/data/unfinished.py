"""Stores that are being built, each in a hidden folder beside its place, and what killed builds leave there."""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from engram.data.store import FILES
from engram.files import read_json, remove_own

if sys.platform != "win32":
    import fcntl

NOTE = "building.json"
"""how far a build has come"""
HIDDEN = re.compile(r"\.[0-9a-f]{12}(\.replaced)?")
"""what the name of a hidden folder ends in: a store that is built, or an earlier one that it takes the place of"""


@dataclass(frozen=True)
class Unfinished:
    """A store that is being built. Its images are locked meanwhile, which tells it from one whose build was killed."""

    folder: Path
    images: IO[bytes]

    def noted(self, plan: str) -> dict[str, Any]:
        """How far the build of this plan had come before it was killed; {} where there was none."""
        try:
            note = read_json(self.folder / NOTE)
            return note if note["plan"] == plan and type(note["rows"]) is int else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def note(self, plan: str, rows: int, digest: str) -> None:
        sync(self.images)  # or in a power cut a note could outlive what it speaks of
        written = self.folder / f"{NOTE}.new"
        written.write_text(json.dumps({"plan": plan, "rows": rows, "digest": digest}))
        os.replace(written, self.folder / NOTE)

    def publish(self, folder: Path) -> None:
        """Give a complete store its name; one of that name from before is moved aside, and back if this fails."""
        aside = self.folder.with_name(f"{self.folder.name}.replaced")
        (self.folder / NOTE).unlink(missing_ok=True)
        if folder.exists():
            os.replace(folder, aside)
        try:
            os.replace(self.folder, folder)
        except OSError:
            if aside.exists():
                os.replace(aside, folder)
            raise
        remove(aside)


def sync(stream: IO[bytes]) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def remove(folder: Path) -> None:
    with suppress(OSError):
        remove_own(folder, (*FILES, f"{NOTE}*"))


def begin(folder: Path, resume: bool) -> Unfinished:
    """A hidden folder for a store that is to be ``folder``: a new one, or that of a killed build to ``resume``.

    What other killed builds have left is removed, and a store that one had moved aside is put back.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    found: Unfinished | None = None
    beside = [path for path in sorted(folder.parent.iterdir()) if path.name.startswith(f".{folder.name}.")]
    for left in (path for path in beside if HIDDEN.fullmatch(path.name, len(folder.name) + 1) and path.is_dir()):
        if left.suffix == ".replaced":
            _put_back(left, folder)
        elif dead := _claimed(left):
            if resume and not found and (left / NOTE).is_file():
                found = dead
            else:
                dead.images.close()
                remove(left)
    return found or _new(folder)


def _new(folder: Path) -> Unfinished:
    while True:
        own = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}")
        own.mkdir()
        try:
            if found := _claimed(own, new=True):
                return found
        except OSError:
            remove(own)
            raise


def _put_back(aside: Path, folder: Path) -> None:
    if aside.with_suffix("").exists():
        return  # its build is alive
    if folder.exists():
        remove(aside)
    else:
        os.replace(aside, folder)


def _claimed(folder: Path, new: bool = False) -> Unfinished | None:
    """A hidden folder as our own; None where another process has it, or nobody can tell."""
    path = folder / FILES[0]
    try:
        images = path.open("a+b")
    except OSError as error:
        if new and not isinstance(error, FileNotFoundError):  # another process took it for a dead one
            raise
        return None
    try:
        if sys.platform != "win32":
            fcntl.flock(images, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ours = os.path.samestat(os.fstat(images.fileno()), path.stat())  # else it was removed before it was locked
    except OSError as error:
        ours = new and not isinstance(error, BlockingIOError | FileNotFoundError)  # a disk that knows no locks
    if ours:
        return Unfinished(folder, images)
    images.close()
    return None
