"""Stage one through the one loop, and other methods that start from its backbone, frozen or not, or its classifier."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_run import RECIPE, STAGE_ONE, assert_same_end, changed, go, make_stores, train_stage_one

from engram.card import Revision
from engram.errors import EngramError
from engram.methods.proto_net import ProtoNet
from engram.models.build import build_method
from engram.models.checkpoint import load, load_method
from engram.models.features import write_features
from engram.recipes.schema import Recipe

CPU = torch.device("cpu")
EGNN = {"method": "egnn", "method_settings": {"n_layers": 1, "width": 4}}


def backbone_of(path: Path, which: Any = "last") -> dict[str, torch.Tensor]:
    weights = load(path, which).tensors("weights")
    return {name: value for name, value in weights.items() if name.startswith("backbone.backbone.")}


@pytest.fixture(scope="module")
def stage_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_stage_one(tmp_path_factory.mktemp("runs") / "stage_one")


def test_stage_one_learns_the_base_classes_and_resumes_bit_for_bit(tmp_path: Path, stage_one: Path) -> None:
    curves = load(stage_one, "last").state.curves
    assert curves["train_accuracy"][-1] > 0.6 and curves["loss"][-1] < 0.7 * curves["loss"][0]
    assert max(curves["validation_accuracy"]) > 0.6
    go(tmp_path / "straight", STAGE_ONE)
    go(tmp_path / "parts", STAGE_ONE, max_iterations=3)
    go(tmp_path / "parts", STAGE_ONE, resume=True)
    assert_same_end(tmp_path / "straight", tmp_path / "parts")


@pytest.mark.parametrize("which", ["best", "last"])
def test_another_method_starts_from_the_backbone(tmp_path: Path, stage_one: Path, which: Any) -> None:
    """From a run folder (its best) or from a checkpoint folder; a rate of 0 leaves the weights as they came."""
    path = stage_one if which == "best" else load(stage_one, "last").folder
    recipe = changed(train={"iterations": 1, "learning_rate": 0.0, "weight_decay": 0.0}, backbone_weights=str(path))
    go(tmp_path, recipe)
    mine, theirs = backbone_of(tmp_path), backbone_of(path, which)
    assert mine.keys() == theirs.keys()
    parameters = {name for name in mine if "running" not in name and "batches" not in name}
    assert parameters and all(torch.equal(mine[name], theirs[name]) for name in parameters)
    fresh = build_method(recipe, (1, 10, 10), CPU).state_dict()
    assert not all(torch.equal(mine[name], fresh[name]) for name in parameters)


def test_a_learner_that_normalises_by_the_images_at_hand_starts_from_the_backbone(
    tmp_path: Path, stage_one: Path
) -> None:
    """Its norms have no running statistics; a rate of 0 leaves the weights as they came."""
    still = {"iterations": 1, "learning_rate": 0.0, "weight_decay": 0.0, "optimiser": "sgd"}
    recipe = changed(train=still, backbone_weights=str(stage_one), method="reptile", method_settings={"n_way": 3})
    go(tmp_path / "with_gains", recipe)
    mine, theirs = backbone_of(tmp_path / "with_gains"), backbone_of(stage_one, "best")
    assert mine and not any("running" in name for name in mine)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    with pytest.raises(EngramError, match=r"layers.1.weight is 4 in the file but absent in the model"):
        go(tmp_path / "without", replace(recipe, method="meta_sgd"))  # gains, and no chain of blocks to take them


def test_a_head_is_taken_over_where_it_is_asked_for_and_fits(tmp_path: Path) -> None:
    """A rate of 0 leaves it as it came; without the key it is drawn from the seed."""
    still = {"iterations": 1, "learning_rate": 0.0, "optimiser": "sgd", "weight_decay": 0.0}
    learner = changed(train=still | {"seed": 5}, method="reptile", method_settings={"n_way": 3})
    go(tmp_path / "first", replace(learner, train=replace(learner.train, seed=6)))
    theirs = load(tmp_path / "first", "best").tensors("weights")["head.weight"]
    recipe = changed(learner, backbone_weights=str(tmp_path / "first"))
    go(tmp_path / "without", recipe)
    assert not torch.equal(load(tmp_path / "without").tensors("weights")["head.weight"], theirs)
    go(tmp_path / "with", changed(recipe, {"start_head": True}))
    assert torch.equal(load(tmp_path / "with").tensors("weights")["head.weight"], theirs)
    two = {
        "method_settings": {"n_way": 2},
        "data": replace(RECIPE.data, n_way=2),
        "test": replace(RECIPE.test, n_way=2),
    }
    go(headless := tmp_path / "headless", changed(train=still))
    for asks, sentence in (
        (changed(recipe, {"start_head": True}, **two), "head.bias is 3 in the file but 2 in the model"),
        (changed(train={"start_head": True}, backbone_weights=str(headless)), "start_head: proto_net has no head"),
    ):
        with pytest.raises(EngramError, match=sentence):
            go(tmp_path / "refused", asks)
    assert not (tmp_path / "refused").exists()


def test_a_method_that_is_asked_to_normalise_each_task_starts_from_the_backbone(
    tmp_path: Path, stage_one: Path
) -> None:
    still = {"iterations": 1, "learning_rate": 0.0, "weight_decay": 0.0}
    task = {"method": "relation_net", "method_settings": {"statistics": "task"}}
    go(tmp_path, changed(train=still, backbone_weights=str(stage_one), **task))
    mine, theirs = backbone_of(tmp_path), backbone_of(stage_one, "best")
    assert mine and not any("running" in name for name in mine)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_recipe_comes_back_and_neither_bench_nor_resume_needs_the_weights_again(
    tmp_path: Path, stage_one: Path
) -> None:
    start = shutil.copytree(stage_one, tmp_path / "start")
    recipe = changed(backbone_weights=str(start))
    go(tmp_path / "straight", recipe)
    go(tmp_path / "parts", recipe, max_iterations=3)
    shutil.rmtree(start)
    found = load(tmp_path / "parts", "last")
    assert found.recipe == recipe and found.recipe.digest == found.state.recipe_digest == recipe.digest != RECIPE.digest
    method = load_method(found, CPU)
    assert all(torch.equal(v, found.tensors("weights")[k]) for k, v in method.state_dict().items())
    go(tmp_path / "parts", recipe, resume=True)
    assert_same_end(tmp_path / "straight", tmp_path / "parts")
    with pytest.raises(EngramError, match="there is no checkpoint at"):
        go(tmp_path / "new", recipe)
    assert not (tmp_path / "new").exists()


def test_a_run_says_the_digest_of_what_it_starts_from_also_after_a_stop(tmp_path: Path, stage_one: Path) -> None:
    recipe = changed(backbone_weights=str(stage_one))
    go(tmp_path, recipe, max_iterations=3)
    outcome = go(tmp_path, recipe, resume=True)
    assert outcome.start == {"weights": load(stage_one).state.digests["weights"][:16]}
    assert load(tmp_path).state.start == outcome.start
    assert go(tmp_path / "seeded", RECIPE).start == {}


def test_weights_without_a_digest_cannot_be_started_from(tmp_path: Path, stage_one: Path) -> None:
    folder = shutil.copytree(load(stage_one).folder, tmp_path / "old")
    raw = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps(raw | {"digests": {}}))
    with pytest.raises(EngramError, match=r"old/state.json has no digest of its weights, .* engram pack"):
        go(tmp_path / "run", changed(backbone_weights=str(folder)))


def test_a_run_of_another_revision_cannot_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go(tmp_path, RECIPE, max_iterations=3)
    card = replace(ProtoNet.card, revisions=(Revision("distances: squared -> plain"),))
    monkeypatch.setattr(ProtoNet, "card", card)
    with pytest.raises(EngramError, match=r"revision 0 of proto_net but this Engram has 1 \(distances: squared"):
        go(tmp_path, RECIPE, resume=True)
    assert go(tmp_path / "new", RECIPE).revision == 1


def test_missing_stage_one_is_told_with_the_command_that_makes_it(tmp_path: Path) -> None:
    recipe = changed(backbone_weights=str(tmp_path / "stage_one.mini_resnet12_wide"))
    with pytest.raises(
        EngramError, match="not there: make it with engram train stage_one/mini_resnet12_wide, or train"
    ):
        go(tmp_path / "run", recipe)
    assert not (tmp_path / "run").exists()


def test_checkpoint_from_before_the_key_is_read(stage_one: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(load(stage_one).folder, tmp_path / "old")
    raw = json.loads((folder / "state.json").read_text())
    del raw["recipe"]["backbone_weights"], raw["recipe"]["train"]["freeze_backbone"]
    (folder / "state.json").write_text(json.dumps(raw))
    assert load(folder).recipe == load(stage_one).recipe


def test_backbones_that_do_not_fit_are_told_with_both_shapes(tmp_path: Path, stage_one: Path) -> None:
    flat = changed(backbone="flatten", backbone_weights=str(stage_one), **EGNN)
    with pytest.raises(EngramError, match=r"/best-\d+ does not fit 'flatten': \S+ is 4 in the file but absent in the"):
        go(tmp_path / "run", flat)
    stores = {
        s: type(store)(store.images[..., :8], store.offsets, store.info) for s, store in make_stores().items()
    }  # narrower images: the last layer has fewer inputs
    with pytest.raises(EngramError, match=r"layers\.5\.weight is 5x64 in the file but 5x48 in the model"):
        go(tmp_path / "run", changed(backbone_weights=str(stage_one)), stores=stores)
    other = replace(RECIPE, data=replace(RECIPE.data, normalisation="centred"), backbone_weights=str(stage_one))
    with pytest.raises(
        EngramError, match=r"was trained with normalisation 'unit' but proto_net/toy \[data\] has 'cent"
    ):
        go(tmp_path / "run", other)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("before", "now"), [("ones", "uniform"), ("uniform", "ones")])
def test_norms_started_by_another_rule_than_the_recipes_are_told(tmp_path: Path, before: str, now: str) -> None:
    """What is loaded takes the place of the backbone's norms, so the recipe would claim what was not so."""
    go(tmp_path / "start", changed(train={"iterations": 1, "norm_start": before}))
    recipe = changed(train={"iterations": 1, "norm_start": now}, backbone_weights=str(tmp_path / "start"))
    sentence = rf"norm_start '{before}' but proto_net/toy \[train\] has '{now}': use '{before}'"
    with pytest.raises(EngramError, match=sentence):
        go(tmp_path / "run", recipe)
    assert not (tmp_path / "run").exists()
    go(tmp_path / "run", changed(recipe, {"norm_start": before}))


