"""Recipes, checkpoints and runs that cannot be: one sentence, status 2, and nothing on disk is changed."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import torch
from toy_project import Project

from engram.machine.interruptions import RunLock
from engram.models import checkpoint as checkpoints


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Project:
    return Project(tmp_path, monkeypatch, capfd).with_images()


def refused(project: Project, *arguments: object) -> str:
    """The sentence for a command that must change no file there was; a failed run may add its record."""
    before = project.files()
    sentence = project.run(*arguments).sentence
    after = project.files()
    assert {name: after.get(name) for name in before} == before
    added = [json.loads(data)["status"] for name, data in after.items() if name not in before]
    assert added in ([], ["failed"])
    return sentence


def trained(project: Project, *arguments: object) -> Path:
    assert project.train(*arguments).status == 0
    return project.root / "run"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("n_way = 2\n\n", "n_ways = 2\n\n", "recipe.toml [data]: unknown key 'n_ways'; did you mean 'n_way'?"),
        ("[test]", "[tests]", "recipe.toml: unknown key 'tests'; did you mean 'test'?"),
        ("width = 4", "widht = 4", "[backbone]: 'conv32' has no key 'widht'; did you mean 'width'?"),
        ('name = "proto_net"', 'name = "proto_net"\ntemprature = 1.0', "did you mean 'temperature'?"),
        (
            "iterations = 2",
            'iterations = "2"',
            "recipe.toml [train]: iterations = '2' does not fit; it takes a whole number",
        ),
        ("iterations = 2", "iterations = 1.5", "iterations = 1.5 does not fit; it takes a whole number"),
        ("iterations = 2", "iterations = 0", "recipe.toml [train]: iterations = 0 but at least 1 is needed"),
        ("[1, 2]", "2", "recipe.toml [test]: n_query = 2 does not fit; it takes a list of a whole number"),
        ("[1, 2]", "[0]", "recipe.toml [test]: n_query = [0] but it needs entries of at least 1"),
        ("[1, 2]", "[]", "recipe.toml [test]: n_query = [] but it needs entries of at least 1"),
        ("iterations = 2", "iterations = 2\nseed = -5", "recipe.toml [train]: seed = -5 but at least 0 is needed"),
        ("iterations = 2", f"iterations = 2\nseed = {2**63}", "but it must lie below 2 ** 63"),
        ("iterations = 2", "iterations = 2\nlearning_rate = -1.0", "learning_rate = -1.0 but at least 0 is needed"),
        ("iterations = 2", "iterations = 2\nlearning_rate = nan", "learning_rate = nan but at least 0 is needed"),
        ("iterations = 2", "iterations = 2\nweight_decay = -1.0", "weight_decay = -1.0 but at least 0 is needed"),
        ("iterations = 2", "iterations = 2\nmomentum = -0.1", "momentum = -0.1 but at least 0 is needed"),
        ("n_way = 2\n\n", "pool_classes = -1\n\n", "recipe.toml [data]: pool_classes = -1 but at least 0 is needed"),
        ("n_way = 2\n\n", "drift = -0.1\n\n", "recipe.toml [data]: drift = -0.1 but at least 0 is needed"),
        ("n_way = 2\n\n", "pool_range = [4, 9]\n\n", "pool_range = [4, 9] but it takes the least and the greatest"),
        ("n_way = 2\n\n", "n_way = 2\npool_range = [2, 999]\n\n", "a pool of 999 classes was asked for but"),
        (
            "n_way = 2\n\n",
            "n_query_range = [0, 5]\n\n",
            "n_query_range = [0, 5] but it takes the least and the greatest",
        ),
        ("n_way = 2\n\n", "stream_length_range = [9, 8]\n\n", "stream_length_range = [9, 8] but it takes the least"),
        ("n_way = 2\n\n", "stream_length_range = [8]\n\n", "[data]: stream_length_range = [8] but it takes the least"),
        ("[test]", "[test]\npool_classes = -1", "recipe.toml [test]: pool_classes = -1 but at least 0 is needed"),
        ('description = "small"', "paper = 5", "recipe.toml: a published figure stands in a study"),
        ("width = 4", "width = -4", "[backbone]: width = -4 but whole numbers of at least 1 are needed"),
        ("width = 4", "width = 0", "[backbone]: width = 0 but whole numbers of at least 1 are needed"),
        ('name = "proto_net"', 'name = "egnn"\nn_layers = 0', "[method] n_layers = 0 but at least 1 is needed"),
        ("[train]", "[train", "the recipe recipe.toml is not valid TOML"),
        ('name = "conv32"', 'name = "conv33"', "conv33"),
        ('name = "proto_net"', 'name = "protonet"', "there is no method 'protonet'; did you mean 'proto_net'?"),
    ],
)
def test_a_recipe_that_is_not_one(project: Project, old: str, new: str, sentence: str) -> None:
    project.write_recipe((old, new))
    assert sentence in refused(project, "train", "recipe.toml")


def test_recipes_by_name(project: Project) -> None:
    assert refused(project, "train", "cml_bgn/glyphs_5w1s") == (
        "there is no recipe 'cml_bgn/glyphs_5w1s'; did you mean 'cml_bgnn/glyphs_5w1s'?"
    )
    assert refused(project, "train", "nowhere.toml") == (
        "the recipe nowhere.toml cannot be read: No such file or directory"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--max-minutes", 0), "max_minutes = 0.0 but it must be above 0"),
        (("--max-minutes", "nan"), "max_minutes = nan but it must be above 0"),
        (("--iterations", 0), "recipe [train]: iterations = 0 but at least 1 is needed"),
        (("--iterations", -3), "iterations = -3 but at least 1 is needed"),
        (("--seed", -1), "recipe [train]: seed = -1 but at least 0 is needed"),
        (("--results", "recipe.toml"), "the results folder recipe.toml cannot be made"),
        (("--results", "recipe.toml/runs"), "recipe.toml is not a folder"),
        (("--resume",), "it has neither a state.json nor step- or best- folders"),
        (("--device", "tpu"), "there is no device 'tpu': it takes auto, cpu, cuda or a numbered GPU such as cuda:1"),
        (("--method", "chance"), "'chance' has nothing to train: use engram bench chance --recipe recipe"),
        (("--backbone", "conv33"), "did you mean 'conv32'?"),
    ],
)
def test_flags_that_cannot_work(project: Project, arguments: tuple[object, ...], sentence: str) -> None:
    assert sentence in refused(project, "train", "recipe.toml", *arguments)


def test_results_that_cannot_be_written_are_told_before_any_work(project: Project) -> None:
    flags = ("--recipe", "recipe.toml", "--results", "recipe.toml")
    for arguments in (("train", "recipe.toml", *flags[2:]), ("bench", "chance", *flags), ("audit", "chance", *flags)):
        assert "recipe.toml is not a folder" in refused(project, *arguments)
    assert not (project.root / "runs").exists()


def test_a_quickstart_of_no_known_length(project: Project) -> None:
    assert refused(project, "quickstart", "--seconds", "nan") == "seconds = nan but training needs more than 0"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there(project: Project) -> None:
    for arguments in (("train", "recipe.toml"), ("bench", "chance", "--recipe", "recipe.toml"), ("quickstart",)):
        assert refused(project, *arguments, "--device", "cuda") == (
            "device 'cuda' was asked for but this machine has no usable CUDA GPU: use cpu or auto"
        )


@pytest.mark.parametrize("flags", [("--n-way", "five"), ("--slot-order", "sorted"), ("--no-such-flag",), ()])
def test_flags_the_parser_refuses(project: Project, flags: tuple[str, ...]) -> None:
    outcome = project.run("bench", *(("chance", *flags) if flags else ()))
    assert outcome.status == 2 and "Traceback" not in outcome.err


def test_checkpoints_that_do_not_fit_the_question(project: Project) -> None:
    trained(project)
    assert refused(project, "bench", "run", "--recipe", "egnn/glyphs_5w1s") == (
        "run is a checkpoint of proto_net but the recipe egnn/glyphs_5w1s is for egnn: give a recipe of proto_net"
    )
    assert refused(project, "bench", "run", "--recipe", "proto_net/glyphs_5w1s") == (
        "run was trained on images of 3x84x84 but those of glyphs are 1x28x28: "
        "give a recipe for the dataset it was trained on"
    )
    assert refused(project, "bench", "rnu").startswith("there is neither a run folder nor an untrained method 'rnu'")
    assert refused(project, "bench", "proto_net").startswith("'proto_net' is a method that must be trained first")
    assert "needs --recipe to say which data and tasks" in refused(project, "bench", "chance")
    assert "run holds a run up to step-00000002: resume it, or choose another folder" in refused(
        project, "train", "recipe.toml", "--out", "run"
    )
    assert "run/step-00000002 cannot be resumed: its recipe has the digest" in refused(
        project, "train", "recipe.toml", "--out", "run", "--resume", "--seed", 5
    )


def test_damaged_checkpoints(project: Project) -> None:
    run = trained(project)
    weights = next(run.glob("best-*")) / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    assert refused(project, "bench", "run").startswith(f"{weights.relative_to(project.root)} is damaged")
    state = weights.with_name("state.json")
    text = state.read_text()
    state.write_text(text[: len(text) // 2])
    assert "is not the state of a checkpoint" in refused(project, "bench", "run")
    state.write_text(json.dumps(json.loads(text) | {"format_version": 9}))
    assert refused(project, "bench", "run") == (
        f"{state.relative_to(project.root)} has format version 9 but this Engram reads up to 3: update Engram"
    )


def test_a_full_disk_keeps_the_checkpoint_before(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    write, written = checkpoints._write, [0]

    def filling(path: Path, data: bytes) -> None:
        written[0] += 1
        if written[0] > 4:  # the four files of the first checkpoint
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, data)

    monkeypatch.setattr(checkpoints, "_write", filling)
    outcome = project.train()
    last = outcome.err.strip().splitlines()[-1]
    assert outcome.status == 2 and last == (
        "engram: step 2 could not be saved to run (No space left on device): make room and resume, "
        "step-00000001 is kept"
    )
    assert [json.loads(p.read_text())["status"] for p in project.records()] == ["failed"]
    monkeypatch.undo()
    monkeypatch.chdir(project.root)
    assert project.train("--resume").status == 0


def test_a_second_run_in_the_same_folder(project: Project) -> None:
    with RunLock(project.root / "run"):
        assert refused(project, "train", "recipe.toml", "--out", "run") == (
            f"the run folder run is in use by another run (process {os.getpid()}): "
            f"wait for it, or choose another folder"
        )
