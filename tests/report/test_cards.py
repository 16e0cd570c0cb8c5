"""What a report reads of the cards is what the methods carry, and the pages show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engram.errors import EngramError
from engram.methods import METHODS
from engram.report.cards import METHODS as FOLDER
from engram.report.cards import _card, departures_section, method_cards, system_name
from engram.report.results import PAGELESS

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


def test_the_section_numbers_departures_and_then_revisions() -> None:
    text = departures_section("tadam")
    first, since = text.split("Changes of behaviour")
    assert first.startswith("1. **Base classes in running statistics.** Public code: ")
    assert "3. **Alpha.** Paper: learned. Public code: fixed, 7.5. Ours: fixed, 7.5." in first
    assert "1. **base classes:**" in since and "2. **task embedding:**" in since
    assert departures_section("proto_memory") == "None are known."
    assert "**Temperature.** Paper: 1" in departures_section("proto_net")


def test_a_card_that_is_not_written_out_is_told(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("TITLE = 'a'\ncard = MethodCard(title=TITLE, paper='b')\n")
    with pytest.raises(EngramError, match="own.py cannot be read without importing it .*'TITLE'.*: write its values"):
        _card(tmp_path / "own.py")
