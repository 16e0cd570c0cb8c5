"""Several processes for one call: those that torchrun has started, or those that ``--devices N`` does.

`engram.processes` is how they tell each other.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist

from engram import processes
from engram.errors import EngramError
from engram.machine.device import choose_device
from engram.processes import LostProcessError, Share

TIMEOUT = timedelta(minutes=10)
"""a process that falls silent without ending is given up after it; one that ends is missed at once"""
HOST = "127.0.0.1"
START = "from engram.machine.together import work; work()"

_given: tuple[Share, dict[str, Any]] | None = None
"""of a process started here: which it is, and where it meets the others"""


@dataclass(frozen=True)
class Call:
    """What every process does: ``module.function(given, **keywords)``."""

    module: str
    function: str
    given: Any
    keywords: Mapping[str, Any]


@contextmanager
def together(devices: int, device: str, call: Call) -> Iterator[torch.device]:
    """The device of this process while it is one of ``devices``; the others are started here, unless by torchrun, and
    make the same ``call``."""
    if devices < 1:
        raise EngramError(f"devices = {devices} but it must be at least 1")
    by_torchrun = "TORCHELASTIC_RUN_ID" in os.environ and _given is None
    share = _given[0] if _given else _of_torchrun("RANK", "WORLD_SIZE") if by_torchrun else Share(0, devices)
    if devices not in (1, share.count):
        raise EngramError(f"--devices {devices} but torchrun has started {share.count}: leave --devices out")
    if share.count == 1:
        yield choose_device(device)
        return
    chosen = device_of(device, _of_torchrun("LOCAL_RANK", "LOCAL_WORLD_SIZE") if by_torchrun else share)
    # Hosts talk over gloo, also where GPUs have NCCL: it tells at once when a process has ended.
    backend = "cpu:gloo,cuda:nccl" if chosen.type == "cuda" and ":" not in device else "gloo"
    threads = torch.get_num_threads()
    try:
        if chosen.type == "cuda":
            torch.cuda.set_device(chosen)
        elif not by_torchrun:  # torchrun has seen to it
            torch.set_num_threads(max(1, threads // share.count))
        at_hand = nullcontext(_given[1] if _given else {})
        others = at_hand if _given or by_torchrun else _others(share.count, call)
        with others as place, processes.joined(share, backend, timeout=TIMEOUT, **place):
            yield chosen
    finally:
        torch.set_num_threads(threads)


def _of_torchrun(rank: str, count: str) -> Share:
    return Share(int(os.environ[rank]), int(os.environ[count]))


def device_of(name: str, here: Share) -> torch.device:
    """Of one of the processes on this machine: each a GPU of its own, or all the one that is named with its number, or
    all the CPU."""
    chosen = choose_device(name)
    if chosen.type == "cuda" and ":" in name:
        return chosen
    there, kind = (os.cpu_count() or 1, "core") if chosen.type == "cpu" else (torch.cuda.device_count(), "GPU")
    if here.count > there:
        raise EngramError(
            f"{here.count} processes were asked for, each with a {kind} of its own, but this machine has {there}: use "
            f"--devices {there} or fewer"
        )
    return chosen if chosen.type == "cpu" else torch.device("cuda", here.rank)


@contextmanager
def _others(count: int, call: Call) -> Iterator[dict[str, Any]]:
    """Start the other processes, and end with them."""
    store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    # In sessions of their own: Ctrl-C reaches the first alone, which tells them.
    start = [sys.executable, "-c", START]
    workers = [subprocess.Popen(start, stdin=subprocess.PIPE, start_new_session=True) for _ in range(1, count)]
    try:
        for rank, worker in enumerate(workers, 1):
            assert worker.stdin is not None
            with worker.stdin:
                pickle.dump(sys.path, worker.stdin)  # first: what follows may name classes found by it
                pickle.dump((Share(rank, count), store.port, call), worker.stdin)
        while not store.check([f"started/{rank}" for rank in range(1, count)]):
            if ended := [rank for rank, worker in enumerate(workers, 1) if worker.poll() is not None]:
                raise EngramError(f"process {ended[0]} of {count} ended before the work began: see above")
            time.sleep(0.05)
        yield {"store": store}
    except LostProcessError as error:
        _end(workers)
        for rank in range(1, count):
            if store.check([f"failed/{rank}"]):
                raise EngramError(f"{error}; process {rank} says: {store.get(f'failed/{rank}').decode()}") from error
        raise
    finally:
        _end(workers)


def _end(workers: Sequence[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        try:
            worker.wait(10)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def work() -> None:
    """What a process started by `_others` does: the same call. The first process says what goes wrong here."""
    global _given
    sys.path[:] = pickle.load(sys.stdin.buffer)
    share, port, call = pickle.load(sys.stdin.buffer)
    store = dist.TCPStore(HOST, port, is_master=False)
    _given = share, {"store": store}
    store.set(f"started/{share.rank}", "")
    try:
        getattr(import_module(call.module), call.function)(call.given, **call.keywords)
    except EngramError as error:
        if not isinstance(error, LostProcessError):
            store.set(f"failed/{share.rank}", str(error))
        sys.exit(2)
