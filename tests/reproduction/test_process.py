"""Commands as processes: their words in a log, the sentence of a failure, and how one ended."""

from __future__ import annotations

from pathlib import Path

import engram
from engram.reproduction.plan import Place, make_plan
from engram.reproduction.process import Ended, Reproduced, environment, last_line, last_sentence, run_commands


def test_the_first_command_that_fails_ends_the_job_with_its_sentence(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "job.txt"
    ended = run_commands([("reproduce", "tabel1", "--dry-run"), ("reproduce", "never")], log)
    assert (ended.status, ended.step) == ("failed", "reproduce") and ended.seconds > 0
    assert ended.sentence.startswith("there is no study 'tabel1'; did you mean 'table1'")
    commands = [line for line in log.read_text().splitlines() if line.startswith("$")]
    assert commands == ["$ engram reproduce tabel1 --dry-run"]


def test_how_a_command_ended_is_told_from_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("step 1\n" * 900 + "engram: the disk is full\n\n ...\n")
    assert last_line(log) == "engram: the disk is full" and last_sentence(log, 1) == "the disk is full"
    assert last_sentence(log, -9).startswith("ended by signal SIGKILL, such as by a machine short of memory")
    log.write_text("ValueError: a bug\n")
    assert last_sentence(log, 1) == f"ValueError: a bug (status 1); see {log}"
    log.write_text("")
    assert last_line(log) == ""


def test_this_very_engram_comes_first_on_the_path() -> None:
    assert environment()["PYTHONPATH"].split(":")[0] == str(Path(engram.__file__).parent.parent)


def test_runs_are_sorted_by_how_they_ended(place: Place) -> None:
    outcome = Reproduced(make_plan([], "short", (), place))
    outcome.add("a", Ended("finished", 1.0))
    outcome.add("b", Ended("failed", 1.0, "out of memory"))
    outcome.add("c", Ended("stopped", 1.0))
    assert (outcome.finished, outcome.failed, outcome.left) == (["a"], {"b": "out of memory"}, ["c"])
    assert outcome.report is None
