"""Memory of this machine, and its GPUs as nvidia-smi tells of them, without torch; CUDA MPS, by which runs share it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
WAIT = 60.0
"""seconds that a program of the driver gets"""
CLIENT = "import torch; torch.ones(1, device='cuda').sum().item()"
"""what has to work before runs are trusted to MPS: a server that refuses its clients is only met by the first"""


def asked_of_smi(*fields: str) -> list[list[str]] | None:
    """A row for each GPU that this process may use, in the order CUDA counts them; None where nobody can tell."""
    command = ["nvidia-smi", f"--query-gpu=index,uuid,{','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    rows = [[value.strip() for value in line.split(",")] for line in told.splitlines() if line.strip()]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = [name.strip() for name in visible.split(",") if name.strip()]
        rows = [row for name in names for row in rows if row[0] == name or row[1].startswith(name)]
    return [row[2:] for row in rows]


def available_memory() -> int:
    """Bytes of this machine that new work can have; those count too that only keep files at hand."""
    try:
        return 1024 * int(re.findall(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text())[0])
    except (OSError, IndexError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_memory() -> list[float]:
    """MiB free on each GPU, () where there is none or nobody can tell."""
    return [float(row[0]) for row in asked_of_smi("memory.free") or () if row[0].isdigit()]


def power_share(card: int) -> float | None:
    """How much of its power a GPU draws, 0..1: by that it shows how far it is used, while its ``utilization`` is 100 %
    also where one small kernel follows another."""
    rows = asked_of_smi("power.draw", "power.limit") or []
    try:
        draw, limit = rows[card]
        return round(float(draw) / float(limit), 2)
    except (IndexError, ValueError, ZeroDivisionError):  # no such card, or [N/A]
        return None


@contextmanager
def multi_process_service() -> Iterator[str]:
    """CUDA MPS while it lasts: started here, and then also stopped here, or found running. Gives "", or why not."""
    if _control("get_server_list") == "":  # somebody else's, and no business of ours
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="engram_mps_") as log:
        why = _started(log)
        try:
            yield why
        finally:
            if not why:
                _control("quit")


def _started(log: str) -> str:
    """Start it and try it; "", or why it cannot be had."""
    place = {"CUDA_MPS_LOG_DIRECTORY": log}
    try:
        subprocess.run(
            [CONTROL, "-d"], env=os.environ | place, timeout=WAIT, check=True, capture_output=True, text=True
        )
        subprocess.run([sys.executable, "-c", CLIENT], timeout=2 * WAIT, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        return f"{CONTROL} is not on this machine"
    except (OSError, subprocess.SubprocessError) as error:
        words = [*str(getattr(error, "stderr", "") or "").strip().splitlines(), *_last_words(Path(log))]
        _control("quit")
        return words[-1] if words else str(error)
    return ""


def _last_words(log: Path) -> list[str]:
    return [line for path in sorted(log.glob("*.log")) for line in path.read_text(errors="replace").splitlines()][-1:]


def _control(words: str) -> str:
    """Say something to the daemon; "" where it has heard, else why not."""
    try:
        subprocess.run([CONTROL], input=f"{words}\n", capture_output=True, text=True, timeout=WAIT, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return ""
