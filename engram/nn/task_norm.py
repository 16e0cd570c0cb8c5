"""BatchNorm by the statistics of one task: the images at hand, or several tasks apart in one batch. No running ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from engram.errors import EngramError
from engram.nn.encoder import Encoder

BLOCK = re.compile(r"blocks\.\d+\.[01]\.\w+$")
"""a tensor of a convolution block: the convolution, then its norm"""
GAIN = re.compile(r"(.*blocks\.)(\d+)\.1\.weight")
RUNNING = re.compile(r"\.(running_mean|running_var|num_batches_tracked)$")
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
    """

    def __init__(self, channels: int, gain: bool = True, eps: float = 1e-3) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels)) if gain else None
        self.bias = nn.Parameter(torch.zeros(channels))
        self.given: Statistics | None = None
        self.seen: list[Statistics] | None = None

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(torch.promote_types(x.dtype, self.bias.dtype))  # statistics of half-precision values in float32
        normalised, mean, variance = (self._library if _WITHOUT_VMAP.get() else self._spelt_out)(x)
        if self.seen is not None and self.given is None:
            count = x.numel() // len(self.bias)
            self.seen.append((mean, variance * (count / max(1, count - 1))))
        return normalised

    def _spelt_out(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        axes, shape = [0, *range(2, x.ndim)], (-1, *([1] * (x.ndim - 2)))
        mean = x.mean(axes) if self.given is None else self.given[0]
        centred = x - mean.view(shape)
        variance = centred.square().mean(axes) if self.given is None else self.given[1]
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
    """The backbone with a fresh `TaskNorm` in the place of every BatchNorm, fit for vmap."""
    replace_norms(backbone, lambda norm: TaskNorm(norm.num_features, gain, eps))
    if isinstance(backbone, Encoder):
        mean, std = backbone.mean.flatten().tolist(), backbone.std.flatten().tolist()
        return TaskEncoder(backbone.backbone, mean, std, backbone.precision)
    return backbone


def for_task_norms(saved: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of an ordinary encoder as the same encoder takes them that `keeps_no_statistics`; its names: ``own``.

    Running statistics are left out, and so are gains where there are none (`without_gains`); where ours alone has
    gains, they start at 1, which is what none is. What is no chain of convolution blocks keeps its gains, and does not
    fit.
    """
    kept = {name: value for name, value in saved.items() if name in own or not RUNNING.search(name)}
    ours_alone = [name for name in own if GAIN.fullmatch(name) and name not in saved]
    kept |= {name: torch.ones_like(own[name]) for name in ours_alone if name.removesuffix("weight") + "bias" in saved}
    gains = [name for name in kept if name not in own and GAIN.fullmatch(name)]
    chain = all(BLOCK.search(name) for name in kept)
    return without_gains(kept, gains) if gains and chain else kept


def without_gains(weights: Mapping[str, Tensor], gains: Sequence[str]) -> dict[str, Tensor]:
    """The same features, each over its gain's size, from convolution blocks without gains g:

        act(g z + b) = |g| act(sign(g) z + b / |g|)

    with z normalised, so the sign goes into the convolution before it and the size into the one after it. The
    activation must not mind a positive factor: ReLU and leaky ones do not. The last block's sizes are let go: whatever
    reads its features is yet to be learned.
    """
    out = dict(weights)
    for name in sorted(gains):
        prefix, block = GAIN.fullmatch(name).groups()  # type: ignore[union-attr]
        gain = out.pop(name)
        size = gain.abs().clamp(min=1e-6)  # a channel that is switched off stays a constant, and finite
        out[f"{prefix}{block}.1.bias"] = out[f"{prefix}{block}.1.bias"] / size
        for part, shape in (("weight", (-1, 1, 1, 1)), ("bias", (-1,))):
            if (key := f"{prefix}{block}.0.{part}") in out:
                out[key] = out[key] * torch.where(gain < 0, -1.0, 1.0).view(shape)
        if (after := f"{prefix}{int(block) + 1}.0.weight") in out:
            out[after] = out[after] * size.view(1, -1, 1, 1)
    return out


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

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        self.n_tasks = 1

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
