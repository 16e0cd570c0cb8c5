"""The habits of scikit-learn that need none of it: arguments of the constructor as parameters, and tags."""

from __future__ import annotations

import inspect
from typing import Any, Self

from engram.errors import EngramError, nearest


class Habits:
    """Of a classifier that keeps each argument of its constructor under its name."""

    _estimator_type = "classifier"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {name: getattr(self, name) for name in self._parameters()}

    def set_params(self, **params: Any) -> Self:
        """Change arguments of the constructor; those of the engine apply from the next `fit`."""
        for name, value in params.items():
            if name not in self._parameters():
                raise EngramError(f"{type(self).__name__} has no parameter '{name}'{nearest(name, self._parameters())}")
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
