"""Tests of kernels in C are skipped, with the reason, where they cannot be compiled."""

import pytest
import torch

from engram.nn.kernels import cpu


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def compiled() -> None:
    if why := cpu.missing():
        pytest.skip(f"no kernels, as {why}")
