"""The command line as a person uses it, from help to a compared pair of runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from toy_project import Project

from engram.ledger import read_record

COMMANDS = (
    "quickstart",
    "data",
    "train",
    "features",
    "attach",
    "bench",
    "audit",
    "compare",
    "import-public",
    "list",
    "recipe",
    "report",
    "predict",
    "suggest",
    "remember",
    "forget",
    "demo",
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Project:
    return Project(tmp_path, monkeypatch, capfd)


def in_its_own_process(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "engram.cli", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ENGRAM_CACHE": str(root / "cache")}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def test_help_names_every_command_and_explains_every_flag(project: Project) -> None:
    assert all(command in project.succeeds("--help") for command in COMMANDS)
    for command in COMMANDS:
        lines = [line.strip("│ ").strip() for line in project.succeeds(command, "--help").splitlines()]
        for number, line in enumerate(lines):
            if line.startswith("--"):
                words = line.split("  ", 1)[1:] or [lines[number + 1]]  # a long flag has its help on the next line
                assert words[0].strip() and not words[0].strip().startswith(("(", "--")), f"{command}: {line}"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_streams_that_are_closed_stop_nothing(closed: str, tmp_path: Path) -> None:
    line = f'"$0" -m engram.cli recipe proto_net/mini_5w1s {closed}'
    done = subprocess.run(["sh", "-c", line, sys.executable], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr and bool(done.stdout) == (closed == "2>&-")


def test_stopped_while_it_is_loaded_it_says_so(tmp_path: Path) -> None:
    """By a package that interrupts, as a person would, in place of one that is imported first."""
    handled = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # what runs in the background ignores it
    interrupting = f"import os, signal, time; {handled}; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)"
    (tmp_path / "tyro.py").write_text(interrupting)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}"}
    command = [sys.executable, "-m", "engram", "list"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "engram: stopped\n")


def test_a_process_of_its_own_for_good_and_bad(tmp_path: Path) -> None:
    fine = in_its_own_process(tmp_path, "list", "methods")
    assert fine.returncode == 0 and "cml_bgnn" in fine.stdout and not fine.stderr
    bad = in_its_own_process(tmp_path, "train", "proto_net/glyps_5w1s")
    assert bad.returncode == 2 and not bad.stdout
    assert bad.stderr == ("engram: there is no recipe 'proto_net/glyps_5w1s'; did you mean 'proto_net/glyphs_5w1s'?\n")


def test_a_reader_that_has_seen_enough_gets_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m engram.cli list | head -1"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout and not done.stderr


def test_train_bench_compare(project: Project) -> None:
    project.with_images()
    out = project.train("--note", "first")
    assert out.status == 0 and "2-way 1-shot, 2 queries per class" in out.out and "record: results/runs/" in out.out
    (first,) = project.records()
    assert read_record(first).note == "first"
    project.succeeds("bench", "run", "--n-way", 3, "--n-query", 1, "--predictions", "--results", "other")
    record = read_record(next((project.root / "other").glob("*.json")))
    assert [e.protocol["n_way"] for e in record.evaluations] == [3]
    with np.load(project.root / "other" / record.evaluations[0].tasks_file) as tasks:
        assert tasks["probabilities"].shape == (5, 1, 3, 3)
    shown = project.succeeds("bench", "run", "--slot-order", "class-order", "--results", "ordered")
    assert "class order" in shown and "**" not in shown  # no Markdown on a terminal
    assert shown.splitlines()[0].strip()  # no empty lines of a progress bar where there is no terminal
    project.succeeds("bench", "chance", "--recipe", "recipe.toml", "--results", "floor")
    chance = next((project.root / "floor").glob("chance.*.json"))
    compared = project.succeeds("compare", first, chance)
    assert "+50.00" in compared and "2-way 1-shot, 1 query per class" in compared
    ordered = next((project.root / "ordered").glob("*.json"))
    assert "have no tasks in common" in project.run("compare", ordered, chance).sentence
    (project.root / "floor" / read_record(chance).evaluations[0].tasks_file).write_bytes(b"PK\3\4 no archive")
    assert "restore them from git or bench the model again" in project.run("compare", first, chance).sentence


def test_a_name_that_no_encoding_has_is_printed_all_the_same() -> None:
    program = "from engram import cli; cli.app.cli = lambda **_: print('a\\udcff\\u00e9'); cli.main()"
    strict = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    done = subprocess.run([sys.executable, "-c", program], env=strict, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"a\\udcff\\xe9\n"), done.stderr
