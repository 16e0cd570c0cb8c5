"""Fast arithmetic lasts as long as training does; several processes of one training are equal to one, with one sentence
where they cannot be brought together."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from several import RECIPES
from toy_run import RECIPE, changed, go, make_stores, on_disk

import engram
from engram import processes
from engram.errors import EngramError
from engram.models.checkpoint import load
from engram.nn.kernels import cpu
from engram.processes import Share
from engram.training import running as module
from engram.training.running import Room, free_memory, read_size

TESTS = Path(__file__).parent.parent
NOTHING_DRAWN = changed(RECIPES["proto_net"], {"iterations": 4, "validate_every": 2})


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The recipes of `several` trained by two processes and, in `one`, by one."""
    folder = tmp_path_factory.mktemp("both")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    runs = [(rank, 2, store.port, folder / "two") for rank in range(2)] + [(0, 1, store.port, folder / "one")]
    script = str(TESTS / "several.py")
    started = [subprocess.Popen([sys.executable, script, *map(str, run)], cwd=TESTS) for run in runs]
    assert [process.wait(120) for process in started] == [0, 0, 0]
    yield folder


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_two_processes_learn_what_one_does(both: Path, name: str) -> None:
    one, two = (load(both / count / name, "last") for count in ("one", "two"))
    for which in ("last", "average"):
        left, right = (checkpoint.tensors("weights", which) for checkpoint in (one, two))  # type: ignore[arg-type]
        assert left.keys() == right.keys()
        assert max(float((left[key].double() - right[key].double()).abs().max()) for key in left) < 1e-9, which
    weights = one.tensors("weights", "last")
    assert next(value.dtype for value in weights.values() if value.is_floating_point()) == torch.float64
    assert one.state.curves["validation_accuracy"] == two.state.curves["validation_accuracy"]
    assert one.state.curves["loss"] == pytest.approx(two.state.curves["loss"], abs=1e-9)
    assert one.state.numpy_generator == two.state.numpy_generator


def test_a_run_goes_from_two_processes_to_one_and_leaves_one_record(tmp_path: Path) -> None:
    folder, results = tmp_path / "run", tmp_path / "results"
    stores = make_stores()
    seen: list[int] = []
    half = engram.train(
        NOTHING_DRAWN, stores=stores, out=folder, results=results, test=False, devices=2, device="cpu", progress=False,
        on_validation=lambda step, result: seen.append(step),
    )  # fmt: skip
    assert seen == [2, 4] and half.record.training["processes"] == 2 and half.record.status == "finished"
    assert [path.name for path in results.glob("*.json")] == [half.record_file.name]
    alone = go(tmp_path / "alone", NOTHING_DRAWN).method.state_dict()
    for key, value in half.method.state_dict().items():
        assert torch.allclose(value, alone[key], atol=1e-5), key
    assert processes.mine() == processes.ALL and not dist.is_initialized()


def test_a_killed_process_ends_the_others_and_the_run_goes_on_alone(tmp_path: Path) -> None:
    killed: list[float] = []
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def kill(step: int, result: Any) -> None:
        started[0].kill()
        killed.append(time.monotonic())

    class Kept(popen):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            started.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", Kept)
        with pytest.raises(EngramError, match="another process of this run has ended.*step-00000002 is kept"):
            engram.train(
                NOTHING_DRAWN, stores=make_stores(), out=tmp_path / "run", results=tmp_path, test=False, devices=2,
                device="cpu", progress=False, on_validation=kill,
            )  # fmt: skip
    assert time.monotonic() - killed[0] < 30
    assert load(tmp_path / "run", "last").state.iteration == 2
    resumed = go(tmp_path / "run", NOTHING_DRAWN, resume=True)
    whole = go(tmp_path / "whole", NOTHING_DRAWN)
    assert resumed.training["iterations"] == 4 and resumed.training["processes"] == 1
    for key, value in resumed.method.state_dict().items():
        assert torch.allclose(value, whole.method.state_dict()[key], atol=1e-5), key


def test_a_global_batch_that_does_not_divide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_mine", Share(0, 3))
    monkeypatch.setattr(processes, "gathered", lambda value: [value])
    with pytest.raises(EngramError, match=r"\[train\]: sequences = 4 does not divide among 3 processes: set it to 3"):
        go(tmp_path, NOTHING_DRAWN)
    with pytest.raises(EngramError, match=r"\[data\]: class_batch = 8 does not divide among 3 processes: set it to 9"):
        go(tmp_path, RECIPES["stage_one"])
    assert not list(tmp_path.iterdir()), "nothing was written"


