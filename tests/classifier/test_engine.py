"""Between a classifier and any method: features or pictures, maps as they are, supports a method can take."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from engram.classifier.engine import Engine, likeness, on_dark_ground
from engram.errors import EngramError
from engram.recipes import load_recipe
from engram.types import EmbeddingMethod, Episode, History, MethodCard, Prediction


@dataclass(frozen=True)
class NoConfig:
    pass


class Maps(nn.Module):
    out_shape = (2, 4, 4)

    def forward(self, images: Tensor) -> Tensor:
        return images.float()[:, :2, ::2, ::2] / 255


class OfMaps(EmbeddingMethod):
    """Notes what it was shown."""

    card = MethodCard(title="maps", paper="none")
    Config = NoConfig
    shown: tuple[int, ...] = ()

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        self.shown = tuple(episode.query.shape)
        return Prediction(torch.full((*episode.query.shape[:2], episode.n_way), 1 / episode.n_way).log())


class OfPictures(OfMaps):
    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        return self.classify(episode)


RECIPE = load_recipe("proto_net/glyphs_quick")
IMAGES = torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8)
LABELS = torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("kind", "batch_norm", "expected"),
    [
        (OfMaps, "running", (2, 4, 4)),
        (OfMaps, "task", (3, 8, 8)),  # statistics of the task need its pictures together
        (OfPictures, "running", (3, 8, 8)),
    ],
)
def test_maps_or_pictures_are_kept_as_a_method_wants_them(kind: type, batch_norm: str, expected: tuple) -> None:
    method = kind(Maps(), NoConfig())
    method.card = replace(method.card, batch_norm=batch_norm)
    engine = Engine(method.eval(), RECIPE, (3, 8, 8))
    seen = engine.see(IMAGES)
    assert seen.shape == (6, *expected) and torch.equal(engine.see(IMAGES[:2]), seen[:2])
    answer = engine.answer(seen[:4], LABELS, seen[4:], 2)
    assert answer.log_probs.shape == (2, 2)
    assert method.shown == ((1, 2, 3, 8, 8) if kind is OfPictures else (1, 2, 2, 4, 4))


def test_supports_a_method_was_not_made_for() -> None:
    method = OfMaps(Maps(), NoConfig())
    method.card = replace(method.card, fixed_ways=True, fixed_shots=True)
    recipe = replace(RECIPE, data=replace(RECIPE.data, n_way=2, n_shot=5))
    engine = Engine(method, recipe, (3, 8, 8))
    engine.check_support(torch.tensor([5, 5]))
    with pytest.raises(EngramError, match="trained for 2 classes but there are 3"):
        engine.check_support(torch.tensor([5, 5, 5]))
    with pytest.raises(EngramError, match="needs 5 pictures of every class but one has 1"):
        engine.check_support(torch.tensor([5, 1]))


def test_likeness_is_the_cosine_with_class_means() -> None:
    support, query = torch.randn(4, 3), torch.randn(2, 3)
    found = likeness(support, LABELS, query, 2)
    for q in range(2):
        for c in range(2):
            mean = support[c == LABELS].mean(0)
            expected = (query[q] @ mean) / (query[q].norm() * mean.norm())
            assert float(found[q, c]) == pytest.approx(float(expected), abs=1e-5)


def test_dark_strokes_on_paper_become_light_ones() -> None:
    night = torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    night[0, 0, 4] = 255
    paper = 255 - night
    assert torch.equal(on_dark_ground(torch.cat([night, paper])), torch.cat([night, night]))
