"""The same grid on a Ray cluster: runs on whole GPUs or parts of them, retried when a node is lost, records gathered by
the caller.

A node runs a job as the local engine does, in a ledger of its own, and sends back its files. Ray is an extra.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from engram.errors import EngramError
from engram.machine.cards import free_memory, multi_process_service
from engram.machine.interruptions import StopRequest
from engram.reproduction.display import Progress
from engram.reproduction.local import record_failure, run_job
from engram.reproduction.packing import MOST, Packing, Room, count_of
from engram.reproduction.plan import Place, Plan, Planned
from engram.reproduction.process import Ended, Reproduced

RETRIES = 3
"""times a run is started again after its node was lost"""
ANSWER = 5.0
"""seconds a cluster gets to answer"""
LOOK_EVERY = 0.5
UNLOCK = 120.0
"""seconds the lost attempt gets to let go of a run folder that nodes share"""


@dataclass(frozen=True)
class Away:
    """What comes back from a node."""

    ended: Ended
    files: dict[str, bytes]
    """path below results/ -> content"""
    node: str


def run_on_cluster(
    plan: Plan, place: Place, address: str, outcome: Reproduced, budget: float | None, console: Console, per_gpu: str
) -> None:
    """Share the missing runs out over the cluster and write what comes back into the ledger of ``place``."""
    ray = connect(address)
    services: list[Any] = []
    try:
        resources = ray.cluster_resources()
        on_gpu = resources.get("GPU", 0) >= 1 and place.device != "cpu"
        nodes = sum(node["Alive"] for node in ray.nodes())
        devices = f"{resources['GPU']:.0f} GPUs" if on_gpu else f"{resources.get('CPU', 0):.0f} cores"
        console.print(f"Ray at {address}: {nodes} nodes, {devices}", highlight=False)
        shares = dict.fromkeys((p.job.key for p in plan.to_run), float(on_gpu))
        if on_gpu and count_of(per_gpu) != 1:
            services = [
                start_service(ray, node) for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")
            ]
            shares = _shares(ray, services, plan, per_gpu, console)
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(run_away)
        _gather(ray, _submit(task, plan, place, shares), plan, place, outcome, budget, console)
    finally:
        for service in services:
            with suppress(Exception):  # of a node that is gone
                ray.get(service.stop.remote(), timeout=ANSWER)
        ray.shutdown()


class Service:
    """On a node with GPUs, while a grid runs: CUDA MPS, and what memory its smallest GPU has free."""

    def __init__(self) -> None:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray hides GPUs from whom it gives none
        self.held = ExitStack()
        self.why = self.held.enter_context(multi_process_service())

    def told(self) -> tuple[str, float]:
        """Why there is no MPS, "" where there is, and MiB."""
        return self.why, min(free_memory(), default=0.0)

    def stop(self) -> None:
        self.held.close()


def start_service(ray: Any, node: dict[str, Any]) -> Any:
    here = {f"node:{node['NodeManagerAddress']}": 0.001}
    return ray.remote(num_cpus=0, resources=here)(Service).remote()


def _shares(ray: Any, services: list[Any], plan: Plan, per_gpu: str, console: Console) -> dict[str, float]:
    """``num_gpus`` of each run: what it takes of the smallest GPU of the cluster."""
    told = ray.get([service.told.remote() for service in services])
    room = Room("GPU", min(memory for _, memory in told), count_of(per_gpu) or MOST)
    packing = Packing(plan, [room], per_gpu)
    for why in dict.fromkeys(why for why, _ in told if why):
        packing = packing.without_service()
        console.print(f"CUDA MPS cannot be started ({why})", highlight=False, markup=False)
    packing.show(console)
    # Ray counts in ten-thousandths; rounded down, as four of 0.25 have to fit.
    return {key: int(10_000 * parts[room.name].share) / 10_000 for key, parts in packing.parts.items()}


def connect(address: str) -> Any:
    """Ray, connected; one sentence where it is not installed or nobody answers."""
    try:
        import ray
    except ImportError as error:
        raise EngramError("the engine ray needs Ray, which is not installed: pip install -e '.[ray]'") from error
    way_out = "start one with ray start --head, check the address, or leave out --engine ray"
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address != "auto":
        if not host or not port.isdigit():
            raise EngramError(f"address = '{address}' is no address of a Ray cluster: give HOST:PORT, or auto")
        try:
            socket.create_connection((host, int(port)), ANSWER).close()
        except OSError as error:
            told = error.strerror or error
            raise EngramError(f"no Ray cluster answers at {address} ({told}): {way_out}") from error
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise EngramError(f"no Ray cluster answers at {address} ({str(error).splitlines()[0]}): {way_out}") from error
    return ray


def _submit(task: Any, plan: Plan, place: Place, shares: dict[str, float]) -> dict[Any, Planned]:
    """A task for each run, handed the task it waits for, so that Ray starts it afterwards."""
    there = replace(place, runs=place.runs.absolute(), data=place.data.absolute() if place.data else None)
    tasks: dict[Any, Planned] = {}
    encoders: dict[str, Any] = {}
    for planned in plan.to_run:
        after = encoders.get(planned.after)
        options = {"name": planned.job.key, "num_gpus": shares[planned.job.key]}
        reference = task.options(**options).remote(planned, there, os.getcwd(), after)
        tasks[reference] = planned
        if planned.job.folder:
            encoders[planned.job.folder] = reference
    return tasks


def _gather(
    ray: Any, tasks: dict[Any, Planned], plan: Plan, place: Place, outcome: Reproduced, budget: float | None,
    console: Console,
) -> None:  # fmt: skip
    deadline = float("inf") if budget is None else time.monotonic() + 60 * budget
    waiting = dict(tasks)
    with StopRequest() as stop, Progress(plan.to_run, console) as progress:
        for planned in tasks.values():
            progress.submitted(planned)
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=LOOK_EVERY)
            for reference in ready:
                planned = waiting.pop(reference)
                ended = _fetch(ray, reference, planned, place)
                progress.end(planned, ended)
                outcome.add(planned.job.title, ended)
            if waiting and (stop.requested or time.monotonic() > deadline):
                for reference in waiting:
                    ray.cancel(reference)
                outcome.left += [planned.job.title for planned in waiting.values()]
                break


def _fetch(ray: Any, reference: Any, planned: Planned, place: Place) -> Ended:
    """The result of a task, its files in the caller's ledger; a lost one is a failed run, and recorded."""
    try:
        away: Away = ray.get(reference)
    except (ray.exceptions.RayError, ray.exceptions.RayTaskError) as error:
        ended = Ended("failed", 0.0, f"lost on the cluster after {RETRIES} retries: {str(error).splitlines()[0]}")
        record_failure(planned.job, place, ended)
        return ended
    for name, content in away.files.items():
        path = place.results.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), path.open("xb") as file:  # the ledger is append-only
            file.write(content)
    return replace(away.ended, node=away.node)


