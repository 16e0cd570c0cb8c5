"""Processes brought together: which device each has, and one sentence where they cannot be."""

from __future__ import annotations

import pytest
import torch
from toy_run import RECIPE, make_stores

import engram
from engram import processes
from engram.errors import EngramError
from engram.machine import device as machine
from engram.machine import together
from engram.processes import Share


def test_data_that_one_process_lacks_stop_all_with_its_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(None, "here"), ("no dataset in /data", "there")]
    monkeypatch.setattr(processes, "gathered", lambda value: answers)
    with pytest.raises(EngramError, match="^process 1 on there: no dataset in /data$"), processes.agreed():
        pass


def test_more_devices_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together.os, "cpu_count", lambda: 2)
    with pytest.raises(EngramError, match="3 processes were asked for.*has 2: use --devices 2 or fewer"):
        engram.train("proto_net/glyphs_quick", devices=3, device="cpu")
    with pytest.raises(EngramError, match="3 processes were asked for.*has 2: use --devices 2 or fewer"):
        engram.bench("chance", recipe="proto_net/glyphs_quick", devices=3, device="cpu")
    with pytest.raises(EngramError, match="devices = 0 but it must be at least 1"):
        engram.train("proto_net/glyphs_quick", devices=0)
    assert together.device_of("cpu", Share(1, 2)) == torch.device("cpu")
    monkeypatch.setattr(machine.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(machine.torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(machine.torch.cuda, "current_device", lambda: 0)
    assert together.device_of("auto", Share(3, 4)) == torch.device("cuda", 3)
    assert together.device_of("cuda:1", Share(1, 8)) == torch.device("cuda", 1), "one card for all"
    with pytest.raises(EngramError, match="5 processes were asked for, each with a GPU of its own.*has 4"):
        together.device_of("cuda", Share(0, 5))


def test_torchrun_and_devices_that_contradict(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TORCHELASTIC_RUN_ID", "x"), ("RANK", "0"), ("WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    with pytest.raises(EngramError, match="--devices 2 but torchrun has started 4"):
        engram.train(RECIPE, stores=make_stores(), devices=2)
