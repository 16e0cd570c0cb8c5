"""Stage one with images that are turned or mixed, and with a teacher: each against a slow oracle."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from engram.errors import EngramError
from engram.methods.stage_one import StageOne, StageOneConfig
from engram.types import TrainBatch


class Flat(nn.Module):
    """Keeps what it was shown."""

    out_shape = (48,)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.seen = images
        return images.flatten(1) / 255


def make(**settings: Any) -> StageOne:
    torch.manual_seed(0)
    return StageOne(Flat(), StageOneConfig(**{"n_base_classes": 5, **settings}))


def pictures(n: int = 40) -> TrainBatch:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (n, 3, 4, 4), dtype=torch.uint8, generator=generator)
    return TrainBatch((), (), class_batch=(images, torch.randint(0, 5, (n,), generator=generator)))


@pytest.mark.parametrize(("turned", "count"), [(0.3, 12), (1.0, 40), (0.001, 1)])
def test_first_images_are_turned_and_a_head_says_by_how_much(turned: float, count: int) -> None:
    """Slow oracle: each turned image is one of the four turns of its own, which is the label of its row."""
    method, (images, ids) = make(turned=turned, turning_weight=0.7), pictures().class_batch or ()
    terms = method.loss(pictures())
    seen = method.backbone.seen
    assert seen.dtype == torch.uint8 and torch.equal(seen[count:], images[count:])
    quarters = torch.tensor(
        [
            [torch.equal(torch.rot90(image, r, (1, 2)), found) for r in range(4)].index(True)
            for image, found in zip(images[:count], seen[:count], strict=True)
        ]
    )
    assert count < 12 or len(quarters.unique()) == 4
    features = seen.flatten(1) / 255
    turning = F.cross_entropy(method.turn_head(features[:count]), quarters)
    assert torch.allclose(terms.terms["turning"], turning)
    assert torch.allclose(terms.total, F.cross_entropy(method.head(features), ids) + 0.7 * turning)
    upright = features[count:] if count < 40 else features
    assert torch.allclose(method.base_mean, upright.mean(0), atol=1e-6)


def test_turns_are_drawn_evenly_and_anew() -> None:
    method = make(turned=1.0)
    turns = torch.stack([method._turn((pictures().class_batch or ())[0])[1] for _ in range(100)])
    assert torch.allclose(turns.flatten().bincount() / 4000, torch.tensor(0.25), atol=0.03)
    assert not torch.equal(turns[0], turns[1])


def test_without_turning_nothing_is_drawn_and_no_head_is_there() -> None:
    method, plain = make(turned=0.5), make()
    assert method.state_dict().keys() - plain.state_dict().keys() == {"turn_head.weight", "turn_head.bias"}
    assert torch.equal(method.head.weight, plain.head.weight)  # a run with it starts from the same classifier
    before = torch.get_rng_state()
    terms = plain.loss(pictures()).terms
    assert torch.equal(torch.get_rng_state(), before) and terms.keys() == {"nll", "accuracy"}


def test_a_step_that_turns_learns_to_tell_turns() -> None:
    method = make(turned=1.0)
    images = torch.zeros(40, 3, 4, 4, dtype=torch.uint8)
    images[:, :, 0] = 255  # one bright edge: where it lies says the turn
    ids, found = torch.zeros(40, dtype=torch.int64), 0.0
    optimiser = torch.optim.SGD(method.parameters(), 0.3)
    for _ in range(60):
        optimiser.zero_grad()
        terms = method.loss(TrainBatch((), (), class_batch=(images, ids)))
        terms.total.backward()
        optimiser.step()
        found = terms.terms["turning_accuracy"].item()
    assert found > 0.99


def fix_shares(monkeypatch: pytest.MonkeyPatch, n: int) -> torch.Tensor:
    """What Beta would draw, known to the test."""
    shares = torch.rand(n, generator=torch.Generator().manual_seed(3))
    monkeypatch.setattr(torch.distributions.Beta, "sample", lambda self, *_: shares.to(self.concentration0.device))
    return shares


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("turned", [0.0, 0.25])
@pytest.mark.parametrize("mixup_of", ["pixels", "features"])
def test_mixup_is_the_same_mixture_of_images_and_of_losses(
    mixup_of: Any, turned: float, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow oracle: image by image, two cross-entropies weighted; turned images keep to themselves."""
    method = make(mixup=0.4, mixup_of=mixup_of, turned=turned, label_smoothing=smoothing, turning_weight=0.0)
    (images, ids), kept = pictures().class_batch or (), int(turned * 40)
    shares = fix_shares(monkeypatch, 40 - kept)
    terms = method.loss(pictures())
    seen, losses, right = method.backbone.seen, [], []
    assert seen.dtype == torch.uint8
    for i in range(40):
        other = i if i < kept else kept + (i - 1 - kept) % (40 - kept)
        share = 1.0 if i < kept else shares[i - kept].item()
        picture, partner = ((seen if i < kept else images)[j].float() for j in (i, other))
        mixture = share * picture + (1 - share) * partner
        if mixup_of == "pixels":
            assert torch.equal(seen[i], mixture.round().to(torch.uint8))
            mixture = seen[i].float()
        logits = method.head(mixture.flatten() / 255)
        both = [F.cross_entropy(logits, ids[j], label_smoothing=smoothing) for j in (i, other)]
        losses.append(share * both[0] + (1 - share) * both[1])
        right.append(logits.argmax() == ids[i if share >= 0.5 else other])
    assert torch.allclose(terms.total, torch.stack(losses).mean(), atol=1e-5)
    assert terms.terms["accuracy"] == torch.stack(right).float().mean()
    if mixup_of == "features":
        assert torch.equal(seen[kept:], images[kept:])
        assert torch.allclose(method.base_mean, (images[kept:] / 255).flatten(1).mean(0), atol=1e-6)


