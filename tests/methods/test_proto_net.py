from dataclasses import replace
from math import log

import pytest
import torch
from torch import nn

from engram.errors import EngramError
from engram.methods.proto_net import ProtoNet, ProtoNetConfig
from engram.models.build import build_method
from engram.nn.backbones import build_backbone
from engram.nn.heads import class_means
from engram.recipes import load_recipe
from engram.types import Answers, Episode, TrainBatch


def episode(n_way: int = 4, n_shot: int = 3, n_query: int = 6, width: int = 7) -> Episode:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n_way).repeat(n_shot)
    labels = torch.stack([labels[torch.randperm(len(labels), generator=generator)] for _ in range(2)])
    features = torch.randn(2, n_way * n_shot + n_query, width, generator=generator, dtype=torch.float64)
    return Episode(features[:, : n_way * n_shot], labels, features[:, n_way * n_shot :], n_way)


def method(temperature: float = 1.0) -> ProtoNet:
    return ProtoNet(nn.Identity(), ProtoNetConfig(temperature))


def test_it_equals_the_linear_classifier_of_the_papers_equation_3() -> None:
    """w_c = mu_c and b_c = -|mu_c|^2 / 2 give half the logits, up to a constant per query."""
    task = episode()
    means = class_means(task.support, task.support_labels, 4)
    logits = 2 * (task.query @ means.transpose(1, 2) - means.square().sum(-1)[:, None] / 2)
    assert torch.allclose(method().classify(task).log_probs, logits.log_softmax(-1), atol=1e-5)


def test_a_common_shift_and_rotation_change_nothing() -> None:
    task = episode()
    rotation, _ = torch.linalg.qr(torch.randn(7, 7, dtype=torch.float64))
    moved = Episode(task.support @ rotation + 3, task.support_labels, task.query @ rotation + 3, 4)
    assert torch.allclose(method().classify(task).log_probs, method().classify(moved).log_probs, atol=1e-4)


def test_copies_of_one_support_are_one_shot() -> None:
    task = episode(n_shot=1)
    copies = Episode(task.support.repeat(1, 3, 1), task.support_labels.repeat(1, 3), task.query, 4)
    assert torch.allclose(method().classify(task).log_probs, method().classify(copies).log_probs, atol=1e-5)


def test_order_of_supports_and_names_of_classes_do_not_matter() -> None:
    task, names = episode(), torch.tensor([2, 0, 3, 1])
    order = torch.randperm(12)
    moved = Episode(task.support[:, order], names[task.support_labels[:, order]], task.query, 4)
    assert torch.allclose(method().classify(moved).log_probs[..., names], method().classify(task).log_probs, atol=1e-5)


def test_a_query_does_not_know_the_others() -> None:
    task = episode()
    alone = Episode(task.support, task.support_labels, task.query[:, 2:3], 4)
    assert torch.allclose(method().classify(alone).log_probs, method().classify(task).log_probs[:, 2:3], atol=1e-5)


def test_there_are_no_weights_besides_the_encoders() -> None:
    whole = ProtoNet(build_backbone("conv64", (3, 84, 84), {}), ProtoNetConfig())
    assert sum(p.numel() for p in whole.parameters()) == 113_088


@pytest.mark.parametrize(("name", "ways"), [("5w1s", 30), ("5w5s", 20)])
def test_the_recipes_train_with_the_ways_of_the_paper(name: str, ways: int) -> None:
    for dataset in ("mini", "tiered"):
        recipe = load_recipe(f"proto_net/{dataset}_{name}")
        assert (recipe.data.n_way, recipe.data.n_query, recipe.test.n_way) == (ways, 15, 5)
        assert recipe.data.n_shot == recipe.test.n_shot and recipe.backbone == "conv64"


def test_a_temperature_of_zero_is_refused() -> None:
    with pytest.raises(EngramError, match="temperature = 0"):
        method(0.0)


def test_norms_that_start_uniform_bring_the_first_loss_down() -> None:
    """Squared distances grow with the squared weights of the last norm, a third on average; guessing has log 16."""
    recipe = load_recipe("proto_net/mini_5w1s_short")
    tiles = torch.randint(0, 256, (1, 64, 3, 4, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    images = tiles.repeat_interleave(8, -1).repeat_interleave(8, -2)
    labels = torch.arange(16)[None]
    task = Episode(images[:, :16], labels, images[:, 16:], 16)
    batch = TrainBatch((task,), (Answers(labels.repeat(1, 3), labels),))

    def first_loss(norm_start: str) -> float:
        started = replace(recipe, train=replace(recipe.train, norm_start=norm_start))
        return build_method(started, (3, 32, 32), torch.device("cpu")).loss(batch).total.item()

    assert first_loss("ones") > 2 * first_loss("uniform") > 2 * log(16)
