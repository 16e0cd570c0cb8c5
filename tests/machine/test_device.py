"""What a run takes of its device."""

import platform
import subprocess
import sys
from typing import Any

import pytest
import torch

from engram.machine import device as company

MEBIBYTES = 64
COUNT_PAGES = f"""
import resource, torch
from engram.machine.device import kept_memory

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty({MEBIBYTES} * 2**18).fill_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = new_pages()
with kept_memory():
    print(before, *[new_pages() for _ in range(20)][-1:])
print(new_pages())
"""


def test_a_run_on_the_cpu_tells_its_peak_and_the_load() -> None:
    told = company.DeviceUse(torch.device("cpu")).summary()
    assert told["peak_memory_mib"] > 10 and told["load_average"] >= 0 and told["cores"] >= 1


@pytest.mark.parametrize(("listed", "others"), [("11\n", 0), ("11\n12\n13\n", 2), ("", None)])
def test_other_processes_are_counted(monkeypatch: pytest.MonkeyPatch, listed: str, others: int | None) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, listed, "")

    monkeypatch.setattr(company.subprocess, "run", run)
    assert company._other_processes() == others


def test_where_nobody_can_tell_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("nvidia-smi")

    monkeypatch.setattr(company.subprocess, "run", run)
    assert company._other_processes() is None


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has its own ways")
def test_a_block_is_used_again_while_memory_is_kept() -> None:
    """In a process of its own, and after some rounds: what lies on the heap decides where a block goes."""
    told = subprocess.run([sys.executable, "-c", COUNT_PAGES], capture_output=True, text=True, check=True).stdout
    before, kept, after = map(int, told.split())
    assert kept < before / 10
    assert after > before / 2
