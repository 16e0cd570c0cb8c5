"""Commands that look things up, bring things in and write tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from test_import_public import FIXTURES, ruled_tensor
from toy_project import Project

from engram.errors import EngramWarning
from engram.import_public import ENCODER, GRAPH


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Project:
    return Project(tmp_path, monkeypatch, capfd)


def test_lists(project: Project) -> None:
    everything = project.succeeds("list")
    assert "proto_net/glyphs_5w1s" in everything and "Prototypical Net" in everything
    assert "glyphs_5w1s" not in project.succeeds("list", "methods")
    assert "egnn/" not in project.succeeds("list", "recipes", "cml_bgnn/mini")


def test_a_recipe_that_is_printed_can_be_kept_changed_and_trained(project: Project) -> None:
    assert "did you mean 'egnn/mini_5w1s'" in project.run("recipe", "egnn/mini_5w1").sentence
    project.with_images()
    text = project.succeeds("recipe", "recipe.toml")
    (project.root / "changed.toml").write_text(text.replace("seed = 111", "seed = 7"))
    project.succeeds("train", "changed.toml", "--device", "cpu", "--out", "run")
    (path,) = project.records()
    assert json.loads(path.read_text())["recipe"]["train"]["seed"] == 7


def test_data(project: Project) -> None:
    every = project.succeeds("data")
    for name in ("glyphs", "miniimagenet", "tieredimagenet", "omniglot", "folder:PATH"):
        assert name in every
    assert "mini-imagenet-cache-{train,val,test}.pkl" in every  # whole, at any width
    assert "1x28x28" in project.succeeds("data", "glyphs")
    project.with_images()
    assert "not built yet" in project.succeeds("data", f"folder:{project.images}")
    assert "not built yet" not in project.succeeds("data", f"folder:{project.images}", "--build")


@pytest.fixture(scope="module")
def public_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = json.loads((FIXTURES / "public_l2_c4.json").read_text())
    generator = torch.Generator().manual_seed(spec["seed"])
    parts = {
        part: {name: ruled_tensor(name, tensors[name], generator) for name in sorted(tensors)}
        for part, tensors in sorted(spec["tensors"].items())
    }
    file = tmp_path_factory.mktemp("public") / "model.pth.tar"
    torch.save({"iteration": 5000, "val_acc": 0.5, "optimizer": {}, **parts}, file)
    return file


def test_import_public(project: Project, public_file: Path) -> None:
    assert project.succeeds("import-public", public_file, "imported") == "wrote imported/step-00005000\n"
    before = project.files()
    assert project.run("import-public", public_file, "imported").sentence == (
        "imported holds a run up to step-00005000: choose another folder"
    )
    content = torch.load(public_file, weights_only=True)
    broken = project.root / "broken.pth.tar"
    for part, name, value, told in (
        (GRAPH, "rnn.weight_hh", torch.zeros(3), "has the shape (3,) where two sizes are needed"),
        (GRAPH, "rnn.bias_hh", torch.zeros(3), "broken.pth.tar do not fit CmlBgnn"),
        (ENCODER, "conv_1.0.weight", torch.zeros(2, 3, 3, 3), "do not fit CmlBgnn"),
    ):
        torch.save({**content, part: {**content[part], name: value}}, broken)
        assert told in project.run("import-public", broken, "other").sentence
    torch.save({**content, "iteration": "many"}, broken)
    assert "its iteration is 'many'" in project.run("import-public", broken, "other").sentence
    broken.write_bytes(public_file.read_bytes()[:1000])
    assert "fetch it again" in project.run("import-public", broken, "other").sentence
    broken.unlink()
    assert project.files() == before


def test_report_check(project: Project) -> None:
    readme = project.root / "README.md"
    readme.write_text("# Mine\n\n<!-- results:begin all -->\n<!-- results:end -->\n")
    assert "README.md: differs from its rebuild" in project.run("report", "--check").out
    told = project.run("report", "--check").sentence
    assert told.startswith("the tables of README.md, results/summary.csv differ from results/runs")
    assert project.succeeds("report") == "README.md: rewritten\nresults/summary.csv: rewritten\n"
    assert project.succeeds("report", "--check") == "all tables agree with results/runs\n"
    project.with_images()
    assert project.train().status == 0
    before = project.files()
    assert project.run("report", "--check").status == 2
    assert project.files() == before
    project.succeeds("report")
    assert "Prototypical Net" in readme.read_text()
    project.records()[0].write_text("{")
    with pytest.warns(EngramWarning, match="not in the tables: the run record"):
        project.succeeds("report")
    assert "Prototypical Net" not in readme.read_text()
    assert "tables cannot be checked while records do not count" in project.run("report", "--check").sentence


def test_a_report_is_written_over_no_file_of_another(project: Path) -> None:
    page = project.root / "page.html"
    for name, content in (("page.html", "<!DOCTYPE html><title>Mine</title>"), ("notes.txt", "mine")):
        (project.root / name).write_text(content)
        told = project.run("report", "--html", name).sentence
        assert "did not write it" in told if name == page.name else "must end in .html" in told
        assert (project.root / name).read_text() == content
    page.write_text("")
    for _ in range(2):  # an empty file, then its own
        assert project.succeeds("report", "--html", page.name) == "report: page.html\n"
