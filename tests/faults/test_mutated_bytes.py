"""Every kind of file that is read from disk, its bytes changed at random: it is used, or refused in one sentence.

Each input runs in a process with limits of time and memory; no traceback, no signal, no file that is changed.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from drawn import pictures
from fuzzing import damaged, failures
from pickled import IMAGES, dump
from PIL import Image
from test_choosing import STORE, answered
from test_import_public import FIXTURES, ruled_tensor
from toy_project import RECIPE as RECIPE_TEXT
from toy_run import RECIPE, changed, go, make_stores

from engram.classifier import FewShotClassifier, memory
from engram.data.episodes import episodes_at, frozen_tasks
from engram.data.formats import mini_imagenet, omniglot, tiered
from engram.data.formats.folder import read_split_file
from engram.data.formats.images import decode_image
from engram.data.formats.shards import find_shards, write_store
from engram.data.store import Store
from engram.files import WEIGHTS
from engram.import_public import convert
from engram.ledger import Ledger, new_record, trusted_records, write_record
from engram.ledger.per_task import write_tasks
from engram.ledger.records import Evaluation, readable
from engram.models.checkpoint import Checkpoint, load, load_method
from engram.models.features import open_stores, write_features
from engram.models.packing import pack
from engram.protocol import Protocol
from engram.recipes import check_recipe, load_recipe, recipe_text
from engram.studies.schema import STUDIES_FOLDER, load_study
from engram.training.choosing import AS_IT_CAME, AsItCame

SEED = int(os.environ.get("ENGRAM_FAULTS_SEED", 1))
EACH = 160
"""inputs of each kind, where all are tried"""


class Kind(NamedTuple):
    file: Path
    use: Callable[[Path], object]


def all_of(form: Any) -> None:
    """Every picture of every split of a dataset on disk."""
    for split in form.splits if form else ():
        source = form.read(split)
        for label in range(len(source.counts)):
            assert all(image.shape == source.image_shape for image in source.read_class(label))


def recipes(root: Path) -> dict[str, Kind]:
    (root / "recipe.toml").write_text(RECIPE_TEXT.format(images="images"))
    shutil.copy(STUDIES_FOLDER / "order_leak.toml", root / "study.toml")

    def recipe(path: Path) -> None:
        check_recipe(load_recipe(str(path)), path.name)
        recipe_text(str(path))

    return {
        "recipe, TOML": Kind(root / "recipe.toml", recipe),
        "study, TOML": Kind(root / "study.toml", lambda path: load_study(str(path))),
    }


def runs(root: Path) -> dict[str, Kind]:
    go(root / "run", changed(train={"iterations": 2, "validate_every": 1}))
    step = load(root / "run", "last").folder
    boxed = shutil.copytree(WEIGHTS / "proto_net.glyphs_drawings", root / "boxed")
    weights = next(boxed.rglob("weights.safetensors"))
    packed = pack(root / "run", root / "packed", 8)

    def restore(path: Path) -> None:
        checkpoint = load(step)
        unsealed = Checkpoint(step, type(checkpoint.state)(**{**asdict(checkpoint.state), "digests": {}}))
        for part in ("optimiser", "random"):
            unsealed.tensors(part)  # type: ignore[arg-type]
        load_method(unsealed, torch.device("cpu"))

    def answer(path: Path) -> None:
        load_method(load(path.parent), torch.device("cpu"))

    result = answered(np.full(len(STORE.class_sizes), 0.5))
    AsItCame(root / "run").is_beaten(result, STORE, held=True)
    kinds = {f"checkpoint, {n}.safetensors": Kind(step / f"{n}.safetensors", restore) for n in ("weights", "random")}
    return kinds | {
        "checkpoint, state.json": Kind(step / "state.json", restore),
        "encoder as it came, JSON": Kind(
            root / "run" / AS_IT_CAME, lambda path: AsItCame(path.parent).is_beaten(result, STORE, held=False)
        ),
        "box, weights.safetensors": Kind(weights, answer),
        "packed, weights.safetensors.gz": Kind(packed / "weights.safetensors.gz", answer),
        "box, state.json": Kind(weights.with_name("state.json"), answer),
    }


def stores(root: Path) -> dict[str, Kind]:
    go(root / "run", changed(train={"iterations": 1, "validate_every": 1}))
    write_features(root / "run", root, splits=("val",), stores=make_stores(), device="cpu", quiet=True)

    def ask(path: Path) -> None:
        store = open_stores("toy", ("val",), features=root)["val"]
        protocol = Protocol("toy", "val", n_way=2, n_sequences=2).for_store(store)
        episodes_at(store, frozen_tasks(store, protocol), 2, "cpu")
        Store.open(root / "val").to("cpu")

    return {f"store, {name}": Kind(root / "val" / name, ask) for name in ("store.json", "images.npy", "offsets.npy")}


def shards(root: Path) -> dict[str, Kind]:
    store = make_stores()["val"]
    write_store(store, f"file://{root}/val", quiet=True)

    def read(path: Path) -> None:
        all_of(find_shards(f"file://{root}", store.image_shape))

    return {f"shards, {path.name}": Kind(path, read) for path in sorted((root / "val").iterdir())}


def records(root: Path) -> dict[str, Kind]:
    write_tasks(root / "tasks/a.npz", np.full((3, 1, 1), 0.5))
    metrics = {"accuracy": 0.5, "interval": 0.1, "accuracy_by_position": [0.5], "n_tasks": 3}
    evaluation = Evaluation(Protocol("glyphs", dataset_digest="d").to_dict(), "t", metrics, 1.0, "tasks/a.npz")
    file = write_record(root, new_record("train", RECIPE, "cpu", 0, evaluations=[evaluation]))
    raw = json.loads(file.read_text())
    file.write_text(readable({key: value for key, value in raw.items() if key != "seal"}))

    def read(path: Path) -> None:
        ledger = Ledger(trusted_records(root)[0])
        assert ledger.newest_answer(RECIPE) is None or ledger.given

    return {"run record, JSON": Kind(file, read), "per-task results, npz": Kind(root / "tasks/a.npz", read)}


def saved_classifiers(root: Path) -> dict[str, Kind]:
    before, memory.MOST_EXACT = memory.MOST_EXACT, 4  # so that there is an index
    try:
        FewShotClassifier(weights="photographs").fit(*pictures(4, size=12)).save(root / "model")
    finally:
        memory.MOST_EXACT = before
    question = pictures(1, size=12)[0]

    def answer(path: Path) -> None:
        FewShotClassifier.load(root / "model").predict_proba(question)

    files = sorted(path for path in (root / "model").rglob("*") if path.is_file() and path.stat().st_size)
    return {f"classifier, {path.name.split('-')[0]}": Kind(path, answer) for path in files}


def public(root: Path) -> dict[str, Kind]:
    spec, generator = json.loads((FIXTURES / "public_l2_c4.json").read_text()), torch.Generator().manual_seed(0)
    parts = {p: {n: ruled_tensor(n, s, generator) for n, s in t.items()} for p, t in spec["tensors"].items()}
    torch.save({"iteration": 5000, "val_acc": 0.5, **parts}, root / "public.pth.tar")

    def use(path: Path) -> None:
        try:
            convert(path, root.parent / "converted")  # beside what is watched: it may write there
        finally:
            shutil.rmtree(root.parent / "converted", ignore_errors=True)

    return {"public checkpoint, pth.tar": Kind(root / "public.pth.tar", use)}


def archives(root: Path) -> dict[str, Kind]:
    png = io.BytesIO()
    Image.fromarray(np.eye(105) > 0).save(png, "PNG")
    halves = ("background", "evaluation")
    names = [f"images_{half}/A{a}/character01/000{d}_01.png" for half in halves for a in "ab" for d in "12"]
    for kind in ("zip", "tar", "cache", "dict", "png", "npz", "zips"):
        (root / kind).mkdir()
    for part in halves:
        with zipfile.ZipFile(root / f"zip/images_{part}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name in (name for name in names if part in name):
                archive.writestr(name, png.getvalue())
    with tarfile.open(root / "tar/omniglot.tar.gz", "w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(png.getvalue())
            tar.addfile(member, io.BytesIO(png.getvalue()))
    small = IMAGES[:4]
    dump(root / "cache/mini-imagenet-cache-val.pkl", {"image_data": small, "class_dict": {"a": [0, 1], "b": [2, 3]}}, 2)
    dump(root / "npz/val_labels.pkl", {"label_specific": np.array([0, 0, 1, 1]), "label_specific_str": ["a", "b"]}, 2)
    np.savez_compressed(root / "npz/val_images.npz", images=small)
    with zipfile.ZipFile(root / "zips/mini-imagenet.zip", "w") as archive:
        for split in ("train", "val", "test"):
            archive.writestr(f"{split}.csv", f"filename,label\n{split}1.png,a\n{split}2.png,b\n")
            for number in (1, 2):
                archive.writestr(f"images/{split}{number}.png", png.getvalue())
    return {
        "dataset, zip": Kind(
            root / "zip/images_background.zip", lambda p: all_of(omniglot.find_alphabets(p.parent, 1))
        ),
        "dataset, tar.gz": Kind(root / "tar/omniglot.tar.gz", lambda p: all_of(omniglot.find_alphabets(p.parent, 1))),
        "dataset, zip with lists": Kind(
            root / "zips/mini-imagenet.zip", lambda p: all_of(mini_imagenet.find_zips(p.parent))
        ),
        "dataset, pickle": Kind(
            root / "cache/mini-imagenet-cache-val.pkl", lambda p: all_of(mini_imagenet.find_cache(p.parent))
        ),
        "dataset, labels": Kind(root / "npz/val_labels.pkl", lambda p: all_of(tiered.find_npz(p.parent))),
        "dataset, npz": Kind(root / "npz/val_images.npz", lambda p: all_of(tiered.find_npz(p.parent))),
    }


def plain(root: Path) -> dict[str, Kind]:
    image = Image.fromarray(pictures(1)[0][0])
    (root / "split.csv").write_text("class,split\nboat,train\ncrane,val\noak,test\n")
    (root / "split.json").write_text('{"train": ["boat"], "val": ["crane"], "test": ["oak"]}')
    kinds = {f"split file, {s}": Kind(root / f"split.{s}", read_split_file) for s in ("csv", "json")}
    for suffix in ("png", "jpeg", "gif", "webp", "tiff", "bmp"):
        image.save(root / f"picture.{suffix}")
        kinds[f"picture, {suffix}"] = Kind(
            root / f"picture.{suffix}", lambda path: decode_image(path, path.name, (3, 32, 32), 0.875)
        )
    return kinds


FAMILIES = (recipes, runs, stores, shards, records, saved_classifiers, public, archives, plain)


@pytest.mark.parametrize("family", FAMILIES)
def test_bytes_changed_at_random(
    family: Callable[[Path], dict[str, Kind]], tmp_path: Path, tally: Callable[..., None], sample: int
) -> None:
    (tmp_path / "files").mkdir()
    told = []
    for name, (file, use) in family(tmp_path / "files").items():
        original, dice = file.read_bytes(), random.Random(f"{SEED} {name}")
        use(file)  # as it is, it can be used
        inputs = [damaged(original, dice) for _ in range(sample // 20 or EACH)]
        failed = failures(inputs, use, tmp_path / "files", file)
        file.write_bytes(original)
        tally(f"bytes: {name}", len(inputs), len(failed))
        told += [f"{name}: {line}" for line in failed]
    assert not told, "\n".join(told)
