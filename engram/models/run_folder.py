"""The folders of a run: the newest ``step-00001000`` and the best on validation, ``best-00000800``."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from engram.errors import EngramError

_FOLDER = re.compile(r"(step|best)-(\d{8,})")


def last_step(run_folder: Path) -> Path | None:
    """The newest ``step-`` folder of a run, if it has one."""
    return _found(run_folder).get("step")


def _found(run_folder: Path) -> dict[str, Path]:
    """The newest folder of each kind."""
    found = [(int(m[2]), m[1], p) for p in run_folder.glob("*-*") if (m := _FOLDER.fullmatch(p.name)) and p.is_dir()]
    return {kind: path for _, kind, path in sorted(found)}


def remove_older(run_folder: Path, kind: str, newest: Path) -> None:
    """All folders of a kind, ``step`` or ``best``, but the newest."""
    for path in run_folder.glob(f"{kind}-*"):
        if _FOLDER.fullmatch(path.name) and path != newest:
            shutil.rmtree(path, ignore_errors=True)


def choose(path: Path, which: str) -> Path:
    """The ``best`` folder of a run or its ``last``; each falls back to the other."""
    if not path.exists():
        raise EngramError(f"there is no checkpoint at {path}: give a run folder or one of its step- or best- folders")
    if _FOLDER.fullmatch(path.name):
        raise EngramError(f"the checkpoint {path} lacks state.json: {way_out(path)}")
    found = _found(path) if path.is_dir() else {}
    order = ("best", "step") if which == "best" else ("step", "best")
    for kind in order:
        if kind in found:
            return found[kind]
    raise EngramError(f"{path} is not a checkpoint: it has neither a state.json nor step- or best- folders")


def way_out(folder: Path) -> str:
    """What to do where a folder cannot be read: the run may have another."""
    others = [p for p in _found(folder.parent).values() if p != folder]
    return f"use {others[0]} instead" if others else "copy it again from its source, or train again"
