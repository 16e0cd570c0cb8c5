"""The grid on a Ray cluster of two nodes on this machine, one of them killed in the middle; skipped without Ray.

Two nodes and their runs take about a minute: make test-extras.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import pytest
from rich.console import Console
from study_ledger import add_record, write_study
from toy_project import Project

from engram.errors import EngramError
from engram.ledger import read_ledger
from engram.machine.cards import CONTROL
from engram.reproduction.cluster import _shares, connect, start_service
from engram.reproduction.plan import Place, make_plan
from engram.reproduction.process import environment
from engram.studies import load_study

ray_installed = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import ray"], capture_output=True).returncode != 0, reason="needs Ray"
)
LIMIT = 240.0
ROW = 'label = "{0}"\nshort = "{0}.toml"\ncells = [{{ column = "1-shot" }}]'


@pytest.fixture(autouse=True)
def without_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray keeps a token in the home folder, and nodes of one test need not agree about the one of another."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
        return int(probe.getsockname()[1])


@pytest.mark.extras
@ray_installed
def test_an_address_nobody_answers_is_one_sentence() -> None:
    port = free_port()
    with pytest.raises(
        EngramError, match=f"no Ray cluster answers at 127.0.0.2:{port} .*start one with ray start --head"
    ):
        connect(f"127.0.0.2:{port}")
    with pytest.raises(EngramError, match="address = 'nonsense' is no address of a Ray cluster"):
        connect("nonsense")


def test_without_ray_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EngramError, match=r"needs Ray, which is not installed: pip install -e '.\[ray\]'"):
        connect("127.0.0.2:6379")


def start_node(folder: Path, number: int, *arguments: str) -> subprocess.Popen[bytes]:
    """A node of one core in processes of its own."""
    command = [
        str(Path(sys.executable).parent / "ray"), "start", "--block", "--num-cpus=1", "--num-gpus=0",
        "--disable-usage-stats", f"--object-store-memory={80 * 2**20}", f"--node-ip-address=127.0.0.{2 + number}",
    ]  # fmt: skip
    log = (folder / f"node{number}.txt").open("wb")
    return subprocess.Popen([*command, *arguments], stdout=log, stderr=log, env=environment(), start_new_session=True)


def family(pid: int) -> list[int]:
    """A process and all its descendants, from /proc."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
    found = [pid]
    for member in found:
        found += [child for child, parent in parents.items() if parent == member]
    return found


def kill(node: subprocess.Popen[bytes]) -> None:
    for pid in reversed(family(node.pid)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    node.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Addresses 127.0.0.2 and 127.0.0.3: with 127.0.0.1 Ray waits for ever."""
    folder, port = Path(mkdtemp(prefix="engram_ray_")), free_port()
    address, nodes = f"127.0.0.2:{port}", []
    head = ("--head", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false")
    try:
        for number, arguments in enumerate((head, (f"--address={address}",))):
            nodes.append(start_node(tmp_path, number, *arguments))
            wait_until(lambda number=number: has_started(nodes[number], tmp_path / f"node{number}.txt"))
        yield address, nodes
    finally:
        for node in nodes:
            kill(node)
        shutil.rmtree(folder, ignore_errors=True)


def has_started(node: subprocess.Popen[bytes], log: Path) -> bool:
    assert node.poll() is None, log.read_text()
    return "Ray runtime started" in log.read_text()


def wait_until(condition: Callable[[], object], limit: float = LIMIT) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "the cluster took too long"
        time.sleep(0.3)


@pytest.mark.extras
@ray_installed
def test_a_run_whose_node_is_killed_ends_on_the_other_one(
    cluster: tuple[str, list[subprocess.Popen[bytes]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    address, nodes = cluster
    project = Project(tmp_path, monkeypatch, capfd).with_images()
    labels = ("one", "two", "three")
    for seed, label in enumerate(labels):
        steps = ("iterations = 2\n", f"iterations = 1500\nseed = {seed}\n")
        project.write_recipe(steps, ("validate_every = 1\n", "validate_every = 50\n"), name=label)
    write_study(project.root / "mine.toml", *(ROW.format(label) for label in labels))
    command = [sys.executable, "-m", "engram.cli", "reproduce", "mine.toml", "--device", "cpu", "--engine", "ray"]
    log = (tmp_path / "cluster.txt").open("wb")
    caller = subprocess.Popen(
        [*command, "--address", address], stdout=log, stderr=log, env=environment() | {"OMP_NUM_THREADS": "1"}
    )
    try:
        wait_until(lambda: any(has_checkpoint(pid) for pid in family(nodes[1].pid)))
        print("a training run is under way on the second node: killing the node")
        kill(nodes[1])
        assert caller.wait(LIMIT) == 0
    finally:
        if caller.poll() is None:
            caller.kill()
        print((tmp_path / "cluster.txt").read_text())
    assert "3 finished, 0 failed, 0 left" in (tmp_path / "cluster.txt").read_text()
    logs = [path.read_text() for path in (tmp_path / "runs/logs").iterdir()]
    assert sum("--resume" in log for log in logs) == 1  # the killed run went on from its checkpoint
    records, problems = read_ledger(project.root / "results/runs")
    assert not problems and sum(r.status == "finished" for r in records) == 3
    assert all((project.root / "results/runs" / e.tasks_file).is_file() for r in records for e in r.evaluations)
    assert "nothing to run" in project.succeeds("reproduce", "mine.toml", "--device", "cpu")


def has_checkpoint(pid: int) -> bool:
    """Whether a process is a training run that has saved its first checkpoint."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return False
    return "train" in words and any(Path(words[words.index("--out") + 1]).glob("step-*"))


@pytest.mark.extras
@ray_installed
def test_small_runs_get_a_part_of_a_gpu(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cluster that believes it has a GPU, of which nvidia-smi and MPS are played by small programs."""
    for name, text in (
        ("nvidia-smi", "echo '0, GPU-aa, 40000'"),
        (CONTROL, f"read said; echo $said >> {tmp_path}/said"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    training = {"iterations": 200, "seconds": 60.0, "device_use": {"peak_memory_mib": 17_000}}
    add_record(place.results, "cml_bgnn/glyphs_leak", seed=5, training=training)
    plan = make_plan([load_study("order_leak")], "short", (), replace(place, device="cuda"))
    import ray

    folder = mkdtemp(prefix="engram_ray_")
    ray.init(num_cpus=2, num_gpus=1, _node_ip_address="127.0.0.2", _temp_dir=folder, include_dashboard=False)
    try:
        (node,) = ray.nodes()
        service = start_service(ray, node)
        assert ray.get(service.told.remote()) == ("", 40_000.0)
        shares = _shares(ray, [service], plan, "auto", Console())
        assert set(shares.values()) == {int(10_000 * (1.1 * 17_000 + 1024) / 40_000) / 10_000}  # two fit
        ray.get(service.stop.remote())
        assert (tmp_path / "said").read_text().split() == ["get_server_list"], "it ran already, and is left alone"
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
    assert "side by side on GPU with 40,000 MiB free" in capsys.readouterr().out
