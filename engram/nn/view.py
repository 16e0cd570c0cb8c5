"""How frozen features are looked at, so that a plain cosine tells classes apart that the encoder was never taught."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from engram.nn.heads import class_means

CENTRE, SHRINKAGE = 0.7, 0.03
"""chosen on birds that the tests do not have: docs/own-images.md"""


class View(NamedTuple):
    """x -> unit(W (unit(sqrt x) - 0.7 c)): c the mean of what is remembered, W whitens the scatter within its classes.

    The root is taken of features that are never negative, averages of a ReLU. Taking all of c away would leave nothing
    that tells a stranger. W = (1 + S_w / a)^-1/2 with a = 0.03 tr S_w shortens the directions in which pictures of one
    class differ and leaves all others; S_w has rank r, at most pictures minus classes.
    """

    rooted: bool
    centre: Tensor
    """(d,)"""
    directions: Tensor
    """(r, d) orthonormal"""
    factors: Tensor
    """(r,) what each direction is multiplied by, less 1"""

    def __call__(self, features: Tensor) -> Tensor:
        """(n, ...) -> (n, d) unit vectors"""
        centred = _centred(features, self.rooted, self.centre)
        return F.normalize(centred + (centred @ self.directions.T * self.factors) @ self.directions, dim=-1)


def fit_view(features: Tensor, labels: Tensor, n_way: int) -> View:
    """The view of S remembered pictures: (S, ...), (S,)"""
    flat = features.flatten(1)
    rooted = bool((flat >= 0).all())
    units = _centred(flat, rooted, flat.new_zeros(flat.shape[1]))
    centre = CENTRE * class_means(units[None], labels[None], n_way)[0].mean(0)
    centred = _centred(flat, rooted, centre)
    rest = centred - class_means(centred[None], labels[None], n_way)[0][labels]
    freedom = len(flat) - n_way
    least = SHRINKAGE * rest.square().sum()
    if freedom < 1 or not least:
        return View(rooted, centre, flat.new_zeros(0, flat.shape[1]), flat.new_zeros(0))
    values, directions = _principal(rest)
    return View(rooted, centre, directions, (least / (least + values)).sqrt() - 1)


def _centred(features: Tensor, rooted: bool, centre: Tensor) -> Tensor:
    flat = features.flatten(1)
    return F.normalize(F.normalize(flat.clamp(min=0).sqrt() if rooted else flat, dim=-1) - centre, dim=-1)


def _principal(rest: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (r,) of R'R that are above rounding and their vectors (r, d), from the smaller of R'R and RR'."""
    wide = len(rest) < rest.shape[1]
    # in double: with many equal eigenvalues, as of classes of one picture, single precision may not converge
    found = torch.linalg.eigh((rest @ rest.T if wide else rest.T @ rest).double())
    values, vectors = (part.to(rest.dtype) for part in found)
    kept = values > 1e-5 * values[-1]
    values, vectors = values[kept], vectors[:, kept]
    return values, (vectors.T @ rest / values.sqrt()[:, None] if wide else vectors.T)
