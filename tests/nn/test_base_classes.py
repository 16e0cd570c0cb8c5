"""Base classes set aside, and the cross-entropy over what is left, against plain loops."""

import numpy as np
import pytest
import torch

from engram.nn.backbones import build_backbone
from engram.nn.base_classes import cosine_logits, joint_nll, set_aside


def test_what_is_left_and_where_it_stands():
    ids = torch.tensor([[4, 0], [1, 2]])
    kept, column = set_aside(ids, 6)
    assert kept.tolist() == [[1, 2, 3, 5], [0, 3, 4, 5]]
    assert column.tolist() == [[-1, 0, 1, 2, -1, 3], [0, -1, -1, 1, 2, 3]]
    many = torch.stack([torch.randperm(64)[:5] for _ in range(20)])
    kept, column = set_aside(many, 64)
    for b in range(20):
        expected = [c for c in range(64) if c not in many[b].tolist()]
        assert kept[b].tolist() == expected
        assert [int(column[b, c]) for c in expected] == list(range(59))


def test_setting_aside_looks_at_no_number():
    kept, column = set_aside(torch.zeros(3, 5, dtype=torch.int64, device="meta"), 64)
    assert kept.shape == (3, 59) and column.shape == (3, 64)


def test_joint_cross_entropy_in_loops():
    logits, columns = torch.randn(2, 5, 4), torch.tensor([[0, 3, -1, 2, 1], [-1, -1, 1, 0, 2]])
    losses = []
    for b in range(2):
        for i in range(5):
            if columns[b, i] >= 0:
                row = np.exp(logits[b, i].double().numpy())
                losses.append(-np.log(row[columns[b, i]] / row.sum()))
    assert joint_nll(logits, columns).item() == pytest.approx(np.mean(losses), rel=1e-5)
    assert joint_nll(logits, torch.full((2, 5), -1)).item() == 0  # nobody left is no reason for nan


def test_cosines_know_no_lengths():
    features, weights = torch.randn(3, 4, 6), torch.randn(5, 6)
    found = cosine_logits(features, weights, torch.tensor(3.0))
    expected = 3 * torch.nn.functional.cosine_similarity(features[:, :, None], weights[None, None], dim=-1)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(cosine_logits(7 * features, 0.1 * weights, torch.tensor(3.0)), expected)


def test_features_of_the_signed_encoder_have_both_signs():
    backbone = build_backbone("conv64_signed", (3, 84, 84), {}).eval()
    assert backbone.out_shape == (1600,)
    assert build_backbone("conv64_signed", (3, 84, 84), {"widths": [64, 64, 128, 128]}).out_shape == (3200,)
    features = backbone(torch.randn(2, 3, 84, 84))
    assert features.min() < 0 < features.max()
