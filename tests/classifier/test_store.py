"""The store on disk: what a kill, a full disk or another writer leaves, at every operation on files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from drawn import class_folders, pictures
from fuzzing import limited
from killing import Task, check_kills, disk_full_at

from engram.classifier import FewShotClassifier, index, memory
from engram.classifier.folders import forget_class, remember_more
from engram.classifier.memory import Memory, nothing
from engram.classifier.store import create, open_store
from engram.errors import EngramError

ENGINE = "pixel_centroid"  # keeps small pictures and has no weights, so that a save is quick


def remembered(folder: Path) -> tuple[object, ...]:
    """All that counts, to be compared; () where there is no model."""
    if not (folder / "classifier.json").exists():
        return ()
    found = FewShotClassifier.load(folder).memory_
    return found.classes, found.labels.tolist(), found.tasks.tolist(), int(found.items[:].long().sum())


def new_model(folder: Path) -> None:
    FewShotClassifier(ENGINE, "photographs").partial_fit(*pictures(1)).save(folder)


def one_more(folder: Path) -> None:
    FewShotClassifier.load(folder).partial_fit(*pictures(1, ("nut", "rivet"), seed=2)).save(folder)


def forget_nut(folder: Path) -> None:
    if "nut" in FewShotClassifier.load(folder).classes_:
        forget_class(folder, "nut")


NOTHING: Callable[[Path], object] = lambda folder: None  # noqa: E731


@pytest.mark.parametrize(("start", "act"), [(NOTHING, new_model), (new_model, one_more), (new_model, forget_nut)])
def test_killed_at_any_operation_it_is_as_before_or_as_after(
    start: Callable[[Path], object], act: Callable[[Path], object], tmp_path: Path
) -> None:
    start(tmp_path / "model")

    def begin(folder: Path) -> None:
        if start is new_model:
            shutil.copytree(tmp_path / "model", folder)

    # Every third operation; tests/faults kills at each.
    kills, told = check_kills(tmp_path, Task(begin, act, remembered), lambda place: place % 3 == 1, moments=0)
    assert kills > 3 and not told, told


def test_a_model_that_forgot_everything_is_opened_and_can_learn_again(tmp_path: Path) -> None:
    new_model(tmp_path / "model")
    for name in ("bolt", "nut", "washer"):
        forget_class(tmp_path / "model", name)
    assert not len(FewShotClassifier.load(tmp_path / "model").classes_)
    with pytest.raises(EngramError, match="class"):
        FewShotClassifier.load(tmp_path / "model").predict(pictures(1)[0])
    one_more(tmp_path / "model")
    assert remembered(tmp_path / "model")[0] == ("nut", "rivet")


def test_a_pipe_in_place_of_a_file_is_told_and_not_waited_for(tmp_path: Path) -> None:
    new_model(tmp_path / "model")
    (journal,) = (tmp_path / "model").glob("*/journal.jsonl")
    journal.unlink()
    os.mkfifo(journal)
    with limited(), pytest.raises(EngramError, match="journal.jsonl cannot be read .*it is not a regular file"):
        FewShotClassifier.load(tmp_path / "model")


def test_a_full_disk_is_one_sentence_and_changes_nothing(tmp_path: Path) -> None:
    new_model(tmp_path / "model")
    before = remembered(tmp_path / "model")
    for place in (1, 4, 8, 12):
        sentence = "could not be written .No space left on device.: nothing was changed"
        with pytest.raises(EngramError, match=sentence), disk_full_at(place):
            one_more(tmp_path / "model")
        assert remembered(tmp_path / "model") == before
    one_more(tmp_path / "model")
    assert len(remembered(tmp_path / "model")[1]) == 5  # type: ignore[arg-type]


def test_two_processes_that_remember_at_once_lose_nothing(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from engram.classifier.folders import remember_more as go; "
    code += f"go(Path(sys.argv[1]), Path(sys.argv[2]), {ENGINE!r}, 'photographs')"
    folders = [class_folders(tmp_path / name, 2, (name, "bolt"), seed) for seed, name in enumerate(("nut", "rivet"))]
    running = [subprocess.Popen([sys.executable, "-c", code, tmp_path / "model", folder]) for folder in folders]
    assert [process.wait() for process in running] == [0, 0]
    found = FewShotClassifier.load(tmp_path / "model")
    assert sorted(found.classes_) == ["bolt", "nut", "rivet"] and sorted(found.memory_.counts.tolist()) == [2, 2, 4]


def test_the_same_folder_twice_counts_once(tmp_path: Path) -> None:
    support = class_folders(tmp_path / "support")
    remember_more(tmp_path / "model", support, ENGINE, "photographs")
    assert {row[1:] for row in remember_more(tmp_path / "model", support, None, None)} == {(3, 3)}


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Memory:
    monkeypatch.setattr(memory, "MOST_EXACT", 50)
    generator = torch.Generator().manual_seed(0)
    return nothing().add(torch.randn(300, 16, generator=generator), [f"class {i % 7}" for i in range(300)], None)


def test_many_pictures_stay_on_disk_in_half_precision(large: Memory, tmp_path: Path) -> None:
    store = create(tmp_path / "memory", large)
    store.write_index(large.index)
    found = open_store(tmp_path / "memory").memory()
    found.check()
    assert found.items.dtype == torch.float16 and torch.equal(found.items[:], large.items[:])
    assert found.indexed is not None and len(found.indexed.order) == 300
    more = found.add(torch.ones(5, 16), ["new"] * 5, None)
    assert open_store(tmp_path / "memory").append(more).rows == 305
    grown = open_store(tmp_path / "memory").memory()
    assert torch.equal(grown.items[:], more.items[:]) and grown.classes[-1] == "new"
    assert grown.index.nearest(grown.rows, torch.ones(16), 5).sort().values.tolist() == list(range(300, 305))
    (tmp_path / "memory" / "index.bin").write_bytes(b"damaged")
    assert open_store(tmp_path / "memory").memory().indexed is None
    assert index.TAIL >= 5


def test_stores_that_cannot_be_read(large: Memory, tmp_path: Path) -> None:
    create(tmp_path / "memory", large)
    journal = tmp_path / "memory" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    for text, sentence in (
        (lines[0] + lines[1].replace(b"class 1", b"class 9"), "damaged or was changed .a line is not as it was"),
        (b"[]\n", "journal.jsonl is damaged or was changed"),
        (b"", "journal.jsonl is damaged or was changed"),
    ):
        journal.write_bytes(text)
        with pytest.raises(EngramError, match=sentence):
            open_store(tmp_path / "memory")
    journal.write_bytes(lines[0] + lines[1][:-5])  # torn: the batch was never there
    assert open_store(tmp_path / "memory").rows == 0
    journal.write_bytes(b"".join(lines))
    with pytest.raises(EngramError, match=r"holds rows of \[16\] numbers but these have \[8\]: .* another encoder"):
        open_store(tmp_path / "memory").append(nothing().add(torch.zeros(400, 8), ["a"] * 400, None))
    (tmp_path / "memory" / "features.bin").write_bytes(b"short")
    with pytest.raises(EngramError, match="has 5 bytes where 300 pictures need 9600"):
        open_store(tmp_path / "memory").memory()


def test_a_store_of_a_later_version(large: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engram.classifier.store.FORMAT_VERSION", 3)
    create(tmp_path / "memory", large)
    monkeypatch.undo()
    before = json.dumps([path.read_bytes().hex() for path in sorted((tmp_path / "memory").iterdir())])
    with pytest.raises(EngramError, match=r"journal\.jsonl has format version 3 but this Engram reads 1"):
        open_store(tmp_path / "memory")
    assert before == json.dumps([path.read_bytes().hex() for path in sorted((tmp_path / "memory").iterdir())])
