"""BatchNorm of one task: the library's values, statistics in and out, backbones under vmap; tasks apart in a batch."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, vmap

from engram.errors import EngramError
from engram.nn import task_norm
from engram.nn.backbones import Conv4, ConvBlocks, Flatten, build_backbone
from engram.nn.encoder import Encoder
from engram.nn.task_norm import (
    TaskBatchNorm,
    TaskEncoder,
    TaskNorm,
    encode_by_task,
    for_tasks,
    names_of_norms,
    normalise_by_task,
    side_by_side,
    with_statistics,
)


@pytest.mark.parametrize("shape", [(6, 3, 4, 4), (6, 3)])
def test_values_are_those_of_the_library(shape):
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


@pytest.mark.parametrize("shape", [(3,), (3, 4, 5)])
def test_every_task_equals_batch_norm_of_that_task_alone(shape: tuple[int, ...]) -> None:
    plain = nn.BatchNorm2d(3) if len(shape) == 3 else nn.BatchNorm1d(3)
    nn.init.normal_(plain.weight)
    nn.init.normal_(plain.bias)
    ours = TaskBatchNorm(plain)
    tasks = torch.randn(2, 6, *shape) * torch.tensor([1.0, 5.0]).view(2, *[1] * (len(shape) + 1)) + 2
    with side_by_side(ours, 2):
        found = ours(tasks.flatten(0, 1)).unflatten(0, (2, 6))
    for task, expected in zip(tasks, found, strict=True):
        torch.testing.assert_close(plain.train()(task), expected, atol=1e-5, rtol=1e-5)
    assert ours.n_tasks == 1


def test_every_batch_norm_of_a_network_is_replaced_and_keeps_its_weights() -> None:
    torch.manual_seed(0)
    network = Conv4((1, 28, 28))
    weights = {name: value for name, value in network.named_parameters()}
    images = torch.randn(6, 1, 28, 28)
    normalise_by_task(network)
    assert all(value is weights[name] for name, value in network.named_parameters())
    assert not any(isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d) for part in network.modules())
    network.eval()
    with torch.no_grad(), side_by_side(network, 2):
        both = network(images)
    with torch.no_grad():
        torch.testing.assert_close(both[:3], network(images[:3]), atol=1e-5, rtol=1e-4)


def test_half_precision_is_normalised_in_full() -> None:
    norm = TaskBatchNorm(nn.BatchNorm2d(2))
    x = (torch.randn(8, 2, 3, 3) + 100).bfloat16()
    assert norm(x).dtype is torch.bfloat16
    torch.testing.assert_close(norm(x).float(), norm(x.float()), atol=0.02, rtol=0.02)


@pytest.mark.parametrize(("name", "size"), [("conv32", 28), ("conv5", 32)])
def test_a_whole_encoder_sees_its_tasks_apart(name, size):
    torch.manual_seed(0)
    settings = {"dropout": 0.0} if name == "conv5" else {}
    plain = build_backbone(name, (1, size, size), settings)
    for parameter in plain.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    images = torch.randn(3, 4, 1, size, size)
    expected = torch.stack([deepcopy(plain).train()(task) for task in images])
    parameters = dict(plain.named_parameters())
    normalise_by_task(plain)
    assert {k: id(v) for k, v in plain.named_parameters()} == {k: id(v) for k, v in parameters.items()}
    found = encode_by_task(plain.eval(), images)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(encode_by_task(plain, images[1:2]), found[1:2], atol=1e-5, rtol=1e-4)


def test_an_encoder_without_batch_norm_is_refused():
    with pytest.raises(EngramError, match="the encoder has no BatchNorm .* take the running ones"):
        normalise_by_task(Flatten((6,)))


@pytest.mark.parametrize("shape", [(4, 3, 5, 5), (6, 3), (1, 3)])  # the last: one value for each channel
def test_one_task_alone_is_normalised_as_beside_another(shape):
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(3).double()
    nn.init.uniform_(norm.weight, 0.5, 2)
    nn.init.normal_(norm.bias)
    layer, x = TaskBatchNorm(norm), torch.randn(*shape, dtype=torch.float64)
    with side_by_side(layer, 2):
        beside = layer(torch.cat([x, torch.randn_like(x)]))[: len(x)]
    torch.testing.assert_close(layer(x), beside, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(12, 3, 5, 5), (12, 3)])
def test_tasks_normalised_one_by_one_and_side_by_side_agree(shape):
    torch.manual_seed(0)
    layer, x = TaskBatchNorm(nn.BatchNorm2d(3)).double(), torch.randn(*shape).double().requires_grad_()
    nn.init.uniform_(layer.weight, 0.5, 2)
    weights = torch.randn_like(x)
    layer.n_tasks = 4
    found = [way(x) for way in (layer, layer._one_by_one, layer._side_by_side)]
    gradients = [torch.autograd.grad((y * weights).sum(), [x, layer.weight, layer.bias]) for y in found]
    for other in (1, 2):
        torch.testing.assert_close(found[other], found[0])
        torch.testing.assert_close(gradients[other], gradients[0])


@pytest.mark.parametrize(
    ("device", "tasks", "images", "one_by_one"),
    [("cpu", 4, 2, True), ("cpu", 4, 1, False), ("meta", 1, 2, True), ("meta", 4, 2, False), ("meta", 4, 9, True)],
)
def test_where_it_is_less_work_tasks_are_normalised_one_by_one(device, tasks, images, one_by_one, monkeypatch):
    """Small ones would cost a GPU a launch each; one value of each channel is refused by the library."""
    monkeypatch.setattr(task_norm, "LARGE", 3 * 8)
    ways = []
    for name in ("_one_by_one", "_side_by_side"):
        monkeypatch.setattr(TaskBatchNorm, name, lambda layer, values, name=name: ways.append((name, values)) or values)
    layer = TaskBatchNorm(nn.BatchNorm2d(3))
    layer.n_tasks = tasks
    assert layer(torch.ones(tasks * images, 3, dtype=torch.bfloat16, device=device)).dtype is torch.bfloat16
    [(way, values)] = ways
    assert way == ("_one_by_one" if one_by_one else "_side_by_side")
    assert values.dtype is (torch.bfloat16 if one_by_one and device == "meta" else torch.float32)
