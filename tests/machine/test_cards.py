"""GPUs as nvidia-smi tells of them, and CUDA MPS, both played by small programs on the path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engram.machine import cards

SMI = """#!/bin/sh
echo "0, GPU-aa, {0}"
echo "1, GPU-bb, {1}"
"""
DAEMON = """#!/bin/sh
if [ "$1" = -d ]; then touch {folder}/running; exit 0; fi
read words
echo "$words" >> {folder}/said
[ -e {folder}/running ] || exit 1
[ "$words" = quit ] && rm {folder}/running
exit 0
"""


def put(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    folder.joinpath(name).write_text(text)
    folder.joinpath(name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_cards_are_those_the_process_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, monkeypatch, "nvidia-smi", SMI.format(80000, 40000))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert cards.free_memory() == [80000, 40000]
    for visible, free in (("1", [40000]), ("GPU-bb,GPU-aa", [40000, 80000]), ("", [])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert cards.free_memory() == free


def test_power_is_that_of_the_card_and_may_be_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, monkeypatch, "nvidia-smi", SMI.format("[N/A], 700.00", "210.00, 700.00"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert cards.power_share(1) == 0.3 and cards.power_share(0) is None and cards.power_share(2) is None
    monkeypatch.setenv("PATH", "")
    assert cards.free_memory() == [] and cards.power_share(0) is None


@pytest.mark.parametrize("runs_already", [False, True])
def test_the_service_is_stopped_by_whom_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs_already: bool
) -> None:
    put(tmp_path, monkeypatch, cards.CONTROL, DAEMON.format(folder=tmp_path))
    monkeypatch.setattr(cards, "CLIENT", "")
    if runs_already:
        (tmp_path / "running").touch()
    with cards.multi_process_service() as why:
        assert why == "" and (tmp_path / "running").exists()
    assert (tmp_path / "running").exists() is runs_already
    assert ("quit" in (tmp_path / "said").read_text()) is not runs_already


def test_a_service_that_cannot_be_had_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, monkeypatch, cards.CONTROL, DAEMON.format(folder=tmp_path))
    monkeypatch.setattr(cards, "CLIENT", "raise SystemExit('CUDA error: MPS client failed to connect')")
    with cards.multi_process_service() as why:
        assert why == "CUDA error: MPS client failed to connect" and not (tmp_path / "running").exists()
    monkeypatch.setattr(cards, "CONTROL", "no-such-program")
    with cards.multi_process_service() as why:
        assert why == "no-such-program is not on this machine"
