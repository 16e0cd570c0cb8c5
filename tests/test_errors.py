"""What a misspelt name and a setting that cannot work are told."""

import pickle
from types import SimpleNamespace

import pytest

from engram.errors import EngramError, check_settings, check_within, nearest


def test_a_close_name_is_offered_alone() -> None:
    assert nearest("protonet", ["egnn", "proto_net"]) == "; did you mean 'proto_net'?"
    assert nearest("BOLT", ["Bolt", "nut"]) == "; did you mean 'Bolt'?"


def test_few_names_are_listed_and_many_are_counted() -> None:
    assert nearest("zzz", ["b", "a"]) == "; known: a, b"
    assert nearest("zzz", [f"name{n}" for n in range(8)]).endswith(", name6, name7")
    many = nearest("zzz", [f"name{n:02d}" for n in range(73)])
    assert many == "; known: name00, name01, name02, name03, name04, name05, name06, name07 and 65 more"


def test_the_first_setting_that_cannot_work_is_named_with_its_value() -> None:
    settings = SimpleNamespace(steps=0, rate=2.0, share=float("nan"))
    check_within(settings, steps=0, rate=(0, 2))
    with pytest.raises(EngramError, match=r"\[method\] steps = 0 but at least 1 is needed"):
        check_within(settings, steps=1, rate=(0, 1))
    with pytest.raises(EngramError, match="rate = 2.0 but it makes sense from 0 to 1 alone"):
        check_within(settings, rate=(0, 1))
    with pytest.raises(EngramError, match="share = nan but at least 0 is needed"):
        check_within(settings, share=0)
    with pytest.raises(EngramError, match="rate = 2.0 but it must be below 1"):
        check_settings(settings, ("steps", True, "it must be whole"), ("rate", settings.rate < 1, "it must be below 1"))


def test_a_sentence_of_thousands_of_characters_is_cut_in_its_middle() -> None:
    told = str(EngramError(f"unknown key '{'x' * 9000}': give another"))
    assert len(told) < 2000 and told.startswith("unknown key 'xx") and told.endswith(": give another")
    assert str(EngramError("as it is")) == "as it is" and pickle.loads(pickle.dumps(EngramError("a"))).args == ("a",)
