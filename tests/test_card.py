"""Revisions of a method's behaviour."""

from dataclasses import dataclass

from engram.card import MethodCard, Revision


@dataclass(frozen=True)
class Config:
    edges: str = "paper"
    history: str = "slot"
    reading: tuple[float, ...] = (1.0, 2.0)


def test_a_revision_counts_for_the_settings_it_names_alone() -> None:
    card = MethodCard("a", "b", revisions=(Revision("all"), Revision("some", {"edges": "paper"})))
    assert card.revision(Config()) == 2
    assert card.revision(Config("egnn")) == 1
    assert [r.what for r in card.concerning(Config("egnn"))] == ["all"]


def test_a_tuple_names_alternatives_or_is_the_value_itself() -> None:
    some = Revision("some", {"edges": "paper", "history": ("none", "slot")})
    assert some.concerns(Config()) and some.concerns(Config(history="none"))
    assert not some.concerns(Config(history="content")) and not some.concerns(Config("egnn"))
    whole = Revision("one reading", {"reading": (1.0, 2.0)})
    assert whole.concerns(Config()) and not whole.concerns(Config(reading=(1.0,)))


def test_without_revisions_it_is_the_first() -> None:
    assert MethodCard("a", "b").revision(Config()) == 0
