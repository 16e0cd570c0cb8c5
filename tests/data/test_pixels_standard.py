"""The augmentation of photographs: window, mirror and colour, each against what it is meant to be."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from engram.data import pixels
from engram.data.pixels import CROP, Crop, augment


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("channels", [1, 3])
def test_shape_and_type_stay_and_chunks_make_no_difference(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = torch.randint(0, 256, (11, channels, 12, 16), dtype=torch.uint8, generator=generator(0))
    whole = augment(source, "standard", generator())
    assert whole.shape == source.shape and whole.dtype == torch.uint8 and not torch.equal(whole, source)
    monkeypatch.setattr(pixels, "CHUNK", 4)
    assert torch.equal(whole, augment(source, "standard", generator()))
    assert not torch.equal(whole, augment(source, "standard", generator(6)))


def edges(monkeypatch: pytest.MonkeyPatch, size: int, crop: Crop = CROP) -> tuple[torch.Tensor, ...]:
    """Left, right, top and bottom of 1,000 windows: a ramp over x and one over y read off where each came from."""
    monkeypatch.setattr(pixels, "_recolour", lambda images, jitter: images)
    ramp, middle = torch.arange(size, dtype=torch.uint8) * 3, size // 2
    source = torch.stack([ramp.expand(size, size), ramp[:, None].expand(size, size)])[None].expand(1000, 2, size, size)
    seen = augment(source, "standard", generator(), crop).float() / 3
    return seen[:, 0, middle, 0], seen[:, 0, middle, -1], seen[:, 1, 0, middle], seen[:, 1, -1, middle]


def test_window_is_inside_the_image_and_70_to_100_percent_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 80
    left, right, top, bottom = edges(monkeypatch, size)
    width, height = (right - left).abs() + 1, bottom - top + 1
    assert torch.allclose(width, height, atol=1.5)
    area = width * height / size**2
    assert area.min() > 0.67 and area.max() < 1.03 and 0.8 < area.mean() < 0.9
    assert top.min() >= 0 and bottom.max() <= size - 1
    assert top.max() > 8 and bottom.min() < size - 9  # windows at both ends
    assert 0.45 < (right < left).float().mean() < 0.55


def test_windows_of_another_area_and_aspect_are_inside_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 80
    left, right, top, bottom = edges(monkeypatch, size, Crop((0.2, 1.0), (0.5, 2.0)))
    assert min(left.min(), right.min(), top.min()) >= 0 and max(left.max(), right.max(), bottom.max()) <= size - 1
    width, height = (right - left).abs() + 1, bottom - top + 1
    area, aspect = width * height / size**2, width / height
    assert 0.17 < area.min() < 0.25 and 0.9 < area.max() < 1.03
    assert 0.45 < aspect.min() < 0.6 and 1.7 < aspect.max() < 2.2 and aspect.log().mean().abs() < 0.05
    left, right, top, bottom = edges(monkeypatch, size, Crop((1.0, 1.0), (2.0, 2.0)))
    assert (left - right).abs().min() == size - 1 and torch.allclose(
        bottom - top + 1, torch.tensor(size / 2**0.5), atol=1
    )


def test_default_windows_are_those_of_before_there_was_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, and no further number is drawn."""
    monkeypatch.setattr(pixels, "_recolour", lambda images, jitter: images)
    source = torch.randint(0, 256, (300, 3, 12, 16), dtype=torch.uint8, generator=generator(0))
    ours, theirs = generator(), generator()
    area, shift_x, shift_y, mirror, *_ = torch.rand(7, 300, generator=theirs)
    side = (0.7 + 0.3 * area).sqrt()
    shift_x, shift_y = ((2 * shift - 1) * (1 - side) for shift in (shift_x, shift_y))
    zero, flipped = torch.zeros_like(side), torch.where(mirror < 0.5, -side, side)
    window = torch.stack([flipped, zero, shift_x, zero, side, shift_y], 1).view(-1, 2, 3)
    grid = F.affine_grid(window, list(source.shape), align_corners=False)
    expected = F.grid_sample(source.float(), grid, padding_mode="border", align_corners=False).round().to(torch.uint8)
    assert torch.equal(augment(source, "standard", ours), expected)
    assert torch.equal(ours.get_state(), theirs.get_state())


def test_flat_images_show_brightness_alone() -> None:
    """On a grey image without contrast only brightness is left: 0.6 to 1.4 of the value, evenly."""
    source = torch.full((400, 3, 8, 8), 100, dtype=torch.uint8)
    result = augment(source, "standard", generator())
    assert torch.equal(result, result[:, :1, :1, :1].expand_as(result))
    values = result[:, 0, 0, 0].float()
    assert 60 <= values.min() < 64 and 136 < values.max() <= 140 and 97 < values.mean() < 103


def test_colour_matrix_equals_the_three_steps_one_by_one() -> None:
    """Slow oracle: saturation, then contrast, then brightness, each as torchvision blends."""
    images = torch.rand(4, 3, 5, 6, generator=generator()) * 255
    jitter = torch.rand(4, 3, generator=generator()) + 0.5
    weights = torch.tensor([0.299, 0.587, 0.114])
    for image, (brightness, contrast, saturation), found in zip(
        images, jitter, pixels._recolour(images, jitter), strict=True
    ):
        grey = (weights[:, None, None] * image).sum(0)
        saturated = saturation * image + (1 - saturation) * grey
        mean = (weights[:, None, None] * saturated).sum(0).mean()
        assert torch.allclose(found, brightness * (contrast * saturated + (1 - contrast) * mean), atol=1e-2)


def test_one_channel_has_no_saturation() -> None:
    images, jitter = torch.rand(3, 1, 5, 5, generator=generator()) * 255, torch.tensor([[1.2, 0.8, 0.6]] * 3)
    changed = jitter.clone()
    changed[:, 2] = 1.4
    assert torch.allclose(pixels._recolour(images, jitter), pixels._recolour(images, changed), atol=1e-3)
    mean = images.mean((1, 2, 3), keepdim=True)
    assert torch.allclose(pixels._recolour(images, jitter), 1.2 * (0.8 * images + 0.2 * mean), atol=1e-2)


@pytest.mark.parametrize("channels", [1, 3])
def test_nothing_waits_for_the_device(channels: int) -> None:
    """A meta tensor has no numbers: whoever looks at one fails."""
    images = torch.empty(5, channels, 9, 9, dtype=torch.uint8, device="meta")
    for crop in (CROP, Crop((0.2, 1.0), (0.75, 1.3333))):
        assert augment(images, "standard", crop=crop).is_meta
