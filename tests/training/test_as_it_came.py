"""An encoder from before is kept unless classes it never saw are answered better, by more than chance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from toy_run import make_stores

from engram.data.episodes import frozen_tasks
from engram.errors import EngramError
from engram.evaluation.evaluate import Result
from engram.evaluation.metrics import Outcomes, summarise
from engram.protocol import Protocol
from engram.training.as_it_came import AsItCame

STORE = make_stores()["val"]
ASKED = Protocol("toy", "val", n_way=2, n_shot=1, n_query=2, n_sequences=40).for_store(STORE)


def answered(right: np.ndarray) -> Result:
    """A class is answered right as often as ``right`` (classes,) says, always in the same tasks."""
    tasks = frozen_tasks(STORE, ASKED)
    classes = np.take_along_axis(tasks.class_ids, tasks.query_labels, -1)
    hit = np.random.default_rng(0).random(classes.shape) < right[classes]
    said = np.where(hit, tasks.query_labels, 1 - tasks.query_labels)
    outcomes = Outcomes(tasks.query_labels, np.eye(2, dtype=np.float32)[said])
    return Result(ASKED, tasks.digest, summarise(outcomes), outcomes, 0.0)


@pytest.mark.parametrize("more,beaten", [(0.3, True), (-0.3, False), (None, False)])
def test_a_gain_counts_where_most_classes_have_it(tmp_path: Path, more: float | None, beaten: bool) -> None:
    """None: one class gains much and the others nothing, which says little of the next class."""
    n_classes = len(STORE.offsets) - 1
    before = np.full(n_classes, 0.5)
    after = np.where(np.arange(n_classes) == 0, 1.0, 0.5) if more is None else before + more
    came = AsItCame(tmp_path)
    assert came.is_beaten(answered(after), STORE, held=False) and came.summary() == {}  # nothing to compare with
    assert came.is_beaten(answered(before), STORE, held=True)
    assert came.is_beaten(answered(after), STORE, held=False) is beaten
    told = came.summary()
    assert told["frozen_accuracy"] == answered(before).accuracy and told["gain"]["classes"] == n_classes
    resumed = AsItCame(tmp_path)
    assert resumed.is_beaten(answered(after), STORE, held=False) is beaten and resumed.summary() == told
    assert not resumed.is_beaten(answered(before), STORE, held=False) and resumed.gain is not None


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{", "{}", '{"accuracy": "a", "by_class": []}', '{"accuracy": 0.5, "by_class": [0.5]}'),
        '{"accuracy": NaN, "by_class": [0, 0, 0, 0, 0, 0]}',
        '{"accuracy": 0.5, "by_class": [0, 0, 0, 0, 0, 1.5]}',
    ],
)
def test_a_file_of_another_kind_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "as_it_came.json").write_text(text)
    with pytest.raises(EngramError, match="as_it_came.json"):
        AsItCame(tmp_path).is_beaten(answered(np.full(len(STORE.offsets) - 1, 0.5)), STORE, held=False)
    assert (tmp_path / "as_it_came.json").read_text() == text
