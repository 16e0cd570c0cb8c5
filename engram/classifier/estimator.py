"""`FewShotClassifier`: a few pictures of each class in, answers with honest uncertainty out, more pictures tomorrow.

Every picture passes the encoder once and stays in memory as features with its label. `partial_fit` is the next task of
a named stream: a class gathers all pictures its name ever had, which is what the memories of the library do with names
(`tests/classifier/test_named_streams.py` holds them to it). Answers never change what is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from engram.classifier import memory as memories
from engram.classifier import reading
from engram.classifier.calibration import Calibration, calibrate
from engram.classifier.disk import Turn
from engram.classifier.encoders import PictureEncoder
from engram.classifier.engine import Answer, Engine
from engram.classifier.habits import Habits, UnfitError, not_fitted, telling_values
from engram.classifier.index import Rows
from engram.classifier.opening import open_engine
from engram.classifier.pictures import Unreadable, listed
from engram.classifier.seeing import see_labelled, see_pictures
from engram.classifier.uncertainty import Uncertainty, split_entropy
from engram.errors import EngramError

UNKNOWN = "unknown"
LEARNING = Turn()
"""had while what a classifier remembers is exchanged, never while it looks at pictures"""


class FewShotClassifier(Habits):
    """Classify pictures from a few examples of each class.

    Args:
        engine: a method of the library ("content_memory", "proto_net", ...); None takes that of the weights.
        weights: "imagenet" or "imagenet-lite1", for photographs; "photographs" and "glyphs", small ones of the box;
            "timm:NAME", "hf:NAME", "onnx:FILE"; the run folder of ``engram train``; or a module as a `PictureEncoder`.
        settings: keywords of the engine, as in a recipe's [method] table.
        transductive: let the pictures asked about together inform each other, where the engine can.
        reject_below: answer "unknown" where it is less probable than this that the picture is of one of the classes at
            all (`familiarity`); None always names a class.
        capacity: pictures remembered of each class, the oldest task goes first; None keeps all.
        samples: draws of the posterior that `uncertainty` takes.
        device: "cpu", "cuda", "cuda:1" or "auto".

    Attributes (after `fit`):
        classes_: the labels, in the order of the columns of `predict_proba`.
        n_features_in_: numbers that the encoder sees of a picture, which may itself be of any size.
    """

    def __init__(
        self,
        engine: str | None = None,
        weights: str | Path | PictureEncoder = "imagenet",
        *,
        settings: Mapping[str, Any] | None = None,
        transductive: bool = False,
        reject_below: float | None = None,
        capacity: int | None = None,
        samples: int = 64,
        device: str = "cpu",
    ) -> None:
        self.engine = engine
        self.weights = weights
        self.settings = settings
        self.transductive = transductive
        self.reject_below = reject_below
        self.capacity = capacity
        self.samples = samples
        self.device = device

    def fit(self, X: Any, y: Any, unreadable: Unreadable | None = None) -> FewShotClassifier:
        """Forget everything and learn these pictures: X of any kind and size, y one label for each.

        With ``unreadable`` pictures that cannot be read are told to it and left out.
        """
        opened = self._open()
        memory = memories.nothing().add(*self._learnable(opened, X, y, unreadable))
        if len(memory.classes) < 2:
            raise UnfitError(
                f"all {len(memory.labels)} pictures are of one class, '{memory.classes[0]}': give at least 2 classes"
            )
        memory.check_size(opened.by_features, opened.recipe.method)
        with LEARNING:
            self.engine_, self.memory_ = opened, memory
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, unreadable: Unreadable | None = None
    ) -> FewShotClassifier:
        """The next task of a stream: more pictures of known classes, new classes, or both.

        ``classes`` is there because scikit-learn passes it; classes come as they are met and need no announcement.
        """
        opened = self.engine_ if self._fitted else self._open()
        new = self._learnable(opened, X, y, unreadable)
        with LEARNING:  # of threads that begin together, all open the same engine and the last one's stays
            memory = (self.memory_ if self._fitted else memories.nothing()).add(*new)
            memory.check_size(opened.by_features, opened.recipe.method)
            self.engine_, self.memory_ = opened, memory
        return self

    def forget(self, label: Any) -> FewShotClassifier:
        """Forget a class and every picture of it."""
        with LEARNING:
            self.memory_ = self._known().forget(label)
        return self

    def _stored(self, memory: memories.Memory, stored: memories.Memory) -> None:
        """What was saved takes the place of what it was saved from, unless more was learned meanwhile."""
        with LEARNING:
            if self.memory_ is memory:
                self.memory_ = stored

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each picture, or "unknown" where it is not familiar enough: ``reject_below``."""
        return self.decide(self.answer(self.see(X)))

    def decide(self, answer: Answer) -> np.ndarray:
        """From what `answer` gave to labels (n,)."""
        chosen = self.classes_[answer.log_probs.argmax(1).numpy()]
        if self.reject_below is None:
            return chosen
        if not 0 <= self.reject_below <= 1:
            raise EngramError(f"reject_below = {self.reject_below} but a probability lies between 0 and 1")
        return np.where(answer.familiarity.numpy() < self.reject_below, UNKNOWN, chosen.astype(object))

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, N) probability of each class of `classes_`."""
        return self.answer(self.see(X)).log_probs.double().exp().numpy()

    def familiarity(self, X: Any) -> np.ndarray:
        """(n,) probability that a picture is of one of the classes at all, where half of the pictures are not.

        From pictures remembered, held out in turn, or the stored constants of the weights (`calibration` says which);
        for weights without either the largest class probability stands in.
        """
        return self.answer(self.see(X)).familiarity.double().numpy()

    def uncertainty(self, X: Any) -> Uncertainty:
        """What the model does not know of each picture, and what the picture leaves open: see `Uncertainty`."""
        return split_entropy(self.answer(self.see(X), self.samples))

    def suggest(self, X: Any, count: int = 20) -> np.ndarray:
        """(at most ``count``,) places in X of the pictures to label next, the one that teaches most first."""
        from engram.classifier.suggesting import suggest

        return suggest(self, self.see(X), count)

    def see(self, X: Any, unreadable: Unreadable | None = None) -> Tensor:
        """What the engine keeps of pictures: (n, ...), to be asked about with `answer`.

        With ``unreadable`` pictures that cannot be read are told to it and left out.
        """
        self._known()
        with telling_values():
            seen = see_pictures(self.engine_, listed(X), unreadable)
        return self.memory_.items[:0] if seen is None else seen

    def answer(self, seen: Tensor, samples: int = 0) -> Answer:
        """The engine's whole answer: probabilities, ``samples`` of its posterior, edges to the remembered pictures."""
        memory = self._known()
        if len(memory.classes) < 2:
            raise EngramError(f"only {len(memory.classes)} class is remembered and an answer needs 2: add pictures")
        self.engine_.check_support(memory.counts)
        if isinstance(memory.items, Rows):
            return reading.answer(self.engine_, memory, seen, samples, self.calibration)
        task = memory.items, memory.labels, len(memory.classes)
        sure = calibrate(self.engine_, *task, seen) if self.engine_.transductive else self.calibration
        return self.engine_.answer(*task[:2], seen, task[2], samples, sure)

    @property
    def calibration(self) -> Calibration:
        """How sure answers may be, from what is remembered, and where that comes from: `Calibration.says`.

        Transductive answers depend on what is asked together: ``answer(see(X)).calibration`` is theirs.
        """
        memory = self._known()
        if getattr(self, "_sure", (None, None))[0] is not memory:
            self._sure = memory, calibrate(self.engine_, memory.items, memory.labels, len(memory.classes))
        return self._sure[1]

    @property
    def n_features_in_(self) -> int:
        if not self._fitted:
            raise AttributeError("n_features_in_ is known after fit(X, y)")
        return prod(self.engine_.image_shape)

    @property
    def classes_(self) -> np.ndarray:
        classes = self._known().classes
        if len({type(label) for label in classes}) == 1 and isinstance(classes[0], str | int | float):
            return np.array(classes)
        held = np.empty(len(classes), dtype=object)
        held[:] = classes
        return held

    def save(self, folder: str | Path) -> Path:
        """Write everything, memory and weights too, to a folder: safetensors and JSON, whole or not at all."""
        from engram.classifier.saving import save

        return save(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> FewShotClassifier:
        """A classifier that `save` wrote; nothing in the folder is executed."""
        from engram.classifier.saving import load

        return load(cls, Path(folder), device)

    def export(self, path: str | Path) -> Path:
        """The fitted classifier as ONNX (``.onnx``) or as a program of torch.export (``.pt2``)."""
        from engram.classifier.export import export

        return export(self, Path(path))

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted

    @property
    def _fitted(self) -> bool:
        return hasattr(self, "memory_")

    def _known(self) -> memories.Memory:
        if not self._fitted:
            raise not_fitted("this classifier has not seen any pictures yet: call fit(X, y) first")
        return self.memory_

    def _open(self) -> Engine:
        return open_engine(self.engine, self.weights, self.settings, self.transductive, self.device)

    def _learnable(
        self, engine: Engine, X: Any, y: Any, unreadable: Unreadable | None
    ) -> tuple[Tensor, list[Any], int | None, Tensor]:
        """Pictures as `Memory.add` takes them: as the engine keeps them, labels, capacity and digests."""
        if self.capacity is not None and self.capacity < 1:
            raise EngramError(f"capacity = {self.capacity} but at least 1 picture of each class must be remembered")
        with telling_values():
            pictures = listed(X)
            labels = memories.as_labels(y, len(pictures))
            if not labels:
                raise EngramError("there are 0 pictures: give at least one of each class")
            items, kept, digests = see_labelled(engine, pictures, labels, unreadable)
        return items, kept, self.capacity, digests
