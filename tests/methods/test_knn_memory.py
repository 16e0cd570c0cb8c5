import pytest
import torch
from named_stream import stream
from torch import nn

from engram.errors import EngramError
from engram.methods.knn_memory import KnnMemory, KnnMemoryConfig
from engram.types import Episode


def method(**settings: object) -> KnnMemory:
    return KnnMemory(nn.Identity(), KnnMemoryConfig(**settings))  # type: ignore[arg-type]


def by_hand(episodes: list[Episode], b: int, k: int) -> torch.Tensor:
    """Probabilities of the last task, vote by vote; votes are one-hot by name, soft by likeness without names."""
    task = episodes[-1]
    n_own = task.support.shape[1]
    features = [*task.support[b]]
    votes = [torch.eye(3)[label] for label in task.support_labels[b]]
    for past in episodes[:-1]:
        for feature, label in zip(past.support[b], past.support_labels[b], strict=True):
            if task.class_names is not None and past.class_names is not None:
                vote = (task.class_names[b] == past.class_names[b, label]).float()
            else:
                likeness = (-(feature - task.support[b]).square().sum(-1)).softmax(0)
                vote = likeness @ torch.stack(votes[:n_own])
            if vote.any():
                features.append(feature)
                votes.append(vote)
    answers = []
    for query in task.query[b]:
        distance = torch.stack([(query - f).square().sum() for f in features])
        voters = set(distance.argsort()[:k].tolist())
        for c in range(3):
            voters.add(min((i for i in range(n_own) if votes[i][c] == 1), key=lambda i: float(distance[i])))
        chosen = sorted(voters)
        weights = (-distance[chosen]).softmax(0)
        answers.append(weights @ torch.stack(votes)[chosen])
    return torch.stack(answers)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("k", [1, 5, 200])
def test_it_agrees_with_counting_votes_by_hand(named: bool, k: int) -> None:
    episodes = stream(named=named)
    answer = method(k=k).predict_sequence(episodes)[-1].log_probs.exp()
    for b in range(2):
        assert torch.allclose(answer[b], by_hand(episodes, b, k), atol=1e-5)


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_every_class_keeps_a_chance_and_every_gradient_is_finite(distance: str) -> None:
    episodes = stream(steps=8)
    inputs = [e.support.requires_grad_() for e in episodes]
    answer = method(k=1, distance=distance).predict_sequence(episodes)[-1].log_probs
    assert answer.isfinite().all()
    answer[..., 0].sum().backward()
    assert all(i.grad is None or i.grad.isfinite().all() for i in inputs) and inputs[-1].grad.any()


def test_memory_is_bounded_and_forgets_whole_tasks() -> None:
    predictions = method(capacity=15).predict_sequence(stream(steps=9))
    assert [p.history[0].shape[1] for p in predictions] == [6] + [12] * 8
    assert predictions[-1].history[4][0].tolist() == [7] * 6 + [8] * 6


@pytest.mark.parametrize("settings", [{"capacity": 0}, {"k": 0}, {"temperature": -1.0}])
def test_settings_that_cannot_work_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(EngramError, match=f"{next(iter(settings))} = {next(iter(settings.values()))} but"):
        method(**settings)


def test_a_task_larger_than_the_memory_is_refused() -> None:
    with pytest.raises(EngramError, match="one task brings 6 entries but \\[method\\] capacity = 5"):
        method(capacity=5).classify(stream(steps=1)[0])
