"""What runs take of a GPU, by their records, and that no more is planned than fits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from study_ledger import add_record

from engram.errors import EngramError
from engram.reproduction import packing
from engram.reproduction.packing import Packing, Room, part_of, rooms_of
from engram.reproduction.plan import Place, Plan, make_plan
from engram.studies import load_study

LEAK = "cml_bgnn/glyphs_leak"
CARD = Room("cuda:0", 40_000.0, 4)


def plan_after(place: Place, **use: float) -> Plan:
    """The order-leak study on a GPU, where a run of one of its recipes and of the same method took so much."""
    if use:
        training = {"iterations": 200, "seconds": 60.0, "device_use": use}
        add_record(place.results, LEAK, seed=5, training=training)
    there = Place(place.results, place.runs, None, "cuda")
    return make_plan([load_study("order_leak")], "short", (), there)


def test_a_share_is_the_most_of_count_memory_and_power(place: Place) -> None:
    (known, *_) = [p for p in plan_after(place, peak_memory_mib=2000).to_run if p.job.recipe.name == LEAK]
    part = part_of(known, CARD, "auto")
    assert part.share == 0.25 and part.memory_mib == pytest.approx(1.1 * 2000 + 1024)
    assert part.why == "from a run of this recipe, power not recorded: one of 4"
    assert part_of(known, Room("cuda:0", 8000.0, 4), "auto").share == pytest.approx(3224 / 8000)
    assert part_of(known, Room("cuda:0", 40_000.0, 2), "2") == packing.Part(
        0.5, pytest.approx(3224), "from a run of this recipe"
    )
    assert part_of(known, Room("cpu", 40_000.0, 2), "2").memory_mib == pytest.approx(2200)


def test_a_card_that_is_busy_with_one_run_takes_no_other(place: Place) -> None:
    for planned in plan_after(place, peak_memory_mib=2000, power_share=0.7).to_run:
        assert part_of(planned, CARD, "auto").share == 0.7 and "70% of the power" in part_of(planned, CARD, "auto").why


def test_of_what_nothing_is_known_runs_alone_unless_asked_for(place: Place) -> None:
    planned = plan_after(place).to_run[0]
    assert part_of(planned, CARD, "auto") == packing.Part(
        1.0, 40_000, "alone: no record tells what memory a run like it takes"
    )
    assert part_of(planned, CARD, "4").share == 0.25


def test_a_time_box_that_may_run_out_is_not_shared(place: Place) -> None:
    planned = plan_after(place, peak_memory_mib=2000).to_run[0]
    for minutes, share in ((1.0, 1.0), (100.0, 0.25)):
        boxed = replace(planned, job=replace(planned.job, minutes=minutes))
        assert part_of(boxed, CARD, "auto").share == share


def test_no_more_enter_than_fit_and_one_that_leaves_makes_room(place: Place) -> None:
    plan = plan_after(place, peak_memory_mib=10_000)
    first, second, third = plan.to_run
    packed = Packing(plan, [Room("cuda:0", 25_000.0, 4)], "auto")  # 12,024 MiB each
    rooms = [packed.enter(first), packed.enter(second)]
    assert all(rooms) and packed.enter(third) is None
    packed.leave(first, packed.rooms[0])
    assert packed.enter(third) is packed.rooms[0]
    small = Packing(plan, [Room("cuda:0", 5_000.0, 4)], "auto")
    assert small.enter(first) and small.enter(second) is None, "what fits no card has one to itself"
    two = Packing(plan, [Room("cuda:0", 25_000.0, 4), Room("cuda:1", 25_000.0, 4)], "auto")
    names = [room.name for p in plan.to_run if (room := two.enter(p))]
    assert names == ["cuda:0", "cuda:1", "cuda:0"]


def test_without_the_service_auto_goes_in_turn_and_a_number_stands(place: Place) -> None:
    plan = plan_after(place, peak_memory_mib=1000)
    assert Packing(plan, [CARD], "auto").without_service().in_turn
    assert not Packing(plan, [CARD], "3").without_service().in_turn


def test_rooms_of_a_call(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "free_memory", lambda: [80_000.0, 70_000.0])
    monkeypatch.setattr(packing.os, "cpu_count", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    on_cards = [Room("cuda:0", 80_000, 4), Room("cuda:1", 70_000, 4)]
    assert rooms_of(Place(device="cuda"), "auto") == on_cards
    assert rooms_of(Place(device="cuda:1"), "2") == [Room("cuda:1", 70_000, 2)]
    assert rooms_of(place, "1") == [Room("cpu", 0, 1)]
    (cores,) = rooms_of(place, "2")
    assert (cores.at_once, cores.threads) == (2, 2) and cores.memory_mib > 10
    for device, asked, told in (
        ("cpu", "8", "--per-gpu 8 but this machine has no GPU and 4 cores: use 4 or fewer"),
        ("cpu", "none", "--per-gpu none but it is a number of runs, at least 1, or auto"),
        ("cuda:2", "2", "has to know the memory of device cuda:2 but nvidia-smi tells of 2 GPUs"),
    ):
        with pytest.raises(EngramError, match=told):
            rooms_of(Place(device=device), asked)


def test_the_plan_is_shown(place: Place, tmp_path: Path) -> None:
    with (tmp_path / "shown").open("w") as file:
        Packing(plan_after(place, peak_memory_mib=2000), [CARD], "auto").show(Console(file=file, width=150))
    shown = (tmp_path / "shown").read_text()
    assert "side by side on cuda:0 with 40,000 MiB free" in shown and "25%" in shown and "3,224" in shown
