import numpy as np
import pytest
import torch
from named_stream import stream
from torch import nn

from engram.errors import EngramError
from engram.methods.propagation_memory import PropagationMemory, PropagationMemoryConfig
from engram.types import Episode


def method(**settings: object) -> PropagationMemory:
    return PropagationMemory(nn.Identity(), PropagationMemoryConfig(**settings))  # type: ignore[arg-type]


def in_numpy(episodes: list[Episode], b: int, k: int, alpha: float = 0.8, temperature: float = 0.1) -> np.ndarray:
    """Label propagation over the last task and all before it, written out with an inverse."""
    task = episodes[-1]
    nodes = [task.support[b], task.query[b]]
    labels = [torch.eye(3)[task.support_labels[b]], torch.zeros(task.query.shape[1], 3)]
    for past in episodes[:-1]:
        nodes += [past.support[b], past.query[b]]
        known = torch.zeros(past.support.shape[1], 3)
        if task.class_names is not None and past.class_names is not None:
            known = (past.class_names[b][past.support_labels[b]][:, None] == task.class_names[b][None]).float()
        labels += [known, torch.zeros(past.query.shape[1], 3)]
    x, y = torch.cat(nodes).double().numpy(), torch.cat(labels).double().numpy()
    x = x - x.mean(0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    cosine = x @ x.T
    weights = np.zeros_like(cosine)
    for i in range(len(x)):
        others = [j for j in np.argsort(-cosine[i]) if j != i][:k]
        for j in others:
            weights[i, j] = weights[j, i] = np.exp((cosine[i, j] - 1) / temperature)
    degree = weights.sum(1)
    normalised = weights / np.sqrt(degree[:, None] * degree[None])
    spread = np.linalg.inv(np.eye(len(x)) - alpha * normalised) @ (y / y.sum(0))
    first = task.support.shape[1]
    answer = spread[first : first + task.query.shape[1]]
    return answer / answer.sum(1, keepdims=True)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("k", [3, 8, 200])
def test_it_agrees_with_numpy(named: bool, k: int) -> None:
    episodes = stream(named=named)
    answer = method(k=k).predict_sequence(episodes)[-1].log_probs.exp()
    for b in range(2):
        assert np.allclose(answer[b], in_numpy(episodes, b, k), atol=1e-4)


def test_gradients_are_finite_at_the_first_task_of_one_shot() -> None:
    episodes = stream(steps=3, n_shot=1, n_query=1)
    inputs = [e.support.requires_grad_() for e in episodes]
    sum(p.log_probs[..., 0].sum() for p in method().predict_sequence(episodes)).backward()
    assert all(i.grad.isfinite().all() and i.grad.any() for i in inputs)


def test_memory_is_bounded_and_forgets_whole_tasks() -> None:
    predictions = method(capacity=30).predict_sequence(stream(steps=5))
    assert [p.history[0].shape[1] for p in predictions] == [12, 24, 24, 24, 24]
    assert (predictions[-1].history[2] >= 0).sum(1).tolist() == [12, 12]  # supports have their names, queries none


@pytest.mark.parametrize("settings", [{"capacity": 0}, {"k": 0}, {"temperature": 0.0}, {"alpha": 1.0}])
def test_settings_that_cannot_work_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(EngramError, match=f"{next(iter(settings))} = {next(iter(settings.values()))} but"):
        method(**settings)
