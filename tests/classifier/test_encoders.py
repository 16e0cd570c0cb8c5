"""Encoders from elsewhere, through the same door as those of the box."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn import pictures
from torch import Tensor, nn

from engram.classifier import FewShotClassifier, PictureEncoder, encoders
from engram.classifier.encoders import Scaled, open_encoder
from engram.errors import EngramError


class Colours(nn.Module):
    """Mean colour in four quarters: (n, 3, h, w) -> (n, 12)."""

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)


def halves(images: Tensor) -> Tensor:
    return images.float() / 255 - 0.5


def test_any_module_with_its_preprocessing_answers() -> None:
    X, y = pictures(3)
    classifier = FewShotClassifier(weights=PictureEncoder(Colours(), halves, 32)).fit(X, y)
    assert classifier.score(*pictures(2, seed=5)) == 1.0
    assert classifier.engine_.image_shape == (3, 32, 32) and classifier.memory_.items.shape == (9, 12)
    assert "stored" in classifier.calibration.says()


def test_a_module_alone_does_not_say_how_it_wants_pictures() -> None:
    with pytest.raises(EngramError, match="weights is a Colours, which does not say .*: give .*PictureEncoder"):
        FewShotClassifier(weights=Colours()).fit(*pictures(1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (nn.Identity(), r"Identity gives \(2, 3, 32, 32\) for 2 pictures where \(2, features\) is needed"),
        (nn.Linear(7, 2), "Linear cannot see pictures of 32 x 32 .*check its preprocessing and size"),
    ],
)
def test_what_gives_no_vector_for_each_picture_is_refused(module: nn.Module, sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence):
        PictureEncoder(module, halves, 32)


class Blind(nn.Module):
    """Sees two pictures at a time at most, and a white one as no number."""

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > 2:
            raise RuntimeError("too many")
        return 1 / (0.5 - images.mean((2, 3)))


def test_what_a_module_does_later_is_told_in_one_sentence_too() -> None:
    encoder = PictureEncoder(Blind(), halves, 32)
    with pytest.raises(EngramError, match="Blind gives numbers that are not finite: check its weights"):
        encoder(torch.full((1, 3, 32, 32), 255, dtype=torch.uint8))
    with pytest.raises(EngramError, match="Blind cannot see pictures of 32 x 32 .*too many"):
        encoder(torch.zeros(3, 3, 32, 32, dtype=torch.uint8))


def test_code_of_ones_own_is_refused_when_saving(tmp_path: Path) -> None:
    classifier = FewShotClassifier(weights=PictureEncoder(Colours(), halves, 32)).fit(*pictures(1))
    with pytest.raises(EngramError, match="the encoder Colours is code that is not Engram's"):
        classifier.save(tmp_path / "own")
    assert not (tmp_path / "own").exists()


def test_a_missing_package_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)

    monkeypatch.setattr(encoders, "import_module", absent)
    for name, package in (("timm:resnet10t", "timm"), ("hf:a/b", "transformers"), ("onnx:a.onnx", "onnxruntime")):
        with pytest.raises(
            EngramError, match=f"'{name}' need .*{package}, which is not installed: pip install {package}"
        ):
            FewShotClassifier(weights=name).fit(*pictures(1))


def test_a_hub_that_cannot_be_reached_says_what_to_bring() -> None:
    def fetch() -> None:
        raise OSError("no route to host\nand a page more")

    with pytest.raises(EngramError, match=r"'hf:a/b' cannot be had \(no route to host\): .*HF_HOME"):
        encoders._fetched("hf:a/b", fetch)


def test_preprocessing_is_part_of_the_digest() -> None:
    one, other = (PictureEncoder(Colours(), Scaled((m,) * 3, (0.5,) * 3), 32) for m in (0.4, 0.5))
    assert one.digest() != other.digest() and PictureEncoder(Colours(), halves, 32).digest() == ""
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    torch.testing.assert_close(one(images), Colours()((images / 255 - 0.4) / 0.5))


@pytest.mark.extras
@pytest.mark.filterwarnings("ignore")
def test_a_model_of_transformers(tmp_path: Path) -> None:
    encoders._declare_operators()
    transformers = pytest.importorskip("transformers", reason="pip install transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    transformers.Dinov2Model(transformers.Dinov2Config(**sizes)).save_pretrained(tmp_path / "dino")
    stated = {"size": {"shortest_edge": 32}, "crop_size": {"height": 28, "width": 28}, "do_center_crop": True}
    stated |= {"image_mean": [0.5] * 3, "image_std": [0.25] * 3, "image_processor_type": "BitImageProcessor"}
    (tmp_path / "dino" / "preprocessor_config.json").write_text(json.dumps(stated))
    X, y = pictures(2)
    classifier = FewShotClassifier(weights=f"hf:{tmp_path / 'dino'}").fit(X, y)
    engine = classifier.engine_
    assert engine.image_shape == (3, 28, 28) and engine.crop == 0.875 and classifier.memory_.items.shape == (6, 32)
    loaded = FewShotClassifier.load(classifier.save(tmp_path / "own"))
    assert np.array_equal(loaded.predict_proba(X), classifier.predict_proba(X))
    transformers.Dinov2Model(transformers.Dinov2Config(**sizes)).save_pretrained(tmp_path / "dino")
    with pytest.raises(EngramError, match=r"was made with the encoder hf:.*dino of digest .* but here it is"):
        FewShotClassifier.load(tmp_path / "own")


@pytest.mark.extras
@pytest.mark.filterwarnings("ignore")
def test_a_graph_of_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxscript", reason="writing ONNX is an extra")
    pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
    file, dynamic = tmp_path / "colours.onnx", ({0: torch.export.Dim("n")},)
    program = torch.onnx.export(Colours(), (torch.zeros(2, 3, 32, 32),), dynamo=True, dynamic_shapes=dynamic)
    program.save(file)
    encoder = open_encoder(f"onnx:{file}")
    images = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    torch.testing.assert_close(encoder(images), Colours()(Scaled(*encoders.IMAGENET)(images)), rtol=1e-4, atol=1e-4)
    X, y = pictures(2)
    monkeypatch.chdir(tmp_path)
    classifier = FewShotClassifier(weights="onnx:colours.onnx").fit(X, y)
    assert classifier.score(X, y) == 1.0
    classifier.save(tmp_path / "own")
    monkeypatch.chdir(tmp_path.parent)  # from another folder
    assert np.array_equal(FewShotClassifier.load(tmp_path / "own").predict(X), classifier.predict(X))
    file.write_text("no graph")
    with pytest.raises(EngramError, match="is no graph that onnxruntime can run"):
        open_encoder(f"onnx:{file}")
    with pytest.raises(EngramError, match=r"none.onnx cannot be read \(No such file"):
        open_encoder("onnx:none.onnx")


@pytest.mark.extras
@pytest.mark.filterwarnings("ignore")
def test_a_model_of_timm() -> None:
    encoders._declare_operators()
    timm = pytest.importorskip("timm", reason="pip install timm, in an environment of its own")
    model = timm.create_model("resnet10t", pretrained=False, num_classes=0)
    encoder = encoders.of_timm(model, timm.data.resolve_model_data_config(model))
    assert encoder.image_shape == (3, 176, 176) and encoder.out_shape == (512,)
    assert FewShotClassifier(weights=encoder).fit(*pictures(2)).predict_proba(pictures(1)[0]).shape == (3, 3)
