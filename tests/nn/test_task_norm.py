"""Each task by its own statistics: equal to plain BatchNorm on that task alone."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from engram.errors import EngramError
from engram.nn.backbones import Conv4, Flatten, build_backbone
from engram.nn.task_norm import TaskBatchNorm, encode_by_task, normalise_by_task, side_by_side


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
