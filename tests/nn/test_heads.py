"""What heads share: means by label, distances, and labels as rows."""

import pytest
import torch

from engram.errors import EngramError
from engram.nn.heads import check_ways, class_means, class_sums, distances, one_hot, squared_distances


def test_squared_distances_agree_with_loops() -> None:
    a, b = torch.randn(2, 3, 5), torch.randn(2, 4, 5)
    for i in range(3):
        for j in range(4):
            expected = ((a[:, i] - b[:, j]) ** 2).sum(-1)
            assert torch.allclose(squared_distances(a, b)[:, i, j], expected, atol=1e-4)


def test_unlabelled_supports_do_not_enter_a_mean() -> None:
    features, labels = torch.randn(1, 4, 3), torch.tensor([[0, 1, -1, 0]])
    means = class_means(features, labels, 2)
    assert torch.allclose(means[0, 0], (features[0, 0] + features[0, 3]) / 2)
    assert torch.allclose(means[0, 1], features[0, 1])
    assert one_hot(labels, 2)[0, 2].tolist() == [0, 0]


def test_sums_are_means_times_members() -> None:
    features, labels = torch.randn(1, 5, 3), torch.tensor([[0, 1, -1, 0, 0]])
    expected = class_means(features, labels, 3) * torch.tensor([3.0, 1.0, 0.0])[:, None]
    assert torch.allclose(class_sums(features, labels, 3), expected, atol=1e-6)
    assert not class_means(features, labels, 3)[0, 2].any()  # a class without members lies at 0, not at nan


def test_a_cosine_distance_does_not_know_lengths() -> None:
    a, b = torch.randn(1, 2, 4), torch.randn(1, 3, 4)
    found = distances(a, b, "cosine")
    assert torch.allclose(found, distances(3 * a, 0.1 * b, "cosine"), atol=1e-6)
    assert torch.allclose(found, 1 - torch.cosine_similarity(a[:, :, None], b[:, None], -1), atol=1e-6)
    assert torch.equal(distances(a, b, "euclidean"), squared_distances(a, b))


def test_weights_tied_to_the_ways_meet_other_ways() -> None:
    check_ways(5, 5, "GNN")
    with pytest.raises(EngramError, match=r"GNN was built for 5 ways but the task has 3: .* train with .* n_way = 3"):
        check_ways(3, 5, "GNN")
