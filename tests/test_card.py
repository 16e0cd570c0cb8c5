"""A revision and whom it concerns."""

from engram.card import Revision


def test_a_revision_concerns_the_settings_it_names_alone() -> None:
    some = Revision("log space", {"edges": (None, "paper")})
    assert some.concerns({}) and some.concerns({"edges": "paper", "width": 96})
    assert not some.concerns({"edges": "egnn"})
    assert Revision("all").concerns({"edges": "egnn"})
