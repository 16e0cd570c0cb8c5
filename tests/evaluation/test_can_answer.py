"""What a method cannot answer is told before its first task, wherever it is asked."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toy_run import QUIET
from toy_store import make_store

from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation.evaluate import evaluate
from engram.evaluation.source import check_can_answer
from engram.methods.egnn import Egnn, EgnnConfig
from engram.methods.gnn import Gnn, GnnConfig
from engram.methods.pixel_centroid import PixelCentroid
from engram.methods.proto_net import ProtoNet, ProtoNetConfig
from engram.nn.backbones import Flatten
from engram.probes.audit import audit
from engram.protocol import Protocol
from engram.recipes.schema import DataSettings, Recipe, TestSettings, TrainSettings
from engram.training.loop import train
from engram.types import Method

SHAPE = (1, 20, 20)
PROTOCOL = Protocol("toy", "train", n_way=3, n_shot=5, n_query=1, n_sequences=2)
SEMI = replace(PROTOCOL, labelled_fraction=0.4)


@pytest.fixture(scope="module")
def store() -> Store:
    return make_store(shape=SHAPE)


def gnn() -> Gnn:
    return Gnn(Flatten(SHAPE), GnnConfig(n_way=3, width=4))


class Untouched(Flatten):
    """A backbone that must not see an image."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        raise AssertionError("a task was asked")


def test_unlabelled_supports_are_for_those_who_declare_them(store: Store) -> None:
    sentence = (
        "Prototypical Net makes no use of unlabelled supports but labelled_fraction = 0.4 hides the labels of 3 of 5"
    )
    with pytest.raises(EngramError, match=sentence):
        evaluate(ProtoNet(Untouched(SHAPE), ProtoNetConfig()), store, SEMI)
    evaluate(Egnn(Flatten(SHAPE), EgnnConfig(width=4)), store, SEMI)


def test_left_out_they_are_nobodys_trouble(store: Store) -> None:
    result = evaluate(PixelCentroid(Flatten(SHAPE), None), store, replace(SEMI, drop_unlabelled=True))
    assert result.outcomes.labels.shape == (2, 1, 3) and result.protocol.drop_unlabelled
    assert replace(SEMI, drop_unlabelled=True).n_shown == 2 and SEMI.n_shown == 5


@pytest.mark.parametrize("n_way", [2, 4])
def test_tied_ways_are_told_wherever_a_model_is_asked(store: Store, n_way: int) -> None:
    sentence = rf"GNN has weights for \[method\] n_way = 3 but the tasks of toy train have n_way = {n_way}: ask for 3"
    with pytest.raises(EngramError, match=sentence):
        evaluate(gnn(), store, replace(PROTOCOL, n_way=n_way))
    with pytest.raises(EngramError, match=sentence):
        audit(gnn(), store, n_way=n_way, quick=True)
    check_can_answer(gnn(), PROTOCOL)


@pytest.mark.parametrize(("shots", "fits"), [(PROTOCOL, True), (replace(PROTOCOL, n_shot=1), False), (SEMI, True)])
def test_tied_shots_count_the_supports_that_are_shown(shots: Protocol, fits: bool) -> None:
    class Config:
        n_shot = 5

    method = Method(Flatten(SHAPE), Config())
    method.card = replace(Gnn.card, fixed_ways=False, fixed_shots=True)
    if fits:
        check_can_answer(method, shots)
    else:
        with pytest.raises(EngramError, match=r"n_shot = 5 but .* have n_shot = 1"):
            check_can_answer(method, shots)


@pytest.mark.parametrize(
    ("method", "data", "test", "told"),
    [
        ("gnn", {"n_way": 4}, {"n_way": 3}, "the tasks of toy train have n_way = 4"),
        ("gnn", {"n_way": 3}, {"n_way": 4}, "the tasks of toy val have n_way = 4"),
        ("proto_net", {"n_shot": 5, "labelled_fraction": 0.2}, {}, "hides the labels of 4 of 5 per class"),
    ],
)
def test_training_is_refused_before_its_first_step(
    store: Store, tmp_path: Path, method: str, data: dict[str, object], test: dict[str, object], told: str
) -> None:
    recipe = Recipe(
        name="refused",
        method=method,
        backbone="conv32",
        backbone_settings={"width": 4},
        method_settings={"n_way": 3} if method == "gnn" else {},
        data=DataSettings("toy", **data),  # type: ignore[arg-type]
        train=TrainSettings(1, 1),
        test=TestSettings(**test),  # type: ignore[arg-type]
    )
    stores = {"train": store, "val": make_store(shape=SHAPE, split="val")}
    with pytest.raises(EngramError, match=told):
        train(recipe, stores, tmp_path / "run", device=torch.device("cpu"), running=QUIET)
    assert not (tmp_path / "run").exists()
