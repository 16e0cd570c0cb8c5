"""Saved today, loaded tomorrow: the same answers, more pictures, and no tampered folder passes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn import pictures

from engram.classifier import FewShotClassifier
from engram.classifier.saving import _sealed
from engram.errors import EngramError
from engram.spellings import first

FILES = {"classifier.json", "memory.safetensors", "weights.safetensors"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return (
        FewShotClassifier(weights="photographs", reject_below=0.1)
        .fit(*pictures())
        .save(tmp_path_factory.mktemp("own") / "screws")
    )


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "copy"))


def test_a_loaded_classifier_answers_the_same_and_goes_on(saved: Path, tmp_path: Path) -> None:
    assert {path.name for path in saved.iterdir()} == FILES
    assert (saved / "weights.safetensors").stat().st_size < 3_000_000  # half precision, as in the box
    original = FewShotClassifier(weights="photographs", reject_below=0.1).fit(*pictures())
    loaded, query = FewShotClassifier.load(saved), pictures(2, seed=8)[0]
    assert np.array_equal(loaded.predict_proba(query), original.predict_proba(query))
    assert np.array_equal(loaded.uncertainty(query).total, original.uncertainty(query).total)
    assert loaded.get_params() == original.get_params()
    loaded.partial_fit(*pictures(1, ("nut", "rivet"), seed=2)).save(tmp_path / "more")
    again = FewShotClassifier.load(tmp_path / "more")
    assert again.classes_.tolist() == ["bolt", "nut", "washer", "rivet"]
    assert again.memory_.tasks.tolist() == [0] * 9 + [1] * 2


def test_a_classifier_saved_before_content_memory_had_its_name_answers_the_same(copied: Path) -> None:
    """As it was written then: the engine by its first name, ``history`` and a list ``reading`` in the recipe."""
    raw = json.loads((copied / "classifier.json").read_text())
    method, settings = first("content_memory", raw["method"]["method_settings"])
    assert settings["history"] == "content" and settings["reading"] == [10.0, 0.5, 0.1, 0.05, 0.3]
    old = {**raw["method"], "method": method, "method_settings": settings}
    query = pictures(2, seed=8)[0]
    expected = FewShotClassifier.load(copied).predict_proba(query)
    change_and_seal(copied, method=old, parameters={**raw["parameters"], "engine": "cml_bgnn"})
    loaded = FewShotClassifier.load(copied)
    assert np.array_equal(loaded.predict_proba(query), expected) and loaded.engine_.recipe.method == "content_memory"
    again = FewShotClassifier(**loaded.get_params()).fit(*pictures())  # by its first name, weights of the box
    assert np.allclose(again.predict_proba(query), expected, atol=1e-3)


@pytest.mark.parametrize("name", ["proto_net", "pixel_centroid", "stage_one"])
def test_other_engines_are_saved_too(name: str, tmp_path: Path) -> None:
    classifier, query = FewShotClassifier(name, "photographs").fit(*pictures(2)), pictures(1, seed=8)[0]
    loaded = FewShotClassifier.load(classifier.save(tmp_path / "own"))
    assert np.allclose(loaded.predict_proba(query), classifier.predict_proba(query), atol=1e-7)


def test_saving_over_a_classifier_replaces_it_and_over_anything_else_is_refused(copied: Path, tmp_path: Path) -> None:
    FewShotClassifier("chance", "photographs").fit(*pictures(1)).save(copied)
    assert FewShotClassifier.load(copied).engine == "chance"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy"]  # nothing left beside it
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "dear.txt").write_text("mine")
    with pytest.raises(EngramError, match="is there and is no saved classifier: choose another folder"):
        FewShotClassifier("chance", "photographs").fit(*pictures(1)).save(tmp_path / "notes")
    assert (tmp_path / "notes" / "dear.txt").read_text() == "mine"


def test_labels_that_json_cannot_hold(tmp_path: Path) -> None:
    classifier = FewShotClassifier("chance", "photographs").fit(pictures(1)[0], [("a", 1), ("b", 2), ("c", 3)])
    with pytest.raises(EngramError, match="is a tuple: only text and numbers can be saved"):
        classifier.save(tmp_path / "own")
    assert not list(tmp_path.iterdir())


def change(folder: Path, **changes: object) -> None:
    raw = json.loads((folder / "classifier.json").read_text())
    (folder / "classifier.json").write_text(json.dumps({**raw, **changes}))


def change_and_seal(folder: Path, **changes: object) -> None:
    """As one who knows the format could."""
    raw = json.loads((folder / "classifier.json").read_text())
    raw.pop("digest")
    (folder / "classifier.json").write_bytes(_sealed({**raw, **changes}))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"classes": ["a"]}, "its pictures are not of its 1 classes"),
        ({"temperatures": "warm"}, "is not a saved classifier"),
        ({"familiarities": {"five": [1]}}, "is not a saved classifier"),
    ],
)
def test_a_sealed_description_that_makes_no_sense(copied: Path, changes: dict, sentence: str) -> None:
    change_and_seal(copied, **changes)
    with pytest.raises(EngramError, match=sentence):
        FewShotClassifier.load(copied)


def test_a_folder_of_another_version(copied: Path) -> None:
    change(copied, format_version=7, versions={"engram": "9.9"})
    with pytest.raises(EngramError, match=r"format version 7, written by Engram 9\.9, but this Engram reads 1"):
        FewShotClassifier.load(copied)


def test_a_description_changed_by_hand(copied: Path) -> None:
    change(copied, classes=["a", "b", "c"])
    with pytest.raises(EngramError, match=r"classifier\.json was changed after it was saved"):
        FewShotClassifier.load(copied)


@pytest.mark.parametrize("name", ["memory.safetensors", "weights.safetensors"])
def test_tensors_changed_or_missing(copied: Path, name: str) -> None:
    data = bytearray((copied / name).read_bytes())
    data[-1] ^= 1
    (copied / name).write_bytes(bytes(data))
    with pytest.raises(EngramError, match=f"{name} is damaged or was changed"):
        FewShotClassifier.load(copied)
    (copied / name).unlink()
    with pytest.raises(EngramError, match=f"{name} cannot be read"):
        FewShotClassifier.load(copied)


def test_folders_that_are_no_classifier(tmp_path: Path) -> None:
    with pytest.raises(EngramError, match=r"is no saved classifier: it has no classifier\.json"):
        FewShotClassifier.load(tmp_path)
    (tmp_path / "classifier.json").write_text("[1, 2")
    with pytest.raises(EngramError, match="cannot be read as a saved classifier"):
        FewShotClassifier.load(tmp_path)


def test_code_that_a_folder_names_is_not_run(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (copied / "evil.py").write_text("raise SystemExit('executed')")
    monkeypatch.chdir(copied)
    method = json.loads((copied / "classifier.json").read_text())["method"]
    change_and_seal(copied, method={**method, "method": "evil:Method"})
    with pytest.raises(EngramError, match="names the method 'evil:Method', code that is not Engram's"):
        FewShotClassifier.load(copied)


def test_what_could_not_be_opened_is_not_saved(tmp_path: Path) -> None:
    classifier = FewShotClassifier("proto_memory", "photographs").fit(*pictures(1))
    own = replace(classifier.engine_.recipe, backbone="mine:Net")
    classifier.engine_ = replace(classifier.engine_, recipe=own)
    with pytest.raises(EngramError, match="this classifier names the backbone 'mine:Net', code that is not Engram's"):
        classifier.save(tmp_path / "own")
    assert not (tmp_path / "own").exists()
