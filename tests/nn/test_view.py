"""Features looked at through what is remembered: the closed form, and what it is for."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from engram.nn.view import CENTRE, SHRINKAGE, fit_view


@pytest.mark.parametrize("pictures", [6, 60])
def test_the_view_is_the_whitening_of_the_scatter_within_classes(pictures: int) -> None:
    """Both ways to the eigenvectors, fewer pictures than features and more, against the matrix written out."""
    torch.manual_seed(0)
    labels = torch.arange(pictures) % 3
    features = torch.randn(pictures, 20).double() + 2 * torch.randn(3, 20).double()[labels]
    look = fit_view(features.float(), labels, 3)
    units = F.normalize(features, dim=-1)
    centre = CENTRE * torch.stack([units[labels == c].mean(0) for c in range(3)]).mean(0)
    centred = F.normalize(units - centre, dim=-1)
    rest = centred - torch.stack([centred[labels == c].mean(0) for c in range(3)])[labels]
    scatter = rest.T @ rest
    values, vectors = torch.linalg.eigh(torch.eye(20) + scatter / (SHRINKAGE * scatter.trace()))
    expected = F.normalize(centred @ vectors @ torch.diag(values.rsqrt()) @ vectors.T, dim=-1)
    torch.testing.assert_close(look(features.float()).double(), expected, rtol=1e-3, atol=1e-4)


def test_one_picture_of_each_class_is_centred_alone() -> None:
    features = torch.rand(4, 8)
    look = fit_view(features, torch.arange(4), 4)
    assert look.rooted and len(look.directions) == 0
    units = F.normalize(features.sqrt(), dim=-1)
    torch.testing.assert_close(look(features), F.normalize(units - CENTRE * units.mean(0), dim=-1))


def test_features_below_zero_have_no_root() -> None:
    assert not fit_view(torch.randn(4, 8), torch.tensor([0, 0, 1, 1]), 2).rooted


def test_equal_pictures_and_zeros_do_not_divide_by_zero() -> None:
    look = fit_view(torch.zeros(4, 8), torch.tensor([0, 0, 1, 1]), 2)
    assert look(torch.rand(2, 8)).isfinite().all() and look(torch.zeros(1, 8)).isfinite().all()


def test_what_differs_within_a_class_counts_less() -> None:
    """One direction is noise: seen through the view, a query is told by the other."""
    torch.manual_seed(1)
    labels = torch.arange(20) % 2
    features = torch.randn(20, 2) * torch.tensor([5.0, 0.1]) + torch.tensor([[0.0, 1.0], [0.0, -1.0]])[labels]
    features = torch.cat([features, torch.full((20, 1), 0.5)], 1)
    look = fit_view(features, labels, 2)
    means = torch.stack([look(features)[labels == c].mean(0) for c in range(2)])
    queries = torch.tensor([[4.0, 0.9, 0.5], [4.0, -0.9, 0.5], [-4.0, 0.9, 0.5], [-4.0, -0.9, 0.5]])
    assert (look(queries) @ means.T).argmax(1).tolist() == [0, 1, 0, 1]
