"""Names to classes, settings checked, weights from the seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engram.errors import EngramError
from engram.machine.device import choose_device
from engram.methods.proto_net import ProtoNet
from engram.models.build import build_method, resolve_method
from engram.recipes.schema import DataSettings, Recipe, TrainSettings

CPU = torch.device("cpu")
RECIPE = Recipe("toy", "proto_net", DataSettings("toy"), TrainSettings(iterations=4, sequences=2), backbone="conv32")

USER_MODULE = """
from dataclasses import dataclass
from torch import nn
from engram.types import EmbeddingMethod, Method, MethodCard

@dataclass(frozen=True)
class Settings:
    scale: float = 1.0

CARD = MethodCard(title="Mine", paper="none")

class Complete(Method):
    card, Config = CARD, Settings
    def predict(self, episode, history=()): ...

class NotAMethod: ...
class NoCard(Method):
    Config = Settings
    def predict(self, episode, history=()): ...
class NoConfig(Method):
    card = CARD
    def predict(self, episode, history=()): ...
class NoPredict(Method):
    card, Config = CARD, Settings
class NoClassify(EmbeddingMethod):
    card, Config = CARD, Settings

class Bare(nn.Module):
    def __init__(self, image_shape, width=3):
        super().__init__()
        self.linear = nn.Linear(image_shape[0], width)
    def forward(self, x):
        return self.linear(x.mean((2, 3)) if x.ndim == 4 else x)
class Shaped(Bare):
    def __init__(self, image_shape, width=3):
        super().__init__(image_shape, width)
        self.out_shape = (width,)
class NotAModule:
    pass
