"""Plain blocks: pooling before the activation, pixels normalised on the way, odd sizes, signs, norms without gain; maps
with the features of the vector, and the starts of their papers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from engram.nn.backbones import build_backbone
from engram.nn.backbones.conv import (
    Conv4,
    Conv5,
    ConvBlock,
    ConvBlocks,
    ConvMap,
    ConvSame,
    ConvSigned,
    CovaConv,
    Flatten,
    RelationConv,
    ShiftNorm,
)


def test_conv4_can_end_in_96() -> None:
    assert build_backbone("conv4", (3, 84, 84), {"out_features": 96}).out_shape == (96,)


@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_pooling_may_stand_before_the_activation(slope: float) -> None:
    torch.manual_seed(0)
    block, images = ConvBlock(2, 5, slope, 1, False).eval(), torch.randn(3, 2, 8, 8)
    with torch.no_grad():
        late = torch.nn.functional.max_pool2d(torch.nn.functional.leaky_relu(block[1](block[0](images)), slope), 2)
        torch.testing.assert_close(block(images), late)


@pytest.mark.parametrize("training", [True, False])
def test_pixels_are_normalised_on_the_way(training: bool) -> None:
    torch.manual_seed(0)
    backbone = Conv4((3, 28, 28), 8, dropout=(0.0, 0.0)).train(training)
    pixels = torch.randint(0, 256, (4, 3, 28, 28), dtype=torch.uint8)
    scale, shift = torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1) / 255, torch.tensor([-1.0, 0.0, 1.0]).view(3, 1, 1)
    torch.testing.assert_close(backbone.from_pixels(pixels, scale, shift), backbone(pixels * scale + shift))


def test_dropout_stands_after_every_block() -> None:
    plain, dropped = ConvBlocks((1, 16, 16), 4), ConvBlocks((1, 16, 16), 4, dropout=0.1)
    assert [len(block) for block in plain.blocks] == [4] * 4
    assert [block[4].p for block in dropped.blocks] == [0.1] * 4


def test_no_encoder_passes_everything_on() -> None:
    images = torch.randn(2, 3, 4, 5)
    assert torch.equal(Flatten((3, 4, 5))(images), images.view(2, 60)) and Flatten((3, 4, 5)).out_shape == (60,)


def test_it_differs_from_plain_blocks_only_where_a_size_is_odd() -> None:
    torch.manual_seed(0)
    plain, same = ConvBlocks((1, 32, 32), 5).eval(), ConvSame((1, 32, 32), 5).eval()
    same.load_state_dict(plain.state_dict())
    images = torch.randn(2, 1, 32, 32)
    torch.testing.assert_close(same(images), plain(images))
    assert ConvSame((1, 28, 28), 5).out_shape == (5 * 2 * 2,)  # 28 - 14 - 7 - 4 - 2
    assert ConvBlocks((1, 28, 28), 5).out_shape == (5,)


def test_the_odd_column_is_seen() -> None:
    torch.manual_seed(0)
    backbone, images = ConvSame((1, 17, 17), 4).eval(), torch.zeros(2, 1, 17, 17)
    images[1, :, :, 16] = 5.0
    first, second = backbone(images)
    assert not torch.equal(first, second)


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


def test_a_norm_without_gain_is_the_ordinary_one_with_gain_one() -> None:
    torch.manual_seed(0)
    ours, ordinary = ShiftNorm(6), torch.nn.BatchNorm2d(6)
    with torch.no_grad():
        ordinary.bias.copy_(ours.bias.uniform_(-1, 1))
    for training in (True, True, False):
        ours.train(training), ordinary.train(training)
        images, weights = torch.randn(5, 6, 4, 4), torch.randn(5, 6, 4, 4)
        found = []
        for norm in (ours, ordinary):
            inputs = images.clone().requires_grad_()
            outputs = norm(inputs)
            found.append((outputs, *torch.autograd.grad((outputs * weights).sum(), (inputs, norm.bias))))
        torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(ours.running_var, ordinary.running_var)
    assert ours(images.bfloat16()).dtype == torch.bfloat16  # else all that follows would leave half precision


def test_five_poolings_leave_four_positions_of_a_photograph() -> None:
    assert Conv5((3, 84, 84)).out_shape == (256,) and Conv5((1, 32, 32), width=8).out_shape == (8,)
    assert all(not block[0].bias and block[3].p == 0.5 for block in Conv5((1, 32, 32)).blocks)
    with_dropout, without = Conv5((1, 32, 32), width=8).eval(), Conv5((1, 32, 32), width=8, dropout=0.0).eval()
    without.load_state_dict(with_dropout.state_dict())
    images = torch.randn(2, 1, 32, 32)
    torch.testing.assert_close(without(images), with_dropout(images))


def test_the_map_is_the_vector_before_it_is_flattened() -> None:
    torch.manual_seed(0)
    vector, kept = ConvBlocks((1, 32, 32), 6).eval(), ConvMap((1, 32, 32), 6).eval()
    kept.load_state_dict(vector.state_dict())
    images = torch.randn(2, 1, 32, 32)
    assert kept.out_shape == (6, 2, 2) and torch.equal(kept(images).flatten(1), vector(images))


def test_blocks_that_do_not_pool_keep_the_size() -> None:
    assert RelationConv((1, 28, 28), 4).out_shape == (4, 5, 5)  # 28 - 26 - 13 - 11 - 5
    assert CovaConv((1, 28, 28), 4).out_shape == (4, 7, 7)


def test_they_start_as_their_papers_do() -> None:
    torch.manual_seed(0)
    relation = [part for part in RelationConv((3, 28, 28)).modules() if isinstance(part, nn.Conv2d)]
    assert all(not part.bias.any() for part in relation)
    assert all(abs(part.weight.std() / (2 / (9 * 64)) ** 0.5 - 1) < 0.1 for part in relation)
    cova = [part for part in CovaConv((3, 28, 28)).modules() if isinstance(part, nn.Conv2d)]
    assert all(part.bias is None and abs(part.weight.std() / 0.02 - 1) < 0.1 for part in cova)
