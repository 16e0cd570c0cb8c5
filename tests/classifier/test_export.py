"""Exported files answer like the classifier they came from; what cannot be exported says why."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn import KINDS, pictures

from engram.classifier import FewShotClassifier, export
from engram.errors import EngramError


def fitted(engine: str | None = None, **settings: object) -> FewShotClassifier:
    return FewShotClassifier(engine, "photographs", **settings).fit(*pictures(2))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def queries() -> torch.Tensor:
    return torch.randint(0, 256, (4, 3, 84, 84), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))


@pytest.mark.extras
@pytest.mark.filterwarnings("ignore")
def test_onnxruntime_gives_the_same_probabilities(tmp_path: Path, queries: torch.Tensor) -> None:
    pytest.importorskip("onnxscript", reason="ONNX is an extra: pip install 'engram[export]'")
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime runs the exported file")
    classifier = fitted()
    session = onnxruntime.InferenceSession(str(classifier.export(tmp_path / "screws.onnx")))
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == sorted(KINDS)
    for count in (1, 4):
        answer, familiar = session.run(["probabilities", "familiar"], {"images": queries[:count].numpy()})
        assert np.abs(answer - classifier.predict_proba(queries[:count])).max() < 1e-4
        assert np.abs(familiar - classifier.familiarity(queries[:count])).max() < 1e-4


@pytest.mark.parametrize("engine", ["content_memory", "proto_net", "stage_one"])
def test_a_program_of_torch_export(engine: str, tmp_path: Path, queries: torch.Tensor) -> None:
    classifier = fitted(engine)
    program = torch.export.load(classifier.export(tmp_path / "screws.pt2")).module()
    for count in (1, 4):
        answer, familiar = program(queries[:count])
        assert np.abs(answer.numpy() - classifier.predict_proba(queries[:count])).max() < 1e-4
        assert np.abs(familiar.numpy() - classifier.familiarity(queries[:count])).max() < 1e-4


@pytest.mark.parametrize(
    ("classifier", "sentence"),
    [
        (lambda: fitted("propagation_memory"), "'propagation_memory' builds one graph for each picture"),
        (lambda: fitted(transductive=True), "answers depend on the pictures asked about together"),
        (lambda: fitted("pixel_centroid"), "'pixel_centroid' works on the pictures of the whole task"),
        (lambda: fitted("proto_memory"), "'proto_memory' has a memory of a size that depends on the data"),
        (FewShotClassifier, "has not seen any pictures yet"),
    ],
)
def test_what_cannot_be_exported_says_why(classifier: object, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(EngramError, match=sentence):
        classifier().export(tmp_path / "screws.pt2")  # type: ignore[operator]
    assert not list(tmp_path.iterdir())


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EngramError, match=r"ends in '\.pkl' where \.onnx or \.pt2 says what to write"):
        fitted("proto_net").export(tmp_path / "screws.pkl")


def test_a_missing_package_is_told_before_anything_is_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    monkeypatch.setattr(torch.export, "export", lambda *_, **__: pytest.fail("traced"))
    with pytest.raises(EngramError, match="needs the package onnx: pip install onnx onnxscript, or write a .pt2"):
        fitted("proto_net").export(tmp_path / "screws.onnx")
