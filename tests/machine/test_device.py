"""What a run takes of its device."""

import subprocess
from typing import Any

import pytest
import torch

from engram.machine import device as company


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
