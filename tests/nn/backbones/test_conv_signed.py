"""Features that keep their sign."""

from __future__ import annotations

import torch

from engram.nn.backbones.conv import ConvBlocks
from engram.nn.backbones.conv_signed import ConvSigned


def test_only_the_last_activation_is_left_out() -> None:
    torch.manual_seed(0)
    signed, plain = ConvSigned((1, 32, 32), (4, 4, 4, 4)).eval(), ConvBlocks((1, 32, 32), 4).eval()
    left_over = plain.load_state_dict(signed.state_dict(), strict=False)
    assert left_over.missing_keys == [f"blocks.{block}.0.bias" for block in range(4)]
    for block in plain.blocks:
        block[0].bias.data.zero_()
    images = torch.randn(5, 1, 32, 32)
    features = signed(images)
    assert (features < 0).any() and (features > 0).any()
    torch.testing.assert_close(features.relu(), plain(images))


def test_widths_are_those_asked_for() -> None:
    count = sum(p.numel() for p in ConvSigned((3, 84, 84), (64, 64, 128, 128)).parameters())
    assert count == 260_544
