"""A failure is told in a sentence where a person can act on it, and left alone elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_experiment import SMALL, go
from toy_run import Watched

from engram.errors import EngramError
from engram.ledger import read_ledger
from engram.machine.failures import explain, explained

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
