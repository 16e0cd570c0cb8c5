"""The command line as a person uses it, from help to a compared pair of runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from test_import_public import FIXTURES, ruled_tensor
from toy_project import Project

from engram.import_public import ENCODER, GRAPH
from engram.ledger import read_record

COMMANDS = (
    "quickstart",
    "data",
    "train",
    "features",
    "attach",
    "bench",
    "audit",
    "compare",
    "import-public",
    "list",
    "recipe",
    "report",
    "predict",
    "remember",
    "forget",
    "demo",
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Project:
    return Project(tmp_path, monkeypatch, capfd)


def in_its_own_process(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "engram.cli", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ENGRAM_CACHE": str(root / "cache")}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def test_help_names_every_command_and_explains_every_flag(project: Project) -> None:
    assert all(command in project.succeeds("--help") for command in COMMANDS)
    for command in COMMANDS:
        lines = [line.strip("│ ").strip() for line in project.succeeds(command, "--help").splitlines()]
        for number, line in enumerate(lines):
            if line.startswith("--"):
                words = line.split("  ", 1)[1:] or [lines[number + 1]]  # a long flag has its help on the next line
                assert words[0].strip() and not words[0].strip().startswith(("(", "--")), f"{command}: {line}"


def test_a_process_of_its_own_for_good_and_bad(tmp_path: Path) -> None:
    fine = in_its_own_process(tmp_path, "list", "methods")
    assert fine.returncode == 0 and "cml_bgnn" in fine.stdout and not fine.stderr
    bad = in_its_own_process(tmp_path, "train", "proto_net/glyps_5w1s")
    assert bad.returncode == 2 and not bad.stdout
    assert bad.stderr == ("engram: there is no recipe 'proto_net/glyps_5w1s'; did you mean 'proto_net/glyphs_5w1s'?\n")


def test_a_reader_that_has_seen_enough_gets_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m engram.cli list | head -1"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout and not done.stderr


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


def test_train_bench_compare(project: Project) -> None:
    project.with_images()
    out = project.train("--note", "first")
    assert out.status == 0 and "2-way 1-shot, 2 queries per class" in out.out and "record: results/runs/" in out.out
    (first,) = project.records()
    assert read_record(first).note == "first"
    project.succeeds("bench", "run", "--n-way", 3, "--n-query", 1, "--predictions", "--results", "other")
    record = read_record(next((project.root / "other").glob("*.json")))
    assert [e.protocol["n_way"] for e in record.evaluations] == [3]
    with np.load(project.root / "other" / record.evaluations[0].tasks_file) as tasks:
        assert tasks["probabilities"].shape == (5, 1, 3, 3)
    shown = project.succeeds("bench", "run", "--slot-order", "class-order", "--results", "ordered")
    assert "class order" in shown and "**" not in shown  # no Markdown on a terminal
    assert shown.splitlines()[0].strip()  # no empty lines of a progress bar where there is no terminal
    project.succeeds("bench", "chance", "--recipe", "recipe.toml", "--results", "floor")
    chance = next((project.root / "floor").glob("chance.*.json"))
    compared = project.succeeds("compare", first, chance)
    assert "+50.00" in compared and "2-way 1-shot, 1 query per class" in compared
    ordered = next((project.root / "ordered").glob("*.json"))
    assert "have no tasks in common" in project.run("compare", ordered, chance).sentence
    (project.root / "floor" / read_record(chance).evaluations[0].tasks_file).write_bytes(b"PK\3\4 no archive")
    assert "restore them from git or bench the model again" in project.run("compare", first, chance).sentence


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
    assert "tables are not rebuilt while records are unreadable" in project.run("report").sentence
