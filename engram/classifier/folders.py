"""Pictures by the folder: class folders to learn from, thousands of pictures to ask about, and what came of them.

The commands for own pictures call `answer_with` and `remember_more`.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from engram import spellings
from engram.classifier.description import DESCRIPTION, check_left_aside
from engram.classifier.disk import one_writer
from engram.classifier.engine import samples_posterior
from engram.classifier.estimator import FewShotClassifier
from engram.classifier.pictures import Unreadable
from engram.classifier.uncertainty import Uncertainty, split_entropy
from engram.data.formats.folder import EXTENSIONS, class_pictures
from engram.errors import EngramError


@dataclass(frozen=True)
class Answers:
    """One row for each picture that could be read."""

    classes: tuple[str, ...]
    files: tuple[Path, ...]
    labels: tuple[str, ...]
    probabilities: np.ndarray
    """(n, N)"""
    familiarity: np.ndarray
    """(n,)"""
    uncertainty: Uncertainty | None
    """None where the engine has no posterior"""
    unreadable: tuple[tuple[Path, str], ...]
    """pictures left out, and why"""
    confidence: str = ""
    """where probabilities and familiarity come from"""
    seen: Tensor | None = None
    """(n, ...) as the engine keeps pictures"""

    def rows(self) -> list[dict[str, Any]]:
        """What the table, JSON and CSV show: shares of the largest possible entropy for both kinds of uncertainty."""
        most = np.log(len(self.classes))
        rows = []
        for i, file in enumerate(self.files):
            best = float(self.probabilities[i].max())
            row: dict[str, Any] = {"file": str(file), "class": self.labels[i], "probability": round(best, 4)}
            row["familiar"] = round(float(self.familiarity[i]), 4)
            if self.uncertainty is not None:
                row["not_known"] = round(float(self.uncertainty.epistemic[i] / most), 4)
                row["left_open"] = round(float(self.uncertainty.aleatoric[i] / most), 4)
            rows.append(row)
        return rows

    def to_json(self) -> str:
        shares = [dict(zip(self.classes, np.round(p, 4).tolist(), strict=True)) for p in self.probabilities]
        pictures = [{**row, "probabilities": share} for row, share in zip(self.rows(), shares, strict=True)]
        unreadable = [{"file": str(file), "why": why} for file, why in self.unreadable]
        whole = {"classes": self.classes, "pictures": pictures, "unreadable": unreadable}
        return json.dumps({**whole, "confidence": self.confidence}, indent=1)

    def to_csv(self) -> str:
        """The rows and one column for each class."""
        columns = [f"p({name})" for name in self.classes]
        shares = [dict(zip(columns, np.round(p, 4).tolist(), strict=True)) for p in self.probabilities]
        rows = [{**row, **share} for row, share in zip(self.rows(), shares, strict=True)]
        out = io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]) if rows else ["file", "class", "probability", "familiar", *columns])
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()


def support_of(folder: Path) -> tuple[list[Path], list[str]]:
    """Pictures and labels of a folder of class folders."""
    if not folder.is_dir():
        raise EngramError(f"the support folder {folder} does not exist or is no folder: check the path")
    classes = class_pictures(folder)
    return [p for paths in classes.values() for p in paths], [name for name, paths in classes.items() for _ in paths]


def find_pictures(paths: Iterable[Path]) -> list[Path]:
    """Files as given; of folders every picture below them, in order of name. Links to folders are not followed."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        for folder, folders, names in os.walk(path):
            folders.sort()
            chosen = sorted(n for n in names if Path(n).suffix.lower() in EXTENSIONS and not n.startswith("."))
            found += [Path(folder) / name for name in chosen]
    if not found:
        raise EngramError(f"there are no pictures in {', '.join(map(str, paths))}: give image files or folders of them")
    return found


