"""A revision and whom it concerns."""

from engram.card import MethodCard, Revision


def test_a_revision_concerns_the_settings_it_names_alone() -> None:
    some = Revision("log space", {"edges": (None, "paper")})
    assert some.concerns({}) and some.concerns({"edges": "paper", "width": 96})
    assert not some.concerns({"edges": "egnn"})
    assert Revision("all").concerns({"edges": "egnn"})


def test_queries_normalised_together_see_each_other() -> None:
    card = MethodCard("MAML", "a paper", batch_norm="support", fixed_ways=True)
    assert card.normalising_together() == MethodCard("MAML", "a paper", True, batch_norm="task", fixed_ways=True)
