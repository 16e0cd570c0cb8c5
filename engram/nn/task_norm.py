"""BatchNorm by the statistics of one task: the images at hand, or several tasks apart in one batch. No running ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from engram.errors import EngramError
from engram.nn.encoder import Encoder
from engram.nn.handed_over import take_over
from engram.nn.pooled_norm import pooled_norm

LARGE = 2**20  # values of a task above which a pass over it takes a GPU longer than a launch
Statistics = tuple[Tensor, Tensor]
"""mean and variance of each channel, (C,) and (C,)"""


def replace_norms(module: nn.Module, made: Callable[[_BatchNorm], nn.Module]) -> int:
    """Put something in the place of every BatchNorm, so that names stay; how many there were."""
    norms = [
        (part, name, child)
        for part in module.modules()
        for name, child in part.named_children()
        if isinstance(child, _BatchNorm)
    ]
    for part, name, norm in norms:
        setattr(part, name, made(norm))
    return len(norms)


class TaskNorm(nn.Module):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias, with the statistics of the images at hand.

    Exact under `torch.func.vmap` in both orders of differentiation, where the library's BatchNorm is not, nor can write
    its running averages: spelt out in elementary operations. Inside `no_vmap` it is the library's, whose derivatives
    are right there, for half of the time. Whoever wants other statistics gives them through `with_statistics`. Without
    ``gain`` there is no weight. Shapes: (n, C, ...) -> (n, C, ...).

    A 2x2 ``pool`` that follows a norm without gain is its own: before the values are scaled, as the factor is positive,
    which is a quarter of the work for the same result.
    """

    def __init__(self, channels: int, gain: bool = True, eps: float = 1e-3) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels)) if gain else None
        self.bias = nn.Parameter(torch.zeros(channels))
        self.given: Statistics | None = None
        self.seen: list[Statistics] | None = None
        self.pool: nn.MaxPool2d | None = None

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(torch.promote_types(x.dtype, self.bias.dtype))  # statistics of half-precision values in float32
        apart = _WITHOUT_VMAP.get()
        if self.pool is not None and apart and self.given is None and x.device.type == "cpu":
            y, mean, variance = pooled_norm(x, self.eps, self.pool.ceil_mode)
            normalised = y + self.bias[:, None, None]
        else:
            normalised, mean, variance = self._library(x) if apart and self.pool is None else self._spelt_out(x)
        if self.seen is not None and self.given is None:
            count = x.numel() // len(self.bias)
            self.seen.append((mean, variance * (count / max(1, count - 1))))
        return normalised

    def _spelt_out(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        axes, shape = [0, *range(2, x.ndim)], (-1, *([1] * (x.ndim - 2)))
        mean = x.mean(axes) if self.given is None else self.given[0]
        centred = x - mean.view(shape)
        variance = centred.square().mean(axes) if self.given is None else self.given[1]
        if self.pool is not None:
            centred = self.pool(centred)
        scale = torch.rsqrt(variance + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        return centred * scale.view(shape) + self.bias.view(shape), mean, variance

    def _library(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # Without a weight the library has no second derivative.
        weight = torch.ones_like(self.bias) if self.weight is None else self.weight
        if self.given is not None:
            return F.batch_norm(x, *self.given, weight, self.bias, eps=self.eps), *self.given
        normalised, mean, inverse = torch.native_batch_norm(x, weight, self.bias, None, None, True, 0.0, self.eps)
        return normalised, mean, inverse.square().reciprocal() - self.eps


_WITHOUT_VMAP: ContextVar[bool] = ContextVar("without_vmap", default=False)


@contextmanager
def no_vmap(promised: bool = True) -> Iterator[None]:
    """Inside, no encoder is called under `torch.func.vmap`; or, not ``promised``, one may be after all."""
    token = _WITHOUT_VMAP.set(promised)
    try:
        yield
    finally:
        _WITHOUT_VMAP.reset(token)


class TaskEncoder(Encoder):
    """The same pixels to features, written for vmap: no layout to ask for but inside `no_vmap`, no own kernels."""

    def forward(self, images: Tensor, *conditions: Tensor) -> Tensor:
        pixels = images.dtype == torch.uint8
        images = images.float()
        if pixels:
            images = images * (1 / (255 * self.std)) - self.mean / self.std
        if _WITHOUT_VMAP.get() and images.ndim == 4:
            images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            features: Tensor = self.backbone(images, *conditions)
        return features.float()


def for_tasks(backbone: nn.Module, gain: bool = True, eps: float = 1e-3) -> nn.Module:
    """The backbone with a fresh `TaskNorm` in the place of every BatchNorm, fit for vmap; one without gain has the
    pooling after it."""
    replace_norms(backbone, lambda norm: TaskNorm(norm.num_features, gain, eps))
    if not gain:
        _hand_over_pools(backbone)
    if isinstance(backbone, Encoder):
        mean, std = backbone.mean.flatten().tolist(), backbone.std.flatten().tolist()
        return TaskEncoder(backbone.backbone, mean, std, backbone.precision)
    return backbone


def _hand_over_pools(backbone: nn.Module) -> None:
    for block in [part for part in backbone.modules() if isinstance(part, nn.Sequential)]:
        for index, (norm, pool) in enumerate(itertools.pairwise(block)):
            if isinstance(norm, TaskNorm) and isinstance(pool, nn.MaxPool2d) and halves(pool):
                norm.pool, block[index + 1] = pool, nn.Identity()


def halves(pool: nn.MaxPool2d) -> bool:
    """Whether windows are 2x2, next to each other."""
    settings = (pool.kernel_size, pool.stride, pool.padding, pool.dilation)
    return settings == (2, 2, 0, 1) and not pool.return_indices


def names_of_norms(network: nn.Module) -> set[str]:
    """Names of the gains and shifts of a network."""
    norms = [(name, module) for name, module in network.named_modules() if isinstance(module, TaskNorm)]
    return {f"{prefix}.{name}" for prefix, module in norms for name, _ in module.named_parameters()}


def with_statistics(
    network: nn.Module, call: Callable[[], Tensor], given: Sequence[Statistics] | None = None
) -> tuple[Tensor, list[Statistics]]:
    """What ``call`` returns, and the statistics that each `TaskNorm` of ``network`` met in it.

    They are what running averages would gather, with the unbiased variance. ``given``, one for each norm in the order
    of ``network.modules()``, takes their place.
    """
    norms = [module for module in network.modules() if isinstance(module, TaskNorm)]
    seen: list[Statistics] = []
    try:
        for index, norm in enumerate(norms):
            norm.seen, norm.given = seen, None if given is None else given[index]
        return call(), seen
    finally:  # nothing stays behind: what was seen may belong to a vmap that is over
        for norm in norms:
            norm.seen = norm.given = None


class TaskBatchNorm(nn.Module):
    """y = (x - mean_t) / sqrt(var_t + eps) * weight + bias, mean and biased variance over the inputs of task t alone.

    Takes the place, and the weight and bias, of an ordinary layer. The batch holds `n_tasks` tasks of equal size one
    after the other (see `side_by_side`), whose outputs do not depend on each other; training and evaluation are alike.

    Shapes: (n_tasks * n, C, ...) -> the same
    """

    weight: Tensor | None
    bias: Tensor

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__()
        self.eps, self.num_features, self.n_tasks = norm.eps, norm.num_features, 1
        take_over(self, norm)

    def forward(self, x: Tensor) -> Tensor:
        size, gpu = x.numel() // self.n_tasks, x.device.type != "cpu"
        one_by_one = size > x.shape[1] and (self.n_tasks == 1 or not gpu or size > LARGE)
        # On a GPU the library takes half precision as it is, with statistics in float32.
        values = x if gpu and one_by_one else x.to(torch.promote_types(x.dtype, torch.float32))
        return (self._one_by_one if one_by_one else self._side_by_side)(values).to(x.dtype)

    def _one_by_one(self, values: Tensor) -> Tensor:
        """The library's, in fewer passes, with less kept for the way back; it refuses tasks of one value."""
        given = (None, None, self.weight, self.bias, True, 0.1, self.eps)
        return torch.cat([F.batch_norm(task, *given) for task in values.chunk(self.n_tasks)])

    def _side_by_side(self, values: Tensor) -> Tensor:
        tasks = values.unflatten(0, (self.n_tasks, -1))
        variance, mean = torch.var_mean(tasks, [1, *range(3, tasks.ndim)], correction=0, keepdim=True)
        channels = (-1, *[1] * (tasks.ndim - 3))
        normalised = (tasks - mean) * (variance + self.eps).rsqrt()
        if self.weight is not None:
            normalised = normalised * self.weight.view(channels)
        if self.bias is not None:
            normalised = normalised + self.bias.view(channels)
        return normalised.flatten(0, 1)


def keeps_no_statistics(module: nn.Module) -> bool:
    """Whether ``module`` normalises by the images at hand, at test too, and has no running statistics."""
    return any(isinstance(part, TaskNorm | TaskBatchNorm) for part in module.modules())


def normalise_by_task(module: nn.Module) -> None:
    """Put a `TaskBatchNorm` with the same weights in the place of every BatchNorm inside ``module``."""
    if not replace_norms(module, TaskBatchNorm):
        raise EngramError(
            "statistics of each task were asked for but the encoder has no BatchNorm (features have been through it "
            "already): take the running ones"
        )


@contextmanager
def side_by_side(module: nn.Module, n_tasks: int) -> Iterator[None]:
    """Inside, what ``module`` is given are ``n_tasks`` tasks of equal size, one after the other."""
    norms = [part for part in module.modules() if isinstance(part, TaskBatchNorm)]
    for norm in norms:
        norm.n_tasks = n_tasks
    try:
        yield
    finally:
        for norm in norms:
            norm.n_tasks = 1


def encode_by_task(backbone: nn.Module, images: Tensor) -> Tensor:
    """Features of each task's images, normalised by themselves, in one call: (B, n, ...) -> (B, n, *out_shape)"""
    with side_by_side(backbone, len(images)):
        features: Tensor = backbone(images.flatten(0, 1))
    return features.unflatten(0, images.shape[:2])
