"""Per-task accuracies come back as they were, in their small form and in the old one."""

from pathlib import Path

import numpy as np
import pytest

from engram.errors import EngramError
from engram.ledger import Evaluation
from engram.ledger.per_task import MOST_LEVELS, correctness, read_tasks, readable_tasks, write_tasks


@pytest.mark.parametrize("queries", [1, 5, 75, 4 * MOST_LEVELS])
def test_what_is_written_is_read(tmp_path: Path, queries: int) -> None:
    rng = np.random.default_rng(0)
    correct = (rng.integers(0, queries + 1, (2000, 2, 1)) / queries).astype(np.float32)
    write_tasks(tmp_path / "deep" / "tasks.npz", correct, {"labels": np.zeros(3, np.uint8)})
    found = read_tasks(tmp_path / "deep" / "tasks.npz")
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, correct.astype(np.float64))


def test_it_is_smaller_and_the_old_form_is_read_too(tmp_path: Path) -> None:
    correct = (np.random.default_rng(0).integers(0, 76, (2000, 8, 1)) / 75).astype(np.float32)
    write_tasks(tmp_path / "new.npz", correct)
    np.savez_compressed(tmp_path / "old.npz", correct=correct)
    np.testing.assert_array_equal(read_tasks(tmp_path / "new.npz"), read_tasks(tmp_path / "old.npz"))
    assert (tmp_path / "new.npz").stat().st_size < 0.8 * (tmp_path / "old.npz").stat().st_size


def test_a_lost_or_cut_file_is_told_in_one_sentence(tmp_path: Path) -> None:
    evaluation = Evaluation({}, "", {}, tasks_file="tasks/a.npz")
    with pytest.raises(EngramError, match=r"tasks/a\.npz cannot be read \(No such file or directory\): restore them"):
        correctness(evaluation, tmp_path)
    write_tasks(tmp_path / "tasks/a.npz", np.ones((3, 2, 1)))
    assert correctness(evaluation, tmp_path).mean() == 1
    (tmp_path / "tasks/a.npz").write_bytes(b"PK cut")
    with pytest.raises(EngramError, match=r"tasks/a\.npz cannot be read"):
        correctness(evaluation, tmp_path)


def test_an_evaluation_is_readable_with_its_whole_file_or_without_any(tmp_path: Path) -> None:
    evaluation = Evaluation({}, "", {}, tasks_file="a.npz")
    assert readable_tasks(Evaluation({}, "", {}), tmp_path) and not readable_tasks(evaluation, tmp_path)
    write_tasks(tmp_path / "a.npz", np.ones((2, 1, 1), np.float32))
    assert readable_tasks(evaluation, tmp_path)
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:40])
    assert not readable_tasks(evaluation, tmp_path)


def test_results_that_announce_more_than_is_admitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tasks(tmp_path / "tasks.npz", np.zeros((2000, 8, 1), np.float32))
    monkeypatch.setattr("engram.ledger.per_task.MOST_BYTES", 1000)
    with pytest.raises(EngramError, match=r"cannot be read \(it announces \d+ bytes in a file of \d+\)"):
        correctness(Evaluation({}, "", {}, tasks_file="tasks.npz"), tmp_path)
