import pytest
import torch
from named_stream import WIDTH, stream
from torch import nn

from engram.errors import EngramError
from engram.methods.proto_memory import ProtoMemory, ProtoMemoryConfig
from engram.methods.proto_net import ProtoNet, ProtoNetConfig
from engram.types import Episode


def method(**settings: object) -> ProtoMemory:
    return ProtoMemory(nn.Identity(), ProtoMemoryConfig(**settings))  # type: ignore[arg-type]


def by_hand(episodes: list[Episode], cosine: bool = False) -> list[torch.Tensor]:
    """Every support of a name in a list, one stream after the other."""
    answers: list[list[torch.Tensor]] = [[] for _ in episodes]
    for b in range(2):
        seen: dict[int, list[torch.Tensor]] = {}
        for t, episode in enumerate(episodes):
            assert episode.class_names is not None
            for feature, label in zip(episode.support[b], episode.support_labels[b], strict=True):
                seen.setdefault(int(episode.class_names[b, label]), []).append(feature)
            means = torch.stack([torch.stack(seen[int(n)]).mean(0) for n in episode.class_names[b]])
            query = episode.query[b]
            if cosine:
                centre = torch.stack([f for features in seen.values() for f in features]).mean(0)
                logits = torch.cosine_similarity((query - centre)[:, None], (means - centre)[None], dim=-1) / 0.1
            else:
                logits = -(query[:, None] - means[None]).square().sum(-1)
            answers[t].append(logits.log_softmax(-1))
    return [torch.stack(a) for a in answers]


@pytest.mark.parametrize("cosine", [False, True])
def test_with_names_it_averages_all_supports_of_a_name(cosine: bool) -> None:
    episodes = stream()
    settings = {"distance": "cosine", "centring": "stream", "temperature": 0.1} if cosine else {}
    for prediction, expected in zip(
        method(**settings).predict_sequence(episodes), by_hand(episodes, cosine), strict=True
    ):
        assert torch.allclose(prediction.log_probs, expected, atol=1e-4)


def test_without_names_it_is_proto_net() -> None:
    episodes = stream(named=False)
    plain = ProtoNet(nn.Identity(), ProtoNetConfig())
    for ours, theirs in zip(method().predict_sequence(episodes), plain.predict_sequence(episodes), strict=True):
        assert torch.allclose(ours.log_probs, theirs.log_probs, atol=1e-5)
        assert ours.history[0].shape == (2, 1, WIDTH)


def test_memory_is_bounded_and_forgets_the_names_not_met_for_longest() -> None:
    predictions = method(capacity=4).predict_sequence(stream(steps=12))
    assert all(p.history[0].shape[1] <= 4 for p in predictions)
    tasks = stream(steps=12)
    assert tasks[-1].class_names is not None
    for b in range(2):
        names = predictions[-1].history[2][b].tolist()
        assert set(tasks[-1].class_names[b].tolist()) <= set(names)


def test_unlabelled_supports_are_not_remembered() -> None:
    task = stream(steps=1)[0]
    hidden = Episode(task.support, task.support_labels.clone(), task.query, 3, task.class_names)
    hidden.support_labels[:, 0] = -1
    bank = method().classify(hidden).history
    assert bank[1].sum(1).tolist() == [5, 5]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"capacity": 0}, "capacity = 0 but at least 1 is needed"),
        ({"temperature": 0.0}, "temperature = 0.0"),
        ({"centring": "stream"}, 'set distance = "cosine" or centring = "none"'),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence):
        method(**settings)


def test_a_task_of_more_names_than_fit_is_refused() -> None:
    with pytest.raises(EngramError, match="one task brings 3 entries but \\[method\\] capacity = 2: raise it to 3"):
        method(capacity=2).classify(stream(steps=1)[0])
