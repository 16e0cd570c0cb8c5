from dataclasses import replace

import numpy as np
import pytest
from toy_store import make_store

from engram.data.episodes import TaskList, frozen_tasks
from engram.data.store import Store
from engram.data.streams import encounters, gaps, met_before
from engram.errors import EngramError
from engram.protocol import Protocol

PROTOCOL = Protocol("toy", n_way=3, n_query=2, stream_length=17, n_sequences=20, names="named")


def names_of(tasks: TaskList) -> np.ndarray:
    assert tasks.class_names is not None
    return tasks.class_names


def pairs(tasks: TaskList, sequence: int) -> set[tuple[int, int]]:
    return set(zip(tasks.class_ids[sequence].ravel(), names_of(tasks)[sequence].ravel(), strict=True))


@pytest.mark.parametrize("pool", [0, 9])
def test_with_a_recurrence_gap_every_class_returns_after_exactly_that_many_tasks(toy_store: Store, pool: int) -> None:
    gap = 3 if not pool else 2
    tasks = frozen_tasks(toy_store, replace(PROTOCOL, recurrence_gap=gap, pool_classes=pool))
    since = gaps(tasks.class_ids)
    assert (since[:, : gap + 1] == -1).all() and (since[:, gap + 1 :] == gap + 1).all()
    assert all(len(set(ids.ravel())) == 3 * (gap + 1) for ids in tasks.class_ids)
    assert all(len(pairs(tasks, b)) == 3 * (gap + 1) for b in range(20))


def test_a_recurring_task_has_its_labels_drawn_anew(toy_store: Store) -> None:
    ids = frozen_tasks(toy_store, replace(PROTOCOL, recurrence_gap=3, n_sequences=200)).class_ids
    assert abs((ids[:, 0] == ids[:, 4]).mean() - 1 / 3) < 0.08
    assert (np.sort(ids[:, 0]) == np.sort(ids[:, 4])).all()


def test_drift_brings_new_classes_under_new_names(toy_store: Store) -> None:
    tasks = frozen_tasks(toy_store, replace(PROTOCOL, pool_classes=4, drift=0.5, n_sequences=60))
    for b in range(60):
        met = pairs(tasks, b)
        assert len(met) == len({c for c, _ in met}) == len({n for _, n in met})  # one class, one name
        arrivals = names_of(tasks)[b].max(-1)
        assert arrivals[0] < 4  # names above the pool belong to those who came later
    assert all(len(set(row)) == 3 for row in tasks.class_ids.reshape(-1, 3))
    newest = np.maximum.accumulate(names_of(tasks).max(-1), 1)[:, -1]
    assert 5 < newest.mean() <= 11


def test_certain_drift_replaces_one_class_before_every_task_but_the_first() -> None:
    store = make_store(n_classes=30, per_class=4, shape=(1, 2, 2))
    protocol = replace(PROTOCOL, n_way=4, pool_classes=4, drift=1.0, stream_length=20, n_query=1)
    names = np.sort(names_of(frozen_tasks(store, protocol)), -1)  # the task is the whole pool
    assert (names[:, 0] == np.arange(4)).all()
    kept = (names[:, 1:, :, None] == names[:, :-1, None, :]).any(-1).sum(-1)
    assert (kept == 3).all() and (names[:, 1:].max(-1) == np.arange(4, 23)).all()


def test_classes_that_left_return_under_their_own_name_once_all_have_been(toy_store: Store) -> None:
    tasks = frozen_tasks(toy_store, replace(PROTOCOL, pool_classes=6, drift=1.0, stream_length=60))
    for b in range(20):
        assert len(pairs(tasks, b)) == 12
    assert names_of(tasks).max() == 11


def test_drift_and_recurrence_go_together(toy_store: Store) -> None:
    tasks = frozen_tasks(toy_store, replace(PROTOCOL, pool_classes=6, recurrence_gap=1, drift=0.3, n_sequences=50))
    since = gaps(tasks.class_ids)
    assert (since[:, 2:] == 2).mean() > 0.8  # each place has its turn in every second task, whoever holds it
    assert names_of(tasks).max() > 6


def test_encounters_and_gaps_agree_with_slow_loops(toy_store: Store) -> None:
    ids = frozen_tasks(toy_store, replace(PROTOCOL, pool_classes=5, n_sequences=4)).class_ids
    counts, since = encounters(ids), gaps(ids)
    for b in range(4):
        for t in range(17):
            for n in range(3):
                earlier = [s for s in range(t) if ids[b, t, n] in ids[b, s]]
                assert counts[b, t, n] == len(earlier)
                assert since[b, t, n] == (t - earlier[-1] if earlier else -1)


def test_an_image_counts_as_met_from_the_task_after_it_came() -> None:
    supports = np.array([[[0], [5], [1]]])
    queries = np.array([[[1, 2], [0, 3], [1, 5]]])
    assert met_before(supports, queries).tolist() == [[[False, False], [True, False], [True, True]]]


def test_fields_that_are_not_used_leave_records_as_they_were() -> None:
    plain = Protocol("toy").to_dict()
    assert not {"recurrence_gap", "drift", "revisit"} & set(plain) and plain["pool_classes"] == 0
    used = replace(PROTOCOL, recurrence_gap=3, drift=0.1, revisit=2)
    assert Protocol(**used.to_dict()) == used and Protocol(**plain) == Protocol("toy")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"recurrence_gap": 4}, "of 4 at 3 ways needs a pool of exactly 15 classes but toy train offers 12"),
        ({"recurrence_gap": 1}, "of 1 at 3 ways needs a pool of exactly 6 classes but toy train offers 12"),
        ({"recurrence_gap": 3, "stream_length": 4}, "returns from task 5 on but the stream has 4: raise stream_length"),
        ({"recurrence_gap": -1}, "recurrence_gap = -1 but at least 0"),
        ({"drift": 0.2}, "the pool has 12 of the 12 classes of toy train: lower pool_classes"),
        ({"drift": 1.2, "pool_classes": 5}, "drift = 1.2 but a chance lies between 0 and 1"),
        ({"revisit": 18}, "18 tasks were to be asked again but the stream has 17: lower revisit"),
    ],
)
def test_impossible_streams_get_one_sentence_with_both_numbers(
    toy_store: Store, change: dict[str, object], sentence: str
) -> None:
    with pytest.raises(EngramError, match=sentence):
        frozen_tasks(toy_store, replace(PROTOCOL, **change))
