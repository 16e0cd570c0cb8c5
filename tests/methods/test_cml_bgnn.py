"""CML-BGNN: what each keyword promises; its equations are held to plain loops in tests/nn."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from engram.errors import EngramError
from engram.methods.cml_bgnn import CmlBgnn, CmlBgnnConfig
from engram.nn.backbones import Flatten
from engram.types import Answers, Episode, TrainBatch

FEATURES, WIDTH, WAYS, QUERIES = 6, 8, 3, 4


def config(preset: str = "paper", **changes) -> CmlBgnnConfig:
    return CmlBgnnConfig.preset(preset, **{"n_layers": 2, "width": WIDTH, **changes})


def build(preset: str = "paper", seed: int = 0, **changes) -> CmlBgnn:
    """In evaluation mode, with weights and running statistics that let answers differ by more than rounding."""
    torch.manual_seed(seed)
    method = CmlBgnn(Flatten((FEATURES,)), config(preset, **changes))
    with torch.no_grad():
        for parameter in method.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=2 * parameter.shape[1] ** -0.5)
        for _ in range(20):
            method.loss(batch())
    return method.eval()


def episode(n_tasks: int = 2, shots: int = 2, queries: int = QUERIES) -> tuple[Episode, Answers]:
    support_labels = torch.stack([torch.randperm(WAYS * shots) % WAYS for _ in range(n_tasks)])
    query_labels = torch.randint(0, WAYS, (n_tasks, queries))
    support = torch.randn(n_tasks, WAYS * shots, FEATURES)
    query = torch.randn(n_tasks, queries, FEATURES)
    return Episode(support, support_labels, query, WAYS), Answers(query_labels, torch.zeros(n_tasks, WAYS).long())


def batch(steps: int = 3, **shape) -> TrainBatch:
    episodes, answers = zip(*(episode(**shape) for _ in range(steps)), strict=True)
    return TrainBatch(episodes, answers)


def permute(given: Episode, supports: Tensor, queries: Tensor) -> Episode:
    labels = given.support_labels[:, supports]
    return replace(given, support=given.support[:, supports], support_labels=labels, query=given.query[:, queries])


# --- sequences and memory --------------------------------------------------------------------------------------------

VARIANTS = [
    {},
    {"history": "none"},
    {"bayes": "none", "gate": "library"},
    {"next_layer": "hidden", "shared_gate": True},
    {"transductive": False},
    {"preset": "public"},
    {"preset": "public", "next_layer": "hidden", "transductive": False},
    {"preset": "public", "history": "none", "bayes": "task"},
    {"edges": "paper", "preset": "public"},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_sequence_is_its_steps_and_sees_no_future(variant):
    method = build(**variant)
    episodes = [episode()[0] for _ in range(3)]
    with torch.no_grad():
        whole = method.predict_sequence(episodes)
        history = ()
        for given, expected in zip(episodes, whole, strict=True):
            step = method.predict(given, history)
            torch.testing.assert_close(step.log_probs, expected.log_probs, atol=1e-5, rtol=0)
            torch.testing.assert_close(step.details["edges"], expected.details["edges"], atol=1e-5, rtol=0)
            history = step.history
            torch.testing.assert_close(history, expected.history, atol=1e-5, rtol=0)
        other = method.predict_sequence([*episodes[:2], episode()[0]])
    torch.testing.assert_close(other[1].log_probs, whole[1].log_probs, atol=1e-6, rtol=0)
    torch.testing.assert_close(whole[0].log_probs.exp().sum(-1), torch.ones(2, QUERIES))
    size = WAYS * 2 + QUERIES
    assert whole[0].details["edges"].shape == (2, 2, size, size)
    assert "samples" not in whole[0].details


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_history_is_used_exactly_where_the_card_says(variant):
    method = build(**variant)
    first, second = episode()[0], episode()[0]
    with torch.no_grad():
        past = method.predict(first).history
        remembered, fresh = (method.predict(second, h).log_probs for h in (past, ()))
    assert torch.equal(remembered, fresh) == (not method.card.continual)
    assert len(past) == int(method.card.continual) and all(len(part) == 2 for part in past)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_one_task_does_not_depend_on_the_order_of_its_images_or_classes(variant):
    method, given = build(**variant), episode()[0]
    supports, queries, names = torch.randperm(WAYS * 2), torch.randperm(QUERIES), torch.tensor([2, 0, 1])
    renamed = replace(permute(given, supports, queries), support_labels=names[given.support_labels[:, supports]])
    with torch.no_grad():
        plain, changed = method.predict(given), method.predict(renamed)
    torch.testing.assert_close(changed.log_probs[..., names], plain.log_probs[:, queries], atol=1e-5, rtol=0)


@pytest.mark.parametrize("preset", ["paper", "public"])
def test_slot_memory_follows_the_order_of_the_queries(preset):
    first, second = episode()[0], episode()[0]
    order = torch.tensor([1, 2, 3, 0])
    shuffled = permute(second, torch.arange(WAYS * 2), order)
    for history, differs in (("slot", True), ("none", False)):
        method = build(preset, history=history)
        with torch.no_grad():
            in_order = method.predict_sequence([first, second])[1].log_probs[:, order]
            permuted = method.predict_sequence([first, shuffled])[1].log_probs
        assert ((in_order - permuted).abs().max() > 1e-4) == differs
        assert method.card.slot_memory == differs


def test_a_history_of_another_shape_is_refused_with_both_shapes():
    method = build()
    past = method.predict(episode(queries=2)[0]).history
    with pytest.raises(EngramError, match=r"\(2, 2, 8, 8\).*\(2, 2, 10, 8\).*history=\(\)"):
        method.predict(episode()[0], past)
    with pytest.raises(EngramError, match="history"):
        method.predict(episode()[0], (torch.zeros(2, 2, 10, WIDTH),) * 2)
    with pytest.raises(EngramError, match="history"):
        method.predict_sequence([episode()[0], episode(queries=5)[0]])


def test_steps_of_different_shapes_run_where_nothing_is_carried():
    method = build(history="none")
    episodes = [episode()[0], episode()[0], episode(queries=5)[0]]
    found = method.predict_sequence(episodes)
    torch.testing.assert_close(found[2].log_probs, method.predict(episodes[2]).log_probs, atol=1e-5, rtol=0)
    uneven = [episode(), episode(queries=5)]
    given = TrainBatch(tuple(e for e, _ in uneven), tuple(a for _, a in uneven))
    method.loss(given).total.backward()
    with pytest.raises(EngramError, match="2 steps has 2 shapes"):
        build().loss(given)


# --- keywords --------------------------------------------------------------------------------------------------------


def test_without_history_there_is_no_gate_and_without_bayes_no_posterior():
    names = [name for name, _ in build(history="none").named_parameters()]
    assert names and not any("gate" in name for name in names)
    names = [name for name, _ in build(bayes="none").named_parameters()]
    assert any("gate" in name for name in names) and not any("posterior" in name for name in names)
    assert len(build(shared_gate=True).graph.gates) == 1 and len(build().graph.gates) == 2


def test_queries_are_independent_only_where_inductive():
    given = episode()[0]
    changed = replace(given, query=torch.cat([given.query[:, :1], torch.randn(2, QUERIES - 1, FEATURES)], 1))
    for preset, transductive in product(("paper", "public"), (True, False)):
        method = build(preset, transductive=transductive)
        with torch.no_grad():
            gap = (method.predict(given).log_probs[:, 0] - method.predict(changed).log_probs[:, 0]).abs().max()
        assert (gap > 1e-4) == transductive == method.card.transductive


@pytest.mark.parametrize("preset", ["paper", "public"])
def test_hidden_labels_count_for_nothing_but_their_images_do(preset):
    method, (given, answers) = build(preset), episode(shots=3)
    hidden = replace(given, support_labels=torch.where(torch.arange(WAYS * 3) < WAYS * 2, given.support_labels, -1))
    moved = replace(hidden, support=torch.cat([hidden.support[:, :-1], -hidden.support[:, -1:]], 1))
    with torch.no_grad():
        plain, semi, other = (method.predict(e).log_probs for e in (given, hidden, moved))
    assert (plain - semi).abs().max() > 1e-4 and (semi - other).abs().max() > 1e-5
    terms = method.train().loss(TrainBatch((hidden,), (answers,)))
    assert torch.isfinite(terms.total)


def test_gamma_weighs_the_bayes_term():
    given = batch()
    totals, terms = {}, {}
    for gamma in (0.0, 1.0, 2.0):
        method = build(dropout=0.0, gamma=gamma).train()
        torch.manual_seed(1)
        loss = method.loss(given)
        totals[gamma], terms[gamma] = loss.total.item(), loss.terms
    assert "bayes" not in terms[0.0]
    assert totals[0.0] == pytest.approx(terms[1.0]["edge"].item(), abs=1e-5)
    assert totals[2.0] == pytest.approx(totals[0.0] + 2 * terms[1.0]["bayes"].item(), abs=1e-4)
    degrees = {"log10_smallest_degree_1", "log10_smallest_degree_2"}
    assert set(terms[1.0]) == {"edge", "bayes", "accuracy", "edge_accuracy", *degrees}


def test_the_smallest_degrees_are_told_in_training_with_the_papers_edges_alone():
    def told(method: CmlBgnn) -> list[float]:
        terms = method.loss(batch()).terms
        return [value.item() for name, value in terms.items() if name.startswith("log10_smallest_degree_")]

    assert np.isfinite(told(build().train())).all() and len(told(build().train())) == 2
    assert told(build()) == told(build("public").train()) == []


def test_the_revision_of_equation_7_concerns_graphs_that_normalise_by_it():
    (revision,) = CmlBgnn.card.revisions
    settings = [{"edges": e, "history": h} for e, h in product(("paper", "egnn"), ("none", "slot", "content"))]
    assert [s["history"] for s in settings if revision.concerns(s)] == ["none", "slot"]
    assert revision.concerns({})  # the defaults are the paper's


@pytest.mark.parametrize("preset", ["paper", "public"])
def test_edge_loss_of_both_presets_in_plain_loops(preset):
    method, given = build(preset, dropout=0.0), batch(steps=1)
    labels = torch.cat([given.episodes[0].support_labels, given.answers[0].query_labels], 1)
    with torch.no_grad():
        edges = method.predict(given.episodes[0]).details["edges"].double()
        found = method.loss(given).terms["edge"].item()  # still in evaluation mode: the same edges
    expected, size, n_support = 0.0, labels.shape[1], WAYS * 2
    for k in range(2):
        positive, negative = [], []
        for b, i, j in product(range(2), range(size), range(size)):
            scored = i >= n_support > j if preset == "paper" else max(i, j) >= n_support
            if scored:
                same, p = bool(labels[b, i] == labels[b, j]), edges[b, k, i, j].item()
                (positive if same else negative).append(-np.log(p if same else 1 - p))
        if preset == "paper":
            expected += np.mean(positive + negative)
        else:
            expected += (0.5, 1.0)[k] / 2 * (np.mean(positive) + np.mean(negative))
    assert found == pytest.approx(expected, rel=1e-4)


def test_samples_at_test_are_a_choice_and_average_to_the_expectation():
    given = episode()[0]
    for preset in ("paper", "public"):
        quiet, drawn = build(preset), build(preset, test_samples=4000)
        assert (quiet.card.stochastic, drawn.card.stochastic) == (False, True)
        with torch.no_grad():
            expected, found = quiet.predict(given), drawn.predict(given)
            assert torch.equal(quiet.predict(given).log_probs, expected.log_probs)
            assert not torch.equal(drawn.predict(given).log_probs, found.log_probs)
        assert found.details["samples"].shape == (4000, 2, QUERIES, WAYS)
        torch.testing.assert_close(found.details["edges"], expected.details["edges"], atol=0.03, rtol=0)
        torch.testing.assert_close(found.log_probs.exp(), found.details["samples"].mean(0))
        torch.testing.assert_close(found.log_probs.exp(), expected.log_probs.exp(), atol=0.08, rtol=0)
    assert build(bayes="none", test_samples=3).card.stochastic is False


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_parameter_learns(variant):
    method = build(**{**variant, "gamma": 1.0, "train_samples": 3}).train()
    method.zero_grad()
    terms = method.loss(batch())
    terms.total.backward()
    for name, parameter in method.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name
    assert all(not value.requires_grad for value in terms.terms.values())


def test_it_learns_a_separable_problem():
    torch.manual_seed(0)
    method = CmlBgnn(Flatten((FEATURES,)), config(history="none", width=16))
    optimizer = torch.optim.Adam(method.parameters(), 3e-3)
    for _ in range(60):
        episodes, answers = [], []
        for given, answer in (episode(n_tasks=8) for _ in range(2)):
            means = 2 * torch.randn(8, WAYS, FEATURES)
            support = 0.3 * given.support + means.gather(1, given.support_labels[..., None].expand(-1, -1, FEATURES))
            query = 0.3 * given.query + means.gather(1, answer.query_labels[..., None].expand(-1, -1, FEATURES))
            episodes.append(replace(given, support=support, query=query))
            answers.append(answer)
        terms = method.loss(TrainBatch(tuple(episodes), tuple(answers)))
        optimizer.zero_grad()
        terms.total.backward()
        optimizer.step()
    assert terms.terms["accuracy"] > 0.85 and terms.terms["edge_accuracy"] > 0.85


def test_the_graph_stays_in_float32_under_autocast():
    method, given = build("public"), episode()[0]
    with torch.no_grad():
        plain = method.predict(given)
        with torch.autocast("cpu", torch.bfloat16):
            cast = method.predict(given)
            method.loss(batch())  # cross-entropy of probabilities is refused under autocast
    assert cast.log_probs.dtype == torch.float32
    assert torch.equal(plain.log_probs, cast.log_probs)


def test_the_encoder_is_called_slot_by_slot_in_training_where_asked():
    calls: list[int] = []
    method = build(history="none", encoder_calls="slot")
    method.backbone.register_forward_hook(lambda *_: calls.append(1))
    given = batch(steps=3)
    method.predict_sequence(given.episodes)
    assert len(calls) == 1
    method.train().loss(given)
    assert len(calls) == 1 + WAYS * 2 + QUERIES


def test_bad_settings_are_refused():
    with pytest.raises(EngramError, match="train_samples of at least 2"):
        CmlBgnnConfig(train_samples=1)
    with pytest.raises(EngramError, match="did you mean 'public'"):
        CmlBgnnConfig.preset("publik")
    assert CmlBgnnConfig.preset("paper") == CmlBgnnConfig()


def test_parameter_count_of_the_public_model():
    method = CmlBgnn(Flatten((128,)), CmlBgnnConfig.preset("public"))
    gate, posterior = 6 * 96 * 96 + 6 * 96, 4 * (96 * 96 + 2 * 96 + 97)
    assert sum(p.numel() for p in method.parameters()) == 493_923 + gate + 3 * posterior
