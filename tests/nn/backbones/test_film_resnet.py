"""A task scales and shifts the layers of its images, and of no others."""

from __future__ import annotations

import pytest
import torch

from engram.nn.backbones.film_resnet import FilmResNet12

WIDTHS = (4, 4, 8, 8)


@pytest.fixture
def backbone() -> FilmResNet12:
    torch.manual_seed(0)
    return FilmResNet12((1, 20, 20), WIDTHS).eval()


def test_zeros_change_nothing(backbone: FilmResNet12) -> None:
    images = torch.randn(3, 1, 20, 20)
    film = torch.zeros(3, 2 * sum(backbone.film_widths))
    assert backbone.film_widths == (4,) * 6 + (8,) * 6
    torch.testing.assert_close(backbone(images, film), backbone(images))


def test_conditions_reach_their_own_image_alone(backbone: FilmResNet12) -> None:
    images, film = torch.randn(3, 1, 20, 20), torch.zeros(3, 2 * sum(backbone.film_widths))
    film[1] = 0.5
    changed = (backbone(images, film) - backbone(images)).abs().amax(1)
    assert changed[1] > 1e-3 and changed[[0, 2]].max() < 1e-6


def test_gamma_scales_and_beta_shifts_a_layer(backbone: FilmResNet12) -> None:
    """In the last layer of the last block gamma = -1 leaves beta alone beside the shortcut."""
    block, inputs = backbone.blocks[3], torch.randn(2, 8, 3, 3)
    film = [torch.zeros(2, 8) for _ in range(6)]
    film[4], film[5] = torch.full((2, 8), -1.0), torch.full((2, 8), 0.3)
    torch.testing.assert_close(block(inputs, film), torch.nn.functional.silu(0.3 + block.shortcut(inputs)))
