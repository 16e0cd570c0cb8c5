"""Confidence from what is remembered: honest where pictures are held out, stored where they are too few."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engram.classifier.calibration import (
    Calibration,
    _area,
    _grown,
    _logistic,
    _place_in_class,
    _temperature,
    calibrate,
    scores,
    stored,
)
from engram.classifier.engine import Engine
from engram.classifier.opening import open_engine
from engram.types import Prediction


@pytest.fixture(scope="module")
def engine() -> Engine:
    return open_engine(None, "imagenet", None, False, "cpu")


def memory(n_way: int, shots: int, spread: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features around class means, and labels."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(n_way, 1280, generator=generator)
    labels = torch.arange(n_way).repeat(shots)
    return (means[labels] + spread * torch.randn(len(labels), 1280, generator=generator)).clamp(min=0), labels


def test_few_pictures_leave_the_stored_constants(engine: Engine) -> None:
    for n_way, shots in ((5, 1), (2, 4), (40, 1)):
        found = calibrate(engine, *memory(n_way, shots, 1.0), n_way)
        assert found == stored(engine, n_way * shots, n_way) and "stored for these weights" in found.says()
        assert found.one_each == (shots == 1) == found.says().startswith("a guess, for there is one picture of each")


def test_stated_and_true_shares_agree_on_pictures_to_come(engine: Engine) -> None:
    features, labels = memory(10, 15, 4.0)
    known, asked = slice(0, 50), slice(50, 150)
    sure = calibrate(engine, features[known], labels[known], 10)
    assert sure.held_out == 50 and "fitted on 50 remembered pictures" in sure.says()
    answer = engine.answer(features[known], labels[known], features[asked], 10, calibration=sure)
    right = (answer.log_probs.argmax(-1) == labels[asked]).float().mean()
    gap = abs(float(answer.log_probs.exp().amax(-1).mean() - right))
    alone = engine.answer(features[known], labels[known], features[asked], 10).log_probs.exp().amax(-1).mean()
    assert gap < 0.6 * abs(float(alone - right))


@pytest.mark.parametrize("queries", [2, 10])
def test_transductive_answers_are_as_sure_as_the_company_of_their_queries_allows(queries: int) -> None:
    """Pictures held out are asked among the queries, for few of these that inform each other look surer than many."""
    joint, gaps = open_engine(None, "imagenet", None, True, "cpu"), []
    for seed in range(6):
        features, labels = memory(10, 5 + queries, 5.0, seed)
        known, query, truth = (features[:50], labels[:50]), features[50:], labels[50:]
        sure = calibrate(joint, *known, 10, query)
        assert sure.held_out == 50 and sure.tells_strangers is not None
        found = [joint.answer(*known, query, 10, calibration=c).log_probs for c in (sure, Calibration())]
        gaps.append([float(p.exp().amax(-1).mean() - (p.argmax(-1) == truth).float().mean()) for p in found])
    gap, untold = torch.tensor(gaps).mean(0).abs()
    assert gap < 0.3 * untold
    alone = calibrate(joint, *known, 10)
    assert alone == stored(joint, 50, 10) and alone.temperature > stored(joint, 50, 10, 120).temperature


def test_classes_that_cannot_be_told_apart_are_said_to_be_so(engine: Engine) -> None:
    noise = torch.rand(50, 1280, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(5).repeat(10)
    sure = calibrate(engine, noise, labels, 5)
    assert "pictures of other classes cannot be told from these" in sure.says()
    answer = engine.answer(noise, labels, torch.rand(20, 1280), 5, calibration=sure)
    assert float(answer.log_probs.exp().amax(-1).mean()) < 0.5
    clear = calibrate(engine, *memory(5, 10, 0.5), 5)
    assert clear.tells_strangers is not None and clear.tells_strangers > 0.95 and "cannot" not in clear.says()


def test_weights_without_constants_say_that_nothing_was_fitted(engine: Engine) -> None:
    bare = replace(engine, temperatures={}, familiarities={}, view=False)
    assert calibrate(bare, *memory(5, 1, 1.0), 5) == Calibration() and "not fitted" in Calibration().says()
    fitted = calibrate(bare, *memory(5, 5, 1.0), 5)
    assert fitted.held_out == 25 and fitted.familiarity and fitted.tells_strangers == 1.0


@pytest.mark.parametrize(("weights", "width"), [("photographs", 128), ("glyphs", 64)])
def test_constants_that_were_fitted_on_other_pictures_are_overruled(weights: str, width: int) -> None:
    """Features that lie close together, as those of drawings seen by an encoder of photographs: right, but unsure."""
    engine = open_engine(None, weights, None, False, "cpu")
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(10).repeat(15)
    means = 1 + 0.3 * torch.randn(10, width, generator=generator)
    features = means[labels] + 0.3 * torch.randn(150, width, generator=generator)
    known, asked, truth = (features[:50], labels[:50]), features[50:], labels[50:]
    sure = calibrate(engine, *known, 10)
    assert sure.held_out == 50 and "fitted on 50 remembered pictures" in sure.says()
    before, after = (engine.answer(*known, asked, 10, calibration=c) for c in (None, sure))
    assert torch.equal(before.log_probs.argmax(-1), after.log_probs.argmax(-1))
    right = float((after.log_probs.argmax(-1) == truth).float().mean())
    gaps = [abs(float(answer.log_probs.exp().amax(-1).mean()) - right) for answer in (before, after)]
    assert gaps[0] > 0.3 and gaps[1] < 0.1
    strangers = 1 + 0.4 * torch.randn(50, width, generator=generator)
    unlike = engine.answer(*known, strangers, 10, calibration=sure).familiarity.mean()
    assert after.familiarity.mean() > 0.7 and unlike < 0.4


def test_votes_that_are_all_near_one_keep_their_differences() -> None:
    logits = torch.tensor([[[9.0, 7.0, 5.0]]])
    votes = torch.stack([logits.sigmoid(), logits.sigmoid()])
    shares = votes.mean(0) / votes.mean(0).sum(-1, keepdim=True)
    found = Prediction(shares.log(), details={"votes": votes, "samples": votes / votes.sum(-1, keepdim=True)})
    torch.testing.assert_close(scores(found), logits, atol=1e-2, rtol=0)
    torch.testing.assert_close(scores(found, each=True), logits.expand(2, 1, 1, 3), atol=1e-2, rtol=0)
    plain = Prediction(shares.log(), details={"samples": shares[None]})
    assert scores(plain) is plain.log_probs and torch.equal(scores(plain, each=True)[0], shares.log())
    assert float(scores(plain)[..., 0] - scores(plain)[..., 2]) < 0.01


def test_answers_are_on_average_nearly_as_sure_as_they_are_right() -> None:
    """No temperature fits where some scores lie far apart and most do not; the likeliest leaves answers too unsure."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(2000) % 20
    wide = torch.rand(2000, 1, generator=generator) < 0.25
    found = torch.randn(2000, 20, generator=generator) * torch.where(wide, 3, 1)
    found[torch.arange(2000), truth] += 3
    steps = torch.linspace(-3, 3, 241).exp()
    likely = [float(-(found / t).log_softmax(-1).gather(1, truth[:, None]).sum()) for t in steps]
    right = float((found.argmax(-1) == truth).float().mean())
    temperatures = float(steps[min(range(241), key=likely.__getitem__)]), _temperature(found, truth, 1.0)
    gaps = [right - float((found / t).softmax(-1).amax(-1).mean()) for t in temperatures]
    assert 0 < gaps[1] < 0.7 * gaps[0]


