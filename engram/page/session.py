"""What one visitor of the page does: tasks of pictures, questions, and the memory that is carried from task to task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from shutil import ReadError, make_archive, unpack_archive
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from engram.classifier import FewShotClassifier, Uncertainty
from engram.classifier.engine import Answer, Engine
from engram.classifier.memory import Memory, nothing
from engram.classifier.opening import open_engine
from engram.classifier.pictures import side_by_side
from engram.classifier.reading import nearest
from engram.classifier.seeing import NO_DRAWINGS, digests_of, far_from_drawings
from engram.classifier.suggesting import suggest
from engram.classifier.uncertainty import split_entropy
from engram.data.formats.images import fit_picture, opened_image
from engram.errors import EngramError
from engram.files import UNPACKING, check_zip, open_regular
from engram.page.app import KINDS, LONGEST_NAME

THUMBNAIL = (3, 64, 64)
MOST_PICTURES, MOST_QUERIES = 200, 24
"""of a task, and of a question: more would not fit on a page"""
MOST_REMEMBERED = 2000
"""in all tasks of a visitor"""
DRAWS = 200
ALIKE = 4
"""remembered pictures beside each answer"""
MOST_BYTES = 100 * 2**20
"""of a model, unpacked"""
UNKNOWN = 0
"""the digest of what cannot be read, and of pictures remembered before there were digests"""


@dataclass(frozen=True)
class Shown:
    """An answered question, with all that the page draws."""

    classes: tuple[str, ...]
    queries: tuple[np.ndarray, ...]
    """thumbnails"""
    probabilities: np.ndarray
    """(Q, N)"""
    spread: np.ndarray
    """(2, Q, N) 5 % and 95 % quantile of the probabilities over the posterior"""
    uncertainty: Uncertainty
    familiarity: np.ndarray
    edges: Tensor
    """(L, Q, S), as in `Answer`"""
    memory: Memory
    supports: tuple[np.ndarray, ...]
    """thumbnails of everything remembered, in the order of ``memory``"""
    labels: tuple[str, ...]
    """answers: a class, or "unknown" """
    alike: Tensor
    """(Q, at most `ALIKE`) remembered pictures that each query looks most like"""
    teaching: tuple[int, ...]
    """queries, the one first whose label would teach most"""
    notes: tuple[str, ...] = ()
    """what to know of all answers: where confidence comes from, and whether the pictures are of the weights' kind"""


