"""What the buttons of the page call: a visitor's session and files in, the new contents of the page out.

This module brings torch along; the page loads it while the visitor still looks at the empty page.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from engram.classifier.box import box
from engram.errors import EngramError, nearest
from engram.page import drawing, uploads
from engram.page.app import KINDS
from engram.page.example import example_files
from engram.page.session import Session, Shown, engine_of

NO_ANSWER = [None, "", "", {"choices": [], "visible": False}, ""]
"""what was shown, answers, memory, choice of layers, graph"""


def prepare() -> None:
    """Open the engine of every kind of pictures before it is asked for."""
    for kind in KINDS:
        engine_of(kind)


def add(session: Session | None, kind: str, name: str, files: list[str] | None) -> list[Any]:
    """-> session, task, files, name"""
    return [*_changed(session, kind, lambda new: new.add(name, _paths(files))), None, ""]


def example() -> list[Any]:
    """Letters in three fonts to learn, in two more to ask about. -> session, task, queries, kind"""
    support, questions = example_files()
    new = Session("glyphs")
    for name, files in support.items():
        new.add(name, files)
    return [new, drawing.task_html(new), [str(file) for file in questions], "glyphs"]


def classify(
    session: Session | None, kind: str, files: list[str] | None, reject_below: float | None = None
) -> list[Any]:
    """-> what `NO_ANSWER` lists"""
    found = (session or _new(kind)).ask(_paths(files), reject_below)
    names = drawing.layers_of(found)
    layers = {"choices": names, "value": names[-1], "visible": True}
    parts = [drawing.answers_html(found), drawing.memory_html(found), layers]
    return [found, *parts, drawing.graph_html(found, len(names) - 1)]


def next_task(session: Session | None, kind: str) -> list[Any]:
    """-> session, task, queries"""
    return [*_changed(session, kind, Session.next_task), None]


def save(session: Session | None, kind: str) -> dict[str, Any]:
    """-> file to take"""
    place = (session or _new(kind)).save(Path(mkdtemp(dir=uploads.pictures())))
    return {"value": str(place), "visible": True}


def load(files: list[str] | None) -> list[Any]:
    """-> session, task, kind, then what `NO_ANSWER` lists"""
    if not (paths := _paths(files)):
        raise EngramError("there is no file to load: choose a zip that Save wrote")
    new = Session.load(paths[0])
    return [new, drawing.task_html(new), new.weights, *NO_ANSWER]


def reset(kind: str) -> list[Any]:
    """-> session, task, files, queries, then what `NO_ANSWER` lists"""
    return [_new(kind), drawing.task_html(_new(kind)), None, None, *NO_ANSWER]


def layer(shown: Shown | None, name: str | None) -> str:
    """-> graph"""
    if shown is None or name not in drawing.layers_of(shown):
        raise EngramError(f"there is no layer '{name}' to show: classify pictures and choose one of those offered")
    return drawing.graph_html(shown, drawing.layers_of(shown).index(name))


def _changed(session: Session | None, kind: str, change: Callable[[Session], object]) -> list[Any]:
    """A changed copy of the session: what fails half-way leaves the visitor's own as it was."""
    new = copy.copy(session) if session else _new(kind)
    new.pending, new.pending_thumbnails = list(new.pending), list(new.pending_thumbnails)
    new.thumbnails, new.pending_digests = list(new.thumbnails), list(new.pending_digests)
    change(new)
    return [new, drawing.task_html(new)]


def _new(kind: str) -> Session:
    if kind not in box():
        raise EngramError(f"there are no pictures of the kind '{kind}'{nearest(str(kind), box())}")
    return Session(kind)


def _paths(files: list[str] | None) -> list[Path]:
    return [Path(file) for file in files or []]
