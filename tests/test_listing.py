"""Lists a person can read in a terminal, and whose scores are those of the recipe they stand beside."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from engram.errors import EngramError
from engram.ledger import Evaluation, RunRecord, new_run_id, write_record
from engram.listing import abilities, show_data, show_list
from engram.methods import METHODS
from engram.recipes import Recipe, load_recipe, recipe_names
from engram.recipes.protocols import protocols_of
from engram.types import MethodCard

NAME = "proto_net/glyphs_5w1s"


def listed(results: Path, what: str = "all", match: str = "", width: int = 80, variants: bool = False) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    show_list(what, results, match, variants, console)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def record(recipe: Recipe, accuracy: float, **changes: object) -> RunRecord:
    protocol = protocols_of(recipe, batch_norm=METHODS["proto_net"].card.batch_norm)[0].to_dict() | changes
    return RunRecord(
        run_id=new_run_id(),
        kind="train",
        status="finished",
        method=recipe.method,
        recipe_name=recipe.name,
        recipe=recipe.to_dict(),
        recipe_digest=recipe.digest,
        seed=recipe.train.seed,
        started="",
        seconds=1.0,
        commit="test",
        device="cpu",
        versions={},
        evaluations=[Evaluation(protocol, "digest", {"accuracy": accuracy, "interval": 0.01})],
    )


def score(results: Path) -> str:
    (line,) = [line for line in listed(results, "recipes") if line.strip().split(" ")[0] == NAME]
    return line.replace(NAME, "").strip()


@pytest.mark.parametrize("width", [80, 120])
def test_every_name_is_whole_on_a_line_that_fits(tmp_path: Path, width: int) -> None:
    lines = listed(tmp_path, width=width, variants=True)
    assert max(map(len, lines)) <= width and not any("…" in line for line in lines)
    first_words = [line.split()[0] for line in lines if line.strip()]
    assert set(METHODS) | set(recipe_names()) <= set(first_words)
    assert len(lines) < len(recipe_names()) + 12 * len(METHODS)  # a line each, and room for the methods
    assert any("88.62" in line for line in lines)


def test_to_begin_with_variants_stand_back_but_for_the_one_that_was_run(tmp_path: Path) -> None:
    def names() -> set[str]:
        return {line.split()[0] for line in listed(tmp_path, "recipes") if "/" in line}

    plain = names()
    assert {"proto_net/mini_5w1s", "stage_one/own", "cml_bgnn/glyphs_quick"} <= plain
    assert not any("_short" in name or "_10k" in name for name in plain)
    assert {name.split("/")[0] for name in plain} == {name.split("/")[0] for name in recipe_names()}
    short = "proto_net/mini_5w1s_temperature_short"
    write_record(tmp_path, record(load_recipe(short), 0.5))
    assert names() - plain == {short}
    (said,) = [line for line in listed(tmp_path, "recipes") if line.startswith("--variants")]
    assert f"names {len(recipe_names()) - len(plain) - 1} more" in said


def test_a_part_of_a_name_chooses_and_describes(tmp_path: Path) -> None:
    text = "\n".join(listed(tmp_path, "recipes", "mini_5w1s_no_bayes"))
    assert "cml_bgnn/mini_5w1s_no_bayes" in text and "without Bayesian edges" in text
    assert "egnn" not in text and "glyphs" not in text
    assert "recipe" not in "\n".join(listed(tmp_path, "methods", "egnn"))
    with pytest.raises(EngramError, match="nothing in the list has 'protonet' in its name; did you mean 'proto_net'?"):
        listed(tmp_path, "all", "protonet")


def test_the_score_is_that_of_the_newest_run_of_this_very_recipe(tmp_path: Path) -> None:
    recipe = load_recipe(NAME)
    assert score(tmp_path) == ""
    write_record(tmp_path, replace(record(recipe, 0.5), run_id="20260101-000000-aaaaaa"))
    assert score(tmp_path) == "50.00 ± 1.00"
    write_record(tmp_path, record(replace(recipe, train=replace(recipe.train, seed=5)), 0.6))
    assert score(tmp_path) == "60.00 ± 1.00"  # another seed is the same recipe
    for other in (
        record(replace(recipe, train=replace(recipe.train, iterations=3)), 0.7),
        record(replace(recipe, method="mine:Own"), 0.7),
        replace(record(recipe, 0.7), status="interrupted"),
        record(recipe, 0.7, slot_order="class-order"),
        record(recipe, 0.7, n_way=20),
    ):
        write_record(tmp_path, other)
    assert score(tmp_path) == "60.00 ± 1.00"


def test_unreadable_records_are_told(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    assert "left out: the run record" in "\n".join(listed(tmp_path, "methods"))


def test_abilities_in_words() -> None:
    assert abilities(MethodCard("a", "b")) == "inductive"
    card = MethodCard("a", "b", transductive=True, slot_memory=True, class_equivariant=False)
    assert abilities(card) == "transductive, memory by slot, depends on class numbers"


@pytest.mark.parametrize("width", ["80", "120"])
def test_data_names_files_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.delenv("ENGRAM_DATA", raising=False)
    show_data(None, None, build=False)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= int(width) and "…" not in out
    assert "mini-imagenet-cache-{train,val,test}.pkl" in out and "folder:PATH" in out
    with pytest.raises(EngramError, match="miniimagenet needs its files"):
        show_data("miniimagenet", None, build=False)