@dataclass
class Session:
    """``memory`` ends with the last finished task; ``pending`` is the task at hand."""

    weights: str = "imagenet"
    memory: Memory = field(default_factory=nothing)
    thumbnails: list[np.ndarray] = field(default_factory=list)
    """of ``memory``"""
    pending: list[tuple[str, Tensor]] = field(default_factory=list)
    """class and picture, as the engine keeps it"""
    pending_thumbnails: list[np.ndarray] = field(default_factory=list)
    pending_digests: list[int] = field(default_factory=list)
    """of the content of files"""

    @property
    def task(self) -> int:
        """Number of the task at hand, from 1 on."""
        return self.memory.next_task + 1

    def add(self, name: str, files: Sequence[Path]) -> None:
        """Pictures of a class for the task at hand; all of them or, where one cannot be read, none. One that the class
        has already is not counted again."""
        name = name.strip() if isinstance(name, str) else ""
        if not name:
            raise EngramError("the class has no name: write one beside its pictures")
        if len(name) > LONGEST_NAME:
            raise EngramError(f"the name of the class has {len(name)} characters: choose one of up to {LONGEST_NAME}")
        if not files:
            raise EngramError(f"there are no pictures for '{name}': drop some first")
        if len(self.pending) + len(files) > MOST_PICTURES:
            raise EngramError(
                f"{len(self.pending) + len(files)} pictures are too many for one task on this page, which takes "
                f"{MOST_PICTURES}: use engram remember for large sets"
            )
        if (total := len(self.memory.labels) + len(self.pending) + len(files)) > MOST_REMEMBERED:
            raise EngramError(
                f"{total} pictures are more than the {MOST_REMEMBERED} that this page remembers: use engram remember "
                f"for large sets"
            )
        fresh = self._fresh(name, files)
        if not fresh:
            raise EngramError(f"the class '{name}' has these pictures already: drop others")
        items, thumbnails, _ = self._seen(list(fresh.values()))
        self.pending += [(name, item) for item in items]
        self.pending_thumbnails += thumbnails
        self.pending_digests += fresh

    def ask(self, files: Sequence[Path], reject_below: float | None = None) -> Shown:
        """Answer with the task at hand and everything remembered; "unknown" to what is less familiar."""
        if not files:
            raise EngramError("there are no pictures to ask about: drop some first")
        if len(files) > MOST_QUERIES:
            raise EngramError(f"{len(files)} questions at once are too many for this page: ask about {MOST_QUERIES}")
        memory = self._with_pending()
        if len(memory.classes) < 2:
            known = f"only '{memory.classes[0]}' is known" if memory.classes else "no class is known"
            raise EngramError(f"{known} and an answer needs at least 2 classes: add pictures")
        items, thumbnails, strange = self._seen(files)
        classifier = self._classifier(memory).set_params(reject_below=reject_below)
        answer = classifier.answer(items, DRAWS)
        assert answer.samples is not None
        return Shown(
            tuple(map(str, memory.classes)),
            thumbnails,
            answer.log_probs.exp().numpy(),
            np.quantile(answer.samples.numpy(), (0.05, 0.95), axis=0),
            split_entropy(answer),
            answer.familiarity.numpy(),
            _edges(answer, memory),
            memory,
            (*self.thumbnails, *self.pending_thumbnails),
            tuple(map(str, classifier.decide(answer))),
            nearest(classifier.engine_, memory, items, ALIKE),
            tuple(suggest(classifier, items, len(items)).tolist()),
            (*((NO_DRAWINGS,) if strange else ()), f"Confidence: {answer.calibration.says()}."),
        )

    def save(self, folder: Path) -> Path:
        """All that is remembered, the task at hand too, as a zip of what ``engram predict --model`` takes; features
        and names of classes, no pictures."""
        memory = self._with_pending()
        if not len(memory.labels):
            raise EngramError("there is nothing to save yet: add pictures")
        with TemporaryDirectory(dir=folder) as place:
            self._classifier(memory).save(Path(place) / "model")
            return Path(make_archive(str(folder / "model"), "zip", Path(place) / "model"))

    @classmethod
    def load(cls, file: Path) -> Session:
        """What `save` wrote, or a zip of any model of the same weights; its pictures are grey, for it has none."""
        with TemporaryDirectory() as place:
            try:
                with open_regular(file) as stream:
                    check_zip(stream, MOST_BYTES)
                    unpack_archive(file, place, "zip")
            except (OSError, ValueError, ReadError, *UNPACKING) as error:
                raise EngramError(f"{file.name} is not a model that was saved ({error}): give such a zip") from error
            found = FewShotClassifier.load(place)
        weights = str(found.weights)
        if weights not in KINDS or found.engine_.digest != engine_of(weights).digest:
            raise EngramError(
                f"{file.name} was made with the weights '{weights}', which this page has not: use engram predict"
            )
        if (count := len(found.memory_.labels)) > MOST_REMEMBERED:
            raise EngramError(
                f"{file.name} remembers {count} pictures but this page takes {MOST_REMEMBERED}: use engram predict"
            )
        grey = np.full(THUMBNAIL, 128, dtype=np.uint8)
        return cls(weights, replace(found.memory_, stored=None), [grey] * count)

    def next_task(self) -> None:
        """The task at hand becomes memory; pictures from now on are those of the next."""
        if not self.pending:
            raise EngramError(f"task {self.task} has no pictures yet: add some before the next task")
        self.memory = self._with_pending()
        self.thumbnails += self.pending_thumbnails
        self.pending, self.pending_thumbnails, self.pending_digests = [], [], []

    def _with_pending(self) -> Memory:
        if not self.pending:
            return self.memory
        labels, items = zip(*self.pending, strict=True)
        return self.memory.add(torch.stack(items), labels, None, torch.tensor(self.pending_digests))

    def _fresh(self, name: str, files: Sequence[Path]) -> dict[int, Path]:
        """Files whose content the class has not yet, by their digests."""
        known = {digest for (label, _), digest in zip(self.pending, self.pending_digests, strict=True) if label == name}
        if name in self.memory.classes:
            known |= set(self.memory.digests[self.memory.labels == self.memory.classes.index(name)].tolist())
        known.discard(UNKNOWN)
        return {digest: file for digest, file in zip(digests_of(files), files, strict=True) if digest not in known}

    def _classifier(self, memory: Memory) -> FewShotClassifier:
        classifier = FewShotClassifier(weights=self.weights)
        classifier.engine_, classifier.memory_ = engine_of(self.weights), memory
        return classifier

    def _seen(self, files: Sequence[Path]) -> tuple[Tensor, tuple[np.ndarray, ...], bool]:
        """Files as the engine keeps pictures, thumbnails, and whether weights of drawings are shown photographs. An
        error calls a file by its name alone, for a server keeps uploads in folders that mean nothing to a person."""
        engine = engine_of(self.weights)

        def read(file: Path) -> tuple[np.ndarray, np.ndarray]:
            with opened_image(file, file.name) as image:
                return fit_picture(image, file.name, engine.image_shape, engine.crop), fit_picture(
                    image, file.name, THUMBNAIL
                )

        images, thumbnails = zip(*side_by_side(read, files), strict=True)
        shown = torch.from_numpy(np.stack(images))
        return engine.see(shown), thumbnails, engine.light_ink and far_from_drawings(shown)


@cache
def engine_of(weights: str) -> Engine:
    """Opened once for all visitors: answers do not change it."""
    return open_engine(None, weights, None, False, "cpu")


def _edges(answer: Answer, memory: Memory) -> Tensor:
    """Edges of the engine's graph; without one, the probability of each remembered picture's class."""
    if answer.edges is not None:
        return answer.edges
    return answer.log_probs.exp()[None][:, :, memory.labels]
