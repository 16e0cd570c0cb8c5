"""BatchNorm of one task: the values of the fused one, statistics in and out, and a backbone that works under vmap."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, vmap

from engram.nn.backbones import Conv4, ConvBlocks
from engram.nn.encoder import Encoder
from engram.nn.task_layers import TaskEncoder, TaskNorm, for_tasks, names_of_norms, with_statistics


@pytest.mark.parametrize("shape", [(6, 3, 4, 4), (6, 3)])
def test_values_are_those_of_the_fused_batch_norm(shape):
    torch.manual_seed(0)
    norm, x = TaskNorm(3).double(), torch.randn(*shape, dtype=torch.float64)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
        norm.bias.normal_()
    expected = F.batch_norm(x, None, None, norm.weight, norm.bias, training=True, eps=1e-3)
    torch.testing.assert_close(norm(x), expected)
    mean, variance = torch.randn(3).double(), torch.rand(3).double()
    found, used = with_statistics(norm, lambda: norm(x), [(mean, variance)])
    expected = F.batch_norm(x, mean, variance, norm.weight, norm.bias, training=False, eps=1e-3)
    torch.testing.assert_close(found, expected)
    assert used == []


def test_statistics_are_handed_out_and_nothing_stays_behind():
    norm, x = TaskNorm(2, gain=False), torch.randn(5, 2, 3, 3)
    _, [(mean, variance)] = with_statistics(norm, lambda: norm(x))
    torch.testing.assert_close(mean, x.mean((0, 2, 3)))
    torch.testing.assert_close(variance, x.var((0, 2, 3), correction=1))
    assert norm.seen is None and norm.given is None and norm.weight is None
    with pytest.raises(ZeroDivisionError):
        with_statistics(norm, lambda: 1 / 0, [(mean, variance)])
    assert norm.seen is None and norm.given is None


def test_half_precision_values_get_float32_statistics():
    x = 100 + torch.randn(64, 2).bfloat16()
    found = TaskNorm(2)(x)
    torch.testing.assert_close(found, F.batch_norm(x.float(), None, None, training=True, eps=1e-3))
    assert found.dtype is torch.float32


def test_every_norm_of_a_backbone_is_replaced_and_only_those():
    backbone = for_tasks(Conv4((1, 28, 28)))
    assert not any(isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d) for m in backbone.modules())
    assert names_of_norms(backbone) == {n for n, p in backbone.named_parameters() if n.endswith(("1.weight", "1.bias"))}
    assert not any("running" in name for name in backbone.state_dict())
    assert not any(n.endswith("1.weight") for n, _ in for_tasks(ConvBlocks((1, 28, 28)), gain=False).named_parameters())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_encoder_of_colour_images_works_under_vmap_as_alone(precision):
    torch.manual_seed(0)
    plain = Encoder(ConvBlocks((3, 16, 16), width=4), (0.4, 0.5, 0.6), (0.2, 0.3, 0.4), precision)
    expected_first = plain.backbone.blocks[0][0]((torch.full((1, 3, 16, 16), 255.0) / 255 - plain.mean) / plain.std)
    encoder = for_tasks(plain)
    assert isinstance(encoder, TaskEncoder) and encoder.out_shape == plain.out_shape
    seen = []
    handle = encoder.backbone.blocks[0][0].register_forward_hook(lambda m, i, o: seen.append(o))
    encoder(torch.full((1, 3, 16, 16), 255, dtype=torch.uint8))
    handle.remove()
    torch.testing.assert_close(seen[0].float(), expected_first, atol=1e-5 if precision == "fp32" else 0.1, rtol=0)
    images = torch.randint(0, 256, (2, 5, 3, 16, 16), dtype=torch.uint8)
    weights = dict(encoder.named_parameters())
    with torch.no_grad():
        found = vmap(lambda w, x: functional_call(encoder, w, (x,)), (None, 0))(weights, images)
        loop = torch.stack([encoder(task) for task in images])
    torch.testing.assert_close(found, loop, atol=1e-4 if precision == "fp32" else 0.1, rtol=0)
    assert found.dtype is torch.float32
