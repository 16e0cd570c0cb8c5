"""The quickstart from end to end on patterns in place of letters, with models of a few hundred weights."""

from __future__ import annotations

import importlib
from html.parser import HTMLParser
from pathlib import Path

import pytest
from toy_store import make_store

from engram.errors import EngramError
from engram.ledger import read_ledger
from engram.recipes import recipe_names

module = importlib.import_module("engram.tour")
RECIPE = """
[method]
name = "{method}"
{settings}
[backbone]
name = "conv32"
width = 4
[data]
dataset = "glyphs"
n_way = 5
stream_length = 2
[train]
iterations = 100000
sequences = 2
schedule = "cosine"
validate_every = 100000
validation_sequences = 2
[test]
n_way = 5
n_sequences = 4
"""
VOID = {"meta", "link", "br", "hr", "img", "input", "col"}


class Balanced(HTMLParser):
    """Fails on an element that is closed without being open; keeps what was seen."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, method, settings in (
        ("proto", "proto_net", ""),
        ("graph", "cml_bgnn", "n_layers = 1\nwidth = 8"),
    ):
        (tmp_path / f"{name}.toml").write_text(RECIPE.format(method=method, settings=settings))
    monkeypatch.setattr(module, "RECIPES", {"ProtoNet": "proto.toml", "CML-BGNN": "graph.toml"})
    settings = {"5-way 1-shot": {"n_way": 5, "n_sequences": 6}, "20-way 1-shot": {"n_way": 20, "n_sequences": 2}}
    monkeypatch.setattr(module, "SETTINGS", settings)
    monkeypatch.setattr(module, "STREAM", {"n_way": 5, "n_sequences": 3, "stream_length": 3})
    monkeypatch.setattr(module, "open_split", lambda name, split: make_store(22, 6, dataset=name, split=split))
    return tmp_path


def test_a_report_and_a_record_for_every_answer(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = module.quickstart(out=tiny / "out", seconds=0.5)
    page = Balanced()
    page.feed(report.read_text(encoding="utf-8"))
    assert report == tiny / "out" / "report.html" and page.open == [] and {"table", "svg"} <= page.seen
    for words in ("ProtoNet", "CML-BGNN", "chance", "5-way 1-shot", "20-way 1-shot"):
        assert words in page.text
    records, problems = read_ledger(tiny / "out" / "results")
    kinds = [r.kind for r in records]
    assert not problems and kinds.count("train") == 2 and kinds.count("bench") == 2 * 2 + 2 * 3
    assert all(r.status == "finished" for r in records)
    assert all(r.evaluations for r in records if r.kind == "bench")
    printed = capsys.readouterr().out
    assert "report:" in printed and "5-way 1-shot" in printed


def test_a_second_quickstart_in_the_same_folder_keeps_the_first(tiny: Path) -> None:
    module.quickstart(out=tiny / "out", seconds=0.1)
    before = set((tiny / "out" / "results").glob("*.json"))
    module.quickstart(out=tiny / "out", seconds=0.1)
    after = set((tiny / "out" / "results").glob("*.json"))
    assert before < after and len(after) == 2 * len(before)
    assert len(list((tiny / "out" / "runs").iterdir())) == 2


def test_no_time_is_refused(tiny: Path) -> None:
    with pytest.raises(EngramError, match="seconds = 0 but training needs more than 0"):
        module.quickstart(out=tiny / "out", seconds=0)
    assert not (tiny / "out").exists()


def test_a_report_of_another_is_kept(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("<title>Mine</title>")
    with pytest.raises(EngramError, match="report.html exists and Engram did not write it, so it is kept"):
        module.quickstart(tmp_path)


def test_its_recipes_are_in_the_box() -> None:
    assert set(module.RECIPES.values()) <= set(recipe_names())
