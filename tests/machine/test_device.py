"""What a run takes of its device."""

from __future__ import annotations

import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_experiment import SMALL, go
from toy_run import Watched

from engram.errors import EngramError
from engram.ledger import read_ledger
from engram.machine import device as company
from engram.machine.device import explain, explained

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


CPU = torch.device("cpu")
PLAIN = replace(SMALL, backbone="conv32")
OUT_OF_MEMORY = (
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has"), "20.00 GiB"),
    (
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 96 bytes."),
        "96 b",
    ),
    (MemoryError("Unable to allocate 7.45 GiB for an array"), "7.45 GiB"),
)


@pytest.mark.parametrize(("error", "words"), OUT_OF_MEMORY)
def test_a_full_memory_says_what_was_asked_and_what_helps(error: Exception, words: str) -> None:
    told = explain(error, PLAIN, CPU)
    assert isinstance(told, EngramError) and words in str(told) and "\n" not in str(told)
    for part in ("ran out of memory on cpu", "2 sequences of 2 tasks, 3-way 1-shot", "--micro-batch 1", "--device"):
        assert part in str(told)
    with_classes = replace(PLAIN, data=replace(PLAIN.data, class_batch=64))
    told = str(explain(error, with_classes, CPU))
    assert "and 64 base-class images per training step" in told and "lower sequences or class_batch" in told
    with pytest.raises(EngramError, match="while it answered: ask for fewer with --n-way"), explained(PLAIN, CPU):
        raise error


def test_own_classes_are_named_and_other_errors_stay() -> None:
    error = KeyError("x")
    assert explain(error, PLAIN, CPU) is error
    assert explain(EngramError("as it is"), SMALL, CPU).args == ("as it is",)
    both = replace(SMALL, method="mine:Thing", backbone="mine:Net")
    assert str(explain(error, both, CPU)) == "mine:Thing with mine:Net failed: KeyError: 'x'"
    with pytest.raises(KeyError), explained(PLAIN, CPU):
        raise error


def test_a_failed_run_of_ours_is_recorded_and_its_error_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr("engram.training.experiment.run_loop", broken)
    with pytest.raises(ZeroDivisionError):
        go(tmp_path, PLAIN)
    (record,), _ = read_ledger(tmp_path / "results")
    assert (record.status, record.error) == ("failed", "ZeroDivisionError: a bug of ours")


def test_a_record_that_cannot_be_written_does_not_hide_the_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise EngramError("the disk is full")

    monkeypatch.setattr("engram.training.experiment.write_record", refuse)
    monkeypatch.setattr(Watched, "before_loss", staticmethod(lambda step: float("nan")))
    with pytest.raises(EngramError, match="the loss is not finite at step 1"):
        go(tmp_path, replace(SMALL, method="toy_run:Watched"))
