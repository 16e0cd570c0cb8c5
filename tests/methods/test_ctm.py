"""CTM: its sizes, concentrator, projector and distances in plain loops, and what its answers may depend on."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from random_tasks import random_task

from engram.errors import EngramError
from engram.methods.ctm import Ctm, CtmConfig, Relation, distances
from engram.nn.backbones import Flatten, build_backbone
from engram.types import Episode, TrainBatch

MAP, WAYS, QUERIES, WIDTH = (6, 3, 3), 3, 4, 8


class AsItIs(torch.nn.Identity):
    """Maps of features stand in for images."""

    out_shape = MAP


episode = partial(random_task, MAP, draw=torch.rand)


def build(**changes) -> Ctm:
    """In evaluation mode, with running statistics that belong to its weights."""
    torch.manual_seed(0)
    settings = {"n_way": WAYS, "concentrated": WIDTH, "reshaped": WIDTH, **changes}
    method = Ctm(AsItIs(), CtmConfig(**settings))
    with torch.no_grad():
        for part in method.modules():
            if isinstance(part, torch.nn.Linear):  # of the relation head: so that answers differ by more than rounding
                part.weight.normal_(std=0.5)
        for _ in range(10):
            given, answers = episode()
            method.loss(TrainBatch((given,), (answers,)))
    return method.eval()


def log_probs(method: Ctm, given: Episode) -> torch.Tensor:
    with torch.no_grad():
        return method.predict(given).log_probs


def test_parameter_counts():
    config = CtmConfig(concentrated=40, reshaped=40, blocks="shallow")
    method = Ctm(build_backbone("conv64_relation", (3, 84, 84), {}), config)
    parts = (method.reshaper, method.concentrator, method.projector, method)
    assert [sum(p.numel() for p in part.parameters()) for part in parts] == [10_160, 10_160, 16_960, 150_368]
    assert not hasattr(method, "relation")


def test_parameters_of_the_relation_head_on_the_maps_of_resnet18():
    counted = sum(p.numel() for p in Relation(64, 3, 3).parameters())
    blocks = [(128, 128), (128, 128), (128, 64), (64, 64)]
    convolutions = sum(i * o // 4 + 9 * (o // 4) ** 2 + o // 4 * o for i, o in blocks) + 128 * 128 + 128 * 64
    norms = sum(2 * (o // 4 + o // 4 + o) for _, o in blocks) + 2 * 128 + 2 * 64 + 2 * 128
    linear = 256 * 128 + 128 + 128 + 1  # 64 channels of 2x2 positions
    assert counted == convolutions + norms + linear


@torch.no_grad()
@pytest.mark.parametrize("combine", ["product", "matmul"])
def test_the_relation_head_scores_each_pair_and_adds_up_the_shots(combine):
    """One pair at a time, in evaluation mode: bottlenecks and linear layers on [support, query] laid together."""
    method, (given, _) = build(head="relation", combine=combine), episode()
    given = replace(given, query=given.query[:, :2])
    found, mask = log_probs(method, given), method.mask(given.support, given.support_labels)
    layers = method.relation.layers
    for b in range(2):

        def improved(image, b=b):
            reshaped = method.reshaper(image[None])[0]
            return reshaped * mask[b] if combine == "product" else reshaped @ mask[b]

        for q in range(2):
            logits = torch.zeros(WAYS)
            for s, label in zip(given.support[b], given.support_labels[b].tolist(), strict=True):
                logits[label] += layers(torch.cat([improved(s), improved(given.query[b, q])])[None])[0, 0]
            torch.testing.assert_close(found[b, q], logits.log_softmax(0), atol=1e-4, rtol=1e-4)


def test_the_relation_head_learns_and_its_first_weights_are_the_references():
    torch.manual_seed(0)
    method = Ctm(AsItIs(), CtmConfig(n_way=WAYS, concentrated=WIDTH, reshaped=WIDTH, head="relation"))
    linear = [part for part in method.relation.modules() if isinstance(part, torch.nn.Linear)]
    assert len(linear) == 2 and all(p.weight.std() < 0.02 and not p.bias.any() for p in linear)
    given, answers = episode(shots=1)
    support = torch.eye(WAYS)[given.support_labels]  # the first channels give the class away
    given = replace(given, support=given.support.clone(), query=given.query.clone())
    given.support[:, :, :WAYS] += 3 * support[..., None, None]
    given.query[:, :, :WAYS] += 3 * torch.eye(WAYS)[answers.query_labels][..., None, None]
    optimiser = torch.optim.Adam(method.parameters(), 0.01)
    losses = []
    for _ in range(12):
        loss = method.loss(TrainBatch((given,), (answers,))).total
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]
    assert all(p.grad is not None and p.grad.any() for p in method.relation.parameters() if p.ndim > 1)


@torch.no_grad()
def test_the_mask_is_the_projected_classes_one_support_at_a_time():
    method, (given, _) = build(), episode()
    found = method.mask(given.support, given.support_labels)
    torch.testing.assert_close(found.sum(1), torch.ones(2, 3, 3))
    for b in range(2):
        classes = []
        for c in range(WAYS):
            members = [s for s, y in zip(given.support[b], given.support_labels[b].tolist(), strict=True) if y == c]
            classes.append(sum(method.concentrator(s[None])[0] for s in members) / len(members))
        scores = method.projector(torch.cat(classes)[None])[0]
        for row in range(3):
            for column in range(3):
                powers = scores[:, row, column].exp()
                torch.testing.assert_close(found[b, :, row, column], powers / powers.sum(), atol=1e-6, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("combine", ["product", "matmul"])
def test_the_answer_sums_the_distances_to_the_shots_of_a_class(combine):
    method, (given, _) = build(combine=combine), episode()
    found, mask = log_probs(method, given), method.mask(given.support, given.support_labels)
    for b in range(2):

        def improved(image, b=b):
            reshaped = method.reshaper(image[None])[0]
            if combine == "product":
                return reshaped * mask[b]
            return torch.stack([reshaped[channel] @ mask[b, channel] for channel in range(WIDTH)])

        for q in range(QUERIES):
            logits = torch.zeros(WAYS)
            for s, label in zip(given.support[b], given.support_labels[b].tolist(), strict=True):
                logits[label] -= (improved(s) - improved(given.query[b, q])).square().sum().sqrt()
            torch.testing.assert_close(found[b, q], logits.log_softmax(0), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_a_constant_mask_leaves_distances_of_reshaped_features(monkeypatch):
    method, (given, _) = build(), episode()
    constant = torch.full((2, WIDTH, 3, 3), 1 / WIDTH)
    monkeypatch.setattr(method, "mask", lambda support, labels: constant)
    features = [method.reshaper(p.flatten(0, 1)).flatten(1).unflatten(0, (2, -1)) for p in (given.support, given.query)]
    apart = torch.cdist(*features) / WIDTH
    members = torch.nn.functional.one_hot(given.support_labels, WAYS).float()
    expected = (-torch.einsum("bsq,bsc->bqc", apart, members)).log_softmax(-1)
    torch.testing.assert_close(log_probs(method, given), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("head", ["distance", "relation"])
def test_shots_may_change_their_places_but_classes_not_their_names(head):
    method, (given, _) = build(head=head), episode()
    order, names = torch.randperm(WAYS * 2), torch.tensor([2, 0, 1])
    permuted = replace(given, support=given.support[:, order], support_labels=given.support_labels[:, order])
    renamed = replace(given, support_labels=names[given.support_labels])
    plain = log_probs(method, given)
    torch.testing.assert_close(log_probs(method, permuted), plain, atol=1e-5, rtol=1e-4)
    assert (log_probs(method, renamed)[..., names] - plain).abs().max() > 1e-4


@pytest.mark.parametrize("head", ["distance", "relation"])
def test_a_query_is_answered_alone_and_another_number_of_shots_is_welcome(head):
    method, (given, _) = build(head=head), episode()
    alone = replace(given, query=given.query[:, 2:3])
    torch.testing.assert_close(log_probs(method, alone)[:, 0], log_probs(method, given)[:, 2], atol=1e-5, rtol=1e-4)
    assert log_probs(method, episode(shots=4)[0]).shape == (2, QUERIES, WAYS)


def test_distances_are_exact_for_features_far_from_zero():
    support, query = torch.randn(1, 3, 50) + 1000, torch.randn(1, 4, 50) + 1000
    expected = (support[:, :, None].double() - query[:, None].double()).norm(dim=-1)
    torch.testing.assert_close(distances(support, query).double(), expected, atol=1e-3, rtol=1e-4)
    same = support.clone().requires_grad_()
    distances(same, same).sum().backward()
    assert torch.isfinite(same.grad).all()


def test_what_it_cannot_take_is_told():
    with pytest.raises(EngramError, match=r"ctm takes a map per image .* but the backbone gives a vector of 6"):
        Ctm(Flatten((6,)), CtmConfig())
    with pytest.raises(EngramError, match="ctm was built for 3 ways but the task has 4"):
        build().predict(episode(ways=4)[0])
    with pytest.raises(EngramError, match="reshaped = 10 but a multiple of 4 is needed"):
        CtmConfig(reshaped=10)
    wide = AsItIs()
    wide.out_shape = (6, 3, 4)
    with pytest.raises(EngramError, match="'matmul' needs square maps but the backbone's are 3x4"):
        Ctm(wide, CtmConfig(combine="matmul"))
