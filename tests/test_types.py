"""The contract: parts of a batch, the default loss, and a sequence whose past is passed on and never stored."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engram.types import Answers, EmbeddingMethod, Episode, History, Method, Prediction, TrainBatch

T, B, S, Q, N = 3, 2, 4, 5, 2


def sequence(seed: int = 0) -> tuple[tuple[Episode, ...], tuple[Answers, ...]]:
    torch.manual_seed(seed)
    labels = torch.tensor([[0, 1, 0, 1]] * B)
    episodes = tuple(Episode(torch.randn(B, S, 3), labels, torch.randn(B, Q, 3), N) for _ in range(T))
    return episodes, tuple(Answers(torch.randint(0, N, (B, Q)), torch.arange(N).repeat(B, 1)) for _ in range(T))


class Counting(EmbeddingMethod):
    """Probabilities that depend on how many tasks came before; notes how often the backbone was called."""

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        (seen,) = history or (torch.zeros(()),)
        logits = torch.stack([episode.query.sum(-1), seen.expand(episode.query.shape[:2])], -1)
        return Prediction(logits.log_softmax(-1), (seen + 1,))


class Backbone(nn.Linear):
    calls = 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(images)


def method() -> Counting:
    torch.manual_seed(1)
    return Counting(Backbone(3, 4), None)


def test_a_part_of_the_tasks_keeps_what_is_not_a_tensor() -> None:
    episode = sequence()[0][0]
    part = episode.part(slice(1, 2))
    assert torch.equal(part.support, episode.support[1:]) and len(part.support_labels) == len(part.query) == 1
    assert part.n_way == N and part.class_names is None
    assert part.to("meta").query.is_meta and not part.query.is_meta


def test_tasks_of_all_steps_lie_side_by_side() -> None:
    batch = TrainBatch(*sequence())
    support, labels, query, truth = batch.tasks()
    assert (len(support), len(labels), len(query), len(truth)) == (T * B,) * 4
    assert torch.equal(query[B : 2 * B], batch.episodes[1].query)
    assert torch.equal(truth[B : 2 * B], batch.answers[1].query_labels)


def test_a_sequence_is_step_by_step_with_its_past_and_one_call_of_the_backbone() -> None:
    episodes, one = sequence()[0], method()
    fast = one.predict_sequence(episodes)
    assert one.backbone.calls == 1
    slow = Method.predict_sequence(one, episodes)
    assert one.backbone.calls == 1 + T
    for quick, step in zip(fast, slow, strict=True):
        torch.testing.assert_close(quick.log_probs, step.log_probs)
    assert [int(p.history[0]) for p in fast] == [1, 2, 3]
    later = one.predict_sequence(episodes[2:], fast[1].history)  # a stream goes on in pieces
    torch.testing.assert_close(later[0].log_probs, fast[2].log_probs)


def test_the_default_loss_is_the_mean_over_steps_tasks_and_queries() -> None:
    batch, one = TrainBatch(*sequence()), method()
    answers = one.predict_sequence(batch.episodes)
    logs = [
        answers[t].log_probs[b, q, batch.answers[t].query_labels[b, q]]
        for t in range(T) for b in range(B) for q in range(Q)
    ]  # fmt: skip
    found = one.loss(batch)
    torch.testing.assert_close(found.total, -torch.stack(logs).mean())
    assert found.total.requires_grad and not found.terms["nll"].requires_grad
    right = [(answers[t].log_probs.argmax(-1) == batch.answers[t].query_labels).float().mean() for t in range(T)]
    torch.testing.assert_close(found.terms["accuracy"], torch.stack(right).mean())


def test_frozen_weights_are_in_no_group() -> None:
    one = method()
    one.backbone.bias.requires_grad_(False)
    (group,) = one.parameter_groups()
    assert [id(p) for p in group["params"]] == [id(one.backbone.weight)]
    assert [objective.loss for objective in one.objectives()] == [one.loss]