def test_shares_are_those_of_beta_and_drawn_anew() -> None:
    method, images = make(mixup=0.5), torch.zeros(4000, 3, 4, 4, dtype=torch.uint8)
    first, again = (method._draw_mixing(images, 0)[0].shares for _ in range(2))
    assert not torch.equal(first, again) and not torch.equal(first[:-1], first[1:])
    assert first.mean().item() == pytest.approx(0.5, abs=0.02)
    assert first.var().item() == pytest.approx(1 / 8, abs=0.01)  # 1 / (4 (2 alpha + 1))


def test_features_from_a_store_are_mixed_as_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    shares, (images, ids) = fix_shares(monkeypatch, 40)[:, None], pictures().class_batch or ()
    features, method = images.flatten(1) / 200, make(mixup=0.4)
    logits = method.head((shares * features + (1 - shares) * features.roll(1, 0)) / 255)
    mixed = shares * F.one_hot(ids, 5) + (1 - shares) * F.one_hot(ids.roll(1), 5)
    assert torch.allclose(
        method.loss(TrainBatch((), (), class_batch=(features, ids))).total, F.cross_entropy(logits, mixed)
    )


@pytest.mark.parametrize("mixup_of", ["pixels", "features"])
def test_a_teacher_answers_the_same_images_and_is_left_as_it_is(mixup_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """(1 - b) CE + b t^2 KL(teacher || student), written out; the turning head has no part in it."""
    settings = {"turned": 0.25, "turning_weight": 0.0, "mixup": 0.4, "mixup_of": mixup_of, "label_smoothing": 0.1}
    method, plain = (make(**settings, distillation=0.3, distillation_temperature=2.0) for _ in range(2))
    teacher = make(head="cosine").eval().requires_grad_(False)
    nn.init.normal_(teacher.head.weight, generator=torch.Generator().manual_seed(7))
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    shares = fix_shares(monkeypatch, 30)[:, None]
    method.teachers = (teacher,)
    torch.manual_seed(4)
    alone = plain.loss(pictures())
    torch.manual_seed(4)
    terms = method.train().loss(pictures())
    seen = method.backbone.seen
    assert torch.equal(seen, teacher.backbone.seen) and torch.equal(seen, plain.backbone.seen)
    features = seen.flatten(1) / 255
    if mixup_of == "features":
        features[10:] = shares * features[10:] + (1 - shares) * features[10:].roll(1, 0)
    theirs, ours = ((each._base_logits(features) / 2).softmax(-1) for each in (teacher, method))
    divergence = (theirs * (theirs / ours).log()).sum(-1).mean()
    assert divergence > 0.01 and torch.allclose(terms.terms["distilled"], 4 * divergence, atol=1e-5)
    assert torch.allclose(terms.total, 0.7 * alone.total + 0.3 * 4 * divergence, atol=1e-5)
    terms.total.backward()
    assert not teacher.training and all(torch.equal(before[name], v) for name, v in teacher.state_dict().items())
    assert method.state_dict().keys() == plain.state_dict().keys()
    assert len(list(method.parameters())) == len(list(plain.parameters()))


@pytest.mark.parametrize(("shape", "told"), [((3, 4, 6), "3x4x6"), ((6,), "6")])
def test_only_square_images_are_turned(shape: tuple[int, ...], told: str) -> None:
    images = torch.zeros(4, *shape, dtype=torch.uint8)
    with pytest.raises(
        EngramError, match=rf"turned = 0.5 but images of {told} do not fit .* square images or turned = 0"
    ):
        make(turned=0.5).loss(TrainBatch((), (), class_batch=(images, torch.zeros(4, dtype=torch.int64))))


def test_settings_that_cannot_work_are_told() -> None:
    for settings, sentence in (
        ({"distillation": 1.5}, "distillation = 1.5 but it makes sense from 0 to 1 alone"),
        ({"distillation_temperature": 0.0}, "distillation_temperature = 0.0 but it must be above 0"),
        ({"mixup": -0.1}, "mixup = -0.1 but at least 0 is needed"),
        ({"mixup": float("inf")}, "mixup = inf but it must be finite"),
        ({"mixup": 0.2, "turned": 1.0}, "mixup = 0.2 but turned = 1 leaves no image to mix"),
        ({"turning_weight": -1.0}, "turning_weight = -1.0 but at least 0 is needed"),
    ):
        with pytest.raises(EngramError, match=sentence):
            make(**settings)


def test_a_step_never_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A meta tensor has no numbers: whoever looks at one fails."""
    ids = torch.empty(8, dtype=torch.int64, device="meta")
    images = torch.empty(8, 3, 4, 4, dtype=torch.uint8, device="meta")
    fix_shares(monkeypatch, 4)  # meta tensors know no Beta
    for mixup_of in ("pixels", "features"):
        method = make(turned=0.5, mixup=0.2, mixup_of=mixup_of).to("meta")
        method._ids_checked = True
        method.teachers = (make().to("meta").eval(),)
        method.loss(TrainBatch((), (), class_batch=(images, ids))).total.backward()
