"""The package on every Python from 3.11 on that this machine has: `make pythons`, or with `TORCH=2.11.0` one version.

For each, the wheel is installed into an environment of its own under .pythons/ and tried: the command line, a training
of two seconds on embedded letters, and the tests of `TESTS`. Prints which Pythons were tried, with which PyTorch, and
which there are none of. Several GB of CUDA packages may come along, where there is no CPU build of PyTorch.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("3.11", "3.12", "3.13", "3.14", "3.15")
TESTS = ("test_types.py", "test_options.py", "test_flags.py", "test_processes.py", "data/test_store.py")
TESTS += ("methods/test_proto_net.py", "methods/test_maml.py", "methods/test_cml_bgnn.py", "nn/test_adapt.py")
TESTS += ("training/test_step.py", "training/test_loop.py", "evaluation/test_evaluate.py", "models/test_checkpoint.py")
"""what a new Python or PyTorch breaks first: types, tensors, both orders of differentiation, a run and its files"""
LEFT = "not slow and not extras and not data"
HELPERS = ("tests", "tests/evaluation", "tests/models", "tests/report", "tests/training")


def interpreters() -> dict[str, Path]:
    """Minor version -> where it is: on the path, with pyenv or with uv."""
    found = {name: Path(path) for name in NAMES if (path := shutil.which(f"python{name}"))}
    listed = [*(Path.home() / ".pyenv/versions").glob("3.*/bin/python")]
    if shutil.which("uv"):
        told = _told("uv", "python", "list", "--only-installed", "--output-format", "text")
        listed += [Path(line.split()[1]) for line in told.splitlines() if len(line.split()) > 1]
    for path in [*found.values(), *listed]:
        version = _told(str(path), "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
        if version in NAMES:
            found[version] = path
    works = {name: path for name, path in found.items() if _told(str(path), "--version")}
    return dict(sorted(works.items()))


def _told(*command: str) -> str:
    """What a command prints; "" where it fails, as pyenv's stand-in for a Python that was not chosen does."""
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def tried(python: Path, name: str, wheel: Path, torch: str) -> str:
    """Install and try; what came of it, in words."""
    folder = ROOT / ".pythons" / f"{name}{'-torch' + torch if torch else ''}"
    bin, log = folder / "bin", folder.parent / f"{folder.name}.txt"
    wanted = [f"torch=={torch}"] if torch else ["-c", str(ROOT / "constraints.txt")]
    tests = [str(ROOT / "tests" / test) for test in TESTS]
    needed = ["pytest>=8", "hypothesis>=6", "scikit-learn>=1.4"]
    # Without the project's folder on the path, so that the wheel is what is tested.
    paths = " ".join(str(ROOT / helper) for helper in HELPERS)
    with tempfile.TemporaryDirectory() as away, log.open("w") as words:
        steps = {
            "venv": [str(python), "-m", "venv", "--clear", str(folder)],
            "install": [bin / "pip", "install", "-q", *wanted, wheel, *needed],
            "command line": [bin / "engram", "list", "methods"],
            "quickstart": [bin / "engram", "quickstart", "--seconds", "2"],
            "tests": [bin / "pytest", *tests, "-x", "-m", LEFT, "-o", f"pythonpath={paths}"],
        }  # fmt: skip
        for step, command in steps.items():
            done = subprocess.run([str(word) for word in command], cwd=away, stdout=words, stderr=words)
            if done.returncode:
                return f"FAILED in {step}, see {log.relative_to(ROOT)}"
    passed = log.read_text().strip().splitlines()[-1].strip("= ")
    return f"PyTorch {_told(str(bin / 'python'), '-c', 'import torch; print(torch.__version__)').strip()}: {passed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", default="", help="a version of PyTorch in place of that of constraints.txt")
    parser.add_argument("--only", default="", help="one Python, such as 3.12")
    asked, there = parser.parse_args(), interpreters()
    for name in NAMES:
        print(f"Python {name}: {there.get(name, 'there is none on this machine')}")
    (ROOT / ".pythons").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as built:
        subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", built, str(ROOT)], check=True)
        (wheel,) = Path(built).glob("*.whl")
        outcomes = []
        for name, python in there.items():
            if asked.only in ("", name):
                clock = time.monotonic()
                outcomes.append(f"{_told(str(python), '--version').strip()}, {tried(python, name, wheel, asked.torch)}")
                print(f"{outcomes[-1]}, {time.monotonic() - clock:.0f} s in all", flush=True)
    sys.exit(any("FAILED" in outcome for outcome in outcomes) or not outcomes)


if __name__ == "__main__":
    main()
