"""The kernels in C, compiled with the address and undefined-behaviour sanitizers, over random shapes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from recorded import keep

PROGRAM = """
import random, sys, torch
from engram.nn import graph, kernels
from engram.nn.backbones.conv import ConvBlock
from engram.nn.kernels import cpu
from engram.nn.pairs import on_pairs
assert not cpu.missing(), cpu.missing()
random.seed(int(sys.argv[1])); torch.manual_seed(int(sys.argv[1]))
for number in range(60):
    torch.set_num_threads(random.choice([1, 2, 3]))
    given, made = random.choice([1, 2, 3, 16, 32, 48]), random.choice([16, 32, 64])
    padding, sides = random.choice([0, 1]), (random.randint(4, 21), random.randint(4, 21))
    block = ConvBlock(given, made, 0.2, padding, random.choice([True, False]))
    images = torch.randn(random.randint(1, 9), given, *sides, requires_grad=random.choice([True, False]))
    net = graph.PointwiseNet([16, made, 16], outputs=1, dropout=0.3, dropout_each=True)
    nodes = torch.randn(random.randint(2, 5), random.randint(2, 7), 16, requires_grad=True)
    with kernels.training() as use:
        block(images).square().sum().backward()
        on_pairs(net, graph.differences(nodes)).square().sum().backward()
    assert use.by == "c"
print(f"{number + 1} random shapes: nothing found")
"""

FLAGS = "-g -fsanitize=address,undefined -fno-omit-frame-pointer"
COMPILE = "from engram.nn.kernels.cpu import library; library.LIMIT = 600; library.library()"
"""in a process of its own, as a compiler under the sanitizer takes minutes; that process cannot load what it makes"""


@pytest.mark.extras
def test_sanitizers_find_nothing(tmp_path: Path, compiled: None) -> None:
    compiler = shutil.which("gcc") or pytest.skip("the sanitizers are asked of gcc")
    found = [
        subprocess.run([compiler, f"-print-file-name={name}.so"], capture_output=True, text=True, check=True).stdout
        for name in ("libasan", "libubsan")
    ]
    if not all(os.path.isabs(path.strip()) for path in found):
        pytest.skip("gcc has no sanitizers here")
    environment = {
        **os.environ,
        "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",  # leaks would be Python's own, at its end
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "CC": f"{compiler} {FLAGS}",
        "ENGRAM_CACHE": str(tmp_path),
    }
    subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, check=False)
    assert list((tmp_path / "kernels").glob("*.so"))
    environment["LD_PRELOAD"] = " ".join(path.strip() for path in found)
    log = {}
    for seed in ("1", "2"):
        command = [sys.executable, "-c", PROGRAM, seed]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
        assert done.returncode == 0 and done.stdout.endswith("nothing found\n"), done.stderr[-4000:]
        log[seed] = done.stdout + done.stderr
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
    keep("sanitizer", compiler=version, flags=FLAGS, log=log)
