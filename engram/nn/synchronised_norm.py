"""BatchNorm by the statistics of all processes of a training; PyTorch's own layer for it wants a GPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from engram.nn.handed_over import take_over
from engram.nn.task_norm import replace_norms
from engram.processes import Gathered


class SynchronisedNorm(_BatchNorm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, the statistics of the inputs of all processes together.

        mean = 1/N sum_r mean_r,   var = 1/N sum_r ( var_r + (mean_r - mean)^2 )

    N processes with as many inputs each. Takes the place, weights and running statistics of an ordinary layer, and is
    one in evaluation. Shapes: (n, C, ...) -> (n, C, ...)
    """

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum, False, norm.track_running_stats)
        take_over(self, norm)
        for name, value in norm.named_buffers(recurse=False):
            setattr(self, name, value)
        self.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        axes, shape = [0, *range(2, x.ndim)], (-1, *([1] * (x.ndim - 2)))
        if not self.training and self.running_mean is not None:
            normalised = F.batch_norm(x, self.running_mean, self.running_var, eps=self.eps)
        else:
            values = x.to(torch.promote_types(x.dtype, torch.float32))
            mean, variance = self._statistics(values, axes)
            normalised = (values - mean.view(shape)) * (variance + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            normalised = normalised * self.weight.view(shape)
        if self.bias is not None:
            normalised = normalised + self.bias.view(shape)
        return normalised.to(x.dtype)

    def _statistics(self, x: Tensor, axes: list[int]) -> tuple[Tensor, Tensor]:
        """(C,) and (C,), and the running ones follow."""
        own_variance, own_mean = torch.var_mean(x, axes, correction=0)
        means, variances = Gathered.apply(torch.stack([own_mean, own_variance])).unbind(1)
        mean = means.mean(0)
        variance = (variances + (means - mean).square()).mean(0)
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with torch.no_grad():
                self.num_batches_tracked += 1
                share = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
                count = len(means) * x.numel() // self.num_features
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
                self.running_var.lerp_((variance * (count / max(1, count - 1))).to(self.running_var.dtype), share)
        return mean, variance


def synchronise(module: nn.Module) -> None:
    """Put a `SynchronisedNorm` in the place of every BatchNorm; norms of one task are none, and stay."""
    replace_norms(module, SynchronisedNorm)