"""


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "user_classes.py").write_text(USER_MODULE)
    (tmp_path / "user_broken.py").write_text("raise RuntimeError('half written')")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("proto_nett", "there is no method 'proto_nett'; did you mean 'proto_net'?"),
        ("user_classes:Missing", "has no class 'Missing'"),
        ("no_such_module:Class", "cannot be imported"),
        ("user_broken:Class", "RuntimeError: half written"),
        ("user_classes:NotAMethod", "is not an engram.types.Method"),
        ("user_classes:NoCard", "lacks a card"),
        ("user_classes:NoConfig", "lacks a Config"),
        ("user_classes:NoPredict", "lacks predict"),
        ("user_classes:NoClassify", "lacks classify"),
    ],
)
def test_method_that_does_not_fulfil_the_contract_is_refused(user_module: None, name: str, sentence: str) -> None:
    with pytest.raises(EngramError) as caught:
        resolve_method(name)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_methods_are_found_by_stem_and_by_path(user_module: None) -> None:
    assert resolve_method("proto_net") is ProtoNet
    assert resolve_method("user_classes:Complete").__name__ == "Complete"
    built = build_method(
        replace(RECIPE, method="user_classes:Complete", method_settings={"scale": 2}), (1, 16, 16), CPU
    )
    assert built.config.scale == 2.0


def test_users_backbone_gets_its_settings_and_also_takes_features(user_module: None) -> None:
    recipe = replace(RECIPE, backbone="user_classes:Shaped", backbone_settings={"width": 7})
    assert build_method(recipe, (1, 16, 16), CPU).backbone(torch.zeros(2, 1, 16, 16)).shape == (2, 7)
    assert build_method(recipe, (12,), CPU).backbone(torch.zeros(2, 12)).shape == (2, 7)


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("user_classes:Bare", {}, "lacks out_shape"),
        ("user_classes:NotAModule", {}, "is not a torch.nn.Module"),
        ("user_classes:Shaped", {"depth": 2}, "cannot be called as Shaped(image_shape, depth=...)"),
        ("conv33", {}, "there is no backbone 'conv33'"),
    ],
)
def test_backbone_that_cannot_serve_is_refused(
    user_module: None, name: str, settings: dict[str, int], sentence: str
) -> None:
    with pytest.raises(EngramError) as caught:
        build_method(replace(RECIPE, backbone=name, backbone_settings=settings), (1, 16, 16), CPU)
    assert sentence in str(caught.value)


def test_same_seed_same_weights_whatever_was_drawn_before() -> None:
    first = build_method(RECIPE, (1, 16, 16), CPU).state_dict()
    torch.rand(5)
    before = torch.get_rng_state()
    second = build_method(RECIPE, (1, 16, 16), CPU).state_dict()
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[k], second[k]) for k in first)
    other = build_method(replace(RECIPE, train=replace(RECIPE.train, seed=1)), (1, 16, 16), CPU).state_dict()
    assert not all(torch.equal(first[k], other[k]) for k in first)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("proto_net", {}),
        ("egnn", {"n_layers": 1, "width": 96}),
        ("cml_bgnn", {"n_layers": 1, "bayes": "edge"}),
        ("reptile", {}),  # norms of our own, written for vmap
        ("relation_net", {"statistics": "task"}),  # and those that normalise each task by itself
    ],
)
def test_norms_start_uniform_and_all_other_weights_as_ever(method: str, settings: dict[str, Any]) -> None:
    ones = replace(RECIPE, method=method, method_settings=settings)
    if method == "relation_net":
        ones = replace(ones, backbone="conv64_relation")
    uniform = replace(ones, train=replace(ones.train, norm_start="uniform"))
    before, after, again = (build_method(recipe, (1, 28, 28), CPU).state_dict() for recipe in (ones, uniform, uniform))
    assert before.keys() == after.keys() and all(torch.equal(after[name], again[name]) for name in after)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    gains = {name for name in before if name.endswith("weight") and before[name].ndim == 1}
    assert changed == gains and all((before[name] == 1).all() for name in gains)
    drawn = torch.cat([after[name] for name in gains])
    assert 0 < drawn.min() < 0.1 and 0.9 < drawn.max() < 1 and drawn.mean().item() == pytest.approx(0.5, abs=0.1)


def test_norms_of_a_head_start_uniform_on_features_too() -> None:
    train = replace(RECIPE.train, norm_start="uniform")
    on_features = build_method(replace(RECIPE, method="egnn", train=train), (40,), CPU).state_dict()
    gains = [value for name, value in on_features.items() if name.endswith("weight") and value.ndim == 1]
    assert gains and all(gain.min() > 0 and gain.max() < 1 for gain in gains)
    assert not build_method(replace(RECIPE, train=train), (40,), CPU).state_dict()  # nothing to start


def test_start_of_norms_that_are_not_there_is_refused() -> None:
    train = replace(RECIPE.train, norm_start="uniform")
    sentence = r"toy \[train\]: norm_start = 'uniform' but maml on conv32 has no BatchNorm with weights: use 'ones'"
    with pytest.raises(EngramError, match=sentence):
        build_method(replace(RECIPE, method="maml", train=train), (1, 16, 16), CPU)


def test_features_pass_a_flatten_backbone_whatever_the_recipe_names() -> None:
    method = build_method(replace(RECIPE, backbone="conv4", backbone_settings={"out_features": 9}), (40,), CPU)
    features = torch.randn(3, 40)
    assert torch.equal(method.backbone(features), features)


def test_weights_and_images_have_one_layout() -> None:
    weight = build_method(RECIPE, (3, 16, 16), CPU).backbone.backbone.blocks[1][0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()


def test_half_precision_features_become_float32() -> None:
    features = torch.randn(3, 40).half()
    assert torch.equal(build_method(RECIPE, (40,), CPU).backbone(features), features.float())


def test_settings_and_channels_are_checked() -> None:
    of = rf"toy \[method\] of {RECIPE.method}"
    with pytest.raises(EngramError, match=rf"{of}: unknown key 'temperatur'; did you mean 'temperature'\?"):
        build_method(replace(RECIPE, method_settings={"temperatur": 1.0}), (1, 16, 16), CPU)
    with pytest.raises(EngramError, match=rf"{of}: unknown key 'turned'; known: "):  # stage one's: it turns no tasks
        build_method(replace(RECIPE, method_settings={"turned": 0.5}), (1, 16, 16), CPU)
    colour = replace(RECIPE, data=replace(RECIPE.data, normalisation="imagenet"))
    with pytest.raises(EngramError, match="'imagenet' is for 3 channels but the images have 1"):
        build_method(colour, (1, 16, 16), CPU)
    assert build_method(colour, (3, 16, 16), CPU).backbone(torch.zeros(1, 3, 16, 16, dtype=torch.uint8)).shape == (
        1,
        32,
    )


def test_bf16_of_a_recipe_is_for_gpus_and_of_the_caller_for_all() -> None:
    recipe = replace(RECIPE, train=replace(RECIPE.train, precision="bf16"))
    assert build_method(recipe, (1, 16, 16), CPU).backbone.precision == "fp32"
    assert build_method(recipe, (1, 16, 16), CPU, "bf16").backbone.precision == "bf16"
    with pytest.raises(EngramError, match="there is no precision 'fp8'"):
        build_method(recipe, (1, 16, 16), CPU, "fp8")


def test_choose_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == choose_device("cpu") == CPU
    with pytest.raises(EngramError, match="'cuda' was asked for but this machine has no usable CUDA GPU"):
        choose_device("cuda")
    for name in ("gpu", "mps", ""):
        with pytest.raises(EngramError, match=f"there is no device '{name}'"):
            choose_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda:0")
    assert choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(EngramError, match=r"'cuda:2' was asked for but this machine has 2 CUDA GPU\(s\)"):
        choose_device("cuda:2")


@pytest.mark.parametrize("settings", [{"n_layers": 10**9}, {"n_layers": 10**5}, {"width": 10**5}])
def test_a_recipe_that_asks_for_far_more_than_its_weights_is_refused_at_once(settings: dict[str, int]) -> None:
    graph = replace(RECIPE, method="cml_bgnn")
    weights = build_method(graph, (1, 28, 28), CPU).state_dict()
    build_method(graph, (1, 28, 28), CPU, weights=weights)
    forged = replace(graph, method_settings=settings)
    with pytest.raises(
        EngramError, match=r"far more than the \d+ numbers|n_layers = 1000000000 but 1000000 is the most"
    ):
        build_method(forged, (1, 28, 28), CPU, weights=weights)
    torch.nn.Linear(5000, 5000)  # nothing is counted afterwards
