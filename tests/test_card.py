"""A revision and whom it concerns."""

import pytest

from engram.card import REVISIONS, MethodCard, Revision, revisions_of, stated_revision
from engram.methods import METHODS


def test_a_revision_concerns_the_settings_it_names_alone() -> None:
    some = Revision("log space", {"edges": (None, "paper")})
    assert some.concerns({}) and some.concerns({"edges": "paper", "width": 96})
    assert not some.concerns({"edges": "egnn"})
    assert Revision("all").concerns({"edges": "egnn"})


def test_queries_normalised_together_see_each_other() -> None:
    card = MethodCard("MAML", "a paper", batch_norm="support", fixed_ways=True)
    assert card.normalising_together() == MethodCard("MAML", "a paper", True, batch_norm="task", fixed_ways=True)


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
