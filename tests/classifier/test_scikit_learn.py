"""Where scikit-learn is installed: clone, cross-validation, grids and pipelines."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import class_folders, pictures

from engram.classifier import FewShotClassifier

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is optional")


def test_clone_and_parameters() -> None:
    from sklearn.base import clone, is_classifier

    classifier = FewShotClassifier("proto_memory", "photographs", settings={"temperature": 0.2}, reject_below=0.3)
    copy = clone(classifier.fit(*pictures(1)))
    assert copy.get_params() == classifier.get_params() and not hasattr(copy, "memory_")
    assert is_classifier(copy) and repr(copy) == repr(classifier)
    assert copy.set_params(engine="proto_net").engine == "proto_net"


def test_cross_validation_and_a_grid(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from sklearn.model_selection import GridSearchCV, cross_val_score

    root = class_folders(tmp_path, per_class=4)
    X = sorted(str(path) for path in root.glob("*/*.png"))
    y = [path.split("/")[-2] for path in X]
    assert cross_val_score(FewShotClassifier("proto_memory", "photographs"), X, y, cv=2).mean() > 0.9
    grid = GridSearchCV(FewShotClassifier(weights="photographs"), {"engine": ["proto_memory", "chance"]}, cv=2)
    assert grid.fit(X, y).best_params_ == {"engine": "proto_memory"}


def test_a_pipeline() -> None:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    def grey(images: list[np.ndarray]) -> list[np.ndarray]:
        return [image.mean(2) for image in images]

    X, y = pictures()
    pipeline = make_pipeline(FunctionTransformer(grey), FewShotClassifier("proto_memory", "photographs"))
    assert pipeline.fit(X, y).score(X, y) == 1.0
    assert list(pipeline.classes_) == sorted(set(y))
