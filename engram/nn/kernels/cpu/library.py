"""The C files of this folder, compiled once for this machine and kept in the cache."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

SOURCES = ("winograd.c", "stem.c", "norm.c")
OPTIONS = ("-std=gnu11", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared")
FOLDER = Path(__file__).parent


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
    if not _is_whole(path):
        try:
            _compile(compiler, path)
        except PermissionError as error:
            raise OSError(f"{path.parent} cannot be written: set ENGRAM_CACHE to a folder that can") from error
    return ctypes.CDLL(str(path))


def _cpu_flags() -> list[str]:
    """What the processor can do: a cache on a shared disk may serve several kinds."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].split() for line in lines if line.startswith("flags")), [])


def _seal(path: Path) -> Path:
    """Where the digest of a compiled file is kept: a file that lost its end would end the process when loaded."""
    return path.with_suffix(".sha256")


def _is_whole(path: Path) -> bool:
    sealed = path.is_file() and _seal(path).is_file()
    return sealed and _seal(path).read_text() == hashlib.sha256(path.read_bytes()).hexdigest()


def _compile(compiler: list[str], path: Path) -> None:
    """Written aside and moved: two runs may compile at once, and half a file must never be loaded."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as aside:
        made = Path(aside) / path.name
        command = [*compiler, *OPTIONS, *(str(FOLDER / name) for name in SOURCES), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
            said = next((line for line in lines if "error" in line), lines[-1])
            raise OSError(f"{shlex.join(compiler)} cannot compile them ({said})")
        digest = made.with_suffix(".sha256")
        digest.write_text(hashlib.sha256(made.read_bytes()).hexdigest())
        made.replace(path)
        digest.replace(_seal(path))


class Sizes(ctypes.Structure):
    """Base of the structs the kernels are given; ``threads`` is PyTorch's number."""

    threads: int

    def __init__(self, *values: int, **named: float) -> None:
        super().__init__(*values, threads=torch.get_num_threads(), **named)

    def sums(self, *shape: int, dtype: torch.dtype = torch.double) -> Tensor:
        """Zeros for each thread to add to, so that a sum does not depend on who comes first."""
        return torch.zeros(self.threads, *shape, dtype=dtype, device="cpu")


def call(name: str, *tensors: Tensor | None, sizes: Sizes) -> None:
    """A kernel on the storage of contiguous tensors; None is NULL."""
    for tensor in tensors:
        assert tensor is None or (tensor.device.type == "cpu" and tensor.is_contiguous()), f"{name} was given a view"
    pointers = [ctypes.c_void_p(None if t is None else t.data_ptr()) for t in tensors]
    getattr(library(), name)(*pointers, ctypes.byref(sizes))
