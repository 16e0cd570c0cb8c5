"""Content memory: exact step by step, under permutation and in the future; bounded; started by whitening."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from engram.errors import EngramError
from engram.methods.cml_bgnn import CmlBgnn, CmlBgnnConfig
from engram.methods.content_memory import ContentMemory, ContentMemoryConfig
from engram.methods.knn_memory import KnnMemory, KnnMemoryConfig
from engram.nn.content_graph import ContentGraph
from engram.nn.evidence import Reading
from engram.nn.steps import stacked_task
from engram.types import Answers, Episode, History, Prediction, TrainBatch

N_WAY, N_SHOT, N_QUERY, BATCH, INPUTS, WIDTH = 3, 2, 4, 2, 6, 5
PER_STEP = {True: 2 * N_WAY, False: N_WAY * N_SHOT + N_QUERY}
BOTH = pytest.mark.parametrize("named", [True, False], ids=["named", "anonymous"])


class Features(torch.nn.Identity):
    out_shape = (INPUTS,)


def stream(
    steps: int, named: bool, seed: int = 0, batch: int = BATCH, n_way: int = N_WAY, n_shot: int = N_SHOT
) -> list[Episode]:
    generator = torch.Generator().manual_seed(seed)
    centres = 2 * torch.randn(batch, 7, INPUTS, generator=generator)
    episodes = []
    for _ in range(steps):
        names = torch.stack([torch.randperm(7, generator=generator)[:n_way] for _ in range(batch)])
        labels = torch.stack([torch.randperm(n_way * n_shot, generator=generator) % n_way for _ in range(batch)])
        asked = torch.randint(0, n_way, (batch, N_QUERY), generator=generator)
        support, query = (
            centres.gather(1, names.gather(1, chosen)[..., None].expand(-1, -1, INPUTS)) for chosen in (labels, asked)
        )
        support, query = (part + torch.randn(part.shape, generator=generator) for part in (support, query))
        episodes.append(Episode(support, labels, query, n_way, names if named else None))
    return episodes


def method(capacity: int = 1000, **settings: Any) -> ContentMemory:
    """The past counts for much more than by default, so that a wrong read shows."""
    torch.manual_seed(0)
    reading = {"sharpness": 5.0, "past_query": 0.5, "past_picture": 0.5, "refusal": 0.1, "crowd": 0.2, "node": 0.5}
    values: dict[str, Any] = {"n_layers": 2, "width": WIDTH, **reading, **settings}
    made = ContentMemory(Features(), ContentMemoryConfig(capacity=capacity, **values)).eval()
    with torch.no_grad():
        made.graph.evidence.bias.fill_(-2.0)
    return made


@torch.no_grad()
def ask(
    model: ContentMemory | CmlBgnn, episodes: Sequence[Episode], *cuts: int, history: History = ()
) -> list[Prediction]:
    """The stream in pieces that end at ``cuts``, each with the history of the one before."""
    found: list[Prediction] = []
    for start, end in zip((0, *cuts), (*cuts, len(episodes)), strict=True):
        found += model.predict_sequence(episodes[start:end], history)
        history = found[-1].history
    return found


def distance(first: Sequence[Prediction], second: Sequence[Prediction]) -> float:
    pairs = zip(first, second, strict=True)
    return max(float((a.log_probs.exp() - b.log_probs.exp()).abs().max()) for a, b in pairs)


@BOTH
@pytest.mark.parametrize(("capacity", "together"), [(1000, False), (25, False), (1000, True), (15, True)])
def test_all_at_once_equals_step_by_step_and_any_pieces(named: bool, capacity: int, together: bool) -> None:
    model, episodes = method(capacity, together=together), stream(9, named)
    whole = ask(model, episodes)
    for cuts in (range(1, 9), (1,), (4,), (2, 3, 7)):
        pieces = ask(model, episodes, *cuts)
        assert distance(whole, pieces) < 1e-5, cuts
        for a, b in zip(whole, pieces, strict=True):
            assert all(torch.allclose(x, y, atol=1e-6) for x, y in zip(a.history, b.history, strict=True)), cuts
    assert distance(whole, [ask(model, [e])[0] for e in episodes]) > 0.01  # the past is read at all


@BOTH
def test_the_oldest_task_is_forgotten_as_a_whole(named: bool) -> None:
    """With room for k tasks no more than k are read; by name, past queries were answered with k tasks before them."""
    capacity, episodes = 25, stream(12, named)
    k = capacity // PER_STEP[named]
    reach = 2 * k if named else k
    last, roomy = ask(method(capacity), episodes), method(1000)
    assert distance(last[-1:], ask(method(capacity), episodes[-reach - 1 :])[-1:]) < 1e-5
    if not named:
        assert distance(last[-1:], ask(roomy, episodes[-k - 1 :])[-1:]) < 1e-5
    assert distance(last[-1:], ask(roomy, episodes)[-1:]) > 1e-4
    assert distance(last[-1:], ask(roomy, episodes[-k:])[-1:]) > 1e-4
    entries = [p.history[0].shape[1] for p in last]
    assert entries == [min(t + 1, k) * PER_STEP[named] for t in range(12)]


def test_a_task_without_names_leaves_one_entry_for_each_class_where_it_is_remembered_together() -> None:
    pictures, classes, episodes = method(), method(together=True), stream(3, False)
    last = ask(classes, episodes)[-1]
    assert last.history[0].shape[1] == 3 * episodes[0].n_way
    assert torch.allclose(last.history[0].norm(dim=-1), torch.tensor(1.0), atol=1e-5)
    with pytest.raises(EngramError, match="remembers pictures but the history holds pictures of a class together"):
        ask(pictures, episodes, history=last.history)


def permuted(episode: Episode, seed: int) -> tuple[Episode, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    supports, queries = (torch.randperm(p.shape[1], generator=generator) for p in (episode.support, episode.query))
    support, labels = episode.support[:, supports], episode.support_labels[:, supports]
    return Episode(support, labels, episode.query[:, queries], episode.n_way, episode.class_names), queries


@BOTH
@pytest.mark.parametrize("capacity", [1000, 25])
def test_slots_mean_nothing_now_or_ever(named: bool, capacity: int) -> None:
    model, episodes = method(capacity), stream(6, named)
    before = ask(model, episodes)
    for changed in range(6):
        other, queries = permuted(episodes[changed], changed)
        after = ask(model, [*episodes[:changed], other, *episodes[changed + 1 :]])
        for t, (a, b) in enumerate(zip(before, after, strict=True)):
            expected = a.log_probs[:, queries] if t == changed else a.log_probs
            assert (expected.exp() - b.log_probs.exp()).abs().max() < 1e-5, (changed, t)


@BOTH
def test_later_tasks_change_nothing_at_all(named: bool) -> None:
    model, episodes, others = method(25), stream(6, named), stream(6, named, seed=1)
    before = ask(model, episodes)
    for kept in range(1, 6):
        after = ask(model, [*episodes[:kept], *others[kept:]])
        for a, b in zip(before[:kept], after[:kept], strict=True):
            assert torch.equal(a.log_probs, b.log_probs)
            assert all(torch.equal(x, y) for x, y in zip(a.history, b.history, strict=True))
        assert not torch.equal(before[-1].log_probs, after[-1].log_probs)


@BOTH
def test_memory_never_exceeds_its_capacity(named: bool) -> None:
    capacity = 4 * PER_STEP[named] + 3
    for cuts in ((), (10, 40)):
        sizes = {p.history[0].shape[1] for p in ask(method(capacity), stream(60, named), *cuts)}
        assert max(sizes) == 4 * PER_STEP[named] <= capacity


@BOTH
def test_a_thousand_tasks_in_pieces(named: bool) -> None:
    episodes, history, model = stream(1000, named, batch=1), (), method(60)
    for start in range(0, 1000, 20):
        predictions = ask(model, episodes[start : start + 20], history=history)
        history = predictions[-1].history
        assert history[0].shape[1] <= 60 and all(torch.isfinite(p.log_probs).all() for p in predictions)
    assert int(history[-1].max()) == 999
    near = ask(model, episodes[960:])[-1:]  # 40 tasks are far more than the memory reaches
    assert distance(predictions[-1:], near) < 1e-5


def test_a_memory_needs_room_for_one_task() -> None:
    with pytest.raises(EngramError, match=r"^\[method\] capacity = 0 but at least 1 is needed"):
        method(0)
    for named, needed in PER_STEP.items():
        with pytest.raises(
            EngramError, match=rf"one task brings {needed} entries but \[method\] capacity = {needed - 1}: raise it"
        ):
            ask(method(needed - 1), stream(1, named))
        ask(method(needed), stream(3, named))


@BOTH
def test_a_history_of_something_else_is_refused(named: bool) -> None:
    task = stream(1, named)
    history = ask(method(), task)[0].history
    wider = ask(method(width=INPUTS - 2), task)[0].history
    with pytest.raises(EngramError, match="remembers features of width 4 but the task's have 5"):
        ask(method(), task, history=wider)
    with pytest.raises(EngramError, match="was given 3 streams but a history of 2"):
        ask(method(), stream(1, named, batch=3), history=history)
    knn = KnnMemory(torch.nn.Linear(INPUTS, WIDTH), KnnMemoryConfig()).eval()
    with pytest.raises(EngramError, match="but the history holds supports: hand on the history of the same method"):
        ask(method(), task, history=knn.predict(task[0]).history)
    slots = CmlBgnn(Features(), CmlBgnnConfig(n_layers=1, width=WIDTH)).eval()
    with pytest.raises(EngramError, match=r"content memory keeps 5 tensors .* but the history has 1 of \[4\]"):
        ask(method(), task, history=ask(slots, task)[0].history)
    with pytest.raises(EngramError, match=r"but these tasks need one tensor \(2, 1, 10, 5\)"):
        ask(slots, task, history=history)


def test_a_stream_is_named_or_it_is_not() -> None:
    named, anonymous = stream(3, True), stream(3, False)
    with pytest.raises(EngramError, match="2 of 3 tasks of the stream are named: name all of them or none"):
        ask(method(), [*named[:2], anonymous[2]])
    with pytest.raises(EngramError, match="the past of 2 of 2 streams has class names but this task has none"):
        ask(method(), anonymous[2:], history=ask(method(), named[:2])[-1].history)
    with pytest.raises(EngramError, match="this task has class names but the past of 2 of 2 streams has none"):
        ask(method(), named[2:], history=ask(method(), anonymous[:2])[-1].history)


SPREAD = torch.tensor([8.0, 4.0, 2.0, 1.0, 0.5, 0.25])


def batch_of_spread_classes(steps: int = 3, seed: int = 0) -> tuple[list[Episode], Tensor]:
    """Within a class the axes vary by very different amounts; the mean is far from zero."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.arange(60) % N_WAY).expand(steps, BATCH, 60)
    centres = 3 * torch.randn(steps, BATCH, N_WAY, INPUTS, generator=generator) + 5
    pictures = centres.gather(2, labels[..., None].expand(-1, -1, -1, INPUTS))
    pictures = pictures + SPREAD * torch.randn(pictures.shape, generator=generator)
    episodes = [Episode(p[:, :30], k[:, :30], p[:, 30:], N_WAY) for p, k in zip(pictures, labels, strict=True)]
    return episodes, labels[..., 30:]


