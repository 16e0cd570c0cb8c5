"""Revisions of a method's behaviour."""

from dataclasses import dataclass

from engram.card import MethodCard, Revision


@dataclass(frozen=True)
class Config:
    edges: str = "paper"


def test_a_revision_counts_for_the_settings_it_names_alone() -> None:
    card = MethodCard("a", "b", revisions=(Revision("all"), Revision("some", {"edges": "paper"})))
    assert card.revision(Config()) == 2
    assert card.revision(Config("egnn")) == 1
    assert [r.what for r in card.concerning(Config("egnn"))] == ["all"]


def test_without_revisions_it_is_the_first() -> None:
    assert MethodCard("a", "b").revision(Config()) == 0