def test_frozen_backbone_keeps_every_tensor_and_the_rest_learns(tmp_path: Path, stage_one: Path) -> None:
    recipe = changed(train={"freeze_backbone": True}, backbone_weights=str(stage_one), **EGNN)
    outcome = go(tmp_path / "straight", recipe)
    mine, theirs = backbone_of(tmp_path / "straight"), backbone_of(stage_one, "best")
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)  # running statistics too
    begun = build_method(recipe, (1, 10, 10), CPU)
    rest = {name: p for name, p in begun.named_parameters() if not name.startswith("backbone.")}
    trained = load(tmp_path / "straight", "last").tensors("weights")
    assert rest and not any(torch.equal(trained[name], p) for name, p in rest.items() if p.ndim > 1)
    assert outcome.training["parameters"] == sum(p.numel() for p in rest.values())
    go(tmp_path / "parts", recipe, max_iterations=3)
    go(tmp_path / "parts", recipe, resume=True)
    assert_same_end(tmp_path / "straight", tmp_path / "parts")


COSINE = replace(
    STAGE_ONE,
    method_settings={"n_base_classes": 6, "head": "cosine", "temperature": 7.0, "learn_scale": True},
    data=replace(STAGE_ONE.data, augmentation="none"),
)
STILL = {"iterations": 1, "learning_rate": 0.0, "weight_decay": 0.0}
"""a rate of 0 leaves weights as they came"""


