"""Reads a checkpoint of the authors' public CML-BGNN code into the names of `engram.methods.cml_bgnn`.

The file is a dict with ``enc_module_state_dict`` and ``gnn_module_state_dict``; keys may carry a ``module.`` prefix.
It is loaded as data only: a file that asks for code to run is refused.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.files import check_zip, open_regular, remove_own
from engram.ledger import new_run_id
from engram.machine.interruptions import RunLock
from engram.models.checkpoint import RunState, load, load_method, save
from engram.models.run_folder import OWN, refuse_run
from engram.nn.bayes import FIELDS
from engram.recipes import load_recipe

ENCODER, GRAPH = "enc_module_state_dict", "gnn_module_state_dict"
_NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
_POSTERIORS = {
    "W_mean": "weight_mean",
    "W_bias": "weight_log_variance",  # the public names say bias; what they hold is a log-variance
    "B_mean": "bias_mean",
    "B_bias": "bias_log_variance",
}


def import_public(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """State for a `CmlBgnn` around an `Encoder` with Conv4, and what the file says of itself.

    The second value holds ``config`` (n_layers and width, over the preset "public"), ``out_features`` of the
    encoder, and ``iteration`` and ``val_acc`` where the file gives them.
    """
    content = _load(file)
    encoder, graph = (_plain_names(content, part, file) for part in (ENCODER, GRAPH))
    layers = [m[1] for name in graph if (m := re.match(r"edge2node_net(\d+)\.", name))]
    if not layers:
        raise EngramError(f"{file}: no graph layer found among the {len(graph)} tensors of '{GRAPH}'")
    last = max(layers, key=lambda number: (len(number), number))
    if len(last) > 9 or int(last) >= len(graph):
        raise EngramError(f"{file}: names the graph layer {last[:20]} but '{GRAPH}' holds {len(graph)} tensors")
    n_layers = 1 + int(last)
    state: dict[str, Tensor] = {}
    for tensors, names in ((encoder, _encoder_names()), (graph, _graph_names(n_layers))):
        _check_names(set(tensors), set(names), file)
        state |= {names[name]: _as_linear(name, value) for name, value in tensors.items()}
    state = _grouped(state)
    for name, value in (
        ("rnn.weight_hh", graph["rnn.weight_hh"]),
        ("layer_last.0.weight", encoder["layer_last.0.weight"]),
    ):
        if value.ndim != 2:
            raise EngramError(f"{file}: tensor '{name}' has the shape {tuple(value.shape)} where two sizes are needed")
    about: dict[str, Any] = {
        "config": {"n_layers": n_layers, "width": graph["rnn.weight_hh"].shape[1]},
        "out_features": encoder["layer_last.0.weight"].shape[0],
    }
    return state, about | {key: content[key] for key in ("iteration", "val_acc") if key in content}


def _load(file: Path) -> dict[str, Any]:
    try:
        with open_regular(file) as stream:
            if zipfile.is_zipfile(stream):
                check_zip(stream, times=2)
            stream.seek(0)
            content = torch.load(stream, map_location="cpu", weights_only=True)
    except OSError as error:
        raise EngramError(f"{file}: cannot be read ({error.strerror or error})") from error
    except Exception as error:  # damaged pickles fail in many ways, none of them worth a traceback
        if isinstance(error, pickle.UnpicklingError) and "global" in str(error).lower():
            raise EngramError(
                f"{file}: refused, as loading it would run code; save it anew with only tensors, numbers and text in it"
            ) from error
        raise EngramError(f"{file}: not a torch checkpoint, or truncated or damaged; fetch it again") from error
    if not isinstance(content, dict):
        raise EngramError(f"{file}: holds a {type(content).__name__}, but a public checkpoint is a dict")
    return content


def _plain_names(content: dict[str, Any], part: str, file: Path) -> dict[str, Tensor]:
    """One state dict, without the prefix that data-parallel training adds to its names."""
    if not isinstance(content.get(part), dict):
        raise EngramError(
            f"{file}: has no '{part}', only {sorted(map(str, content))}; is it a public CML-BGNN checkpoint?"
        )
    tensors = {str(name).removeprefix("module."): value for name, value in content[part].items()}
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise EngramError(f"{file}: '{name}' in '{part}' is a {type(value).__name__}, not a tensor")
        plain = value.layout is torch.strided and not value.is_quantized and not value.is_complex()
        if not plain or value.is_meta or value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise EngramError(
                f"{file}: '{name}' in '{part}' is sparse, quantised, complex or a few numbers shown as many: save it "
                f"anew with plain tensors"
            )
    return tensors


def _encoder_names() -> dict[str, str]:
    """Public name -> ours, for the four convolution stages and the linear head."""
    ours = "backbone.backbone."
    names = {f"conv_{i + 1}.0.weight": f"{ours}blocks.{i}.0.weight" for i in range(4)}
    names |= {f"conv_{i + 1}.1.{field}": f"{ours}blocks.{i}.1.{field}" for i in range(4) for field in _NORM}
    names |= {f"layer_last.0.{field}": f"{ours}head.0.{field}" for field in ("weight", "bias")}
    return names | {f"layer_last.1.{field}": f"{ours}head.1.{field}" for field in _NORM}


def _graph_names(n_layers: int) -> dict[str, str]:
    """Public name -> ours, for the gate and every network of every layer."""
    fields = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    names = {f"rnn.{field}": f"graph.gates.0.{field}" for field in fields}
    for k in range(n_layers):
        theirs, ours = f"node2edge_net{k}.", f"graph.layers.{k}."
        names |= _net_names(f"edge2node_net{k}.network.", f"{ours}node_net.", blocks=2, out=False)
        names |= _net_names(f"{theirs}sim_network.sim_val", f"{ours}edge_net.", blocks=4)
        for name, posterior in _POSTERIORS.items():
            names |= _net_names(f"{theirs}{name}.{name}", f"{ours}posterior.{posterior}.", blocks=1)
    return names


def _grouped(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The four nets of each `EdgePosterior` side by side, as its groups; their equal counters of batches become one."""
    grouped = {name: value for name, value in state.items() if ".posterior." not in name}
    for first in (name for name in state if f".posterior.{FIELDS[0]}." in name):
        parts = [state[first.replace(FIELDS[0], field, 1)] for field in FIELDS]
        where = first.replace(f"posterior.{FIELDS[0]}", "posterior.nets")
        grouped[where] = torch.cat(parts) if parts[0].ndim else parts[0]
    return grouped


