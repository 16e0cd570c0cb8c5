"""What the commands for own pictures call: a classifier from class folders or from a saved model, and more of both."""

from __future__ import annotations

from pathlib import Path

from engram import spellings
from engram.classifier.estimator import FewShotClassifier
from engram.classifier.folders import support_of
from engram.classifier.saving import DESCRIPTION
from engram.errors import EngramError

DEFAULT_WEIGHTS = "photographs"


def answer_with(
    model: Path | None,
    support: Path | None,
    engine: str | None,
    weights: str | None,
    transductive: bool,
    reject_below: float | None,
    device: str,
) -> FewShotClassifier:
    """A classifier that can answer: fitted to class folders, or loaded with all that it remembers."""
    if (model is None) == (support is None):
        raise EngramError("give either --support with class folders or --model with what was remembered")
    if support is not None:
        classifier = FewShotClassifier(
            engine, weights or DEFAULT_WEIGHTS, transductive=transductive, reject_below=reject_below, device=device
        )
        return classifier.fit(*support_of(support))
    assert model is not None
    if engine is not None or weights is not None:
        raise EngramError(f"{model} has its engine and weights already: leave --engine and --weights out")
    classifier = FewShotClassifier.load(model, device)
    if transductive != classifier.engine_.transductive and transductive:
        raise EngramError(f"{model} answers inductively: --transductive goes with --support")
    return classifier if reject_below is None else classifier.set_params(reject_below=reject_below)


def remember_more(model: Path, support: Path, engine: str | None, weights: str | None) -> list[tuple[str, int, int]]:
    """Add class folders to a model and save it; (class, pictures now, pictures before) of every class."""
    if (model / DESCRIPTION).is_file():
        classifier = FewShotClassifier.load(model)
        own = classifier.engine_.recipe.method
        other = spellings.engine_today(engine, (own,)) not in (None, own)
        if other or weights not in (None, classifier.weights):
            raise EngramError(f"{model} has its engine and weights already: leave --engine and --weights out")
        before = dict(zip(classifier.classes_.tolist(), classifier.memory_.counts.tolist(), strict=True))
    else:
        classifier, before = FewShotClassifier(engine, weights or DEFAULT_WEIGHTS), {}
    classifier.partial_fit(*support_of(support)).save(model)
    now = zip(classifier.classes_.tolist(), classifier.memory_.counts.tolist(), strict=True)
    return [(str(name), count, before.get(name, 0)) for name, count in now]
