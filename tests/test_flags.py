"""Flags are made of the protocol's keys: one for each that can be asked for, with its choices and its sentence."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import pytest

from engram import cli
from engram.flags import Asked, AskedInAudit
from engram.protocol import ASKED, CHOICES, KEYS

OF_KEY = {field.name: field for field in fields(Asked.__origin__)}


def test_what_is_not_asked_for_is_the_recipes() -> None:
    asked = vars(Asked.__origin__())
    assert asked.keys() == set(ASKED)
    assert all(value is None or value is False for value in asked.values())
    assert vars(AskedInAudit.__origin__()).items() <= asked.items()


@pytest.mark.parametrize("key", ASKED)
def test_a_flag_says_what_its_key_says_and_names_its_choices(key: str) -> None:
    flag = get_args(OF_KEY[key].type)[1]
    assert flag.help == KEYS[key].says
    if OF_KEY[key].default is None and key in CHOICES:
        assert flag.metavar == "{" + ",".join(map(str, CHOICES[key])) + "}"


@pytest.mark.parametrize("words", [["attach", "", "b", "c"], ["train", "a", "--out", " "], ["bench", "a", "--data="]])
def test_an_empty_name_is_not_this_folder(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.sys, "argv", ["engram", *words])
    told: list[str] = []
    monkeypatch.setattr(cli, "_end", lambda sentence, status: told.append(sentence))
    cli.main()
    assert told == ["engram: the name of a file or folder is empty: give one, or . for this folder"]
