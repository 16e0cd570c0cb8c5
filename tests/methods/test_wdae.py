"""wDAE-GNN: the graph of classes, the denoiser against loops, and what it is when it does nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from engram.errors import EngramError
from engram.methods.wdae import Denoiser, Wdae, WdaeConfig, adjacency
from engram.nn.backbones import Flatten
from engram.types import Answers, Episode, TrainBatch

FEATURES, WAYS, BASE = 6, 3, 8


def build(**settings) -> Wdae:
    torch.manual_seed(0)
    return Wdae(Flatten((FEATURES,)), WdaeConfig(**{"n_base_classes": BASE, "neighbours": 4, **settings}))


def episode() -> Episode:
    labels = torch.tensor([[0, 1, 1, 2, 0, 1]]).expand(2, 6)
    return Episode(torch.randn(2, 6, FEATURES), labels, torch.randn(2, 4, FEATURES), WAYS)


def batch(n_base: int = 12) -> TrainBatch:
    answers = Answers(torch.randint(0, WAYS, (2, 4)), torch.tensor([[5, 0, 2], [1, 7, 3]]))
    return TrainBatch((episode(),), (answers,), (torch.randn(n_base, FEATURES), torch.arange(n_base) % BASE))


def settled(**settings) -> Wdae:
    """With running statistics of a few batches, in evaluation mode."""
    method = build(**settings)
    with torch.no_grad():
        for _ in range(10):
            method.loss(batch())
    return method.eval()


def do_nothing(method: Wdae) -> None:
    method.denoiser.out.bias.data[FEATURES:] = -1e4


def test_centred_answers_do_not_depend_on_where_features_lie():
    """With the mean of the base classes far away, centring brings back what it took."""
    given, shift = batch(), 5 * torch.ones(FEATURES)
    (one,), (images, ids) = given.episodes, given.class_batch
    far = replace(one, support=one.support + shift, query=one.query + shift)
    near, moved = build(centring=True), build(centring=True)
    with torch.no_grad():
        for method, shown, base in ((near, one, images), (moved, far, images + shift)):
            torch.manual_seed(1)
            method.loss(replace(given, episodes=(shown,), class_batch=(base, ids)))
    assert torch.allclose(moved.base_mean, near.base_mean + shift, atol=1e-5)
    answers = near.eval().predict(one).log_probs
    assert torch.allclose(moved.eval().predict(far).log_probs, answers, atol=1e-4)
    assert not torch.allclose(moved.predict(one).log_probs, answers, atol=1e-2)
    seen = near.base_mean.clone()
    near.loss(given)
    assert torch.equal(near.base_mean, seen), "asked, not trained"
    assert "base_mean" not in build().state_dict()


def test_centred_directions_do_not_depend_on_how_long_features_are():
    given, method = batch(), build(centring=True, centring_of="directions")
    (one,), (images, ids) = given.episodes, given.class_batch
    lengths = torch.linspace(0.5, 4.0, len(images))[:, None]
    with torch.no_grad():
        method.loss(replace(given, class_batch=(images * lengths, ids)))
    assert torch.allclose(method.base_mean, torch.nn.functional.normalize(images, dim=-1).mean(0), atol=1e-6)
    answers = method.eval().predict(one).log_probs
    longer = replace(one, support=3 * one.support, query=7 * one.query)
    assert torch.allclose(method.predict(longer).log_probs, answers, atol=1e-5)


def test_parameter_count():
    counted = sum(p.numel() for p in Denoiser(640, 0.7).parameters())
    linear = 640 * 1920 + 1920 + 2560 * 1920 + 2560 * 1920 + 1920 + 4480 * 1280 + 1280
    assert counted == linear + 3 * 2 * 1920
    assert round(counted / 1e6, 1) == 16.8


def test_neighbours_are_the_most_alike_and_share_out_one():
    weights = torch.randn(2, 7, FEATURES)
    shares, who = adjacency(weights, 3)
    assert torch.allclose(shares.sum(-1), torch.ones(2, 7))
    rows = F.normalize(weights, dim=-1).double().numpy()
    for b in range(2):
        for i in range(7):
            scores = {j: np.exp(5 * rows[b, i] @ rows[b, j]) for j in range(7) if j != i}  # nobody is its own neighbour
            largest = sorted(scores, key=scores.get, reverse=True)[:3]
            assert who[b, i].tolist() == largest
            expected = np.array([scores[j] for j in largest]) / sum(scores[j] for j in largest)
            np.testing.assert_allclose(shares[b, i], expected, rtol=1e-5)
    assert adjacency(weights, 10)[1].shape == (2, 7, 6)  # fewer classes than neighbours


def test_an_identity_denoiser_leaves_the_initial_weights():
    method, task = settled(), episode()
    assert not torch.allclose(method.denoise(method.initial(task)), method.initial(task), atol=1e-2)
    do_nothing(method)
    clean = method.initial(task)
    torch.testing.assert_close(method.denoise(clean), clean)
    directions = F.normalize(task.support, dim=-1)
    for c in range(WAYS):
        expected = F.normalize(directions[1, task.support_labels[1] == c].mean(0), dim=0)
        torch.testing.assert_close(clean[1, BASE + c], expected)
    torch.testing.assert_close(clean[0, :BASE], F.normalize(method.base_weights, dim=-1))
    nearest = F.cosine_similarity(task.query[:, :, None], clean[:, None, BASE:], dim=-1)
    torch.testing.assert_close(method.predict(task).log_probs, F.log_softmax(10 * nearest, -1))


def test_a_step_of_0_is_no_step_and_of_1_the_whole():
    method, task = settled(), episode()
    clean = method.initial(task)
    whole = method.denoise(clean)
    for step in (0.0, 0.4, 1.0):
        method.config = replace(method.config, step=step)
        expected = whole if step == 1 else clean + step * (F.normalize(whole, dim=-1) - clean)
        torch.testing.assert_close(method.denoise(clean), expected)


def test_the_denoiser_in_loops():
    """Evaluation mode: running statistics, no dropout, no noise."""
    method = settled()
    net, nodes = method.denoiser, F.normalize(torch.randn(1, 7, FEATURES), dim=-1)
    shares, who = adjacency(nodes, 3)

    def message(layer, states):
        sums = []
        for i in range(7):
            parts = []
            for share, j in zip(shares[0, i], who[0, i], strict=True):
                pair = layer.project(states[i]) + layer.project(states[j])
                parts.append(share * F.leaky_relu(layer.norm(pair[None])[0], 0.01))
            sums.append(sum(parts))
        return torch.stack(sums)

    first = net.update(torch.cat([nodes[0], message(net.messages1, nodes[0])], 1))
    first = F.normalize(F.leaky_relu(net.norm(first), 0.01), dim=1)
    hidden = torch.cat([nodes[0], first], 1) / 2**0.5
    torch.testing.assert_close(net.hidden(nodes, shares, who)[0], hidden)
    torch.testing.assert_close(hidden.norm(dim=1), torch.ones(7))
    out = net.out(torch.cat([hidden, message(net.messages2, hidden)], 1))
    expected = nodes[0] + torch.sigmoid(out[:, FEATURES:]) * F.normalize(out[:, :FEATURES], dim=1)
    torch.testing.assert_close(net(nodes, shares, who)[0], expected)


def test_nodes_have_no_order():
    method, nodes = settled(), F.normalize(torch.randn(2, 7, FEATURES), dim=-1)
    order = torch.randperm(7)
    torch.testing.assert_close(method.denoise(nodes[:, order]), method.denoise(nodes)[:, order])


def test_noise_is_for_training_and_neighbours_know_none():
    method, clean = build(dropout=0.0, noise=0.0), F.normalize(torch.randn(2, 7, FEATURES), dim=-1)
    assert torch.equal(method.denoise(clean), method.denoise(clean))
    noisy = build(dropout=0.0, noise=0.5)
    assert not torch.allclose(noisy.denoise(clean), noisy.denoise(clean), atol=1e-2)
    noisy.eval()
    assert torch.equal(noisy.denoise(clean), noisy.denoise(clean))


def test_the_loss_in_loops_with_a_denoiser_that_does_nothing():
    method, given = build(noise=0.0, reconstruction=0.5), batch()
    do_nothing(method)
    task, answers, (images, ids) = given.episodes[0], given.answers[0], given.class_batch
    weights = F.normalize(method.base_weights.detach(), dim=1)
    novel, base, gaps = [], [], []
    for b in range(2):
        aside = answers.class_ids[b].tolist()
        kept = [c for c in range(BASE) if c not in aside]
        classes = torch.cat([weights[kept], method.initial(task)[b, BASE:]])
        for x, y in zip(task.query[b], answers.query_labels[b], strict=True):
            novel.append(F.cross_entropy(10 * F.cosine_similarity(x, classes), len(kept) + y))
        for x, c in zip(images, ids.tolist(), strict=True):
            if c not in aside:
                base.append(F.cross_entropy(10 * F.cosine_similarity(x, classes), torch.tensor(kept.index(c))))
        gaps += [(classes[i] - weights[c]).square().sum() for i, c in enumerate(kept + aside)]
    stage_one = F.cross_entropy(10 * F.cosine_similarity(images[:, None], weights[None], dim=-1), ids)
    nll = (torch.stack(novel).mean() + torch.stack(base).mean()) / 2
    expected = nll + 0.5 * torch.stack(gaps).mean() + stage_one
    terms = method.loss(given)
    torch.testing.assert_close(terms.total, expected)
    torch.testing.assert_close(terms.terms["reconstruction"], torch.stack(gaps).mean().detach())


def test_base_weights_of_stage_one_stay_as_they_are_and_have_no_loss_of_their_own():
    method, beside, given = (*(build(dropout=0.0, noise=0.0, base_start=b) for b in ("stage_one", "random")), batch())
    terms, others = method.loss(given), beside.loss(given)
    torch.testing.assert_close(terms.total, others.total - others.terms["stage_one"])
    assert set(terms.terms) == set(others.terms) - {"stage_one"}
    terms.total.backward()
    assert method.base_weights.grad is None and method.scale.grad is not None
    trained = [p for group in method.parameter_groups() for p in group["params"]]
    assert not any(p is method.base_weights for p in trained) and len(trained) == len(list(method.parameters())) - 1


def test_base_weights_learn_from_stage_ones_loss_alone():
    method, given = build(), batch()
    method.loss(given).total.backward()
    images, ids = given.class_batch
    weights = method.base_weights.detach().requires_grad_()
    F.cross_entropy(10 * F.cosine_similarity(images[:, None], weights[None], dim=-1), ids).backward()
    torch.testing.assert_close(method.base_weights.grad, weights.grad)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"n_base_classes": 1}, "n_base_classes = 1 but at least 2 is needed"),
        ({"neighbours": 0}, "neighbours = 0 but at least 1 is needed"),
        ({"noise": -0.1}, "noise = -0.1 but at least 0 is needed"),
        ({"dropout": 1.0}, "dropout = 1.0 but it lies from 0 to below 1"),
        ({"step": 1.5}, "step = 1.5 but it lies from 0 to 1"),
    ],
)
def test_settings_that_cannot_be_are_told(settings, told):
    with pytest.raises(EngramError, match=told):
        build(**settings)


def test_what_it_needs_is_told():
    with pytest.raises(EngramError, match=r"set class_batch in \[data\]"):
        build().loss(replace(batch(), class_batch=None))
    with pytest.raises(EngramError, match="n_way = 3 but only 3 base classes"):
        build(n_base_classes=3).loss(batch())
