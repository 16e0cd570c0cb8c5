"""What all methods with a memory of content must have in common: slots, time and pieces do not matter to them."""

import pytest
import torch
from named_stream import slots_permuted, stream
from torch import nn

from engram.errors import EngramError
from engram.methods import METHODS
from engram.types import Method

STEMS = ("proto_memory", "knn_memory", "propagation_memory")


def build(stem: str, **settings: int) -> Method:
    return METHODS[stem](nn.Identity(), METHODS[stem].Config(**settings))


@pytest.mark.parametrize("capacity", [500, 14])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("stem", STEMS)
def test_slots_of_any_past_task_do_not_matter(stem: str, named: bool, capacity: int) -> None:
    episodes = stream(named=named, pool=20)
    method = build(stem, capacity=capacity)
    whole = method.predict_sequence(episodes)[-1].log_probs
    for t in range(5):
        changed = [*episodes[:t], slots_permuted(episodes[t], t), *episodes[t + 1 :]]
        assert torch.allclose(whole.exp(), method.predict_sequence(changed)[-1].log_probs.exp(), atol=1e-5)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("stem", STEMS)
def test_pieces_of_a_stream_are_the_stream_and_the_future_is_unknown(stem: str, named: bool) -> None:
    episodes = stream(named=named)
    method = build(stem)
    whole = [p.log_probs for p in method.predict_sequence(episodes)]
    first = method.predict_sequence(episodes[:4])
    rest = method.predict_sequence(episodes[4:], first[-1].history)
    for expected, prediction in zip(whole, (*first, *rest), strict=True):
        assert torch.equal(expected, prediction.log_probs)


@pytest.mark.parametrize("stem", STEMS)
def test_names_for_some_tasks_only_are_refused(stem: str) -> None:
    named, anonymous = stream(), stream(named=False)
    method = build(stem)
    with pytest.raises(EngramError, match="the past of 2 of 2 streams has class names but this task has none"):
        method.predict_sequence([named[0], anonymous[1]])
    with pytest.raises(EngramError, match="this task has class names but the past of 2 of 2 streams has none"):
        method.predict_sequence([anonymous[0], named[1]])


@pytest.mark.parametrize("stem", STEMS)
def test_foreign_histories_are_refused(stem: str) -> None:
    task = stream(steps=1)[0]
    method = build(stem)
    for history, sentence in (
        ((torch.zeros(2, 3),), "keeps 5 tensors of .* axes but the history has 1"),
        (tuple(h[:1] for h in method.classify(task).history), "given 2 streams but a history of 1"),
        *((build(other).classify(task).history, "but the history holds") for other in STEMS if other != stem),
    ):
        with pytest.raises(EngramError, match=sentence):
            method.classify(task, history)
