"""Whether a method can answer a protocol at all: told before the first task is drawn."""

from __future__ import annotations

from engram.errors import EngramError
from engram.protocol import Protocol
from engram.types import Method


def check_can_answer(method: Method, protocol: Protocol) -> None:
    """Ways and shots a method's weights are tied to (``n_way``, ``n_shot`` of its config), and unlabelled supports."""
    card = method.card
    for fixed, key, asked in (
        (card.fixed_ways, "n_way", protocol.n_way),
        (card.fixed_shots, "n_shot", protocol.n_shown),
    ):
        own = getattr(method.config, key, asked)
        if fixed and own != asked:
            raise EngramError(
                f"{card.title} has weights for [method] {key} = {own} but the tasks of {protocol.dataset} "
                f"{protocol.split} have {key} = {asked}: ask for {own}, or train another model with {key} = {asked}"
            )
    hidden = protocol.n_shown - protocol.n_labelled
    if hidden and not card.semi_supervised:
        raise EngramError(
            f"{card.title} makes no use of unlabelled supports but labelled_fraction = {protocol.labelled_fraction} "
            f"hides the labels of {hidden} of {protocol.n_shown} per class: set drop_unlabelled = true, or take a "
            f"semi-supervised method such as egnn"
        )
