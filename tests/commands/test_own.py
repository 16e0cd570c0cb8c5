"""Commands for own pictures, with what people really put into folders."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from drawn import KINDS, class_folders
from toy_project import Project

FAST = ("--engine", "proto_memory")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Project:
    project = Project(tmp_path, monkeypatch, capfd)
    class_folders(tmp_path / "support", 2)
    class_folders(tmp_path / "new", 1, seed=5)
    return project


def test_a_table_with_uncertainty(project: Project) -> None:
    out = project.succeeds("predict", "--support", "support", "new")
    lines = out.splitlines()
    assert lines[0].split() == ["picture", "class", "probability", "familiar", "not", "known", "left", "open"]
    assert [line.split()[1] for line in lines[1:]] == sorted(KINDS)
    assert "unknown" in project.succeeds("predict", "--support", "support", "new", "--reject-below", 1.0)


def test_json_and_csv_and_bad_pictures(project: Project) -> None:
    (project.root / "new" / "paper.jpg").write_bytes(b"%PDF-1.4")
    (project.root / "new" / "loop.png").symlink_to(project.root / "new" / "loop.png")
    (project.root / "new" / "notes.txt").write_text("passed over")
    (project.root / "new" / "again").symlink_to(project.root / "new")  # a folder in itself is not followed
    run = project.run("predict", "--support", "support", "new", "--json", *FAST)
    answer = json.loads(run.out)
    assert run.status == 0 and [p["class"] for p in answer["pictures"]] == sorted(KINDS)
    assert answer["classes"] == sorted(KINDS)
    assert sum(answer["pictures"][0]["probabilities"].values()) == pytest.approx(1, abs=1e-3)
    assert sorted(Path(u["file"]).name for u in answer["unreadable"]) == ["loop.png", "paper.jpg"]
    assert run.err.count("left out:") == 2 and "is not an image, whatever its name says" in run.err
    rows = list(csv.DictReader(io.StringIO(project.run("predict", "--support", "support", "new", "--csv", *FAST).out)))
    assert len(rows) == 3 and float(rows[0]["p(bolt)"]) == float(rows[0]["probability"])


def test_remember_predict_forget(project: Project) -> None:
    assert "bolt: 2 pictures" in project.succeeds("remember", "model", "--support", "support", *FAST)
    assert "bolt: 3 pictures, 1 of them new" in project.succeeds("remember", "model", "--support", "new")
    class_folders(project.root / "more", 1, ("rivet",), seed=6)
    assert "rivet: 1 picture\n" in project.succeeds("remember", "model", "--support", "more")
    assert "rivet" in project.succeeds("predict", "--model", "model", "more")
    assert "3 classes remain" in project.succeeds("forget", "model", "rivet")
    assert "rivet" not in project.succeeds("predict", "--model", "model", "--csv", "support").splitlines()[0]


def test_bad_input_is_one_sentence(project: Project) -> None:
    (project.root / "support" / "empty").mkdir()
    assert "empty holds no images" in project.run("predict", "--support", "support", "new").sentence
    (project.root / "support" / "empty" / "paper.pdf").write_bytes(b"%PDF")
    assert "its 1 entries have no image extension" in project.run("predict", "--support", "support", "new").sentence
    (project.root / "support" / "empty" / "paper.pdf").unlink()
    (project.root / "support" / "empty").rmdir()
    (project.root / "support" / "loop").symlink_to(project.root / "support")
    assert "leads back to" in project.run("predict", "--support", "support", "new").sentence
    (project.root / "support" / "loop").unlink()
    class_folders(project.root / "single", 2, ("bolt",))
    assert "all 2 pictures are of one class, 'bolt'" in project.run("predict", "--support", "single", "new").sentence
    assert "does not exist or is no folder" in project.run("predict", "--support", "nowhere", "new").sentence
    assert "holds no class folders" in project.run("remember", "model", "--support", "new/bolt").sentence
    assert "give either --support" in project.run("predict", "new").sentence
    assert "choose one" in project.run("predict", "--support", "support", "new", "--json", "--csv").sentence
    (project.root / "nothing").mkdir()
    assert "no pictures in nothing" in project.run("predict", "--support", "support", "nothing").sentence
    assert "is no saved classifier" in project.run("forget", "nothing", "bolt").sentence
    assert "there is no class 'nutt'" in project.run("forget", _model(project), "nutt").sentence


def _model(project: Project) -> str:
    project.succeeds("remember", "model", "--support", "support", *FAST)
    return "model"


def test_a_page_and_what_to_label_next(project: Project) -> None:
    project.succeeds("predict", "--support", "support", "new", "--weights", "photographs", "--html", "page.html")
    page = (project.root / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and page.count("<img") == 3 + 3 * 4 + 3
    lines = project.succeeds("suggest", "--support", "support", "new", "--count", 2, "--weights", "photographs")
    assert len(lines.splitlines()) == 3 and lines.splitlines()[0].startswith("picture")
    class_folders(project.root / "one", 1)
    for command in ("suggest", "predict"):
        run = project.run(command, "--support", "one", "new", "--weights", "photographs")
        assert run.err.splitlines()[-1].startswith("confidence: a guess, for there is one picture of each class")
    run = project.run("suggest", "--support", "support", "new", "--count", 0, *FAST)
    assert run.status == 2 and "count = 0 but at least 1 picture must be suggested" in run.err
