"""Images encoded once give the answers of images encoded for every task; methods that look at more are left alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from toy_store import make_store

from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation import encode
from engram.evaluation.evaluate import evaluate
from engram.methods.chance import Chance
from engram.methods.proto_net import ProtoNet
from engram.nn.backbones import build_backbone
from engram.nn.encoder import Encoder, Mirrored
from engram.protocol import Protocol
from engram.types import Method


def made() -> Method:
    torch.manual_seed(0)
    encoder = Encoder(build_backbone("conv32", make_store().image_shape, {}), (0.5,), (0.25,))
    return ProtoNet(encoder, ProtoNet.Config()).eval()


def test_answers_stay_and_the_encoder_sees_each_image_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store, method = make_store(), made()
    protocol = Protocol("toy", "test", n_way=3, n_shot=1, n_query=2, n_sequences=200).for_store(store)
    seen: list[int] = []
    encoder = method.backbone
    encoder.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    once = evaluate(method, store, protocol).outcomes.probabilities
    assert 0 < sum(seen) <= len(store.images) and method.backbone is encoder
    seen.clear()
    monkeypatch.setattr(encode, "LARGEST", 0)
    every_time = evaluate(method, store, protocol).outcomes.probabilities
    assert sum(seen) > len(store.images)
    np.testing.assert_allclose(once, every_time, atol=1e-5)


def test_methods_that_embed_in_their_own_way_or_by_task_are_left_alone() -> None:
    store, method = make_store(), made()
    assert encode._pays(method, store, 100, 10) and not encode._pays(method, store, 20, 10)

    class Own(ProtoNet):
        def embed(self, episodes):
            return super().embed(episodes)

    assert not encode._pays(Own(method.backbone, ProtoNet.Config()), store, 100, 10)


@pytest.mark.parametrize("largest", [0, encode.LARGEST])
def test_two_views_are_those_of_a_mirrored_encoder(largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "LARGEST", largest)
    store, method = make_store(), made()
    one = Protocol("toy", "test", n_way=3, n_shot=1, n_query=2, n_sequences=100).for_store(store)
    two, encoder = replace(one, views=2), method.backbone
    plain, both = (evaluate(method, store, protocol) for protocol in (one, two))
    assert method.backbone is encoder and plain.tasks_digest == both.tasks_digest
    method.backbone = Mirrored(encoder)
    expected = evaluate(method, store, one).outcomes.probabilities
    np.testing.assert_allclose(both.outcomes.probabilities, expected, atol=1e-6)
    assert not np.allclose(plain.outcomes.probabilities, expected, atol=1e-3)
    assert "views" not in one.to_dict() and both.to_evaluation().protocol["views"] == 2


def test_who_cannot_be_shown_mirror_images_is_told() -> None:
    store, method = make_store(), made()
    asked = Protocol("toy", "test", n_way=3, n_sequences=2, views=2)
    with pytest.raises(EngramError, match="views = 2 changes what the encoder sees but .* does not see images thr"):
        evaluate(Chance(method.backbone, None), store, asked)
    features = Store.from_arrays(torch.randn(len(store.images), 8), store.class_sizes.tolist(), "toy")
    with pytest.raises(EngramError, match="views = 2 is for images but toy test holds features: leave it out, or"):
        evaluate(method, features, asked)
    with pytest.raises(EngramError, match="views = 3 but it is 1 or 2"):
        evaluate(method, store, replace(asked, views=3))


def test_the_middle_of_an_image_is_seen_enlarged() -> None:
    store, method = make_store(), made()
    one = Protocol("toy", "test", n_way=3, n_shot=1, n_query=2, n_sequences=100).for_store(store)
    side, encoder = store.image_shape[1], method.backbone
    near = evaluate(method, store, replace(one, window=f"{side - 4}:{side}"))
    small = store.images[..., 2:-2, 2:-2].float()
    small = (
        torch.nn.functional.interpolate(small, (side, side), mode="bilinear", antialias=True).round().to(torch.uint8)
    )
    shown = Store(small, store.offsets, store.info)
    np.testing.assert_allclose(
        near.outcomes.probabilities, evaluate(method, shown, one).outcomes.probabilities, atol=1e-6
    )
    assert method.backbone is encoder and near.tasks_digest == evaluate(method, store, one).tasks_digest
    assert "window" not in one.to_dict() and near.to_evaluation().protocol["window"] == f"{side - 4}:{side}"


@pytest.mark.parametrize(
    ("window", "says"),
    [
        (
            "76",
            "window = '76' but it is CROP:SIZE, two numbers of pixels from 1 to 1024, the second at least the first",
        ),
        ("9:8", "window = '9:8' but it is CROP:SIZE"),
        ("0:8", "window = '0:8' but it is CROP:SIZE"),
        ("8:9999", "window = '8:9999' but it is CROP:SIZE"),
        ("500:500", "window = '500:500' but images are .*: take at most their smaller side"),
        ("8:64", "images of 64 pixels give .* features, not .*: take another size"),
    ],
)
def test_a_window_that_does_not_fit_is_one_sentence(window: str, says: str) -> None:
    store, method = make_store(), made()
    with pytest.raises(EngramError, match=says):
        evaluate(method, store, Protocol("toy", "test", n_way=3, n_sequences=2, window=window))


def test_features_stored_in_half_precision_are_worked_with_in_float32():
    features = torch.randn(3, 7).half()
    assert torch.equal(seen := encode.Encoded((7,))(features), features.float()) and seen.dtype is torch.float32
