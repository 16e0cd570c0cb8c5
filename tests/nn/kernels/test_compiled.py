"""Encoders compiled in training: who asks for it, the same features, and what happens where it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from engram.nn.backbones import BACKBONES, build_backbone
from engram.nn.encoder import Encoder
from engram.nn.kernels import compiled as module
from engram.nn.kernels.serving import plain, training


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    module.compiled.cache_clear()
    module._lacking.clear()
    yield
    module.compiled.cache_clear()
    module._lacking.clear()


class OnGpu(Tensor):
    """Says that it is on a GPU."""

    is_cuda = True  # type: ignore[assignment]


def asked(name: str, train: bool = True) -> bool:
    backbone = build_backbone(name, (3, 84, 84), {}).train(train)
    return module.may_compile(torch.zeros(1).as_subclass(OnGpu), backbone)


def test_residual_encoders_are_compiled_while_they_are_trained_on_a_gpu_and_others_never() -> None:
    assert not asked("resnet12")  # nothing is trained
    with training():
        residual = {name for name in BACKBONES if "resnet1" in name or "wrn" in name}
        assert {name for name in residual if asked(name)} == residual
        assert not asked("conv4") and not asked("resnet12", train=False)
        assert not module.may_compile(torch.zeros(1), build_backbone("resnet12", (3, 84, 84), {}))
        with plain():
            assert not asked("resnet12")
        with torch.no_grad():
            assert not asked("resnet12")


def test_the_same_features_and_the_training_knows_whose_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda f: lambda *given: f(*given))
    encoder = Encoder(build_backbone("resnet12", (3, 32, 32), {}), (0.5,) * 3, (0.2,) * 3).eval()
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    with training() as use:
        assert use.by == "library"
        assert torch.equal(module.compiled(Encoder._pass)(encoder, images), encoder(images))
        assert use.by == "inductor"


def test_where_compiling_fails_the_step_goes_on_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def fails(function: Callable[..., Any]) -> Callable[..., Any]:
        def broken(*given: Any) -> Any:
            tried.append(function)
            raise torch._dynamo.exc.BackendCompilerFailed(function, RuntimeError("no compiler"), None)

        return broken

    monkeypatch.setattr(torch, "compile", fails)
    with training() as use:
        assert module.compiled(torch.neg)(torch.ones(2)).tolist() == [-1, -1]
        assert use.by == "library" and len(tried) == 1
        assert not asked("resnet12") and "could not be compiled" in use.lacking and "no compiler" in use.lacking
