"""Small tensors are cut into tiles as large ones are."""

import pytest
import torch


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small tensors, too, need several tiles for each program."""
    from engram.nn.kernels.cuda import launches  # needs Triton

    monkeypatch.setattr(launches, "PROGRAMS", 2)
    torch.manual_seed(0)
