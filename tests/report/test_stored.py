"""Training from disk as a table."""

from __future__ import annotations

from typing import Any

from engram.report.stored import store_section


def content(device: str, ratio: bool, day: str = "2026-01-01") -> dict[str, Any]:
    step = {"step_ms": 8.0, "images_per_step": 800, "steps": 2000, "read_gb": 34.5, "resident_mib": 2773.0}
    recipe = {"disk": step} | ({"memory": {"step_ms": 7.0}} if ratio else {})
    rates = {"build_s": 64.2, "build_resident_mib": 190.0, "open_s": 0.02}
    rates |= {"disk_alone_gb_per_s": 2.5} | ({"a/b, disk / memory": 1.14} if ratio else {})
    setting = {"n_images": 448695, "store_gb": 9.5, "recipes": {"a/b": recipe}}
    return {"device": device, "measured": day, "load_average": 0.1, "rates": rates, "setting": setting}


def test_the_newest_of_each_device_with_a_sentence_on_its_store() -> None:
    files = [(content("H200", True), "old"), (content("H200", True, "2026-01-02"), "new"), (content("cpu", False), "c")]
    _, _, gpu, cpu, _, first, _, second = store_section(files, "speed").splitlines()
    assert gpu == "| `a/b` | H200 | 7.00 | 8.00 | 1.14 | 800 | 2,000 | 34.50 | 2,773 | [2026-01-02](speed/new) |"
    assert cpu == "| `a/b` | cpu |  | 8.00 |  | 800 | 2,000 | 34.50 | 2,773 | [2026-01-01](speed/c) |"
    assert first.startswith(
        "H200: 448,695 pictures, 9.50 GB, were built in 64 s with 190 MiB resident and opened in 0.020"
    )
    assert second.startswith("cpu: ") and "2.50 GB/s" in second


def test_nothing_measured_is_said() -> None:
    assert store_section([], "speed") == "Not measured yet."
