"""Head first, then the backbone too: what stays as it is and for how long, what is said of it, and an own folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn import class_folders
from toy_run import STAGE_ONE, assert_same_end, changed, go, make_stores

from engram.classifier import FewShotClassifier
from engram.classifier.folders import support_of
from engram.data.datasets import open_split
from engram.data.formats.folder import FolderOptions
from engram.errors import EngramError
from engram.ledger import read_record
from engram.models.build import build_method
from engram.models.checkpoint import load
from engram.recipes import Recipe, check_recipe, load_recipe
from engram.training import choosing
from engram.training.experiment import train
from engram.training.step import Losses, Stepper
from engram.training.trainer import Trainer

HALF = changed(STAGE_ONE, {"head_first": 0.5, "iterations": 8, "schedule": "constant", "validate_every": 8})
KINDS = tuple(["bolt", "nut", "washer", "screw", "hook", "ring", "pin", "clip", "cap"])


def backbone_of(folder: Path) -> dict[str, torch.Tensor]:
    weights = load(folder, "last").tensors("weights")
    return {name: value for name, value in weights.items() if name.startswith("backbone.")}


def test_the_backbone_waits_for_the_head(tmp_path: Path) -> None:
    """4 steps change no weight of it and no statistic, the fifth does; the end of the wait is validated."""
    fresh = build_method(HALF, make_stores()["train"].image_shape, torch.device("cpu")).state_dict()
    for steps in (4, 5):
        outcome = go(tmp_path / str(steps), HALF, max_iterations=steps)
        same = [torch.equal(value, fresh[name]) for name, value in backbone_of(tmp_path / str(steps)).items()]
        assert all(same) if steps == 4 else not any(same)
        head = load(tmp_path / str(steps), "last").tensors("weights")["head.weight"]
        assert not torch.equal(head, fresh["head.weight"])
    assert outcome.curves["iteration"] == [4, 5]
    assert outcome.training["frozen_accuracy"] == outcome.curves["validation_accuracy"][0]


class Captured:
    """In the place of a captured step: it is made, and the graph it belongs to is noted."""

    def __init__(self, trainer: Trainer, seen: list[Any]) -> None:
        self.trainer, self.seen = trainer, seen

    def replay(self, lists: dict[str, np.ndarray], progress: float) -> Losses:
        self.seen.append((self, self.trainer.update.held))
        source = self.trainer.source
        return self.trainer.update(source.assemble(source.placed(lists), progress))


def test_a_step_is_captured_anew_when_the_wait_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    trainer: Trainer

    def capture(stepper: Stepper, lists: object) -> None:
        stepper.graph = Captured(trainer, seen)  # type: ignore[assignment]

    monkeypatch.setattr(Stepper, "_capture", capture)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    ends = []
    for captured in (False, True):
        torch.manual_seed(0)
        trainer = Trainer(HALF, make_stores(), tmp_path, torch.device("cpu"))
        trainer.begin(resume=False)
        trainer.stepper.captured = captured
        for step in range(12):
            trainer.step(0.0 if step < 5 else 0.6)
        ends.append(trainer.method.state_dict())
    graphs, held = zip(*seen, strict=True)
    assert held == (True,) * 2 + (False,) * 4  # three of each kind are made one operation at a time
    assert len({id(graph) for graph in graphs[:2]}) == len({id(graph) for graph in graphs[2:]}) == 1
    assert graphs[0] is not graphs[-1]
    assert [name for name, value in ends[0].items() if not torch.equal(value, ends[1][name])] == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="steps are captured on a GPU alone")
def test_captured_on_both_sides_of_the_wait(tmp_path: Path) -> None:
    trainer = Trainer(HALF, make_stores(), tmp_path, torch.device("cuda"))
    trainer.begin(resume=False)
    for progress, moves in ((0.0, False), (0.6, True)):
        before = {name: value.clone() for name, value in trainer.method.backbone.state_dict().items()}
        for _ in range(6):
            trainer.step(progress)
        assert trainer.stepper.graph is not None
        after = trainer.method.backbone.state_dict()
        assert all(torch.equal(value, after[name]) for name, value in before.items()) is not moves


@pytest.mark.parametrize("stop", [2, 6])
def test_it_is_resumed_bit_for_bit(tmp_path: Path, stop: int) -> None:
    often = changed(HALF, {"validate_every": 2})
    go(tmp_path / "whole", often)
    go(tmp_path / "parts", often, max_iterations=stop)
    go(tmp_path / "parts", often, resume=True)
    assert_same_end(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize("helps", [False, True])
def test_it_is_said_whether_training_helps(tmp_path: Path, helps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if helps:  # the classes of a toy are too few to say it beyond chance
        monkeypatch.setattr(choosing, "interval", lambda more: 0.0)
    recipe = changed(HALF, {"learning_rate": 0.05, "iterations": 40, "head_first": 0.1, "clip": "none"})
    plain = replace(recipe, data=replace(recipe.data, augmentation="none"))
    if not helps:  # nothing to learn but the head
        plain = replace(plain, backbone="flatten", method_settings=plain.method_settings | {"centring": False})
    where = {"out": tmp_path / "run", "results": tmp_path / "results"}
    run = train(plain, stores=make_stores(), device="cpu", progress=False, test=False, **where)  # type: ignore[arg-type]
    says = "training helps: +" if helps else "training does not help beyond chance: +0.00 ± 0.00 points"
    assert len(run.remarks) == 1 and says in run.remarks[0]
    assert (run.record.training["best_iteration"] == 4) is not helps
    cut = replace(run.record, training=run.record.training | {"stopped_by": "max_minutes"})
    assert "ended at step 40 of 40" in replace(run, record=cut).remarks[1]
    assert "stopped by its minutes" in cut.summary and "finished" in read_record(run.record_file).summary


@pytest.mark.parametrize(
    "table,key,value,says",
    [
        ("train", "head_first", 1.0, "to below 1"),
        ("data", "crop", 1.5, "up to 1"),
        ("data", "image_size", 0, "least 1"),
    ],
)
def test_values_that_cannot_be(table: str, key: str, value: float, says: str) -> None:
    wrong = replace(HALF, **{table: replace(getattr(HALF, table), **{key: value})})
    with pytest.raises(EngramError, match=rf"toy \[{table}\]: {key} = .*{says}"):
        check_recipe(wrong, "toy")


def small(folder: Path) -> Recipe:
    """The recipe for own folders on small pictures, for one step of each kind."""
    recipe = load_recipe("stage_one/own")
    data = replace(recipe.data, dataset=f"folder:{folder}", image_size=32, class_batch=4, n_way=2)
    steps = replace(recipe.train, iterations=2, head_first=0.5, validation_sequences=4)
    tests = replace(recipe.test, n_way=2, n_shot=1, n_query=(1,), n_sequences=4)
    return replace(
        recipe, data=data, train=steps, test=tests, backbone_settings=recipe.backbone_settings | {"image_size": 32}
    )


def test_an_own_folder_from_the_packaged_encoder(tmp_path: Path) -> None:
    """Trained on pictures of the recipe's size; the run folder is then an encoder as the packaged one is."""
    root = class_folders(tmp_path / "pictures", kinds=KINDS)
    where = {"out": tmp_path / "run", "results": tmp_path / "results"}
    run = train(small(root), device="cpu", progress=False, **where)  # type: ignore[arg-type]
    assert run.remarks and run.accuracy is not None
    state = load(run.folder).state
    assert state.image_shape == (3, 32, 32) and state.recipe["method_settings"]["n_base_classes"] == 5
    assert state.recipe_digest == run.record.recipe_digest
    support = class_folders(tmp_path / "support", kinds=KINDS[:3])
    classifier = FewShotClassifier(weights=run.folder).fit(*support_of(support))
    assert classifier.engine_.crop == 0.875 and classifier.engine_.view
    assert classifier.engine_.recipe.method == "content_memory" and classifier.engine_.image_shape == (3, 32, 32)
    pictures = support_of(support)[0]
    again = FewShotClassifier.load(classifier.save(tmp_path / "model"))
    assert (again.predict_proba(pictures) == classifier.predict_proba(pictures)).all()


def test_the_size_and_crop_of_a_folder(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "pictures", kinds=KINDS)
    whole, cut = (
        open_split(
            f"folder:{root}", "train", cache=tmp_path / "cache", quiet=True, options=FolderOptions(24, crop=crop)
        )
        for crop in (None, 0.5)
    )
    assert whole.image_shape == cut.image_shape == (3, 24, 24)
    assert whole.digest != cut.digest


def test_layers_that_are_not_trained() -> None:
    method = build_method(load_recipe("stage_one/own"), (3, 32, 32), torch.device("cpu")).train()
    network = method.backbone.backbone
    trained = [any(p.requires_grad for p in layer.parameters()) for layer in network.layers]
    assert trained == [False] * 12 + [True] * 6
    assert not any(part.training for part in network.modules())
