"""Several runs on one GPU, or on the cores of a machine without one: what each takes, from what records tell of runs
like it, and never more together than there is memory for."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from rich.console import Console

from engram.errors import EngramError
from engram.machine.cards import available_memory, free_memory
from engram.report.table import Column, Table
from engram.reproduction.plan import Place, Plan, Planned

MOST = 4
"""runs at once on a GPU that ``auto`` plans: what was measured to pay"""
MARGIN = 1.1
"""of memory, over what a run like it took"""
CONTEXT = 1024
"""MiB of a GPU for each process, beside its tensors"""


@dataclass(frozen=True)
class Room:
    """A GPU, or all cores, with the memory that is free on it."""

    name: str
    """as ``--device`` has it"""
    memory_mib: float
    at_once: int
    """runs at a time, where nothing says otherwise"""
    threads: int = 0
    """of each run; 0: as the caller has set it"""

    @property
    def is_gpu(self) -> bool:
        return self.name != "cpu"


@dataclass(frozen=True)
class Part:
    """What a run takes of a room."""

    share: float
    memory_mib: float
    why: str


def rooms_of(place: Place, per_gpu: str) -> list[Room]:
    """Where the runs of a call go. ``per_gpu``: how many at a time, or ``auto``: as many as should fit by records."""
    asked = count_of(per_gpu)
    if asked == 1:  # in turn, with all there is
        return [Room(place.device, 0.0, 1)]
    if place.on_gpu:
        free = free_memory()
        number = place.device.partition(":")[2]
        if not free or (number and int(number) >= len(free)):
            raise EngramError(
                f"--per-gpu {per_gpu} has to know the memory of device {place.device} but nvidia-smi tells of "
                f"{len(free)} GPUs: leave --per-gpu out, or use --device cpu"
            )
        cards = [int(number)] if number else range(len(free))
        return [Room(f"cuda:{card}", free[card], asked or MOST) for card in cards]
    cores = os.cpu_count() or 1
    if asked and asked > cores:
        raise EngramError(f"--per-gpu {asked} but this machine has no GPU and {cores} cores: use {cores} or fewer")
    threads = 0 if "OMP_NUM_THREADS" in os.environ else max(1, cores // (asked or cores))
    return [Room("cpu", available_memory() / 2**20, asked or cores, threads)]


def count_of(per_gpu: str) -> int:
    """0 for auto."""
    if per_gpu == "auto":
        return 0
    if not per_gpu.isdecimal() or int(per_gpu) < 1:
        raise EngramError(f"--per-gpu {per_gpu} but it is a number of runs, at least 1, or auto")
    return int(per_gpu)


def part_of(planned: Planned, room: Room, per_gpu: str) -> Part:
    """What a run takes: its share of the work, or of the memory where that is more."""
    if room.at_once == 1:
        return Part(1.0, room.memory_mib, "in turn")
    asked, least = count_of(per_gpu), 1 / room.at_once
    box = 60 * planned.job.minutes if planned.train else 0.0
    if box and (planned.seconds is None or planned.seconds * room.at_once > box):
        return Part(1.0, room.memory_mib, "alone: beside others it would learn less within its time box")
    if planned.use is None and not asked:
        return Part(1.0, room.memory_mib, "alone: no record tells what memory a run like it takes")
    if planned.use is None:
        return Part(least, room.memory_mib * least, f"no record tells its memory: one of {asked}, as asked")
    memory = MARGIN * planned.use.memory_mib + CONTEXT * room.is_gpu
    busy = 0.0 if asked or planned.use.power_share is None else planned.use.power_share
    why = f"from a run of {planned.use.source}"
    if not asked and room.is_gpu:
        why += f", {busy:.0%} of the power" if busy else f", power not recorded: one of {room.at_once}"
    return Part(min(1.0, max(least, memory / max(room.memory_mib, 1.0), busy)), memory, why)


class Packing:
    """Who is where just now."""

    def __init__(self, plan: Plan, rooms: list[Room], per_gpu: str) -> None:
        self.plan, self.rooms, self.per_gpu = plan, rooms, per_gpu
        self.parts = {p.job.key: {r.name: part_of(p, r, per_gpu) for r in rooms} for p in plan.to_run}
        self.inside: dict[str, list[str]] = {room.name: [] for room in rooms}

    @property
    def in_turn(self) -> bool:
        return all(room.at_once == 1 for room in self.rooms)

    def without_service(self) -> Packing:
        """Without CUDA MPS runs on a GPU take turns anyway: ``auto`` does not bring them together."""
        if count_of(self.per_gpu):
            return self
        return Packing(self.plan, [replace(room, at_once=1) for room in self.rooms], self.per_gpu)

    def enter(self, planned: Planned) -> Room | None:
        """A room with enough left of everything, the emptiest first; a run that fits none has an empty one."""
        key = planned.job.key
        for room in sorted(self.rooms, key=lambda r: len(self.inside[r.name])):
            others = [self.parts[other][room.name] for other in self.inside[room.name]]
            all_of_them = [*others, self.parts[key][room.name]]
            fits = sum(p.memory_mib for p in all_of_them) <= room.memory_mib
            if not others or (fits and sum(p.share for p in all_of_them) <= 1 + 1e-9):
                self.inside[room.name].append(key)
                return room
        return None

    def leave(self, planned: Planned, room: Room) -> None:
        self.inside[room.name].remove(planned.job.key)

    def show(self, console: Console) -> None:
        """What is planned for each run, by the first room."""
        first = self.rooms[0]
        what = "GPU" if first.is_gpu else "cores"
        columns: tuple[Column[Planned], ...] = (
            Column("run", lambda p: p.job.title),
            Column(f"of the {what}", lambda p: f"{self.parts[p.job.key][first.name].share:.0%}", right=True),
            Column("memory, MiB", lambda p: f"{self.parts[p.job.key][first.name].memory_mib:,.0f}", right=True),
            Column("why", lambda p: self.parts[p.job.key][first.name].why),
        )
        where = ", ".join(f"{room.name} with {room.memory_mib:,.0f} MiB free" for room in self.rooms)
        console.print(Table(columns, self.plan.to_run, title=f"side by side on {where}").terminal())
