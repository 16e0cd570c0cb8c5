"""What norms of one kind take over from those of another: a layer its gain and shift, an encoder its weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

BLOCK = re.compile(r"blocks\.\d+\.[01]\.\w+$")
"""a tensor of a convolution block: the convolution, then its norm"""
GAIN = re.compile(r"(.*blocks\.)(\d+)\.1\.weight")
RUNNING = re.compile(r"\.(running_mean|running_var|num_batches_tracked)$")


def take_over(layer: nn.Module, norm: _BatchNorm) -> None:
    """``layer`` gets the gain and the shift of ``norm``; a gain that is a constant there stays one."""
    layer.register_parameter("bias", norm.bias)
    if isinstance(norm.weight, nn.Parameter | None):
        layer.register_parameter("weight", norm.weight)
    else:
        vars(layer)["_parameters"].pop("weight", None)
        layer.register_buffer("weight", norm.weight, persistent=False)


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