def second_stage(method: str, start: Path | str, train: dict[str, Any] = STILL, **settings: Any) -> Recipe:
    settings = {"n_base_classes": 6, "base_start": "stage_one", **settings}
    changes = {"name": f"{method}/toy", "data": COSINE.data, "method": method, "method_settings": settings}
    return changed(train={"freeze_backbone": True, **train}, backbone_weights=str(start), **changes)


@pytest.fixture(scope="module")
def cosine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "cosine"
    go(folder, changed(COSINE, {"iterations": 20, "learning_rate": 0.02, "validate_every": 20}))
    return folder


@pytest.mark.parametrize("method", ["lwof", "wdae"])
def test_base_weights_and_scale_are_those_of_stage_one(tmp_path: Path, cosine: Path, method: str) -> None:
    stage_one = load(cosine).tensors("weights")
    assert stage_one["scale"] != 7
    go(tmp_path, second_stage(method, cosine))
    mine = load(tmp_path, "last").tensors("weights")
    assert torch.equal(mine["base_weights"], stage_one["head.weight"])
    assert torch.equal(mine["scale"], stage_one["scale"])
    assert all(torch.equal(value, stage_one[name]) for name, value in backbone_of(tmp_path).items())
    go(tmp_path / "random", second_stage(method, cosine, base_start="random"))
    assert not torch.equal(load(tmp_path / "random").tensors("weights")["base_weights"], mine["base_weights"])


