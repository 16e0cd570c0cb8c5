"""Weights in fewer bits: how far off, and what stays as it was."""

from __future__ import annotations

import pytest
import torch

from engram.models.rounding import SCALE, SMALLEST, restored, rounded


def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    kernel = torch.randn(64, 16, 3, 3) * torch.logspace(-3, 1, 64)[:, None, None, None]
    kernel[5] = 0
    return {"kernel": kernel, "bias": torch.randn(64), "small": torch.randn(8, 8), "count": torch.tensor(7)}


def test_eight_bits_are_off_by_half_a_scale_of_their_row_at_most() -> None:
    before = weights()
    packed = rounded(before, 8)
    assert packed["kernel"].dtype == torch.int8 and packed["kernel"].shape == (64, 16, 3, 3)
    after = restored(packed)
    assert after.keys() == before.keys() and after["kernel"].dtype == torch.float32
    error = (after["kernel"] - before["kernel"]).abs().flatten(1).amax(1)
    largest = before["kernel"].abs().flatten(1).amax(1)
    assert (error <= largest / 127 * 0.5001).all() and (error[largest > 1] > 1e-4).any()
    assert (after["kernel"][5] == 0).all()


def test_what_is_small_or_whole_is_not_touched() -> None:
    before = weights()
    for bits in (8, 16):
        packed = rounded(before, bits)  # type: ignore[arg-type]
        assert packed["count"] == 7 and packed["count"].dtype == torch.int64
        assert torch.equal(packed["bias"], before["bias"].half()) and packed["small"].dtype == torch.half
    assert before["small"].numel() < SMALLEST <= before["kernel"].numel()
    assert not any(name.endswith(SCALE) for name in rounded(before, 16))


def test_other_files_are_left_as_they_are() -> None:
    before = weights()
    after = restored(before)
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in before)


@pytest.mark.parametrize("scales", [{"none:scale": torch.ones(4)}, {"kernel:scale": torch.ones(3)}])
def test_scales_of_nothing_are_refused(scales: dict[str, torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="are scales of no tensor"):
        restored({"kernel": torch.zeros(4, 2, dtype=torch.int8), **scales})
