"""Revisions of the methods in the box."""

import pytest

from engram.card import Revision
from engram.methods import METHODS
from engram.revisions import REVISIONS, revisions_of, stated_revision


@pytest.mark.parametrize("stem", METHODS)
def test_a_card_shows_the_revisions_of_its_method(stem: str) -> None:
    assert METHODS[stem].card.revisions == REVISIONS.get(stem, ())


def test_only_methods_of_the_table_have_revisions_and_each_says_what_changed() -> None:
    assert set(REVISIONS) <= set(METHODS)
    assert all(r.what and "\n" not in r.what for revisions in REVISIONS.values() for r in revisions)


def test_a_class_of_ones_own_has_none_here() -> None:
    assert revisions_of("mine:Method", {}) == ()


def test_old_weights_answer_todays_question_unless_they_must_be_trained_anew() -> None:
    answers, training = Revision("how it answers", retrain=False), Revision("how it learns")
    assert stated_revision((answers,), 0) == 1
    assert stated_revision((training,), 0) == 0
    assert stated_revision((training, answers), 1) == 2
    assert stated_revision((training, answers), 0) == 0