def condition(core: ContentGraph, episodes: Sequence[Episode]) -> float:
    """Largest over smallest eigenvalue of the scatter within classes, under the metric."""
    rest = []
    for e in episodes:
        seen = core.evidence.metric(e.support).detach()
        for b in range(BATCH):
            for c in range(N_WAY):
                members = seen[b][e.support_labels[b] == c]
                rest.append(members - members.mean(0))
    together = torch.cat(rest)
    values = torch.linalg.eigvalsh(together.T @ together / len(together))
    return float(values[-1] / values[0])


def test_begin_whitens_what_varies_within_classes_but_not_fully() -> None:
    core = ContentGraph(INPUTS, INPUTS, 1, 100, True, True, Reading())
    episodes, query_labels = batch_of_spread_classes()
    before = condition(core, episodes)
    core.begin(stacked_task(episodes), query_labels)
    after = condition(core, episodes)
    assert before > 500 and 2 < after < before / 10
    pictures = torch.cat([torch.cat([e.support, e.query], 1).flatten(0, 1) for e in episodes])
    assert torch.allclose(core.evidence.centre, pictures.mean(0), atol=1e-4)
    spread = SPREAD.square().double()  # what it tends to: eigenvalues s / (s + mean / 2)
    expected = spread / (spread + 0.5 * spread.mean())
    assert after == pytest.approx(float(expected.max() / expected.min()), rel=0.4)


