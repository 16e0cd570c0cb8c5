"""The page in a real browser: upload, classify, next task, wrong file, reset; nothing is fetched from outside."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("gradio", reason="the page is an extra: pip install 'engram[page]'")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser of this test")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("no Chromium on this machine", allow_module_level=True)

pytestmark = pytest.mark.extras
WAIT = 60_000
"""milliseconds, for a machine that others use too"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    from engram.page.app import serve

    page, address = serve(browser=False, block=False)
    yield address
    page.close(verbose=False)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    outside: list[str] = []
    page.on("request", lambda r: outside.append(r.url) if r.url.startswith("http") and address not in r.url else None)
    page.goto(address)
    page.get_by_role("button", name="Classify").wait_for(timeout=WAIT)
    yield page
    assert not outside, "the page works offline"
    page.close()


def pictures(folder: Path, name: str, colour: tuple[int, int, int], count: int = 2) -> list[str]:
    rng = np.random.default_rng(sum(colour))
    files = []
    for number in range(count):
        pixels = (np.array(colour) + rng.integers(-30, 30, (50, 40, 3))).clip(0, 255).astype(np.uint8)
        files.append(str(folder / f"{name}{number}.png"))
        Image.fromarray(pixels).save(files[-1])
    return files


def add(page: Any, name: str, files: list[str]) -> None:
    page.get_by_label("Class", exact=True).fill(name)
    page.locator("input[type=file]").first.set_input_files(files)
    page.get_by_text(Path(files[0]).stem).first.wait_for(timeout=WAIT)
    page.get_by_role("button", name="Add class").click()


def test_upload_classify_next_task_wrong_file_reset(page: Any, tmp_path: Path) -> None:
    add(page, "red", pictures(tmp_path, "r", (220, 40, 40)))
    page.locator("#task th", has_text="red").wait_for(timeout=WAIT)
    add(page, "green", pictures(tmp_path, "g", (40, 200, 60)))
    page.locator("#task th", has_text="green").wait_for(timeout=WAIT)
    page.locator("input[type=file]").last.set_input_files(pictures(tmp_path, "q", (210, 50, 40), 1))
    page.get_by_text("q0").first.wait_for(timeout=WAIT)
    page.get_by_role("button", name="Classify").click()
    answer = page.locator("#answers .engram-answer").first
    answer.wait_for(timeout=WAIT)
    assert answer.locator("b").inner_text() == "red"
    assert page.locator("#graph image").count() == 5
    page.get_by_role("button", name="Next task").click()
    page.get_by_text("Remembered from earlier tasks: green (2), red (2).").wait_for(timeout=WAIT)
    (tmp_path / "evil.png").write_text("#!/bin/sh\ntouch executed\n")
    add(page, "blue", [str(tmp_path / "evil.png")])
    page.get_by_text("evil.png is not an image, whatever its name says").wait_for(timeout=WAIT)
    assert "No pictures in this task yet" in page.locator("#task").inner_text()
    page.get_by_role("button", name="Reset", exact=True).click()
    page.locator("#task h3", has_text="Task 1").wait_for(timeout=WAIT)
    assert page.locator("#answers .engram-answer").count() == 0


def test_the_example_set(page: Any) -> None:
    page.get_by_role("button", name="Example set").click()
    page.locator("#task img").nth(11).wait_for(timeout=WAIT)
    page.get_by_text("ani-DejaVuSans-Bold").first.wait_for(timeout=WAIT)
    page.get_by_role("button", name="Classify").click()
    page.locator("#answers .engram-answer").nth(7).wait_for(timeout=WAIT)
    assert page.locator("#answers b").all_inner_texts() == ["ani"] * 2 + ["ban"] * 2 + ["gan"] * 2 + ["don"] * 2


def test_it_listens_on_loopback_alone(address: str) -> None:
    port, table = int(address.rstrip("/").rsplit(":", 1)[1]), Path("/proc/net/tcp")
    if not table.exists():
        pytest.skip("this system does not list its sockets in /proc/net/tcp")
    rows = [line.split() for line in table.read_text().splitlines()[1:]]
    listening = [row[1].split(":")[0] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")]
    assert listening == ["0100007F"]  # 127.0.0.1, written backwards