def _net_names(theirs: str, ours: str, blocks: int, out: bool = True) -> dict[str, str]:
    names = {f"{theirs}conv{j}.weight": f"{ours}linears.{j}.weight" for j in range(blocks)}
    names |= {f"{theirs}norm{j}.{field}": f"{ours}norms.{j}.{field}" for j in range(blocks) for field in _NORM}
    return names | ({f"{theirs}conv_out.{field}": f"{ours}out.{field}" for field in ("weight", "bias")} if out else {})


def _check_names(found: set[str], wanted: set[str], file: Path) -> None:
    """Both directions: a tensor that is not there, and one that we would not know where to put."""
    for problem, names in (("lacks", wanted - found), ("has the unknown", found - wanted)):
        if names:
            raise EngramError(
                f"{file}: {problem} tensor '{min(names)}' ({len(names)} in all); only the public model with "
                f"Bayesian edges and one shared gate can be imported"
            )


def _as_linear(name: str, value: Tensor) -> Tensor:
    """A 1x1 convolution is a linear map on the last dimension; the encoder's 3x3 kernels stay as they are."""
    return value[:, :, 0, 0] if value.ndim == 4 and value.shape[2:] == (1, 1) else value


def convert(file: Path, out: Path) -> Path:
    """Write the checkpoint as a run folder of ours; the recipe is ``cml_bgnn/mini_5w1s_public`` with its sizes."""
    tensors, about = import_public(file)
    iteration = about.get("iteration", 0)
    if type(iteration) is not int or not 0 <= iteration < 2**62:
        raise EngramError(f"{file}: its iteration is {iteration!r} where a whole number from 0 on is needed")
    recipe = load_recipe("cml_bgnn/mini_5w1s_public")
    recipe = replace(
        recipe,
        name="imported",
        description=f"imported from {file.name}",
        method_settings={**recipe.method_settings, **about["config"]},
        backbone_settings={"out_features": about["out_features"]},
    )
    state = RunState(
        method=recipe.method,
        recipe=recipe.to_dict(),
        recipe_digest=recipe.digest,
        image_shape=(3, 84, 84),
        dataset_digest="",
        validation={},
        run_id=new_run_id(),
        iteration=iteration,
        numpy_generator={},
        optimiser={},
        curves={},
        window={},
        best_accuracy=None,
        best_iteration=0,
        seconds=0.0,
        validation_seconds=0.0,
    )
    with RunLock(out):
        refuse_run(out)
        folder = save(out, state, {"weights": tensors, "optimiser": {}, "random": {}})
        try:
            load_method(load(folder), torch.device("cpu"))  # sizes fit each other, or it is told now, not at the bench
        except EngramError as error:
            remove_own(folder, OWN)
            raise EngramError(str(error).replace(str(folder), str(file))) from error
    return folder
