"""A person's own method and backbone by package.module:Class: good ones train, others get one sentence."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from toy_project import Project

from engram.ledger import read_record
from engram.recipes import loading

OWN_CODE = """
from dataclasses import dataclass
import torch
from torch import nn
from engram.types import Method, MethodCard, Prediction

@dataclass(frozen=True)
class NoConfig:
    pass

class NoMethod(nn.Module):
    pass

class NoCard(Method):
    Config = NoConfig

class Floor(Method):
    card = MethodCard(title="mine", paper="none", batch_norm="none", trainable=False)
    Config = NoConfig
    def predict(self, episode, history=()):
        return Prediction(torch.zeros(*episode.query.shape[:2], episode.n_way).log_softmax(-1))

class NoConfigAtAll(Method):
    card = MethodCard(title="mine", paper="none")

class NoPredict(Method):
    card = MethodCard(title="mine", paper="none")
    Config = NoConfig

class Complete(NoPredict):
    def predict(self, episode, history=()):
        features = [self.backbone(part.flatten(0, 1)).unflatten(0, part.shape[:2]) for part in
                    (episode.support, episode.query)]
        logits = []
        for k in range(episode.n_way):
            mask = (episode.support_labels == k).float()[..., None]
            mean = (features[0] * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
            logits.append(-(features[1] - mean).square().sum(-1))
        return Prediction(torch.stack(logits, -1).log_softmax(-1))

class Small(nn.Module):
    def __init__(self, image_shape):
        super().__init__()
        self.out_shape = (3,)
        self.layer = nn.Linear(image_shape[0], 3)
    def forward(self, images):
        return self.layer(images.mean((2, 3)))

class OtherInit(Complete):
    def __init__(self, backbone):
        super().__init__(backbone, None)

class NoPrediction(Complete):
    def predict(self, episode, history=()):
        return super().predict(episode, history).log_probs

class Failing(Complete):
    def predict(self, episode, history=()):
        raise RuntimeError("shapes cannot be multiplied")

class BadForward(Small):
    def forward(self, images):
        return 1 / 0

class NoOutShape(nn.Module):
    def __init__(self, image_shape):
        super().__init__()
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Project:
    project = Project(tmp_path, monkeypatch, capfd).with_images()
    project.write_recipe(("width = 4\n", ""))
    (project.root / "own_code.py").write_text(OWN_CODE)
    sys.modules.pop("own_code", None)  # of the test before
    return project


def test_your_own_method_and_backbone(project: Project) -> None:
    project.succeeds("train", "recipe.toml", "--method", "own_code:Complete", "--backbone", "own_code:Small")
    record = read_record(project.records()[0])
    assert (record.method, record.recipe["backbone"]) == ("own_code:Complete", "own_code:Small")
    assert record.training["parameters"] == 12
    project.succeeds("bench", "runs/recipe", "--n-sequences", 3)  # imported already: nothing runs


@pytest.mark.parametrize("what", ["method", "backbone"])
def test_code_named_by_a_run_folder_runs_only_when_a_person_says_so(project: Project, what: str) -> None:
    name = {"method": "own_code:Complete", "backbone": "own_code:Small"}[what]
    project.succeeds("train", "recipe.toml", f"--{what}", name, "--out", "run")
    (project.root / "own_code.py").write_text(OWN_CODE + "\nopen('ran', 'w')\n")
    importlib.invalidate_caches()
    picture = next(project.images.rglob("*.png"))
    asked: list[tuple[object, ...]] = [
        ("bench", "run", "--n-sequences", 3),
        ("audit", "run", "--quick"),
        ("features", "run", "features"),
        ("picture", "run", "task.npz"),
        ("predict", picture, "--support", project.images / "train", "--weights", "run"),
        ("remember", "memory", "--support", project.images / "train", "--weights", "run"),
    ]
    for command in asked:
        sys.modules.pop("own_code", None)
        told = project.run(*command).sentence
        assert f"state.json names the {what} '{name}', and importing it runs code" in told and "--trust-code" in told
        assert "own_code" not in sys.modules and not (project.root / "ran").exists()
    for command in asked if what == "backbone" else asked[:2]:
        sys.modules.pop("own_code", None)
        outcome = project.run(*command, "--trust-code")
        assert "importing it runs code" not in outcome.err and (project.root / "ran").exists(), command
        (project.root / "ran").unlink()


def test_your_own_method_is_benched_by_name(project: Project) -> None:
    asked = ("--recipe", "recipe.toml", "--n-sequences", 3)
    project.succeeds("bench", "--method", "own_code:Floor", *asked)
    record = read_record(project.records()[0])
    assert (record.method, record.kind) == ("own_code:Floor", "bench")
    assert record.accuracy == pytest.approx(1 / record.evaluations[0].protocol["n_way"])
    trainable = project.run("bench", "--method", "own_code:Complete", *asked)
    assert "must be trained first" in trainable.sentence and "say trainable=False on its card" in trainable.sentence
    for arguments, told in ((("run", "--method", "chance"), "both 'run' and"), ((), "but neither was given")):
        assert told in project.run("bench", *arguments, *asked).sentence


@pytest.mark.parametrize(
    ("flag", "name", "sentence"),
    [
        ("--method", "own_code:NoMethod", "is not an engram.types.Method: derive NoMethod from it"),
        ("--method", "own_code:NoCard", "lacks a card: set card = MethodCard(title=..., paper=...) in the class"),
        ("--method", "own_code:NoConfigAtAll", "lacks a Config"),
        ("--method", "own_code:NoPredict", "lacks predict: define predict(self, episode, history=())"),
        ("--method", "own_code:Complet", "the module 'own_code' has no class 'Complet'; did you mean 'Complete'?"),
        ("--method", "no_code:Complete", "cannot be imported (No module named 'no_code')"),
        ("--method", "own_code:OtherInit", "own_code:OtherInit failed: TypeError: "),
        ("--method", "own_code:NoPrediction", ": predict must return an engram.types.Prediction"),
        ("--method", "own_code:Failing", "own_code:Failing failed: RuntimeError: shapes cannot be multiplied"),
        ("--backbone", "own_code:NoOutShape", "lacks out_shape: set self.out_shape = (features,) in its __init__"),
        ("--backbone", "own_code:BadForward", "own_code:BadForward failed: ZeroDivisionError"),
        ("--backbone", "own_code:NoConfig", "is not a torch.nn.Module: derive NoConfig from it"),
    ],
)
def test_classes_that_do_not_fulfil_the_contract(project: Project, flag: str, name: str, sentence: str) -> None:
    before = project.files()
    assert sentence in project.run("train", "recipe.toml", flag, name).sentence
    after = project.files()
    assert {name: after.get(name) for name in before} == before


@pytest.mark.parametrize("name", ["OtherInit", "NoPrediction", "Failing"])
def test_a_failure_of_own_code_is_recorded(project: Project, name: str) -> None:
    told = project.run("train", "recipe.toml", "--method", f"own_code:{name}", "--note", "tried").sentence
    (path,) = project.records()
    record = read_record(path)
    assert (record.status, record.note) == ("failed", "tried") and " ".join(record.error.split()) == told
    assert path.name.startswith(f"own_code.{name}.recipe.")


def test_own_code_that_fails_while_it_answers(project: Project) -> None:
    project.succeeds("train", "recipe.toml", "--method", "own_code:Complete", "--out", "run")
    source = OWN_CODE.replace("logits = []", "raise RuntimeError('changed since')")
    (project.root / "own_code.py").write_text(source)
    sys.modules.pop("own_code")
    importlib.invalidate_caches()
    for command in ("bench", "audit"):
        told = project.run(command, "run", "--trust-code").sentence
        assert "own_code:Complete failed: RuntimeError: changed since" in told


def test_another_method_over_a_recipe_is_filed_under_its_own_name(project: Project) -> None:
    """No record or folder of the recipe's own stem, and no claim to the recipe's published figure."""
    recipes = project.root / "box"
    recipes.mkdir()
    base = "[base]" + (project.root / "recipe.toml").read_text().replace("\n[", "\n[base.")
    (recipes / "proto_net.toml").write_text(f"{base}\n[variant.small]\n")
    project.monkeypatch.setattr(loading, "RECIPES_FOLDER", recipes)
    project.succeeds("train", "proto_net/small", "--method", "own_code:Complete")
    (path,) = project.records()
    assert path.name.startswith("own_code.Complete.small.") and (project.root / "runs/own_code.Complete.small").is_dir()
