"""From the cells of studies to jobs."""

from __future__ import annotations

from engram.studies import load_study
from engram.studies.jobs import jobs_of

SHUFFLED = (("slot_order", "shuffled"),)


def test_one_job_per_model_whatever_the_number_of_cells() -> None:
    jobs, absent = jobs_of([load_study("order_leak")], "short")
    assert not absent and len(jobs) == 3
    leak = jobs[0]
    assert leak.asks == ((), SHUFFLED) and leak.minutes == 0.0 and leak.recipe.train.seed == 111
    seeds = jobs_of([load_study("order_leak")], "short", seeds=(1, 2))[0]
    assert len(seeds) == 6 and len({j.key for j in seeds}) == 6