def ask(classifier: FewShotClassifier, files: Sequence[Path]) -> Answers:
    """Answers to pictures that may be many and damaged."""
    left_out: dict[int, str] = {}
    seen = classifier.see(files, left_out.__setitem__)
    if len(left_out) == len(files):
        raise EngramError(f"none of the {len(files)} pictures can be read; the first: {left_out[0]}")
    posterior = samples_posterior(classifier.engine_.method)
    answer = classifier.answer(seen, classifier.samples if posterior else 0)
    probabilities = answer.log_probs.double().exp().numpy()
    return Answers(
        tuple(map(str, classifier.classes_)),
        tuple(file for place, file in enumerate(files) if place not in left_out),
        tuple(map(str, classifier.decide(answer))),
        probabilities,
        answer.familiarity.double().numpy(),
        split_entropy(answer) if posterior else None,
        tuple((files[place], why) for place, why in left_out.items()),
        answer.calibration.says(),
        seen,
    )


DEFAULT_WEIGHTS = "imagenet"


def answer_with(
    model: Path | None,
    support: Path | None,
    engine: str | None,
    weights: str | None,
    transductive: bool,
    reject_below: float | None,
    device: str,
    told: Unreadable | None = None,
) -> FewShotClassifier:
    """A classifier that can answer: fitted to class folders, or loaded with all that it remembers. With ``told``
    pictures of the folders that cannot be read are told to it and left out."""
    if (model is None) == (support is None):
        raise EngramError("give either --support with class folders or --model with what was remembered")
    if support is not None:
        classifier = FewShotClassifier(
            engine, weights or DEFAULT_WEIGHTS, transductive=transductive, reject_below=reject_below, device=device
        )
        return classifier.fit(*support_of(support), unreadable=told)
    assert model is not None
    classifier = FewShotClassifier.load(model, device)
    _check_same(model, classifier, engine, weights)
    if transductive != classifier.engine_.transductive and transductive:
        raise EngramError(f"{model} answers inductively: --transductive goes with --support")
    return classifier if reject_below is None else classifier.set_params(reject_below=reject_below)


def remember_more(
    model: Path, support: Path, engine: str | None, weights: str | None, told: Unreadable | None = None
) -> list[tuple[str, int, int]]:
    """Add class folders to a model and save it; (class, pictures now, pictures before) of every class. Of two that do
    so at once the second waits, and adds to what the first has left."""
    check_left_aside(model)
    with one_writer(model):
        return _remember_more(model, support, engine, weights, told)


def forget_class(model: Path, name: str) -> int:
    """Forget a class of a model by its name and save it; how many classes remain."""
    if not (model / DESCRIPTION).is_file():
        FewShotClassifier.load(model)  # says what is wrong
    with one_writer(model):
        classifier = FewShotClassifier.load(model)
        known = {str(label): label for label in classifier.classes_.tolist()}
        classifier.forget(known.get(name, name)).save(model)
        return len(classifier.classes_)


def _check_same(model: Path, classifier: FewShotClassifier, engine: str | None, weights: str | None) -> None:
    """Refuse another engine or other weights than a model was made with."""
    own = classifier.engine_.recipe.method
    if spellings.engine_today(engine, (own,)) not in (None, own):
        raise EngramError(f"{model} answers with '{own}' already: leave --engine out")
    if weights not in (None, classifier.weights):
        raise EngramError(
            f"{model} was made with the weights '{classifier.weights}' and what '{weights}' sees cannot be mixed "
            f"with that: leave --weights out, or remember into another folder"
        )


def _remember_more(
    model: Path, support: Path, engine: str | None, weights: str | None, told: Unreadable | None
) -> list[tuple[str, int, int]]:
    if (model / DESCRIPTION).is_file():
        classifier = FewShotClassifier.load(model)
        _check_same(model, classifier, engine, weights)
        before = dict(zip(classifier.classes_.tolist(), classifier.memory_.counts.tolist(), strict=True))
    else:
        classifier, before = FewShotClassifier(engine, weights or DEFAULT_WEIGHTS), {}
    classifier.partial_fit(*support_of(support), unreadable=told).save(model)
    now = zip(classifier.classes_.tolist(), classifier.memory_.counts.tolist(), strict=True)
    return [(str(name), count, before.get(name, 0)) for name, count in now]
