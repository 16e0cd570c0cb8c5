"""Revisions and whom they concern; cards read off the source are those the methods carry, and pages show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engram.card import REVISIONS, MethodCard, Revision, _card, method_cards, revisions_of, stated_revision, system_name
from engram.card import SOURCES as FOLDER
from engram.errors import EngramError
from engram.methods import METHODS
from engram.report.results import PAGELESS


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


PAGES = FOLDER.parent.parent / "docs/methods"


def test_the_cards_read_off_the_source_are_those_of_the_methods() -> None:
    assert method_cards() == {stem: method.card for stem, method in METHODS.items()}


def test_a_system_goes_by_the_title_on_its_card_and_a_users_own_class_by_its_name() -> None:
    assert system_name("proto_net") == "Prototypical Net" and system_name("mine:Own") == "mine:Own"
    titles = [card.title for card in method_cards().values()]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("stem", METHODS)
def test_a_departure_has_a_subject_and_both_values(stem: str) -> None:
    for line in METHODS[stem].card.departures:
        subject, _, values = line.partition(". ")
        assert len(subject) < 70 and values.startswith(("Paper", "Public code", "Reference")), line
        assert ". Ours: " in line, line


@pytest.mark.parametrize("stem", sorted(set(METHODS) - set(PAGELESS)))
def test_a_page_is_headed_by_the_title_and_shows_the_departures_of_the_card(stem: str) -> None:
    page = (PAGES / f"{stem}.md").read_text()
    assert page.startswith(f"# {METHODS[stem].card.title}\n")
    if METHODS[stem].card.departures:
        assert f"<!-- departures:begin {stem} -->\n" in page.partition("\n## Departures\n")[2]


def test_a_card_that_is_not_written_out_is_told(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("TITLE = 'a'\ncard = MethodCard(title=TITLE, paper='b')\n")
    with pytest.raises(EngramError, match="own.py cannot be read without importing it .*'TITLE'.*: write its values"):
        _card(tmp_path / "own.py")
