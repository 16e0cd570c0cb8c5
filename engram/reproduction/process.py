"""One job as processes of its own: its commands one after another, their words in a log, a polite way to stop, and what
came of all jobs of a call."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import IO, Literal

import engram
from engram.machine.interruptions import INTERRUPTED
from engram.reproduction.plan import Plan

Command = tuple[str, ...]
LOOK_EVERY = 0.2
PATIENCE = 180.0
"""seconds a run gets to finish its step and save before it is ended for good"""
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux: a run whose caller is gone saves and ends, so that it can be resumed"""
LIBRARY = ctypes.CDLL(None)
"""opened here: between fork and exec, in a process of several threads, one may only call it"""


@dataclass(frozen=True)
class Ended:
    status: Literal["finished", "failed", "stopped"]
    seconds: float
    sentence: str = ""
    """why it failed"""
    step: str = ""
    """the command it failed in: features, train, bench or picture"""
    node: str = ""
    """of a cluster"""


def run_commands(
    commands: Sequence[Command],
    log: Path,
    should_stop: Callable[[], bool] = lambda: False,
    on_line: Callable[[str], None] = lambda line: None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Ended:
    """Each ``engram`` command in a process whose environment has ``variables``; the first that fails ends the job."""
    log.parent.mkdir(parents=True, exist_ok=True)
    clock = time.monotonic()
    for command in commands:
        with log.open("a", encoding="utf-8") as words:
            print("$ engram", *command, file=words, flush=True)
            status, stopped = _run(command, words, log, should_stop, on_line, variables)
        took = time.monotonic() - clock
        if stopped or (command[0] == "train" and status == INTERRUPTED):
            return Ended("stopped", took)
        if status:
            return Ended("failed", took, last_sentence(log, status), command[0])
    return Ended("finished", time.monotonic() - clock)


def _run(
    command: Command, words: IO[str], log: Path, should_stop: Callable[[], bool], on_line: Callable[[str], None],
    variables: Mapping[str, str],
) -> tuple[int, bool]:  # fmt: skip
    """Exit status, and whether it was asked to stop."""
    process = subprocess.Popen(
        [sys.executable, "-m", "engram.cli", *command],
        stdin=subprocess.DEVNULL, stdout=words, stderr=subprocess.STDOUT, start_new_session=True,
        env={**environment(), **variables}, preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )  # fmt: skip
    asked_at: float | None = None
    try:
        while True:
            try:
                return process.wait(LOOK_EVERY), asked_at is not None
            except subprocess.TimeoutExpired:
                on_line(last_line(log))
            if asked_at is None and should_stop():
                asked_at = time.monotonic()
                process.send_signal(signal.SIGTERM)
            elif asked_at is not None and time.monotonic() - asked_at > PATIENCE:
                process.kill()
    finally:  # also where an engine cancels this very call: no run is left without somebody who waits for it
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE)


def _end_with_parent() -> None:
    with suppress(OSError, AttributeError):
        LIBRARY.prctl(DIE_WITH_PARENT, signal.SIGTERM)


def environment() -> dict[str, str]:
    """That of the caller, with this very Engram first on the path."""
    paths = [str(Path(engram.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p), "NO_COLOR": "1"}


def last_line(log: Path) -> str:
    """The last words of a log, for a progress line."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 2000))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if any(map(str.isalnum, line))), "")


def last_sentence(log: Path, status: int) -> str:
    """Why a command failed: the sentence it gave, or how it ended."""
    line = last_line(log)
    if status < 0:
        return f"ended by signal {signal.Signals(-status).name}, such as by a machine short of memory; see {log}"
    return line.removeprefix("engram: ") if line.startswith("engram: ") else f"{line} (status {status}); see {log}"


@dataclass
class Reproduced:
    """What a call did, by title of the job."""

    plan: Plan
    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """title -> why"""
    left: list[str] = field(default_factory=list)
    """stopped, out of budget, or after a failure they depend on"""
    report: Path | None = None

    def add(self, title: str, ended: Ended) -> None:
        if ended.status == "finished":
            self.finished.append(title)
        elif ended.status == "failed":
            self.failed[title] = ended.sentence
        else:
            self.left.append(title)
