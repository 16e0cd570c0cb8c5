"""Nearest centroid on pixels: by hand, and free of the images' scale and size."""

from __future__ import annotations

import torch
from torch import nn

from engram.methods.pixel_centroid import PixelCentroid, PixelCentroidConfig
from engram.types import Episode


def ask(support: torch.Tensor, labels: torch.Tensor, query: torch.Tensor, n_way: int = 2) -> torch.Tensor:
    method = PixelCentroid(nn.Identity(), PixelCentroidConfig())
    return method.predict(Episode(support, labels, query, n_way)).log_probs.exp()


def test_one_query_by_hand() -> None:
    """Class means 0 and 2, the query at 0.5: squared distances 0.25 and 2.25, a tenth of their mean is 0.125."""
    found = ask(torch.tensor([[[-1.0], [1.0], [2.0]]]), torch.tensor([[0, 0, 1]]), torch.tensor([[[0.5]]]))
    torch.testing.assert_close(found[0, 0], torch.tensor([-0.25, -2.25]).div(0.125).softmax(-1))


def test_bytes_and_larger_images_of_the_same_answer_alike() -> None:
    torch.manual_seed(0)
    support, query = (torch.randint(0, 256, (2, n, 1, 6, 6), dtype=torch.uint8) for n in (4, 3))
    labels = torch.tensor([[0, 1, 1, 0], [1, 1, 0, 0]])
    expected = ask(support, labels, query)
    torch.testing.assert_close(ask(support / 255, labels, query / 255), expected)
    twice = [part.repeat_interleave(2, -1).repeat_interleave(2, -2) for part in (support, query)]
    torch.testing.assert_close(ask(twice[0], labels, twice[1]), expected)


def test_a_query_does_not_know_the_others() -> None:
    torch.manual_seed(0)
    support, labels, query = torch.randn(1, 4, 5), torch.tensor([[0, 1, 0, 1]]), torch.randn(1, 6, 5)
    torch.testing.assert_close(ask(support, labels, query)[:, :1], ask(support, labels, query[:, :1]))
