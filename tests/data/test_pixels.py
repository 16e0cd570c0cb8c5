import pytest
import torch

from engram.data.pixels import NORMALISATIONS, augment


def images() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(1, 256, (16, 3, 20, 20), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("kind", ["none", "crop", "crop_flip", "affine"])
def test_shape_and_type_stay_and_a_seed_repeats(kind: str) -> None:
    first = augment(images(), kind, torch.Generator().manual_seed(5))
    assert first.shape == images().shape and first.dtype == torch.uint8
    assert torch.equal(first, augment(images(), kind, torch.Generator().manual_seed(5)))
    assert torch.equal(first, images()) == (kind == "none")


def test_a_crop_is_a_shift_with_zero_padding() -> None:
    """Slow oracle: each result equals one of the 81 windows of the padded image, and several windows are used."""
    source = images()
    result = augment(source, "crop", torch.Generator().manual_seed(1))
    padded = torch.nn.functional.pad(source, (4, 4, 4, 4))
    windows = set()
    for i in range(len(source)):
        found = [
            (y, x) for y in range(9) for x in range(9) if torch.equal(padded[i, :, y : y + 20, x : x + 20], result[i])
        ]
        assert len(found) == 1
        windows.add(found[0])
    assert len(windows) > 5


def test_flip_mirrors_about_half_of_the_images() -> None:
    source = torch.arange(20, dtype=torch.uint8).expand(200, 1, 20, 20).contiguous() + 1
    result = augment(source, "crop_flip", torch.Generator().manual_seed(2))
    middle = result[:, 0, 10, 8:12].int()
    mirrored = (middle[:, 0] > middle[:, -1]).float().mean()
    assert 0.35 < mirrored < 0.65


def test_normalisations_are_on_the_unit_scale() -> None:
    for name, (mean, std) in NORMALISATIONS.items():
        assert len(mean) == len(std) and all(s > 0 for s in std) and all(0 <= m <= 1 for m in mean), name
