"""Files with bytes changed at random from a seed, read in a process that can be lost: none may end in a traceback."""

from __future__ import annotations

import os
import random
import resource
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from engram.errors import EngramError

SECONDS, BYTES = 20, 2 * 2**30
"""that one input may take beyond what the process has"""
NUMBERS = (b"-1", b"0", b"1e999", b"99999999999999999999", b"4294967296", b"2147483647", b"1000000000", b"NaN", b"0.5")
TOKENS = (
    b"\0",
    b"\xff\xfe",
    b"[" * 3000,
    b"null",
    b"{}",
    b"../",
    b"\n",
    b'"',
    b"\xed\xa0\x80",
    b"true",
    b"=",
    b"x" * 999,
)


def damaged(data: bytes, dice: random.Random) -> bytes:
    """One to four changes: bits flipped, pieces cut out, doubled, swapped or emptied, numbers and words put in."""
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        data = _changed(data, dice)
    return data


def _changed(data: bytes, dice: random.Random) -> bytes:
    size = len(data)
    a, b = sorted((dice.randrange(size + 1), dice.randrange(size + 1)))
    near = min(size, a + dice.choice((1, 2, 8, 64)))
    digits = [i for i in range(size) if data[i : i + 1].isdigit()] if size < 100_000 else []
    place = dice.choice(digits or [a])
    flipped = bytes(byte ^ (1 << dice.randrange(8)) for byte in data[a:near])
    pieces = (b"", flipped, dice.randbytes(near - a), bytes(near - a), data[a:near] * dice.choice((2, 4, 200)))
    changes = [
        data[:a],
        *(data[:a] + piece + data[near:] for piece in pieces),
        data[:a] + dice.choice(TOKENS) + data[a:],
        data[:a] + data[b:] + data[a:b],
        *[data[:place] + dice.choice(NUMBERS) + data[place + 1 :]] * (4 if digits else 0),
    ]
    return dice.choice(changes)


def files_below(folder: Path) -> dict[str, tuple[int, int]]:
    """Each file's size and time, to see that none was changed; a lock says who had it last."""
    return {
        str(p): (p.stat().st_size, p.stat().st_mtime_ns)
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name != "run.lock"
    }


@contextmanager
def limited() -> Iterator[None]:
    """The time and memory of one input in this process: a `TimeoutError` or `MemoryError` beyond."""

    def late(*_: object) -> None:
        raise TimeoutError(f"took over {SECONDS} seconds")

    before, (soft, hard) = signal.signal(signal.SIGALRM, late), resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + BYTES, hard))
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def failures(inputs: Sequence[Any], use: Callable[[Any], object], watched: Path, file: Path | None = None) -> list[str]:
    """Use every input; a sentence for each that ended in a traceback, by a signal, too late, or with a file changed.

    With ``file`` the inputs are its bytes, and ``use`` is given its path.

    Each is tried in a child process with a limit on its time and its memory; where that is lost, another goes on.
    """
    failed: list[str] = []
    place = 0
    while place < len(inputs):
        read, write = os.pipe()
        if not (child := os.fork()):
            os.close(read)
            _child(inputs, place, partial(_used, use, watched, file), write)
        os.close(write)
        with os.fdopen(read, "r", errors="replace") as told:
            lines = told.read().splitlines()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        place += sum(line == "begun" for line in lines)
        failed += [line for line in lines if line != "begun"]
        if status:
            why = f"took over {SECONDS} seconds" if status == -signal.SIGALRM else f"ended with status {status}"
            failed.append(f"input {place - 1} {why}")
    return failed


def _child(inputs: Sequence[Any], first: int, used: Callable[[Any], str], out: int) -> None:
    status = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(null, stream)
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + BYTES,) * 2)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for number, content in enumerate(inputs[first:], first):
            os.write(out, b"begun\n")
            signal.alarm(SECONDS)
            if told := used(content):
                os.write(out, f"input {number}: {' '.join(told.split())}\n".encode(errors="replace"))
        status = 0
    finally:
        os._exit(status)


def _used(use: Callable[[Any], object], watched: Path, file: Path | None, content: Any) -> str:
    if file:
        file.write_bytes(content)
    before = files_below(watched)
    try:
        use(file or content)
    except (EngramError, OSError) as error:  # either is one sentence on the command line
        if len(str(error)) > 2000:
            return f"a sentence of {len(str(error))} characters"
    except SystemExit as end:
        if end.code not in (0, 2, None):
            return f"exit status {end.code}"
    except BaseException:
        return traceback.format_exc()[-700:]
    return "" if before.items() <= files_below(watched).items() else "a file was changed"