def test_a_recipe_may_forbid_another_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strict = changed(NOTHING_DRAWN, {"resume_with": "same"})
    go(tmp_path, strict, max_iterations=2)
    assert load(tmp_path, "last").state.processes == 1
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(processes, "_mine", Share(0, 2))
    monkeypatch.setattr(processes, "gathered", lambda value: [value])
    with pytest.raises(
        EngramError, match="resume_with = 'same'.*made by 1 processes but 2 would go on: use --devices 1"
    ):
        go(tmp_path, strict, resume=True)
    assert sorted(tmp_path.rglob("*")) == before, "nothing was lost"
    monkeypatch.undo()
    assert go(tmp_path, strict, resume=True).training["iterations"] == 4


@pytest.mark.parametrize(("plain", "why"), [(False, "there is none"), (True, "there is none"), (False, "")])
def test_a_run_tells_whose_kernels_it_had(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, plain: bool, why: str
) -> None:
    if not why and (missing := cpu.missing()):
        pytest.skip(f"no kernels, as {missing}")
    monkeypatch.setattr(cpu, "missing", lambda: why)
    outcome = go(
        tmp_path, replace(RECIPE, backbone="toy_run:OneBlock", train=replace(RECIPE.train, iterations=1)), plain=plain
    )
    said = [line for line in capsys.readouterr().err.splitlines() if "in C" in line]
    assert outcome.training["kernels"] == ("library" if why else "c")
    assert said == (
        [] if plain or not why else [f"kernels in C are not used, as {why}: steps take up to twice as long"]
    )


def test_a_gpus_switches_are_as_before_also_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SimpleNamespace(allow_tf32=False, benchmark=True)
    before = dict(vars(backend))
    monkeypatch.setattr(module, "SWITCHES", ((backend, "allow_tf32"), (backend, "benchmark")))
    with pytest.raises(ZeroDivisionError), module.fast_arithmetic(torch.device("cuda"), plain=True):
        assert vars(backend) == {"allow_tf32": True, "benchmark": True}
        raise ZeroDivisionError
    assert vars(backend) == before
    with module.fast_arithmetic(torch.device("cpu"), plain=True):
        assert vars(backend) == before


CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("1500", 1500), ("2GB", 2 * 10**9), ("1.5 mb", 1500000), ("3GiB", 3 * 2**30)]
)
def test_sizes(text: str, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1GB", "2 bytes", "GB", "nan"])
def test_what_is_no_size_is_told(text: str) -> None:
    with pytest.raises(EngramError, match=f"store_memory = '{text}' is no size: .* such as 2GB"):
        Room(CPU, text)


def test_stores_are_placed_as_long_as_there_is_room(tmp_path: Path) -> None:
    stores, size = on_disk(tmp_path), 30 * 100
    room = Room(CPU, str(2 * size - 1))
    train, val = room.place(stores["train"]), room.place(stores["val"])
    assert train.file is None and torch.equal(train.images, stores["train"].images)
    assert val is stores["val"] and val.file is not None
    assert room.place(train) is train, "what is there costs nothing"
    assert room.left == size - 1


def test_what_is_left_holds_the_first_images_of_a_store_on_disk(tmp_path: Path) -> None:
    stores, image = on_disk(tmp_path), 100
    room = Room(CPU, str(19 * image + 50))
    train, val = room.place(stores["train"]), room.place(stores["val"].classes([0, 3]))
    assert train is stores["train"] and val.file is None, "no room for 30, but for 15"
    filled = room.fill(train)
    assert filled.near is not None and torch.equal(filled.near, train.gather(torch.arange(4)))
    assert filled.file is train.file and room.fill(val) is val
    unasked = Room(CPU)
    assert unasked.left > image and unasked.fill(train) is train, "nobody said how much it may take"


@pytest.mark.parametrize("memory", [10, 10**9])
def test_what_the_cache_of_files_cannot_hold_is_read_past_it(
    memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "available_memory", lambda: memory)
    store = on_disk(tmp_path)["train"]
    assert store.file and not store.file.block
    placed = Room(CPU, "0").place(store)
    assert placed.file and bool(placed.file.block) == (memory == 10 and store.file.past_cache() is not store.file)
    rows = torch.tensor([3, 29, 0])
    assert torch.equal(placed.gather(rows), store.gather(rows))


def test_half_of_what_is_free_is_the_default() -> None:
    assert 0.2 < Room(CPU).left / (free_memory(CPU) / 2) < 5
