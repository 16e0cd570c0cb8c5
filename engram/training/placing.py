"""Where the images of a run lie: on its device within a budget of bytes, else on disk, to be read step by step."""

from __future__ import annotations

import os
import re
from pathlib import Path

import torch

from engram.data.store import Store
from engram.errors import EngramError

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def read_size(text: str) -> int:
    """Bytes of a size such as 2GB, 500MB or 0."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Z]*)", text.strip().upper())
    if not found or found[2] not in UNITS:
        raise EngramError(f"store_memory = '{text}' is no size: give a number of bytes, or one with a unit such as 2GB")
    return int(float(found[1]) * UNITS[found[2]])


class Room:
    """Memory of a device that images may take: the size given, else half of what is free."""

    def __init__(self, device: torch.device, size: str | None = None) -> None:
        self.device = device
        self.left = free_memory(device) // 2 if size is None else read_size(size)

    def place(self, store: Store) -> Store:
        """The store with its images on the device where there is room for them; else as it is."""
        if store.file is None and store.images.device == self.device:
            return store
        if store.n_bytes > self.left:
            return store
        try:
            placed = store.to(self.device)
        except torch.OutOfMemoryError:
            return store
        self.left -= store.n_bytes
        return placed


def free_memory(device: torch.device) -> int:
    """Bytes; those count too that torch keeps for later, and of the machine's those that only keep files at hand."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    try:
        return 1024 * int(re.findall(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text())[0])
    except (OSError, IndexError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
