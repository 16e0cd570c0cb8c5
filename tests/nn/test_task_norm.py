"""Statistics of one task's images alone, against torch's own layer run task by task."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from engram.errors import EngramError
from engram.nn.backbones import Flatten, build_backbone
from engram.nn.task_norm import TaskBatchNorm, encode_by_task, normalise_by_task


@pytest.mark.parametrize(("layer", "shape"), [(nn.BatchNorm2d(4), (4, 5, 3)), (nn.BatchNorm1d(4), (4,))])
def test_each_task_is_torchs_layer_in_training_mode(layer, shape):
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    images = torch.randn(3, 6, *shape) * torch.tensor([1.0, 5.0, 0.2]).view(3, 1, *(1,) * len(shape))
    by_task = TaskBatchNorm(layer)
    by_task.tasks = 3
    found = by_task(images.flatten(0, 1)).view_as(images)
    expected = torch.stack([deepcopy(layer).train()(task) for task in images])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert torch.equal(by_task.eval()(images.flatten(0, 1)).view_as(images), found)  # at test too


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
    with pytest.raises(EngramError, match="the encoder has no BatchNorm .* use batch_norm = 'running'"):
        normalise_by_task(Flatten((6,)))
