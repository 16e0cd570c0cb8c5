"""Which tasks are drawn and how they are asked: each key is declared once, with its words. No torch."""

from engram.protocol.fits import Holdings
from engram.protocol.keys import (
    ASKED,
    CHOICES,
    CLASS_ORDER_MARK,
    DEFAULTS,
    KEYS,
    LATER,
    NOT_DRAWN,
    Key,
    Protocol,
    Tasks,
    agrees,
    below_least,
    describe_protocol,
)

__all__ = [
    "ASKED", "CHOICES", "CLASS_ORDER_MARK", "DEFAULTS", "KEYS", "LATER", "NOT_DRAWN", "Holdings", "Key", "Protocol",
    "Tasks", "agrees", "below_least", "describe_protocol",
]  # fmt: skip
