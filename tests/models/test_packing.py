"""A packed run answers as the run does, is about half its size without the optimiser, and cannot be resumed."""

import gzip
from pathlib import Path

import pytest
import torch
from toy_run import QUIET, RECIPE, make_stores

from engram.errors import EngramError
from engram.evaluation.evaluate import evaluate
from engram.models.checkpoint import load, load_method
from engram.models.packing import pack
from engram.models.run_folder import Bits
from engram.recipes.protocols import validation_protocol
from engram.training.loop import train

CPU = torch.device("cpu")


@pytest.mark.parametrize(("bits", "share"), [(16, 1 / 3), (8, 1 / 4)])
def test_packed_weights_answer_alike_and_are_small(tmp_path: Path, bits: Bits, share: float) -> None:
    stores = make_stores()
    train(RECIPE, stores, tmp_path / "run", device=CPU, running=QUIET)
    packed = pack(tmp_path / "run", tmp_path / "small", bits)
    protocol = validation_protocol(RECIPE, "running").for_store(stores["val"])
    whole, small = (
        evaluate(load_method(load(folder), CPU), stores["val"], protocol).outcomes.probabilities
        for folder in (tmp_path / "run", tmp_path / "small")
    )
    assert abs(whole - small).max() < 0.02
    sizes = [sum(f.stat().st_size for f in folder.rglob("*.safetensors*")) for folder in (tmp_path / "run", packed)]
    assert sizes[1] < sizes[0] * share
    assert (packed / "weights.safetensors.gz").exists() and not (packed / "weights.safetensors").exists()
    with pytest.raises(EngramError, match="holds weights alone, so it cannot be resumed"):
        train(RECIPE, stores, tmp_path / "small", device=CPU, resume=True, running=QUIET)


def test_a_folder_that_holds_a_run_is_never_written_to(tmp_path: Path) -> None:
    for name in ("first", "second"):
        train(RECIPE, make_stores(), tmp_path / name, device=CPU, running=QUIET)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for out in ("first", "second", "first/step-00000006"):
        with pytest.raises(EngramError, match=f"{out} holds a run up to .*: choose another folder"):
            pack(tmp_path / "first", tmp_path / out)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_squeezed_weights_are_the_same_ones_and_damage_is_one_sentence(tmp_path: Path) -> None:
    train(RECIPE, make_stores(), tmp_path / "run", device=CPU, running=QUIET)
    file = pack(tmp_path / "run", tmp_path / "small", 8) / "weights.safetensors.gz"
    small, digest = load(tmp_path / "small"), load(tmp_path / "small").digest()
    weights = small.tensors("weights")
    plain = file.with_suffix("")
    plain.write_bytes(gzip.decompress(file.read_bytes()))
    file.rename(kept := tmp_path / "kept")
    assert load(tmp_path / "small").digest() == digest
    assert all(torch.equal(value, weights[name]) for name, value in small.tensors("weights").items())
    plain.unlink()
    with pytest.raises(EngramError, match=r"step-\d+ lacks weights\.safetensors: "):
        small.tensors("weights")
    for damaged in (kept.read_bytes()[:-9], kept.read_bytes() + b"more", b"no gzip file"):
        file.write_bytes(damaged)
        with pytest.raises(EngramError, match=r"weights\.safetensors\.gz cannot be read"):
            small.tensors("weights")
