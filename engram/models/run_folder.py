"""The folders of a run: which there are, which to read, how one is published, and which are deleted."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from engram.errors import EngramError
from engram.files import remove_own

OWN = ("*.safetensors", "state.json")
"""files of a checkpoint; no other is ever deleted"""
FOLDER = re.compile(r"(step|best)-(\d{8,})")


def last_step(run_folder: Path) -> Path | None:
    """The newest ``step-`` folder of a run, if it has one."""
    return found(run_folder).get("step")


def publish(temporary: Path, final: Path) -> None:
    """Give a complete folder its name; one of that name from before is moved aside first and then removed."""
    aside = final.with_name(".replaced")
    remove(aside)
    if final.exists():
        os.replace(final, aside)
    os.replace(temporary, final)
    remove(aside)


def found(run_folder: Path) -> dict[str, Path]:
    """The newest folder of each kind."""
    return {kind: max(folders)[1] for kind in ("best", "step") if (folders := numbered(run_folder, kind))}


def numbered(run_folder: Path, kind: str) -> list[tuple[int, Path]]:
    """The folders of one kind with their iterations."""
    folders = ((FOLDER.fullmatch(path.name), path) for path in run_folder.glob(f"{kind}-*") if path.is_dir())
    return [(int(match[2]), path) for match, path in folders if match]


def remove(*folders: Path) -> None:
    """Delete checkpoints; one that cannot be deleted is left, as the run goes on without."""
    for folder in folders:
        with suppress(OSError):
            remove_own(folder, OWN)


def refuse_run(folder: Path) -> None:
    """Refuse a folder to write to that holds a run or a checkpoint: writing would delete what is there."""
    held = sorted(path.name for path in found(folder).values())
    if held or (folder / "state.json").exists():
        raise EngramError(f"{folder} holds a run up to {(held or ['its state.json'])[-1]}: choose another folder")


def choose(path: Path, which: str) -> Path:
    """The best or the last checkpoint of a run folder, or the other where that is not there."""
    if not path.exists():
        raise EngramError(f"there is no checkpoint at {path}: give a run folder or one of its step- or best- folders")
    if FOLDER.fullmatch(path.name):
        raise EngramError(f"the checkpoint {path} lacks state.json: {way_out(path)}")
    there = found(path) if path.is_dir() else {}
    order = ("best", "step") if which == "best" else ("step", "best")
    for kind in order:
        if kind in there:
            return there[kind]
    raise EngramError(f"{path} is not a checkpoint: it has neither a state.json nor step- or best- folders")


def way_out(folder: Path) -> str:
    """What a person can do about a checkpoint that cannot be used."""
    others = [p for p in found(folder.parent).values() if p != folder]
    return f"use {others[0]} instead" if others else "copy it again from its source, or train again"
