"""The habits of scikit-learn that need none of it: parameters, scores, errors and tags."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from engram.classifier.memory import as_labels
from engram.errors import EngramError, nearest


class UnfitError(EngramError, ValueError):
    """Pictures or labels that no classifier can take: scikit-learn and its users look for a `ValueError`."""


@contextmanager
def telling_values() -> Iterator[None]:
    """What is wrong with pictures and labels, as an error of values too."""
    try:
        yield
    except EngramError as error:
        raise UnfitError(str(error)) from error


def not_fitted(sentence: str) -> EngramError:
    """Where scikit-learn is in use, also the error that it knows."""
    if "sklearn" not in sys.modules:
        return EngramError(sentence)
    from sklearn.exceptions import NotFittedError

    kind: type[EngramError] = type("NotFitted", (EngramError, NotFittedError), {})
    return kind(sentence)


class Habits:
    """Of a classifier that keeps each argument of its constructor under its name."""

    _estimator_type = "classifier"

    def predict(self, X: Any) -> np.ndarray:
        raise NotImplementedError

    def predict_proba(self, X: Any) -> np.ndarray:
        raise NotImplementedError

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """(n, N) logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):  # a probability may be too small for its number
            return np.log(self.predict_proba(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of pictures whose class is named rightly, each with its weight where some are given."""
        predicted = self.predict(X)
        with telling_values():
            truth = as_labels(y, len(predicted))
        right = [a == b for a, b in zip(predicted, truth, strict=True)]
        return float(np.average(right, weights=sample_weight))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {name: getattr(self, name) for name in self._parameters()}

    def set_params(self, **params: Any) -> Self:
        """Change arguments of the constructor; those of the engine apply from the next `fit`."""
        for name, value in params.items():
            if name not in self._parameters():
                raise UnfitError(f"{type(self).__name__} has no parameter '{name}'{nearest(name, self._parameters())}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = [f"{k}={v!r}" for k, v in self.get_params().items() if v != defaults[k].default]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        inputs = InputTags(two_d_array=False, three_d_array=True, string=True)
        tags = ClassifierTags(multi_class=True)
        return Tags(
            estimator_type="classifier", target_tags=TargetTags(required=True), classifier_tags=tags, input_tags=inputs
        )

    @classmethod
    def _parameters(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)
