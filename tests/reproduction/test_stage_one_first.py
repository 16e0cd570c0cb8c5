"""Weights that recipes start from: made once, before the runs that need them, and only where they are not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from study_ledger import add_record, write_study

from engram.reproduction import cluster, local, plan
from engram.reproduction.carry_out import reproduce
from engram.reproduction.local import commands_of
from engram.reproduction.plan import Place, Plan, Planned, make_plan
from engram.reproduction.process import Ended
from engram.studies import load_study

FOLDER = "runs/stage_one.mini_resnet12_wide"
STAGE_ONE = "stage_one/mini_resnet12_wide"
HEAD = "ctm/mini_5w1s_frozen"
HEADS = ["lwof/mini_5w1s_short", "lwof/mini_5w5s_short", HEAD]
BOXED = "versa/mini_5w1s_frozen"
ROW = 'label = "{0}"\nshort = "{0}"\ncells = [{{ column = "1-shot" }}]'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "why_no_data", lambda dataset, data: "")  # as if miniImageNet were there
    return Place(Path("results/runs"), Path("runs"), None, "cpu")


def planned_for(place: Place, *recipes: str, seeds: tuple[int, ...] = ()) -> Plan:
    rows = [ROW.format(recipe) for recipe in recipes]
    study = write_study(Path("mine.toml"), *rows, extra=["[short]", "minutes = 4.0"])
    return make_plan([load_study(str(study))], "short", seeds, place)


def stage_one_of(place: Place) -> list[Planned]:
    return [p for p in planned_for(place, HEAD).jobs if p.job.recipe.name == STAGE_ONE]


def write_state(place: Place, folder: str = FOLDER, **changes: Any) -> None:
    """A checkpoint that stage one has saved on its way; ``changes`` of what its state says."""
    (digest,) = {p.job.recipe.digest for p in stage_one_of(place)}
    step = Path(folder) / "step-00000100"
    step.mkdir(parents=True)
    own = {"iteration": 100, "seconds": 60.0, "recipe_digest": digest, "optimiser": {"state": {}, "groups": [1]}}
    (step / "state.json").write_text(json.dumps({**own, **changes}))


def test_stage_one_comes_once_and_before_all_that_start_from_it(place: Place) -> None:
    jobs = planned_for(place, BOXED, *HEADS, seeds=(1, 2)).to_run
    names = [p.job.recipe.name for p in jobs]
    assert names == [BOXED] * 2 + [STAGE_ONE] + [head for head in HEADS for _ in range(2)]
    assert [p.after for p in jobs] == [""] * 3 + [FOLDER] * 6  # the weights of the box need nothing
    (train,) = commands_of(jobs[2], place)
    assert train[:2] == ("train", STAGE_ONE) and train[train.index("--out") + 1] == FOLDER
    assert train[train.index("--max-minutes") + 1] == "4" and "--resume" not in train
    assert jobs[2].seconds == pytest.approx(4 * 60 + 2 * 8 + 30) and jobs[2].note == "its time box"


def test_table_1_makes_each_encoder_once_and_takes_others_from_the_box(place: Place) -> None:
    jobs = make_plan([load_study("table1")], "short", (), place).to_run
    made = {p.job.folder: jobs.index(p) for p in jobs if p.job.folder}
    assert FOLDER in made and len(made) == len([p for p in jobs if p.job.folder]) > 1
    starts = {p.job.recipe.name: p.job.recipe.backbone_weights or p.job.recipe.train.teacher for p in jobs}
    waiting = [p for p in jobs if starts[p.job.recipe.name] in made]
    assert len(waiting) > 3 and [p for p in jobs if p.after] == waiting
    assert all(made[p.after] < jobs.index(p) and p.after == starts[p.job.recipe.name] for p in waiting)
    after = {p.job.recipe.name: p.after for p in waiting}
    for name, start in (  # what makes weights starts from others itself
        ("platipus/mini_5w1s_reference_from_meta_sgd_with_head", "weights/meta_sgd.mini_5w1s_reference_pretrained"),
        ("meta_sgd/mini_5w1s_reference_pretrained", "runs/stage_one.mini_conv32"),
        ("tadam/mini_5w1s_distilled", "runs/stage_one.mini_resnet12_film_distilled"),
        ("stage_one/mini_resnet12_film_distilled", "weights/stage_one.mini_resnet12_wide_full"),
        ("stage_one/mini_resnet12_wide_full", "weights/stage_one.mini_resnet12_wide_strong"),
    ):
        assert after[name] == start, name
    assert any(p.job.recipe.backbone_weights.startswith("weights/") for p in jobs)


@pytest.mark.parametrize(
    "there",
    [{"iteration": 15000}, {"optimiser": {}}, {"recipe_digest": "another"}],
    ids=["whole", "packed", "of another recipe"],
)
def test_weights_that_are_there_are_not_made_again(place: Place, there: dict[str, Any]) -> None:
    write_state(place, **there)
    (head,) = planned_for(place, HEAD).jobs
    assert head.state == "to run" and not head.after


def test_an_unfinished_stage_one_goes_on_and_one_that_ended_with_its_time_box_does_not(place: Place) -> None:
    Path(FOLDER).mkdir(parents=True)
    assert stage_one_of(place)[0].train  # a folder without a checkpoint, as a failed run leaves it
    write_state(place)
    (unfinished,) = stage_one_of(place)
    assert "goes on from iteration 100" in unfinished.note and "--resume" in commands_of(unfinished, place)[0]
    add_record(place.results, STAGE_ONE, training={"iterations": 100, "seconds": 60.0})
    assert not stage_one_of(place)


def test_stage_one_is_made_only_for_runs_that_read_it(place: Place) -> None:
    add_record(place.results, STAGE_ONE)
    (stage_one, head) = planned_for(place, HEAD).jobs
    assert stage_one.state == "to run"  # recorded, but its weights are gone
    write_state(place, str(place.folder(head.job)))
    (resumed,) = planned_for(place, HEAD).jobs
    assert "goes on from iteration 100" in resumed.note and not resumed.after
    add_record(place.results, HEAD)
    assert [p.state for p in planned_for(place, HEAD, HEADS[0]).jobs] == ["to run", "recorded", "to run"]
    assert [p.state for p in planned_for(place, HEAD, STAGE_ONE).jobs] == ["recorded", "recorded"]


def test_features_do_without_stage_one_but_not_where_its_classifier_is_handed_on(place: Place) -> None:
    row = 'label = "{0}"\nshort = "{0}"\nfeatures = true\ncells = [{{ column = "1-shot" }}]'
    rows = [row.format(name) for name in ("lwof/mini_5w1s_short", "lwof/mini_5w1s_short_cosine")]
    study = load_study(str(write_study(Path("mine.toml"), *rows, extra=["[short]", "minutes = 4.0"])))
    for name in ("stage_one.mini_resnet12_wide", "stage_one.mini_resnet12_wide_cosine"):
        (place.runs / "features" / name).mkdir(parents=True)
    plain, maker, cosine = make_plan([study], "short", (), place).jobs
    assert maker.job.recipe.name == "stage_one/mini_resnet12_wide_cosine" and not plain.after
    assert cosine.after == "runs/stage_one.mini_resnet12_wide_cosine"
    write_state(place, str(place.folder(cosine.job)))  # on its way: it has the classifier in its own checkpoint
    assert [p.after for p in make_plan([study], "short", (), place).jobs] == ["", ""]


def test_a_stage_one_with_a_row_of_its_own_is_trained_where_others_look_for_it(place: Place) -> None:
    first, second = planned_for(place, STAGE_ONE, HEAD).jobs
    assert (first.job.recipe.name, place.folder(first.job), second.after) == (STAGE_ONE, Path(FOLDER), FOLDER)


def test_what_starts_from_a_failed_stage_one_is_left(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "run_job", lambda *_: Ended("failed", 1.0, "out of memory"))
    planned_for(place, HEAD, BOXED)
    outcome = reproduce(["mine.toml"], device="cpu")
    assert list(outcome.failed) == [f"{STAGE_ONE}, seed 111", f"{BOXED}, seed 111"]
    assert outcome.left == [f"{HEAD}, seed 111"]


def test_on_a_cluster_a_run_is_handed_the_task_of_its_stage_one(place: Place) -> None:
    class Task:
        def options(self, name: str, num_gpus: float) -> Task:
            self.name = name
            return self

        def remote(self, planned: Planned, there: Place, folder: str, after: str | None) -> str:
            handed[planned.job.recipe.name] = after
            return self.name

    handed: dict[str, str | None] = {}
    chosen = planned_for(place, BOXED, HEAD)
    cluster._submit(Task(), chosen, place, dict.fromkeys([p.job.key for p in chosen.to_run], 0.0))
    (stage_one,) = stage_one_of(place)
    assert handed == {BOXED: None, STAGE_ONE: None, HEAD: stage_one.job.key}
