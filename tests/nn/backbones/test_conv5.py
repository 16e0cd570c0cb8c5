"""Five blocks whose norm has a shift and no gain."""

import torch

from engram.nn.backbones.conv5 import Conv5, ShiftNorm


def test_a_norm_without_gain_is_the_ordinary_one_with_gain_one() -> None:
    torch.manual_seed(0)
    ours, ordinary = ShiftNorm(6), torch.nn.BatchNorm2d(6)
    with torch.no_grad():
        ordinary.bias.copy_(ours.bias.uniform_(-1, 1))
    for training in (True, True, False):
        ours.train(training), ordinary.train(training)
        images, weights = torch.randn(5, 6, 4, 4), torch.randn(5, 6, 4, 4)
        found = []
        for norm in (ours, ordinary):
            inputs = images.clone().requires_grad_()
            outputs = norm(inputs)
            found.append((outputs, *torch.autograd.grad((outputs * weights).sum(), (inputs, norm.bias))))
        torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(ours.running_var, ordinary.running_var)
    assert ours(images.bfloat16()).dtype == torch.bfloat16  # else all that follows would leave half precision


def test_five_poolings_leave_four_positions_of_a_photograph() -> None:
    assert Conv5((3, 84, 84)).out_shape == (256,) and Conv5((1, 32, 32), width=8).out_shape == (8,)
    assert all(not block[0].bias and block[3].p == 0.5 for block in Conv5((1, 32, 32)).blocks)
