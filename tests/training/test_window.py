"""Losses read in blocks: when they are read changes nothing but when a break is noticed."""

from __future__ import annotations

import math

import torch

from engram.training.window import LossWindow


def fill(window: LossWindow, steps: range, loss: float = 1.0) -> None:
    for step in steps:
        window.add(step, ("loss", "nll"), torch.tensor([loss * step, 2.0 * step]))


def test_means_do_not_depend_on_when_blocks_were_read() -> None:
    at_once, lagging = LossWindow(), LossWindow()
    for start in (1, 6, 11):
        for window, lag in ((at_once, False), (lagging, True)):
            fill(window, range(start, start + 5))
            assert window.read(lag) is None
    assert at_once.means()["loss"] == 8.0 and lagging.means()["loss"] == 5.5  # the last block is still on its way
    assert lagging.read() is None
    assert lagging.means() == at_once.means() and lagging.recent() == at_once.recent()
    assert lagging.state() == at_once.state()


def test_a_loss_that_is_not_finite_is_told_with_its_step() -> None:
    window = LossWindow()
    fill(window, range(1, 3))
    fill(window, range(3, 5), math.inf)
    assert window.read(lag=True) is None
    assert window.read(lag=True) == 3 and window.at_break == {"loss": math.inf, "nll": 6.0}
    fill(window, range(5, 7), math.nan)
    assert window.read() == 5


def test_nothing_to_read() -> None:
    window = LossWindow()
    assert window.read() is None and window.read(lag=True) is None and window.recent() == {} and window.means() == {}
