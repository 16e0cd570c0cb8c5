"""Fast arithmetic lasts as long as training does, and a run tells whose kernels it had."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from toy_run import RECIPE, go

from engram.nn.kernels import cpu
from engram.training import fast_arithmetic as module


@pytest.mark.parametrize(("plain", "why"), [(False, "there is none"), (True, "there is none"), (False, "")])
def test_a_run_tells_whose_kernels_it_had(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, plain: bool, why: str
) -> None:
    if not why and (missing := cpu.missing()):
        pytest.skip(f"no kernels, as {missing}")
    monkeypatch.setattr(cpu, "missing", lambda: why)
    outcome = go(
        tmp_path, replace(RECIPE, backbone="toy_run:OneBlock", train=replace(RECIPE.train, iterations=1)), plain=plain
    )
    said = [line for line in capsys.readouterr().err.splitlines() if "in C" in line]
    assert outcome.training["kernels"] == ("library" if why else "c")
    assert said == (
        [] if plain or not why else [f"kernels in C are not used, as {why}: steps take up to twice as long"]
    )


def test_a_gpus_switches_are_as_before_also_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SimpleNamespace(allow_tf32=False, benchmark=True)
    before = dict(vars(backend))
    monkeypatch.setattr(module, "SWITCHES", ((backend, "allow_tf32"), (backend, "benchmark")))
    with pytest.raises(ZeroDivisionError), module.fast_arithmetic(torch.device("cuda"), plain=True):
        assert vars(backend) == {"allow_tf32": True, "benchmark": True}
        raise ZeroDivisionError
    assert vars(backend) == before
    with module.fast_arithmetic(torch.device("cpu"), plain=True):
        assert vars(backend) == before