def run_away(planned: Planned, place: Place, folder: str, after: Away | None) -> Away:
    """On a node: run a job with a ledger of its own and hand back what it wrote."""
    node = socket.gethostname() + f", process {os.getpid()}"
    if after and after.ended.status != "finished":
        return Away(Ended("failed", 0.0, "the encoder it starts from was not trained"), {}, node)
    if Path(folder).is_dir():
        os.chdir(folder)  # recipes and weights are named relative to the caller's folder
    _wait_for_lock(place.folder(planned.job))
    with tempfile.TemporaryDirectory(prefix="engram_") as ledger:
        results = Path(ledger) / "runs"
        ended = run_job(planned, replace(place, results=results))
        paths = [p for p in Path(ledger).rglob("*") if p.is_file() and p.suffix in (".json", ".npz")]
        return Away(ended, {str(_ledger_name(p, Path(ledger), place)): p.read_bytes() for p in paths}, node)


def _ledger_name(path: Path, ledger: Path, place: Place) -> Path:
    """``runs/x.json`` on the node -> the same below the caller's results folder, whatever that is called."""
    relative = path.relative_to(ledger)
    return Path(place.results.name, *relative.parts[1:]) if relative.parts[0] == "runs" else relative


def _wait_for_lock(folder: Path) -> None:
    """The attempt of a lost node may still be saving where nodes share a disk."""
    deadline = time.monotonic() + UNLOCK
    lock = folder / "run.lock"
    while lock.exists() and time.monotonic() < deadline:
        with lock.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(1.0)