def test_begin_runs_once_and_its_mark_is_saved() -> None:
    core = ContentGraph(INPUTS, WIDTH, 1, 100, True, True, Reading())
    episodes, query_labels = batch_of_spread_classes()
    assert not bool(core.started)
    core.begin(stacked_task(episodes), query_labels)
    metric, centre = core.evidence.metric.weight.clone(), core.evidence.centre.clone()
    assert bool(core.started)
    loaded = ContentGraph(INPUTS, WIDTH, 1, 100, True, True, Reading())
    loaded.load_state_dict(core.state_dict())
    for again in (core, loaded):
        others, other_labels = batch_of_spread_classes(seed=1)
        again.begin(stacked_task(others), other_labels)
        assert torch.equal(again.evidence.metric.weight, metric) and torch.equal(again.evidence.centre, centre)


def test_training_begins_with_the_first_batch_and_prediction_never_does() -> None:
    model = method()
    episodes, query_labels = batch_of_spread_classes()
    ask(model, episodes)
    assert not bool(model.graph.started)
    ids = torch.zeros(BATCH, N_WAY, dtype=torch.int64)
    batch = TrainBatch(tuple(episodes), tuple(Answers(labels, ids) for labels in query_labels))
    model.train().loss(batch)
    assert bool(model.graph.started)
    metric = model.graph.evidence.metric.weight.clone()
    model.loss(batch)
    assert torch.equal(metric, model.graph.evidence.metric.weight)


@BOTH
def test_tasks_may_change_their_size_and_are_still_forgotten_whole(named: bool) -> None:
    sizes = [{"n_way": 3}, {"n_way": 5}, {"n_way": 2}, {"n_shot": 1}, {"n_way": 4, "n_shot": 3}]
    episodes = [e for i, size in enumerate(sizes) for e in stream(2, named, seed=i, **size)]
    whole = ask(method(25), episodes)
    assert distance(whole, ask(method(25), episodes, *range(1, 10))) < 1e-5
    made = [2 * e.n_way if named else e.support.shape[1] + N_QUERY for e in episodes]
    for t, prediction in enumerate(whole):
        kept = next(made[i : t + 1] for i in range(t + 1) if sum(made[i : t + 1]) <= 25)
        assert prediction.history[0].shape[1] == sum(kept), t
