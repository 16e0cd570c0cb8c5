"""The C files of this folder, compiled once for this machine and kept in the cache."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engram.nn.kernels.cpu.checks import check_call

SOURCES = ("winograd.c", "stem.c", "norm.c")
OPTIONS = ("-std=gnu11", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared")
FOLDER = Path(__file__).parent
PATIENCE, LIMIT = 5.0, 120.0
"""seconds until a person is told what is waited for, and until a compiler is given up"""


@cache
def missing() -> str:
    """Why the kernels cannot run on this machine; empty where they can."""
    try:
        library()
    except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
        return str(error)
    return ""


@cache
def library() -> ctypes.CDLL:
    """The compiled kernels; OSError says in a few words why there are none."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise OSError(f"they are for Linux on x86-64 and this is {platform.system()} on {platform.machine()}")
    flags = _cpu_flags()
    if not {"avx2", "fma"} <= set(flags):
        raise OSError("the processor has no AVX2")
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    compiler = shlex.split(os.environ.get("CC", "")) or ([found] if found else [])
    if not compiler:
        raise OSError("there is no C compiler (cc, gcc or clang) on the PATH")
    texts = [(FOLDER / name).read_bytes() for name in ("vector.h", *SOURCES)]
    machine = [*compiler, *OPTIONS, *flags]
    key = hashlib.sha256(b"\0".join([*texts, *(word.encode() for word in machine)])).hexdigest()[:16]
    path = Path(os.environ.get("ENGRAM_CACHE") or "~/.cache/engram").expanduser() / "kernels" / f"{key}.so"
    _refuse_shared(path)
    if not _is_whole(path):
        if (gave_up := path.with_suffix(".timeout")).exists():
            raise OSError(f"{gave_up.read_text()[:500]}: remove {gave_up} to try again")
        try:
            _compile(compiler, path)
        except PermissionError as error:
            raise OSError(f"{path.parent} cannot be written: set ENGRAM_CACHE to a folder that can") from error
    return ctypes.CDLL(str(path))


def _cpu_flags() -> list[str]:
    """What the processor can do: a cache on a shared disk may serve several kinds."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].split() for line in lines if line.startswith("flags")), [])


def _refuse_shared(path: Path) -> None:
    """What is loaded runs: a folder or a file that another user owns or may write to is refused.

    Above the cache only folders count in which everybody may exchange what others own.
    """
    for place in (path, _seal(path), path.parent, *path.parent.parents):
        try:
            status = place.lstat() if place in (path, _seal(path)) else place.stat()
        except OSError:
            continue  # not there yet, or told when it is written to
        inside = place in (path, _seal(path), path.parent)
        shared = stat.S_IWGRP | stat.S_IWOTH if inside else stat.S_IWOTH
        if status.st_uid not in (os.geteuid(), 0):
            raise OSError(f"{place} belongs to another user: set ENGRAM_CACHE to a folder of your own")
        if status.st_mode & shared and not (status.st_mode & stat.S_ISVTX and not inside):
            raise OSError(f"others may write to {place}: chmod go-w {place}, or set ENGRAM_CACHE to another folder")


def _seal(path: Path) -> Path:
    """Where the digest of a compiled file is kept: a file that lost its end would end the process when loaded."""
    return path.with_suffix(".sha256")


def _is_whole(path: Path) -> bool:
    sealed = path.is_file() and _seal(path).is_file()
    return sealed and _seal(path).read_text() == hashlib.sha256(path.read_bytes()).hexdigest()


def _compile(compiler: list[str], path: Path) -> None:
    """Written aside and moved: two runs may compile at once, and half a file must never be loaded."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as aside:
        made = Path(aside) / path.name
        command = [*compiler, *OPTIONS, *(str(FOLDER / name) for name in SOURCES), "-o", str(made)]
        status, words = _carry_out(command, path)
        if status:
            lines = words.strip().splitlines() or [f"exit {status}"]
            said = next((line for line in lines if "error" in line), lines[-1])
            raise OSError(f"{shlex.join(compiler)} cannot compile them ({said})")
        digest = made.with_suffix(".sha256")
        digest.write_text(hashlib.sha256(made.read_bytes()).hexdigest())
        made.replace(path)
        digest.replace(_seal(path))


def _carry_out(command: list[str], path: Path) -> tuple[int, str]:
    """Exit status of a compiler and what it said. One that hangs is told of, then ended, and not waited for again."""
    pipes: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **pipes) as compiler:
        try:
            words = compiler.communicate(timeout=PATIENCE)[1]
            return compiler.returncode, words
        except subprocess.TimeoutExpired:
            waited = f"for {command[0]} to compile the kernels, {LIMIT:.0f} s at most"
            print(f"engram: waiting {waited}", file=sys.stderr, flush=True)
        try:
            words = compiler.communicate(timeout=LIMIT - PATIENCE)[1]
        except subprocess.TimeoutExpired as error:
            os.killpg(compiler.pid, signal.SIGKILL)  # with the programs that it has started
            told = f"{command[0]} took more than {LIMIT:.0f} s"
            path.with_suffix(".timeout").write_text(told)
            raise OSError(told) from error
        return compiler.returncode, words


class Sizes(ctypes.Structure):
    """Base of the structs the kernels are given; ``threads`` is PyTorch's number."""

    threads: int

    def __init__(self, *values: int, **named: float) -> None:
        super().__init__(*values, threads=torch.get_num_threads(), **named)

    def sums(self, *shape: int, dtype: torch.dtype = torch.double) -> Tensor:
        """Zeros for each thread to add to, so that a sum does not depend on who comes first."""
        return torch.zeros(self.threads, *shape, dtype=dtype, device="cpu")


def call(name: str, *tensors: Tensor | None, sizes: Sizes) -> None:
    """A kernel on the storage of contiguous tensors; None is NULL. What does not fit its sizes is a ValueError."""
    check_call(name, tensors, sizes)
    pointers = [ctypes.c_void_p(None if t is None else t.data_ptr()) for t in tensors]
    getattr(library(), name)(*pointers, ctypes.byref(sizes))
