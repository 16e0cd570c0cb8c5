"""The trainer: what stays still while the rest learns, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toy_run import RECIPE, STAGE_ONE, changed, go, make_stores

from engram.errors import EngramError
from engram.training.trainer import Trainer

CPU = torch.device("cpu")
EGNN = {"method": "egnn", "method_settings": {"n_layers": 1, "width": 4}}


def test_base_classifier_smaller_than_the_split_is_refused(tmp_path: Path) -> None:
    small = replace(STAGE_ONE, method_settings={"n_base_classes": 5})
    with pytest.raises(EngramError, match=r"n_base_classes = 5 but toy train has 6 classes: set it to 6"):
        go(tmp_path / "run", small)
    with pytest.raises(EngramError, match="set class_batch"):
        go(tmp_path / "run", replace(STAGE_ONE, data=RECIPE.data))


def test_frozen_backbone_is_in_evaluation_mode_also_after_a_validation(tmp_path: Path) -> None:
    trainer = Trainer(changed(train={"freeze_backbone": True}, **EGNN), make_stores(), tmp_path, CPU)
    trainer.begin(resume=False)
    for _ in range(2):
        assert trainer.method.training and not any(m.training for m in trainer.method.backbone.modules())
        trainer.step(0.0)
        trainer.read_losses()
        trainer.validate()
    trainer.step(0.5)
    assert all(p.grad is None for p in trainer.method.backbone.parameters())
    frozen = {id(p) for p in trainer.method.backbone.parameters()}
    assert not frozen & {id(p) for p in trainer.update.parameters}


def test_frozen_method_without_a_rest_has_nothing_to_train(tmp_path: Path) -> None:
    with pytest.raises(EngramError, match="has no parameters to train"):
        go(tmp_path, changed(train={"freeze_backbone": True}))
