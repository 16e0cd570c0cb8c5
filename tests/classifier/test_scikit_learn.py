"""Where scikit-learn is installed: its checks of estimators, clone, cross-validation, grids and pipelines."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn import class_folders, pictures
from torch import Tensor

from engram.classifier import FewShotClassifier, PictureEncoder
from engram.classifier.engine import Engine
from engram.classifier.opening import open_engine
from engram.errors import EngramError

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is optional")

SIDE = 8
ROWS = "scikit-learn gives rows of numbers; pictures are refused in words of their own"
ANY_SIZE = "pictures come in any size, so the number of features is that of what the encoder sees"
ROUNDED = "answers are computed in float32: test_answers_do_not_depend_on_company holds them to 1e-5"
NOT_APPLICABLE = {
    "check_n_features_in_after_fitting": ANY_SIZE,
    "check_n_features_in": ANY_SIZE,
    "check_classifiers_train": f"{ANY_SIZE}; what comes before that in the check is passed",
    "check_complex_data": ROWS,
    "check_estimators_empty_data_messages": ROWS,
    "check_estimators_nan_inf": ROWS,
    "check_estimator_sparse_tag": ROWS,
    "check_estimator_sparse_array": ROWS,
    "check_estimator_sparse_matrix": ROWS,
    "check_fit2d_predict1d": ROWS,
    "check_classifiers_regression_target": "labels are names, and a number is one",
    "check_supervised_y_2d": "labels in a column are refused, not flattened",
    "check_methods_sample_order_invariance": ROUNDED,
    "check_methods_subset_invariance": ROUNDED,
    "check_dict_unchanged": "the calibration is fitted when it is first asked for, and kept",
}
"""checks of scikit-learn that a classifier of pictures cannot pass, and why"""


def centred(pixels: Tensor) -> Tensor:
    return pixels / 255 - 0.5


class Columns(torch.nn.Module):
    def forward(self, pixels: Tensor) -> Tensor:
        return pixels.mean((1, 2))


class Striped(FewShotClassifier):
    """Draws rows of numbers as pictures, each number a stripe: scikit-learn's checks know rows alone."""

    def __init__(self, reject_below: float | None = None) -> None:
        super().__init__(reject_below=reject_below)

    def _open(self) -> Engine:
        return open_engine("proto_memory", PictureEncoder(Columns(), centred, SIDE, 1.0), None, False, "cpu")

    def fit(self, X: Any, y: Any, *more: Any) -> FewShotClassifier:
        return super().fit(striped(X), y, *more)

    def partial_fit(self, X: Any, y: Any, *more: Any, **by_name: Any) -> FewShotClassifier:
        return super().partial_fit(striped(X), y, *more, **by_name)

    def see(self, X: Any, *more: Any) -> Tensor:
        return super().see(striped(X), *more)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


def striped(X: Any) -> Any:
    rows = X if hasattr(X, "tocsr") else np.asarray(X)
    if getattr(rows, "ndim", 0) != 2 or rows.dtype.kind not in "fiubO":
        return X
    rows = rows.astype(float)
    shown = np.where(np.isfinite(rows), 255 / (1 + np.exp(-rows)), rows)
    return [np.tile(np.repeat(row, SIDE), (len(row) * SIDE, 1)) for row in shown]


@pytest.mark.filterwarnings("ignore")
def test_estimator_checks() -> None:
    from sklearn.utils.estimator_checks import check_estimator

    found = check_estimator(Striped(), expected_failed_checks=NOT_APPLICABLE, on_fail=None, on_skip=None)
    failed = {check["check_name"]: check["exception"] for check in found if check["status"] == "failed"}
    assert not failed
    assert sum(check["status"] == "passed" for check in found) >= 30
    needless = {c["check_name"] for c in found if c["status"] == "passed"} & set(NOT_APPLICABLE)
    assert not needless, "they pass: take them off the list"


def test_answers_do_not_depend_on_company() -> None:
    X, y = pictures()
    classifier = FewShotClassifier("proto_memory", "photographs").fit(X, y)
    together = classifier.predict_proba(X)
    alone = np.concatenate([classifier.predict_proba([x]) for x in X])
    assert np.abs(together - alone).max() < 1e-5
    assert np.abs(together - classifier.predict_proba(X[::-1])[::-1]).max() < 1e-5
    assert np.allclose(np.exp(classifier.predict_log_proba(X)), together)
    assert classifier.n_features_in_ == 3 * 84 * 84


def test_scores_with_weights() -> None:
    X, y = pictures()
    classifier = FewShotClassifier("proto_memory", "photographs").fit(X, y)
    truth = ["nut" if label == "bolt" else label for label in y]
    weights = [3.0 if label == "bolt" else 1.0 for label in y]
    assert classifier.score(X, truth) == pytest.approx(2 / 3)
    assert classifier.score(X, truth, sample_weight=weights) == pytest.approx(2 / 5)


@pytest.mark.parametrize("y", [None, np.zeros((9, 1)), [float("inf"), *range(8)]])
def test_labels_that_are_none_are_errors_of_values(y: Any) -> None:
    with pytest.raises(EngramError, match="y") as found:
        FewShotClassifier("proto_memory", "photographs").fit(pictures()[0], y)
    assert isinstance(found.value, ValueError)


def test_clone_and_parameters() -> None:
    from sklearn.base import clone, is_classifier

    classifier = FewShotClassifier("proto_memory", "photographs", settings={"temperature": 0.2}, reject_below=0.3)
    copy = clone(classifier.fit(*pictures(1)))
    assert copy.get_params() == classifier.get_params() and not hasattr(copy, "memory_")
    assert is_classifier(copy) and repr(copy) == repr(classifier)
    assert copy.set_params(engine="proto_net").engine == "proto_net"


@pytest.fixture
def files(tmp_path: Path) -> tuple[list[str], list[str]]:
    root = class_folders(tmp_path, per_class=4)
    X = sorted(str(path) for path in root.glob("*/*.png"))
    return X, [path.split("/")[-2] for path in X]


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.extras)])  # processes take time to start
def test_cross_validation(files: tuple[list[str], list[str]], n_jobs: int) -> None:
    from sklearn.model_selection import cross_val_score

    classifier = FewShotClassifier("proto_memory", "photographs")
    assert cross_val_score(classifier, *files, cv=2, n_jobs=n_jobs).mean() > 0.9


def test_a_grid(files: tuple[list[str], list[str]]) -> None:
    from sklearn.model_selection import GridSearchCV

    grid = GridSearchCV(FewShotClassifier(weights="photographs"), {"engine": ["proto_memory", "chance"]}, cv=2)
    assert grid.fit(*files).best_params_ == {"engine": "proto_memory"}


def test_pickled_and_in_threads() -> None:
    X, y = pictures()
    classifier = FewShotClassifier("proto_memory", "photographs").fit(X, y)
    expected = classifier.predict_proba(X)
    copy = pickle.loads(pickle.dumps(classifier))
    assert np.array_equal(copy.predict_proba(X), expected) and list(copy.classes_) == list(classifier.classes_)
    with ThreadPoolExecutor(4) as pool:
        for answer in pool.map(lambda _: copy.predict_proba(X), range(8)):
            assert np.array_equal(answer, expected)


def test_a_pipeline() -> None:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    def grey(images: list[np.ndarray]) -> list[np.ndarray]:
        return [image.mean(2) for image in images]

    X, y = pictures()
    pipeline = make_pipeline(FunctionTransformer(grey), FewShotClassifier("proto_memory", "photographs"))
    assert pipeline.fit(X, y).score(X, y) == 1.0
    assert list(pipeline.classes_) == sorted(set(y))