@pytest.mark.parametrize("method", ["lwof", "wdae"])
def test_wdae_keeps_the_base_weights_it_was_given_and_lwof_learns_on(tmp_path: Path, cosine: Path, method: str) -> None:
    recipe = second_stage(method, cosine, {"learning_rate": 0.05, "weight_decay": 0.1})
    go(tmp_path / "straight", recipe)
    given = load(cosine).tensors("weights")["head.weight"]
    mine = load(tmp_path / "straight", "last").tensors("weights")["base_weights"]
    assert torch.equal(mine, given) == (method == "wdae")
    go(tmp_path / "parts", recipe, max_iterations=3)
    go(tmp_path / "parts", recipe, resume=True)  # from its own weights, not from stage one's again
    assert_same_end(tmp_path / "straight", tmp_path / "parts")


def test_a_fixed_scale_is_not_handed_on(tmp_path: Path) -> None:
    fixed = {**COSINE.method_settings, "learn_scale": False}
    go(tmp_path / "stage_one", changed(COSINE, STILL, method_settings=fixed))
    go(tmp_path / "run", second_stage("wdae", tmp_path / "stage_one", scale=4.0))
    assert load(tmp_path / "run").tensors("weights")["scale"] == 4


def test_classifiers_that_cannot_be_handed_on_are_named(tmp_path: Path, stage_one: Path, cosine: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(EngramError, match="is linear .it has a bias. but wdae goes on from cosines: name a stage one"):
        go(run, second_stage("wdae", stage_one))
    go(tmp_path / "proto_net", changed(train=STILL))
    with pytest.raises(EngramError, match="is a run of proto_net, which has no classifier of base classes to hand on"):
        go(run, second_stage("lwof", tmp_path / "proto_net"))
    with pytest.raises(EngramError, match=r"is 6x5 .classes x features. but wdae/toy needs 9x5: .* n_base_classes = 6"):
        go(run, second_stage("wdae", cosine, n_base_classes=9))
    with pytest.raises(EngramError, match=r"base_start = 'stage_one' but \[backbone\] names no weights"):
        go(run, second_stage("wdae", ""))
    assert not run.exists()


def test_over_features_the_classifier_comes_from_the_run_that_made_them(tmp_path: Path, cosine: Path) -> None:
    def on_features(start: Path) -> Recipe:
        return replace(second_stage("wdae", start), backbone="conv4")

    stores = write_features(cosine, tmp_path, splits=("train", "val"), stores=make_stores(), device="cpu", quiet=True)
    go(tmp_path / "run", on_features(cosine), stores=stores)
    mine, given = (load(path).tensors("weights") for path in (tmp_path / "run", cosine))
    assert torch.equal(mine["base_weights"], given["head.weight"]) and torch.equal(mine["scale"], given["scale"])
    go(tmp_path / "other", changed(COSINE, STILL))
    with pytest.raises(EngramError, match=r"these are features of \S+ by stage_one/toy, run .* but the base class"):
        go(tmp_path / "third", on_features(tmp_path / "other"), stores=stores)
    absent = on_features(tmp_path / "stage_one.mini_resnet12_wide")
    with pytest.raises(EngramError, match=r"make it with engram train stage_one/mini_resnet12_wide$"):
        go(tmp_path / "third", absent, stores=stores)
    assert not (tmp_path / "third").exists()
