"""What was written before content memory had its name: found, read and counted as before."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from engram import spellings, studies
from engram.card import revisions_of
from engram.errors import EngramError
from engram.files import WEIGHTS
from engram.ledger import Ledger, read_ledger, read_record, record_path, run_stem, write_record
from engram.models.checkpoint import load, load_method
from engram.nn.evidence import Reading
from engram.recipes import load_recipe, recipe_names
from engram.recipes.schema import DataSettings, Recipe, TrainSettings, differences, digest_of, recipe_from_saved
from engram.studies import load_study
from engram.studies.jobs import jobs_of
from engram.types import Episode

RUNS = Path(__file__).parent.parent / "results/runs"
STUDIES = Path(studies.__file__).parent
OLD = {"n_layers": 2, "history": "content", "reading": [10.0, 0.5, 0.1, 0.2, 0.08, 0.7], "bayes": "task"}
NEW = {"n_layers": 2, "bayes": "task", "sharpness": 10.0, "query": 0.5, "past_query": 0.1, "past_picture": 0.2}
NEW |= {"refusal": 0.08, "crowd": 0.7}


def old_files() -> dict[Path, dict[str, Any]]:
    """Committed records of the first spelling, as they are on disk."""
    found = {path: json.loads(path.read_text()) for path in RUNS.glob("*.json")}
    return {p: raw for p, raw in found.items() if raw["recipe"].get("method_settings", {}).get("history") == "content"}


def made(method: str, **settings: Any) -> Recipe:
    return Recipe("mine", method, DataSettings("toy"), TrainSettings(1, 1), method_settings=settings)


def test_the_two_spellings_are_each_others_inverse() -> None:
    assert spellings.today("cml_bgnn", OLD) == ("content_memory", NEW)
    assert spellings.first("content_memory", NEW) == ("cml_bgnn", OLD)
    assert spellings.today("content_memory", NEW) == ("content_memory", NEW)
    for settings in ({}, {"history": "slot"}, {"history": "none", "width": 8}):
        assert spellings.today("cml_bgnn", settings) == spellings.first("cml_bgnn", settings) == ("cml_bgnn", settings)
    reading = spellings.first("content_memory", {"refusal": 0.2})[1]["reading"]
    assert reading == [10.0, 0.5, 0.1, 0.05, 0.2]  # what is not said has its default
    assert "reading" not in spellings.first("content_memory", {"width": 8})[1]
    assert {f.name: f.default for f in fields(Reading) if f.name != "together"} == spellings.READING  # it came later


def test_a_recipe_is_in_todays_spelling_and_its_digest_in_the_first() -> None:
    old, new = made("cml_bgnn", **OLD), made("content_memory", **NEW)
    assert old == new and new.method_settings == NEW and old.digest == new.digest
    assert digest_of({**new.to_dict(), "method": "cml_bgnn", "method_settings": OLD}) == new.digest
    assert made("content_memory", **{**NEW, "crowd": 0.6}).digest != new.digest != made("cml_bgnn").digest
    assert made("content_memory", width=8, reading=[3.0]).method_settings == {"width": 8, "sharpness": 3.0}
    assert made("content_memory", crowd=0.7, reading=[3.0]).method_settings == {"sharpness": 3.0}  # a list is whole
    ignored = made("cml_bgnn", **OLD, dropout=0.3, gate="paper")
    assert ignored.method_settings == NEW
    assert recipe_from_saved({**new.to_dict(), "method": "cml_bgnn", "method_settings": OLD}, "a file") == new


@pytest.mark.parametrize("reading", [[1.0] * 8, 0.5, "sharp"])
def test_a_reading_that_cannot_be_named_is_told(reading: object) -> None:
    with pytest.raises(
        EngramError, match=r"^\[method\] reading = .* but it takes a list of at most 7 numbers, .*refusal"
    ):
        made("cml_bgnn", history="content", reading=reading)


def test_another_history_is_no_old_spelling() -> None:
    """It stays where it is, so that building the model tells of an unknown key."""
    assert made("content_memory", history="slot").method_settings == {"history": "slot"}


def test_every_committed_record_is_of_the_new_method_with_the_old_digest_and_file() -> None:
    files = old_files()
    assert len(files) == 86 and len({raw["recipe_digest"] for raw in files.values()}) == 13
    for path, raw in files.items():
        record = read_record(path)
        assert record.method == record.recipe["method"] == "content_memory" and raw["method"] == "cml_bgnn"
        assert digest_of(record.recipe) == digest_of(raw["recipe"]) == record.recipe_digest == raw["recipe_digest"]
        assert record_path(RUNS, record) == path and record.recipe_name == raw["recipe_name"]
        assert run_stem(record.method, record.recipe_name) == run_stem("cml_bgnn", raw["recipe_name"])
        assert revisions_of(record.method, record.recipe["method_settings"]) == ()
        assert revisions_of("cml_bgnn", raw["recipe"]["method_settings"]) == ()


def test_every_committed_record_of_todays_settings_is_counted() -> None:
    """By the question studies ask: which runs are there of this recipe, whichever of its names it is asked by?"""
    ledger, files = Ledger(read_ledger(RUNS)[0]), old_files()
    names = {raw["recipe_name"] for raw in files.values()}
    assert names == set(spellings.RECIPES)
    for name in names:
        recipe, counted = load_recipe(name), {record.run_id for record in ledger.runs(load_recipe(name))}
        assert (recipe.method, recipe.name) == ("content_memory", spellings.RECIPES[name])
        assert load_recipe(recipe.name) == recipe and name not in recipe_names() and recipe.name in recipe_names()
        same = [raw for raw in files.values() if digest_of(raw["recipe"], True) == digest_of(recipe.to_dict(), True)]
        finished = {raw["run_id"] for raw in same if raw["status"] == "finished" and raw["kind"] != "audit"}
        assert finished and finished <= counted, name


def test_a_file_of_ones_own_may_start_from_a_first_name(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'from = "cml_bgnn/mini_5w1s_content_anonymous"\nmethod.reading = [9.0, 0.5, 0.1, 0.2, 0.08]\n'
    )
    mine, box = load_recipe(str(tmp_path / "mine.toml")), load_recipe("content_memory/mini_5w1s_anonymous")
    assert differences(mine, box) == ["method.crowd", "method.sharpness"]


def test_a_study_may_name_a_recipe_by_its_first_name(tmp_path: Path) -> None:
    text = (STUDIES / "memory_stream_named.toml").read_text()
    mine = tmp_path / "memory_stream_named.toml"
    mine.write_text(text.replace('"content_memory/mini_5w1s_named"', '"cml_bgnn/mini_5w1s_content_named"'))
    assert mine.read_text() != text
    (own, missing), (box, _) = (jobs_of([load_study(name)], "short") for name in (str(mine), "memory_stream_named"))
    assert not missing and [job.key for job in own] == [job.key for job in box]


def test_a_record_of_a_recipe_of_ones_own_keeps_its_file_too(tmp_path: Path) -> None:
    path, raw = next(iter(old_files().items()))
    raw.pop("seal", None)
    mine = tmp_path / f"cml_bgnn.mine.{raw['run_id']}.json"
    mine.write_text(json.dumps({**raw, "recipe_name": "mine"}))
    record = read_record(mine)
    assert record_path(tmp_path, record) == mine and record.method == "content_memory"
    again = write_record(tmp_path / "copy", read_record(path))
    assert again.name == path.name and "filed_as" not in json.loads(again.read_text())
    assert read_record(again).recipe_digest == raw["recipe_digest"]


def test_names_of_files_belong_to_the_declared_recipes_alone() -> None:
    assert run_stem("content_memory", "cml_bgnn/mini_5w5s_content") == "cml_bgnn.mini_5w5s_content"
    assert run_stem("content_memory", "cml_bgnn/mini_5w1s") == "content_memory.mini_5w1s"
    assert run_stem("content_memory", "content_memory/mini_5w5s") == "content_memory.mini_5w5s"


def stream(width: int, named: bool) -> list[Episode]:
    """Three tasks of made-up features, the same on every machine."""

    def pictures(count: int, shift: float) -> torch.Tensor:
        steps = torch.arange(count * width, dtype=torch.float64) * 12.9898
        return torch.sin(steps + shift).float().abs().reshape(1, count, width)

    labels, names = torch.tensor([[2, 0, 1]]), torch.tensor([[0, 1, 2]])
    return [
        Episode(pictures(3, step), labels, pictures(2, step + 0.5), 3, names + step % 2 if named else None)
        for step in range(3)
    ]


@pytest.mark.parametrize(
    ("name", "named", "expected"),
    [
        ("glyphs_5w5s_content", True, [[0.30372, 0.33954, 0.35675], [0.37426, 0.28034, 0.3454]]),
        ("glyphs_5w5s_content", False, [[0.16246, 0.43369, 0.40385], [0.42708, 0.18525, 0.38767]]),
        ("mini_5w5s_content", True, [[0.33239, 0.32757, 0.34004], [0.33976, 0.32526, 0.33497]]),
        ("mini_5w5s_content", False, [[0.35504, 0.29454, 0.35042], [0.35638, 0.36139, 0.28223]]),
        ("mini_5w1s_content_named", True, [[0.32038, 0.29302, 0.3866], [0.38862, 0.27345, 0.33793]]),
        ("mini_5w1s_content_named", False, [[0.40531, 0.21789, 0.3768], [0.38269, 0.4325, 0.18481]]),
    ],
)
def test_weights_in_the_box_answer_as_they_did_as_cml_bgnn(name: str, named: bool, expected: list[Any]) -> None:
    """``expected``: the last task of the stream as the code of before the renaming answered it."""
    checkpoint = load(WEIGHTS / f"cml_bgnn.{name}", method="content_memory")
    assert json.loads((checkpoint.folder / "state.json").read_text())["method"] == "cml_bgnn"
    assert checkpoint.recipe.digest == checkpoint.state.recipe_digest
    method = load_method(checkpoint, torch.device("cpu"), "fp32")
    with torch.no_grad():
        last = method.predict_sequence(stream(checkpoint.state.image_shape[0], named))[-1]
    assert method.card.title == "Content memory"
    torch.testing.assert_close(last.log_probs.exp()[0], torch.tensor(expected), atol=2e-5, rtol=0)


def test_a_run_folder_of_the_first_spelling_can_be_copied_and_opened(tmp_path: Path) -> None:
    shutil.copytree(WEIGHTS / "cml_bgnn.glyphs_5w5s_content", tmp_path / "mine")
    state = load(tmp_path / "mine").state
    assert (state.method, state.recipe["method"]) == ("content_memory", "content_memory")
    assert state.recipe["method_settings"]["refusal"] == 0.3


def test_an_engine_by_its_first_name() -> None:
    assert spellings.engine_today("cml_bgnn", ("stage_one", "content_memory")) == "content_memory"
    assert spellings.engine_today("cml_bgnn", ("cml_bgnn",)) == "cml_bgnn"
    assert spellings.engine_today(None, ("content_memory",)) is None
