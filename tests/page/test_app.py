"""The page itself, not yet served: what it offers, what it needs, and how bad input is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engram.classifier.box import box
from engram.errors import EngramError
from engram.page import app
from engram.page.app import EMPTY, KINDS
from engram.page.drawing import task_html
from engram.page.session import Session


def test_the_page_offers_what_comes_with_the_package() -> None:
    assert tuple(kind for kind in box() if kind != "imagenet-lite1") == KINDS  # whose weights are an extra


def test_the_empty_page_is_that_of_a_new_visitor() -> None:
    assert task_html(Session()) == EMPTY


def test_without_gradio_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "find_spec", lambda name: None)
    with pytest.raises(EngramError, match=r"needs the package gradio: pip install gradio"):
        app.build()


def test_bad_input_is_a_notice_and_the_page_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    gradio = SimpleNamespace(
        Warning=lambda text, duration: told.append(text),
        skip=lambda: "skipped",
        update=lambda **changes: changes,
        Request=SimpleNamespace,
    )
    request = SimpleNamespace(session_hash="one")

    def add(name: str) -> list[object]:
        if not name:
            raise EngramError("<b> has no name")
        return [name, {"visible": True}]

    monkeypatch.setattr(app, "_actions", lambda: SimpleNamespace(add=add))
    call = app._told(gradio, "add")
    assert call(request, "a") == ["a", {"visible": True}] and not told
    assert call(request, "") == "skipped" and told == ["&lt;b&gt; has no name"]


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ({"port": -1}, "--port = -1 but ports are numbered from 1 to 65535"),
        ({"port": 99999999}, "--port = 99999999"),
        ({"host": "256.1.1.1"}, "--host = '256.1.1.1' is no address of this computer"),
        ({"host": "192.0.2.1"}, "--host = '192.0.2.1' is no address"),
        ({"host": ""}, "--host = '' is no address"),
        ({"host": "a" * 70}, "is no address"),
    ],
)
def test_a_place_that_cannot_be_listened_on_is_told_at_once(place: dict[str, Any], told: str) -> None:
    with pytest.raises(EngramError, match=told):
        app.serve(browser=False, **place)
