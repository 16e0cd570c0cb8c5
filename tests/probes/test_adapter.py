"""Any function as a method: it is audited like the others, and a wrong answer gets one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gaussian_store import gaussian_store
from toy_store import make_store

from engram.errors import EngramError
from engram.evaluation.evaluate import evaluate
from engram.probes.adapter import CallableMethod
from engram.probes.audit import audit
from engram.protocol import Protocol

STORE = gaussian_store(n_classes=40)


def nearest_neighbour(support: np.ndarray, labels: np.ndarray, query: np.ndarray) -> np.ndarray:
    support, query = (x.reshape(len(x), -1).astype(float) for x in (support, query))
    distance = ((query[:, None] - support) ** 2).sum(-1)
    return np.eye(labels.max() + 1)[labels[distance.argmin(1)]]


def centred(support: torch.Tensor, labels: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Centres the task on its queries, so they see each other."""
    scores = -torch.cdist(query - query.mean(0), support - support.mean(0))
    one_hot = torch.nn.functional.one_hot(labels).to(scores.dtype)
    return scores.softmax(-1) @ one_hot


def test_a_function_is_benched_and_audited() -> None:
    method = CallableMethod(nearest_neighbour)
    accuracy = evaluate(method, STORE, Protocol("gauss", "train", n_sequences=50)).metrics["accuracy"]
    assert accuracy > 0.6 and method.card.title == "nearest_neighbour"
    report = audit(method, STORE, n_sequences=20, stream_length=2)
    assert report.verdict == "clean", report.summary


def test_images_come_as_the_store_holds_them() -> None:
    assert audit(CallableMethod(nearest_neighbour), make_store(per_class=6), quick=True).verdict == "clean"


def test_a_function_of_tensors_that_looks_at_its_company_must_say_so() -> None:
    hidden = audit(CallableMethod(centred, "centred", arrays="torch"), STORE, quick=True)
    told = audit(CallableMethod(centred, "centred", transductive=True, arrays="torch"), STORE, quick=True)
    assert hidden["company"].verdict == "leak" and told["company"].verdict == "declared"


def test_a_function_in_float32_is_judged_with_room_for_rounding() -> None:
    def single(support: np.ndarray, labels: np.ndarray, query: np.ndarray) -> np.ndarray:
        return nearest_neighbour(support, labels, query).astype(np.float32)

    finding = audit(CallableMethod(single), STORE, quick=True)["company"]
    assert finding.bound == 1e-4 and "float32" in finding.detail


def rows(*shape: int, value: float = 0.2) -> np.ndarray:
    return np.full(shape, value)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (rows(4, 5), r"mine gave probabilities of shape \(4, 5\) where \(5, 5\) \(queries, ways\) is needed"),
        (rows(5, 5, value=float("nan")), "mine gave 25 of 25 probabilities that are not finite"),
        (rows(5, 5, value=1.0), "mine gave probabilities that add up to 5 where 1 is needed"),
        (rows(5, 5) - np.eye(5), "mine gave a probability of -0.8 where at least 0 is needed"),
        ("yes", "mine gave a str where an array of"),
        (None, "mine gave a NoneType where an array of"),
    ],
    ids=["shape", "nan", "sum", "negative", "text", "nothing"],
)
def test_a_wrong_answer_gets_one_sentence(answer: Any, sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence):
        audit(CallableMethod(lambda *task: answer, name="mine"), STORE, quick=True)
