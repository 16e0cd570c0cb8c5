"""A store that cannot serve a protocol is told before any task is drawn, with both numbers and the way out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engram.errors import EngramError
from engram.protocol import Protocol

INFO = SimpleNamespace(dataset="toy", split="test", class_names=["a", "b", "c", "d", "e", "f"])
STORE = SimpleNamespace(
    info=INFO, group_counts=np.array([9, 9, 4, 9, 9, 9]), n_classes=6, digest="abc", views=1, window=""
)


def test_a_protocol_that_fits_takes_the_digest_of_its_store() -> None:
    protocol = Protocol("toy", n_way=3, n_shot=1, n_query=3)
    assert protocol.for_store(STORE).dataset_digest == "abc" and not protocol.dataset_digest


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"n_way": 1}, "n_way = 1 but at least 2 is needed"),
        ({"revisit": -1}, "revisit = -1 but at least 0 is needed"),
        ({"n_sequences": 10**9, "n_way": 3}, "would draw 6,000,000,000 images where 67,108,864 are admitted: lower"),
        ({"stream_length": 10**12, "n_way": 3}, r"600 sequences of 1000000000000 task\(s\) would draw"),
        ({"pool_classes": -1}, "pool_classes = -1 but at least 0 is needed"),
        ({"n_way": 7}, "7 ways were asked for but toy test offers 6 classes: lower n_way"),
        ({"pool_classes": 8}, "a pool of 8 classes was asked for but toy test has 6: lower pool_classes"),
        ({"n_query": 4}, r"class 'c' of toy test has 4 images but 1 shots \+ 4 queries need 5: lower n_shot"),
        ({"recurrence_gap": 2}, "a recurrence_gap of 2 at 5 ways needs a pool of exactly 15 classes .* offers 6"),
        ({"n_way": 2, "recurrence_gap": 2}, "a class returns from task 4 on but the stream has 1: raise stream_length"),
        ({"drift": 1.5}, "drift = 1.5 but a chance lies between 0 and 1"),
        ({"drift": 0.5}, "the pool has 6 of the 6 classes of toy test: lower pool_classes"),
        ({"revisit": 2}, "2 tasks were to be asked again but the stream has 1: lower revisit"),
        ({"query_balance": "dirichlet", "n_query": 9}, "45 unbalanced queries .* may offer only 35: lower n_query"),
    ],
)
def test_what_does_not_fit_is_told(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence):
        Protocol("toy", **changes).check(STORE)


def test_a_store_of_other_data_is_told() -> None:
    with pytest.raises(EngramError, match="the protocol is for glyphs but the store holds toy: open glyphs"):
        Protocol("glyphs").check(STORE)
