"""Images encoded once give the answers of images encoded for every task; methods that look at more are left alone."""

import numpy as np
import pytest
import torch
from toy_store import make_store

from engram.evaluation import encode
from engram.evaluation.evaluate import evaluate
from engram.methods.proto_net import ProtoNet
from engram.nn.backbones import build_backbone
from engram.nn.encoder import Encoder
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
