"""Saved today, loaded tomorrow: the same answers, more pictures, and no tampered folder passes."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn import pictures
from safetensors.torch import save as tensors_to_bytes

from engram.classifier import FewShotClassifier
from engram.classifier.box import box
from engram.classifier.description import sealed
from engram.classifier.folders import forget_class
from engram.errors import EngramError
from engram.spellings import first


def weights_of(folder: Path) -> Path:
    return next(folder.glob("weights-*.safetensors"))


def store_of(folder: Path) -> Path:
    return next(folder.glob("memory-*"))


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
    assert set(saved.iterdir()) == {saved / "classifier.json", weights_of(saved), store_of(saved)}
    assert weights_of(saved).stat().st_size < 3_000_000  # half precision, as in the box
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


def test_confidence_is_fitted_when_a_saved_classifier_is_opened(saved: Path, tmp_path: Path) -> None:
    """Folders hold stored constants alone, so those of before it was fitted for these weights open as they are."""
    loaded = FewShotClassifier.load(saved)
    assert loaded.calibration.held_out == 0  # nine pictures
    folder = loaded.partial_fit(*pictures(1, seed=2)).save(tmp_path / "more")
    again = FewShotClassifier.load(folder)
    assert again.calibration.held_out == 12 and again.calibration == loaded.calibration
    constants = ("temperatures", "familiarities")
    before, after = (json.loads((place / "classifier.json").read_text()) for place in (saved, folder))
    assert [after[key] for key in constants] == [before[key] for key in constants]


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
    (folder / "classifier.json").write_bytes(sealed({**raw, **changes}))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"memory": "../elsewhere"}, "names the memory '../elsewhere', which is no folder of its own"),
        ({"memory": 3}, "is not a saved classifier"),
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
    with pytest.raises(EngramError, match=r"format version 7, written by Engram 9\.9, but this Engram reads up to 3"):
        FewShotClassifier.load(copied)


def test_a_description_changed_by_hand(copied: Path) -> None:
    change(copied, light_ink=True)
    with pytest.raises(EngramError, match=r"classifier\.json was changed after it was saved"):
        FewShotClassifier.load(copied)


@pytest.mark.parametrize("part", ["weights", "features.bin", "entries.bin"])
def test_tensors_changed_or_missing(copied: Path, part: str) -> None:
    path = weights_of(copied) if part == "weights" else store_of(copied) / part
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(EngramError, match=f"{path.name} is damaged or was changed"):
        FewShotClassifier.load(copied)
    path.unlink()
    with pytest.raises(EngramError, match=f"{path.name} (cannot be read|has 0 bytes where 9 pictures need)"):
        FewShotClassifier.load(copied)


def test_temperatures_of_the_second_version_are_those_of_today(copied: Path) -> None:
    """They were of the shares of votes: another scale, of which the box has constants no more."""
    change_and_seal(copied, format_version=2, temperatures={"1": [0.1], "5": [0.1]})
    today, loaded = box()["photographs"].temperatures_of("content_memory", False), FewShotClassifier.load(copied)
    assert loaded.engine_.temperatures == today and loaded.calibration.temperature > 0.3
    change_and_seal(copied, format_version=3, temperatures={"1": [0.1], "5": [0.1]})
    assert FewShotClassifier.load(copied).calibration.temperature == pytest.approx(0.1)


def as_first_version(folder: Path) -> Path:
    """The folder as it was written before memory was a store."""
    memory = FewShotClassifier.load(folder).memory_
    data = tensors_to_bytes({"items": memory.items[:], "labels": memory.labels, "tasks": memory.tasks})
    (folder / "memory.safetensors").write_bytes(data)
    raw = json.loads((folder / "classifier.json").read_text())
    digests = {**raw["digests"], "memory": hashlib.sha256(data).hexdigest()}
    change_and_seal(folder, format_version=1, classes=list(memory.classes), digests=digests)
    weights_of(folder).rename(folder / "weights.safetensors")
    shutil.rmtree(store_of(folder))
    return folder


def test_a_folder_of_the_first_version_opens_and_is_carried_over(copied: Path) -> None:
    query = pictures(2, seed=8)[0]
    expected = FewShotClassifier.load(copied).predict_proba(query)
    loaded = FewShotClassifier.load(as_first_version(copied))
    assert np.array_equal(loaded.predict_proba(query), expected)
    loaded.partial_fit(*pictures(1, ("nut",), seed=2)).save(copied)
    again = FewShotClassifier.load(copied)
    assert again.memory_.counts.tolist() == [3, 4, 3] and torch.equal(again.memory_.items[:9], loaded.memory_.items[:9])
    assert set(copied.iterdir()) == {copied / "classifier.json", weights_of(copied), store_of(copied)}


def test_more_pictures_are_appended_and_nothing_else_is_written(copied: Path) -> None:
    classifier = FewShotClassifier.load(copied)
    before = {path: (path.stat().st_ino, path.read_bytes()) for path in copied.rglob("*") if path.is_file()}
    classifier.partial_fit(*pictures(1, ("nut", "rivet"), seed=2)).save(copied)
    for path, (inode, data) in before.items():
        assert path.stat().st_ino == inode and path.read_bytes().startswith(data)
    assert (store_of(copied) / "features.bin").stat().st_size == 11 * classifier.memory_.items[:1].nbytes
    classifier.set_params(reject_below=0.7).save(copied)
    assert FewShotClassifier.load(copied).reject_below == 0.7


def test_pictures_remembered_twice_count_once(copied: Path) -> None:
    classifier = FewShotClassifier.load(copied).partial_fit(*pictures())
    assert classifier.memory_.counts.tolist() == [3, 3, 3]
    images, labels = pictures(4)  # three of each class are known, and one picture has now two names
    classifier.partial_fit([*images, images[0]], [*labels, "nut"])
    assert classifier.memory_.counts.tolist() == [4, 5, 4]


def test_two_who_loaded_the_same_and_both_save_lose_nothing(copied: Path) -> None:
    first, second, third = (FewShotClassifier.load(copied) for _ in range(3))
    first.partial_fit(*pictures(1, ("nut", "rivet"), seed=2)).save(copied)
    second.partial_fit(*pictures(2, ("screw", "nut"), seed=3)).save(copied)
    assert second.classes_.tolist() == ["bolt", "nut", "washer", "rivet", "screw"]
    loaded = FewShotClassifier.load(copied)
    assert loaded.memory_.counts.tolist() == [3, 6, 3, 1, 2] and loaded.memory_.tasks.max() == 2
    third.forget("washer").save(copied)
    loaded = FewShotClassifier.load(copied)
    assert loaded.classes_.tolist() == ["bolt", "nut", "rivet", "screw"]
    assert loaded.memory_.counts.tolist() == [3, 6, 1, 2]
    with pytest.raises(EngramError, match="was written anew since it was loaded"):
        first.partial_fit(*pictures(1, seed=5)).save(copied)


def test_a_classifier_that_an_interrupted_save_left_aside_is_told(copied: Path) -> None:
    copied.rename(copied.with_name(".copy.old.77"))
    with pytest.raises(EngramError, match=r"was left in .*\.copy\.old\.77 when a save was interrupted: move it back"):
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


def test_a_model_by_another_path_is_the_same_model(copied: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(copied)
    first, second = FewShotClassifier.load(copied), FewShotClassifier.load(tmp_path / "link")
    first.partial_fit(*pictures(1, ("nut",), seed=2)).save(tmp_path / "link")
    second.partial_fit(*pictures(1, ("rivet",), seed=3)).save(copied)
    assert FewShotClassifier.load(copied).memory_.counts.tolist() == [3, 4, 3, 1]


def test_what_could_not_be_opened_is_not_saved(tmp_path: Path) -> None:
    classifier = FewShotClassifier("proto_memory", "photographs").fit(*pictures(1))
    own = replace(classifier.engine_.recipe, backbone="mine:Net")
    classifier.engine_ = replace(classifier.engine_, recipe=own)
    with pytest.raises(EngramError, match="this classifier names the backbone 'mine:Net', code that is not Engram's"):
        classifier.save(tmp_path / "own")
    assert not (tmp_path / "own").exists()


def test_saving_anew_removes_what_engram_wrote_and_nothing_else(copied: Path) -> None:
    """Forgetting writes the memory under a new name; notes of another hand stay where they are."""
    before = next(path for path in copied.glob("memory-*"))
    (before / "notes.txt").write_text("mine")
    (copied / "memory-of-my-own").mkdir()
    (copied / "weights-old.safetensors").write_bytes(b"mine too")
    known = FewShotClassifier.load(copied).classes_
    forget_class(copied, known[0])
    left = {path.relative_to(copied).as_posix() for path in copied.rglob("*")}
    assert {f"{before.name}/notes.txt", "memory-of-my-own", "weights-old.safetensors"} <= left
    assert not [name for name in left if name.startswith(before.name) and name.endswith((".bin", ".jsonl"))]
    assert FewShotClassifier.load(copied).classes_.tolist() == known[1:].tolist()
