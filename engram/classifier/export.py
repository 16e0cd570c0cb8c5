"""A fitted classifier as a file that runs without Engram: ONNX, or a program of torch.export.

Input ``images``: uint8 (n, C, H, W) of the size the encoder learned; outputs ``probabilities``: (n, N) in the order of
the classes, which the ONNX file carries as metadata, and ``familiar``: (n,). What is remembered is part of the program.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from engram.classifier import memory as memories
from engram.classifier.calibration import scores
from engram.classifier.encoders import PictureEncoder
from engram.classifier.engine import Engine, likeness, on_dark_ground
from engram.classifier.estimator import FewShotClassifier
from engram.errors import EngramError
from engram.nn.view import View, fit_view
from engram.types import Episode

FORMS = (".onnx", ".pt2")
OUTPUTS = ("probabilities", "familiar")


class FittedClassifier(nn.Module):
    """Pictures (n, C, H, W) uint8 -> probabilities (n, N) and familiarity (n,); supports and labels are constants."""

    support: Tensor
    labels: Tensor

    def __init__(self, classifier: FewShotClassifier) -> None:
        super().__init__()
        engine, memory = classifier.engine_, classifier.memory_
        self.encoder = engine.method.backbone if engine.encoder is None else engine.encoder
        self.method, self.light_ink, self.flat = engine.method, engine.light_ink, engine.encoder is not None
        self.n_way, self.sure, support = len(memory.classes), classifier.calibration, memory.items[:]
        look = fit_view(support, memory.labels, self.n_way) if engine.view else None
        self.rooted = look.rooted if look else None
        for name in ("centre", "directions", "factors") if look else ():
            self.register_buffer(name, getattr(look, name))
        self.register_buffer("support", (look(support) if look else support)[None].clone())
        self.register_buffer("labels", memory.labels[None].clone())
        self.register_buffer("names", torch.arange(self.n_way)[None])

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        images = on_dark_ground(images) if self.light_ink else images
        seen = self.encoder(images)
        query = seen.flatten(1) if self.flat else seen
        if self.rooted is not None:
            query = View(self.rooted, self.centre, self.directions, self.factors)(query)  # type: ignore[arg-type]
        episode = Episode(self.support, self.labels, query[None], self.n_way, self.names)  # type: ignore[arg-type]
        found = scores(self.method.classify(episode))[0]  # type: ignore[operator]
        probabilities = torch.softmax(found / self.sure.temperature, -1)
        if self.sure.familiarity is None:
            return probabilities, probabilities.amax(-1)
        slope, offset = self.sure.familiarity
        alike = likeness(self.support[0], self.labels[0], query, self.n_way).amax(-1)
        return probabilities, torch.sigmoid(slope * alike + offset)


def why_not(engine: Engine) -> str | None:
    """Why a classifier with this engine cannot be exported; None where it can."""
    name, card = engine.recipe.method, engine.method.card
    if engine.transductive and card.transductive:
        return "answers depend on the pictures asked about together, so a file would answer each batch otherwise"
    if card.transductive:
        return f"'{name}' builds one graph for each picture, of a size that a fixed program does not have"
    if card.stochastic:
        return f"'{name}' draws random samples at every answer"
    if not engine.by_features:
        return f"'{name}' works on the pictures of the whole task, not on features of each"
    if isinstance(engine.encoder, PictureEncoder):
        return f"the encoder {engine.encoder.name} is from elsewhere: export it with its own tools"
    if name in ("proto_memory", "knn_memory"):
        return f"'{name}' has a memory of a size that depends on the data, which torch.export cannot trace"
    return None


def export(classifier: FewShotClassifier, path: Path) -> Path:
    """Write ``path`` (.onnx or .pt2) from a fitted classifier."""
    if path.suffix not in FORMS:
        raise EngramError(f"{path} ends in '{path.suffix}' where {' or '.join(FORMS)} says what to write")
    classifier.classes_  # noqa: B018 - refuses one that is not fitted
    if not classifier.memory_.exact:
        raise EngramError(
            f"this classifier cannot be exported: it remembers {len(classifier.memory_.labels)} pictures and a "
            f"file can look at {memories.MOST_EXACT}"
        )
    if reason := why_not(classifier.engine_):
        raise EngramError(f"this classifier cannot be exported: {reason}")
    for package in ("onnx", "onnxscript") if path.suffix == ".onnx" else ():
        if find_spec(package) is None:  # told before the tracing, which takes its time
            raise EngramError(f"writing ONNX needs the package {package}: pip install onnx onnxscript, or write a .pt2")
    shape = classifier.engine_.image_shape
    example = (torch.randint(0, 256, (3, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)),)
    module = FittedClassifier(classifier).eval().requires_grad_(False)
    with torch.no_grad():
        try:
            program = torch.export.export(module, example, dynamic_shapes=({0: torch.export.Dim("n")},))
        except Exception as error:  # the tracer may refuse a method in any way
            name, why = classifier.engine_.recipe.method, str(error).strip().splitlines()[0]
            raise EngramError(f"'{name}' cannot be exported, for torch.export cannot trace it: {why}") from error
    if path.suffix == ".pt2":
        torch.export.save(program, path)
    else:
        _write_onnx(program, path, classifier)
    return path


def _write_onnx(program: torch.export.ExportedProgram, path: Path, classifier: FewShotClassifier) -> None:
    converted = torch.onnx.export(
        program, input_names=["images"], output_names=list(OUTPUTS), dynamo=True, verbose=False, optimize=True
    )
    assert converted is not None
    converted.model.metadata_props["classes"] = json.dumps([str(label) for label in classifier.classes_])
    converted.save(path, external_data=False)
