"""Four blocks that keep their map: the same features as the vector, and the starts of their papers."""

from __future__ import annotations

import torch
from torch import nn

from engram.nn.backbones.conv import ConvBlocks
from engram.nn.backbones.conv_maps import ConvMap, CovaConv, RelationConv, as_map_shape


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


def test_a_vector_is_a_map_of_one_position() -> None:
    assert as_map_shape((64, 5, 4)) == (64, 5, 4) and as_map_shape((128,)) == (128, 1, 1)