def test_few_answers_move_a_stored_temperature_less_than_many() -> None:
    truth = torch.arange(10) % 5
    found = torch.nn.functional.one_hot(truth, 5).float()  # all right, so the lower the better
    few, many = (_temperature(found.repeat(times, 1), truth.repeat(times), 1.0) for times in (1, 30))
    assert many < few < 1


@pytest.mark.parametrize("spread", [3.0, 12.0])
def test_a_temperature_grows_from_the_pictures_left_to_those_at_hand(spread: float) -> None:
    """From one picture, the other held out, to two: near the best temperature of pictures to come."""
    bare = replace(open_engine(None, "imagenet", None, False, "cpu"), temperatures={}, view=False)
    features, labels = memory(40, 17, spread)
    known, asked = (features[:80], labels[:80]), (features[80:], labels[80:])
    best = _temperature(bare.compare(*known, asked[0], 40)[0], asked[1], 1.0)
    fitted = calibrate(bare, *known, 40).temperature
    assert abs(torch.tensor(fitted / best).log()) < 0.15
    left = _temperature(bare.compare(features[:40], labels[:40], features[40:80], 40)[0], labels[40:80], 1.0)
    assert fitted < 0.95 * left
    clear, vague = torch.eye(5) * 9 + torch.rand(5, 5), torch.eye(5) * 0.1 + torch.rand(5, 5)
    truth = torch.arange(5)
    assert _grown(vague, truth, 1, 2, 2.0) < _grown(clear, truth, 1, 2, 2.0) < _grown(clear, truth, 9, 10, 2.0) < 1


def test_methods_that_need_all_their_pictures_keep_the_stored_constants(engine: Engine) -> None:
    """One that was made for a number of pictures cannot do without one of them."""
    method = copy.copy(engine.method)
    method.card = replace(method.card, fixed_shots=True)
    assert calibrate(replace(engine, method=method), *memory(5, 5, 1.0), 5) == stored(engine, 25, 5)


def test_classes_that_are_never_recognised_have_no_familiarity_to_speak_of() -> None:
    assert _logistic(torch.ones(10), torch.ones(10), (0.0, 0.0)) == (0.0, 0.0)
    slope, offset = _logistic(0.99 + 0.001 * torch.arange(10), 0.98 + 0.001 * torch.arange(10), (200.0, -100.0))
    assert slope > 100 and slope * 0.982 + offset < 0 < slope * 0.997 + offset


def test_pictures_of_a_class_are_counted_from_the_newest() -> None:
    assert _place_in_class(torch.tensor([0, 1, 0, 0, 2, 1])).tolist() == [2, 1, 1, 0, 0, 0]


def test_area_under_the_curve_counts_ties_half() -> None:
    known, strange = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 0.0])
    assert _area(known, strange) == pytest.approx((0.5 + 0.75 + 1.0) / 3)
