"""The authors' checkpoint layout: weights filled by rule, answers recorded from the public model."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engram.errors import EngramError
from engram.import_public import import_public
from engram.methods.cml_bgnn import CmlBgnn, CmlBgnnConfig
from engram.nn.backbones import Conv4
from engram.nn.encoder import Encoder
from engram.types import Episode

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture(scope="module")
def spec() -> dict[str, Any]:
    return json.loads((FIXTURES / "public_l2_c4.json").read_text())


def ruled_tensor(name: str, shape: list[int], generator: torch.Generator) -> Tensor:
    """Every value of the checkpoint follows from its name, its shape and one seed."""
    if name.endswith("num_batches_tracked"):
        return torch.tensor(7)
    if name.endswith("running_var"):
        return torch.rand(shape, generator=generator) + 0.5
    noise = torch.randn(shape, generator=generator)
    if name.endswith("running_mean"):
        return 0.1 * noise
    if name.endswith("weight") and len(shape) == 1:
        return 1 + 0.1 * noise
    return noise / max(1, int(np.prod(shape[1:]))) ** 0.5


@pytest.fixture(scope="module")
def checkpoint(spec) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(spec["seed"])
    parts = {
        part: {name: ruled_tensor(name, tensors[name], generator) for name in sorted(tensors)}
        for part, tensors in sorted(spec["tensors"].items())
    }
    return {"iteration": 5000, "val_acc": 0.5, "optimizer": {}, **parts}


def saved(content: Any, folder: Path) -> Path:
    torch.save(content, folder / "model.pth.tar")
    return folder / "model.pth.tar"


def changed(checkpoint: dict[str, Any], part: str) -> dict[str, Any]:
    return {**checkpoint, part: dict(checkpoint[part])}


def test_imported_weights_answer_as_the_public_model_did(spec, checkpoint, tmp_path):
    state, about = import_public(saved(checkpoint, tmp_path))
    assert about == {"config": {"n_layers": 2, "width": 96}, "out_features": 128, "iteration": 5000, "val_acc": 0.5}
    encoder = Encoder(Conv4((3, 84, 84), about["out_features"]), (0.5,) * 3, (0.25,) * 3)
    method = CmlBgnn(encoder, CmlBgnnConfig.preset("public", **about["config"])).eval()
    method.load_state_dict(state)
    recorded = {name: torch.tensor(value) for name, value in np.load(FIXTURES / "public_l2_c4.npz").items()}
    nodes: list[Tensor] = []
    with torch.no_grad():
        for layer in method.graph.layers:
            layer.node_net.register_forward_hook(lambda module, inputs, output: nodes.append(output))
            layer.posterior.nets.out.weight[1::2] = 0.0  # the recording set the noise to zero: ...
            layer.posterior.nets.out.bias[1::2] = -60.0  # ... no variance says the same
        generator = torch.Generator().manual_seed(spec["seed"] + 1)
        images = torch.randn(spec["tasks"], 2 * spec["n_way"], 3, 84, 84, generator=generator)
        features = encoder(images.flatten(0, 1)).view(8, 10, 128)
        steps = images.view(spec["cells"], -1, *images.shape[1:])
        labels = torch.arange(spec["n_way"]).expand(steps.shape[1], -1)
        episodes = [Episode(step[:, :5], labels, step[:, 5:], spec["n_way"]) for step in steps]
        predictions = method.predict_sequence(episodes)
    torch.testing.assert_close(features, recorded["encoder"], atol=1e-5, rtol=1e-5)
    for k in range(2):
        edges = torch.cat([prediction.details["edges"][:, k] for prediction in predictions])
        torch.testing.assert_close(edges, recorded[f"edges_{k + 1}"][:, 0], atol=1e-5, rtol=0)
        torch.testing.assert_close(1 - edges, recorded[f"edges_{k + 1}"][:, 1], atol=1e-5, rtol=0)
        torch.testing.assert_close(nodes[k], recorded[f"nodes_{k + 1}"], atol=1e-5, rtol=1e-5)


def test_parallel_prefixes_change_nothing(checkpoint, tmp_path):
    plain, _ = import_public(saved(checkpoint, tmp_path))
    prefixed = {
        key: {f"module.{name}": t for name, t in value.items()} if key.endswith("state_dict") else value
        for key, value in checkpoint.items()
    }
    found, _ = import_public(saved(prefixed, tmp_path))
    assert found.keys() == plain.keys() and all(torch.equal(found[name], plain[name]) for name in plain)


def test_every_tensor_has_one_place(checkpoint, tmp_path):
    state, _ = import_public(saved(checkpoint, tmp_path))
    graph = checkpoint["gnn_module_state_dict"]
    groups = state["graph.layers.1.posterior.nets.linears.0.weight"].chunk(4)
    for theirs, value in (("W_bias", groups[1]), ("B_bias", groups[3])):  # unseen without noise
        assert torch.equal(value, graph[f"node2edge_net1.{theirs}.{theirs}conv0.weight"][:, :, 0, 0])
    theirs = sum(len(checkpoint[part]) for part in ("enc_module_state_dict", "gnn_module_state_dict"))
    assert len(state) == theirs - 2 * 3 * 8  # of two layers, three nets of eight tensors joined the first


@pytest.mark.parametrize("name", ["rnn.bias_hh", "node2edge_net1.W_bias.W_biasconv_out.weight"])
def test_a_missing_tensor_is_named(checkpoint, tmp_path, name):
    broken = changed(checkpoint, "gnn_module_state_dict")
    del broken["gnn_module_state_dict"][name]
    with pytest.raises(EngramError, match=f"lacks tensor '{name}'"):
        import_public(saved(broken, tmp_path))


def test_an_unknown_tensor_is_named(checkpoint, tmp_path):
    broken = changed(checkpoint, "enc_module_state_dict")
    broken["enc_module_state_dict"]["conv_5.0.weight"] = torch.zeros(2)
    with pytest.raises(EngramError, match=r"unknown tensor 'conv_5\.0\.weight'"):
        import_public(saved(broken, tmp_path))


def test_other_files_are_refused_in_one_sentence(checkpoint, tmp_path):
    with pytest.raises(EngramError, match="cannot be read"):
        import_public(tmp_path / "absent.pth.tar")
    with pytest.raises(EngramError, match="has no 'enc_module_state_dict'"):
        import_public(saved({"weights": torch.zeros(1)}, tmp_path))
    with pytest.raises(EngramError, match="holds a list"):
        import_public(saved([torch.zeros(1)], tmp_path))
    with pytest.raises(EngramError, match="not a tensor"):
        import_public(saved({**checkpoint, "enc_module_state_dict": {"conv_1.0.weight": 3}}, tmp_path))
    with pytest.raises(EngramError, match="no graph layer"):
        import_public(saved({**checkpoint, "gnn_module_state_dict": {}}, tmp_path))
    (tmp_path / "text.pth.tar").write_text("this is no checkpoint")
    with pytest.raises(EngramError, match="fetch it again"):
        import_public(tmp_path / "text.pth.tar")


@pytest.mark.parametrize("keep", [0, 10, 0.3, 0.99])
def test_a_truncated_file_is_refused(checkpoint, tmp_path, keep):
    file = saved(checkpoint, tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[: int(keep * len(whole)) if isinstance(keep, float) else keep])
    with pytest.raises(EngramError, match="fetch it again"):
        import_public(file)


class Intruder:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_file_that_wants_to_run_code_is_refused_and_does_not_run_it(checkpoint, tmp_path, legacy):
    target = tmp_path / "made_by_the_file"
    file = tmp_path / "model.pth.tar"
    if legacy:
        file.write_bytes(pickle.dumps({"optimizer": Intruder(target)}, protocol=2))
    else:
        torch.save({**checkpoint, "optimizer": Intruder(target)}, file)
    with pytest.raises(EngramError, match="would run code"):
        import_public(file)
    assert not target.exists()


@pytest.mark.data
def test_the_copied_fixtures_are_the_originals():
    originals = Path(os.environ.get("ENGRAM_DATA", "../shared/data")).resolve().parent / "fixtures"
    if not originals.is_dir():
        pytest.skip(f"no fixtures beside the data ({originals})")
    for copy in FIXTURES.glob("public_*"):
        assert copy.read_bytes() == (originals / copy.name).read_bytes()


def test_a_layer_beyond_all_tensors_is_told_at_once(checkpoint: dict[str, Any], tmp_path: Path) -> None:
    for number in (99_999_999, 10**30):
        content = changed(checkpoint, "gnn_module_state_dict")
        content["gnn_module_state_dict"][f"edge2node_net{number}.network.conv0.weight"] = torch.zeros(1)
        with pytest.raises(EngramError, match=rf"names the graph layer {str(number)[:20]} but .* holds \d+ tensors"):
            import_public(saved(content, tmp_path))


ODD = {
    "expanded": lambda: torch.zeros(1).expand(10**12),
    "sparse": lambda: torch.zeros(4, 4).to_sparse(),
    "quantised": lambda: torch.quantize_per_tensor(torch.zeros(4), 0.1, 0, torch.qint8),
    "complex": lambda: torch.zeros(4, dtype=torch.complex64),
}


@pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")
@pytest.mark.parametrize("kind", ODD)
def test_tensors_that_are_not_plain_are_refused(checkpoint: dict[str, Any], tmp_path: Path, kind: str) -> None:
    content = changed(checkpoint, "enc_module_state_dict")
    content["enc_module_state_dict"]["conv_1.0.weight"] = ODD[kind]()
    with pytest.raises(EngramError, match="is sparse, quantised, complex or a few numbers shown as many|refused"):
        import_public(saved(content, tmp_path))
