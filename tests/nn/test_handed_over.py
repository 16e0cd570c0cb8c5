"""Weights go from encoders with one kind of norm to those with another, and see the same."""

from __future__ import annotations

import torch
from torch import nn

from engram.nn.backbones import Conv4, ConvBlocks
from engram.nn.backbones.conv import ShiftNorm
from engram.nn.handed_over import for_task_norms
from engram.nn.synchronised_norm import SynchronisedNorm
from engram.nn.task_norm import TaskBatchNorm, TaskNorm, for_tasks, keeps_no_statistics, normalise_by_task


def test_an_encoder_without_gains_sees_the_same_up_to_the_size_of_each_feature():
    torch.manual_seed(0)
    trained = ConvBlocks((3, 16, 16), width=4).double()
    norms = [part for part in trained.modules() if isinstance(part, nn.BatchNorm2d)]
    for norm in norms:
        nn.init.uniform_(norm.weight, -2, 2)  # some are negative: maxima of what is turned round are others
        nn.init.normal_(norm.bias)
    assert any(bool((norm.weight < 0).any()) for norm in norms)
    saved, images = trained.state_dict(), torch.randn(5, 3, 16, 16, dtype=torch.float64)
    seen = {}
    for gain in (True, False):
        learner = for_tasks(ConvBlocks((3, 16, 16), width=4), gain=gain, eps=1e-5).double()
        fitting = for_task_norms(saved, learner.state_dict())
        learner.load_state_dict(fitting)  # strictly
        seen[gain] = learner(images)
    torch.testing.assert_close(seen[True], trained(images))
    torch.testing.assert_close(seen[False] * norms[-1].weight.abs(), seen[True])


def test_a_gain_of_zero_leaves_a_constant_feature():
    torch.manual_seed(0)
    trained = ConvBlocks((3, 16, 16), width=4).double()
    norm = trained.blocks[0][1]
    nn.init.normal_(norm.bias)
    norm.weight.data[1] = 0
    learner = for_tasks(ConvBlocks((3, 16, 16), width=4), gain=False, eps=1e-5).double()
    learner.load_state_dict(for_task_norms(trained.state_dict(), learner.state_dict()))
    images = torch.randn(5, 3, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(learner(images), trained(images), rtol=1e-4, atol=1e-4)


def test_gains_of_an_encoder_that_starts_from_one_without_are_one():
    torch.manual_seed(0)
    trained = for_tasks(ConvBlocks((3, 16, 16), width=4), gain=False)
    for parameter in trained.parameters():
        nn.init.normal_(parameter)
    learner = for_tasks(ConvBlocks((3, 16, 16), width=4))
    for norm in (part for part in learner.modules() if isinstance(part, TaskNorm)):
        nn.init.uniform_(norm.weight, 2, 3)  # what it had itself counts for nothing
    learner.load_state_dict(for_task_norms(trained.state_dict(), learner.state_dict()))  # strictly
    images = torch.randn(5, 3, 16, 16)
    torch.testing.assert_close(learner(images), trained(images))


def test_an_encoder_that_normalises_each_task_takes_an_ordinary_one_without_its_statistics():
    torch.manual_seed(0)
    trained, ours = ConvBlocks((3, 16, 16), width=4), ConvBlocks((3, 16, 16), width=4)
    assert not keeps_no_statistics(ours)
    normalise_by_task(ours)
    assert keeps_no_statistics(ours) and keeps_no_statistics(for_tasks(ConvBlocks((3, 16, 16), width=4)))
    ours.load_state_dict(for_task_norms(trained.state_dict(), ours.state_dict()))  # strictly
    images = torch.randn(5, 3, 16, 16)
    torch.testing.assert_close(ours(images), trained(images))  # trained is in training mode: statistics of the batch


def test_a_gain_that_is_constant_stays_so_in_another_layer():
    norm = ShiftNorm(3)
    for layer in (TaskBatchNorm(norm), SynchronisedNorm(norm)):
        assert {name for name, _ in layer.named_parameters()} == {"bias"} and "weight" not in layer.state_dict()
        assert torch.equal(layer.weight, torch.ones(3)) and layer.double().weight.dtype is torch.float64
    assert TaskBatchNorm(nn.BatchNorm2d(3, affine=False)).bias is None


def test_gains_of_what_is_no_chain_stay_and_do_not_fit():
    saved = Conv4((3, 32, 32)).state_dict()
    own = for_tasks(Conv4((3, 32, 32)), gain=False).state_dict()
    kept = for_task_norms(saved, own)
    assert kept.keys() - own.keys() == {name for name in saved if name.endswith("1.weight")}
