from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram.data.episodes import distinct, draw_tasks, episodes_at, frozen_tasks
from engram.data.store import Store
from engram.errors import EngramError
from engram.protocol import Protocol

PROTOCOL = Protocol("toy", n_way=4, n_shot=2, n_query=3, stream_length=5, n_sequences=30)


def class_of(store: Store, rows: np.ndarray) -> np.ndarray:
    return np.searchsorted(store.offsets, rows, side="right") - 1


@given(st.lists(st.integers(3, 30), min_size=1, max_size=8), st.integers(1, 3), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_distinct_draws_without_repeats_and_in_range(sizes: list[int], count: int, seed: int) -> None:
    drawn = distinct(np.random.default_rng(seed), np.array(sizes), count)
    for size, row in zip(sizes, drawn, strict=True):
        assert len(set(row)) == count and row.min() >= 0 and row.max() < size


def test_distinct_is_uniform_over_ordered_pairs() -> None:
    drawn = distinct(np.random.default_rng(0), np.full(60000, 4), 2)
    counts = np.bincount(drawn[:, 0] * 4 + drawn[:, 1], minlength=16).reshape(4, 4)
    assert np.all(np.diag(counts) == 0)
    off_diagonal = counts[~np.eye(4, dtype=bool)]
    assert abs(off_diagonal - 5000).max() < 5 * np.sqrt(5000)


@pytest.mark.parametrize("order", ["shuffled", "class-order"])
def test_labels_agree_with_the_class_of_every_row(toy_store: Store, order: str) -> None:
    protocol = replace(PROTOCOL, slot_order=order)
    tasks = frozen_tasks(toy_store, protocol)
    for rows, labels in ((tasks.support_rows, tasks.support_labels), (tasks.query_rows, tasks.query_labels)):
        expected = np.take_along_axis(tasks.class_ids, labels, 2)
        assert (class_of(toy_store, rows) == expected).all()


def test_no_image_is_met_twice_in_a_task(toy_store: Store) -> None:
    tasks = frozen_tasks(toy_store, PROTOCOL)
    rows = np.concatenate([tasks.support_rows, tasks.query_rows], 2).reshape(150, -1)
    assert all(len(set(r)) == len(r) for r in rows)


def test_class_order_puts_query_i_in_class_i_and_shuffled_does_not(toy_store: Store) -> None:
    ordered = frozen_tasks(toy_store, replace(PROTOCOL, slot_order="class-order", n_query=1))
    assert (ordered.query_labels == np.arange(4)).all()
    shuffled = frozen_tasks(toy_store, replace(PROTOCOL, n_query=1))
    share = (shuffled.query_labels == np.arange(4)).mean()
    assert abs(share - 0.25) < 0.05
    for ours, theirs in ((ordered.query_rows, shuffled.query_rows), (ordered.support_rows, shuffled.support_rows)):
        assert (np.sort(ours, -1) == np.sort(theirs, -1)).all()  # the same pictures, so the two can be paired


def test_the_frozen_list_depends_on_the_seed_alone(toy_store: Store) -> None:
    first = frozen_tasks(toy_store, PROTOCOL)
    assert first.digest == frozen_tasks(toy_store, PROTOCOL).digest
    assert first.digest != frozen_tasks(toy_store, replace(PROTOCOL, seed=1)).digest


def test_the_frozen_list_is_pinned(toy_store: Store) -> None:
    """A change of drawing changes every published number: this digest may only change with a new protocol version."""
    assert frozen_tasks(toy_store, PROTOCOL).digest == "101446e37c25e7e6"


def test_a_pool_bounds_the_classes_of_a_stream(toy_store: Store) -> None:
    tasks = frozen_tasks(toy_store, replace(PROTOCOL, pool_classes=6, stream_length=20))
    assert max(len(set(ids.ravel())) for ids in tasks.class_ids) == 6


def test_names_follow_the_class_through_a_named_stream(toy_store: Store) -> None:
    tasks = frozen_tasks(toy_store, replace(PROTOCOL, names="named", pool_classes=6))
    assert tasks.class_names is not None
    for ids, names in zip(tasks.class_ids, tasks.class_names, strict=True):
        pairs = set(zip(ids.ravel(), names.ravel(), strict=True))
        assert len(pairs) == len({i for i, _ in pairs}) == len({n for _, n in pairs})
    assert frozen_tasks(toy_store, PROTOCOL).class_names is None


def test_unlabelled_supports_can_be_left_out(toy_store: Store) -> None:
    """What stays are the labelled supports of the same draw, and the same queries."""
    semi = replace(PROTOCOL, n_shot=5, labelled_fraction=0.4)
    shown, dropped = (frozen_tasks(toy_store, replace(semi, drop_unlabelled=drop)) for drop in (False, True))
    assert dropped.support_rows.shape[-1] == 2 * PROTOCOL.n_way and (dropped.support_labels >= 0).all()
    for whole, part, labels in zip(
        shown.support_rows.reshape(-1, 5 * PROTOCOL.n_way),
        dropped.support_rows.reshape(-1, 2 * PROTOCOL.n_way),
        shown.support_labels.reshape(-1, 5 * PROTOCOL.n_way),
        strict=True,
    ):
        assert sorted(whole[labels >= 0]) == sorted(part)
    np.testing.assert_array_equal(np.sort(shown.query_rows, -1), np.sort(dropped.query_rows, -1))
    assert "drop_unlabelled" not in semi.to_dict() and replace(semi, drop_unlabelled=True).to_dict()["drop_unlabelled"]


def test_a_labelled_fraction_hides_the_same_share_of_every_class(toy_store: Store) -> None:
    tasks = frozen_tasks(toy_store, replace(PROTOCOL, n_shot=5, labelled_fraction=0.4))
    hidden = (tasks.support_labels == -1).sum(-1)
    assert (hidden == 4 * 3).all()
    for label in range(4):
        assert ((tasks.support_labels == label).sum(-1) == 2).all()


def test_hidden_labels_can_be_shown_and_nothing_else_changes(toy_store: Store) -> None:
    semi = replace(PROTOCOL, n_shot=5, labelled_fraction=0.4)
    sealed, shown = (frozen_tasks(toy_store, replace(semi, hidden_labels_shown=s)) for s in (False, True))
    assert sealed.hidden_labels is None and shown.hidden_labels is not None
    np.testing.assert_array_equal(sealed.support_rows, shown.support_rows)
    np.testing.assert_array_equal(sealed.support_labels, shown.support_labels)
    behind = np.take_along_axis(shown.class_ids, shown.hidden_labels, 2)
    assert (class_of(toy_store, shown.support_rows) == behind).all()
    episodes, _ = episodes_at(toy_store, shown, semi.n_way)
    assert all(e.hidden_labels is not None and bool((e.hidden_labels >= 0).all()) for e in episodes)
    assert "hidden_labels_shown" not in semi.to_dict()


def test_unbalanced_queries_keep_their_total_and_never_repeat(toy_store: Store) -> None:
    tasks = frozen_tasks(toy_store, replace(PROTOCOL, query_balance="dirichlet", n_query=4))
    assert tasks.query_rows.shape[-1] == 16
    counts = np.stack([(tasks.query_labels == c).sum(-1) for c in range(4)], -1)
    assert counts.std(-1).mean() > 1
    rows = np.concatenate([tasks.support_rows, tasks.query_rows], 2).reshape(150, -1)
    assert all(len(set(r)) == len(r) for r in rows)
    assert (class_of(toy_store, tasks.query_rows) == np.take_along_axis(tasks.class_ids, tasks.query_labels, 2)).all()


def test_variants_of_one_original_never_share_a_task() -> None:
    store = Store.from_arrays(np.zeros((6 * 12, 1, 2, 2), np.uint8), [12] * 6, "toy", group_size=3)
    tasks = frozen_tasks(store, Protocol("toy", n_way=3, n_shot=1, n_query=3, n_sequences=50))
    rows = np.concatenate([tasks.support_rows, tasks.query_rows], 2)
    groups = rows // 3
    assert all(len(set(g)) == len(g) for g in groups.reshape(50, -1))
    assert len(set((rows % 3).ravel())) == 3


def test_episodes_carry_the_images_the_rows_name(toy_store: Store) -> None:
    tasks = draw_tasks(toy_store, PROTOCOL, np.random.default_rng(0), 2)
    episodes, answers = episodes_at(toy_store, tasks, 4)
    assert len(episodes) == 5 and episodes[3].support.shape == (2, 8, 1, 28, 28)
    assert torch.equal(episodes[3].query[1, 2], toy_store.images[tasks.query_rows[1, 3, 2]])
    assert answers[3].query_labels[1].tolist() == tasks.query_labels[1, 3].tolist()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"n_way": 13}, "13 ways were asked for but toy train offers 12 classes"),
        ({"n_shot": 18}, "has 20 images but 18 shots \\+ 3 queries need 21"),
        ({"pool_classes": 40}, "a pool of 40 classes was asked for but toy train has 12"),
        ({"n_query": 0}, "n_query = 0 but at least 1"),
        ({"dataset": "glyphs"}, "for glyphs but the store holds toy"),
        ({"query_balance": "dirichlet", "n_query": 30}, "120 unbalanced queries were asked for"),
    ],
)
def test_impossible_protocols_get_one_sentence_with_both_numbers(
    toy_store: Store, change: dict[str, object], sentence: str
) -> None:
    with pytest.raises(EngramError, match=sentence):
        frozen_tasks(toy_store, replace(PROTOCOL, **change))
