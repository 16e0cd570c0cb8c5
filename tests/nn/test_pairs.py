"""Each pair once: the answers for all pairs, and what is remembered between calls."""

import torch

from engram.nn import pairs
from engram.nn.graph import PointwiseNet, differences
from engram.probes.asking import double_precision


def test_at_test_each_pair_passes_once_and_answers_for_both() -> None:
    torch.manual_seed(0)
    net, given = PointwiseNet([3, 4], outputs=2).eval(), differences(torch.randn(2, 5, 3))
    seen: list[int] = []
    net.linears[0].register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    found = pairs.on_pairs(net, given)
    assert seen == [2 * 15]
    for n in range(2):
        for i in range(5):
            for j in range(5):
                torch.testing.assert_close(found[n, i, j], net(given[n : n + 1, i, j])[0])


def test_in_training_ordinary_modules_see_all_pairs() -> None:
    net, given = PointwiseNet([3, 4], outputs=1), differences(torch.randn(2, 5, 3))
    seen: list[int] = []
    net.linears[0].register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    pairs.on_pairs(net, given)
    assert seen == [2 * 25]


def test_pairs_made_without_gradients_serve_a_training_later() -> None:
    pairs._known.clear()
    with torch.inference_mode():
        known = pairs.pairs_of(4, torch.device("cpu"))
    assert known is pairs.pairs_of(4, torch.device("cpu"))
    assert float(known.counts.each.sum()) == known.counts.total == 16
    nodes = torch.randn(1, 4, 3, requires_grad=True)
    differences(nodes).flatten(1, 2).index_select(1, known.chosen).index_select(1, known.place).sum().backward()
    assert nodes.grad is not None


def test_pairs_made_in_double_precision_are_not_kept_for_kernels_in_single() -> None:
    pairs._known.clear()
    with double_precision():
        pairs.pairs_of(4, torch.device("cpu"))
    made = pairs.pairs_of(4, torch.device("cpu"))
    assert made.counts.each.dtype is torch.float32 and made.counts.each.tolist() == [1, 2, 2, 2, 1, 2, 2, 1, 2, 1]


def test_a_program_that_is_traced_leaves_nothing_behind() -> None:
    pairs._known.clear()
    net = PointwiseNet([3, 4], outputs=1).eval()

    class Program(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, nodes: torch.Tensor) -> torch.Tensor:
            return pairs.on_pairs(self.net, differences(nodes))

    nodes = torch.randn(2, 6, 3)
    program = torch.export.export(Program(), (nodes,)).module()
    assert all(type(known.place) is torch.Tensor for known in pairs._known.values())
    torch.testing.assert_close(program(nodes), Program()(nodes))
