"""Pages of a freed block are there for the next one while memory is kept, and go back to the system afterwards."""

import platform
import subprocess
import sys

import pytest

MEBIBYTES = 64
COUNT_PAGES = f"""
import resource, torch
from engram.machine.device import kept_memory

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty({MEBIBYTES} * 2**18).fill_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = new_pages()
with kept_memory():
    print(before, *[new_pages() for _ in range(20)][-1:])
print(new_pages())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has its own ways")
def test_a_block_is_used_again_while_memory_is_kept() -> None:
    """In a process of its own, and after some rounds: what lies on the heap decides where a block goes."""
    told = subprocess.run([sys.executable, "-c", COUNT_PAGES], capture_output=True, text=True, check=True).stdout
    before, kept, after = map(int, told.split())
    assert kept < before / 10
    assert after > before / 2
