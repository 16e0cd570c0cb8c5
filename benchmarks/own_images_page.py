"""`engram demo` in Chromium: seconds from the command to a page that can be used, and of everything a visitor does."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

LONGEST = 120
"""seconds that anything is waited for"""


def missing() -> str | None:
    """What the page cannot be measured without and is not here; None where all is."""
    packages = [name for name in ("gradio", "playwright") if find_spec(name) is None]
    wanted = packages if _chromium() else [*packages, "chromium"]
    return f"{' and '.join(wanted)} missing" if wanted else None


def measure_page(files: list[Path]) -> dict[str, Any]:
    """``files`` are photographs: 5 of each of 5 classes to learn, then 15 to ask about. {} where a thing is missing."""
    if missing():
        return {}
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
        tab = browser.new_page()
        tab.set_default_timeout(1000 * LONGEST)
        with _server() as (address, started):
            tab.goto(address)
            tab.get_by_role("button", name="Classify").wait_for()
            usable = time.perf_counter() - started
            seconds = _visit(tab, [str(file) for file in files])
        browser.close()
    return {
        "page_seconds": round(usable, 3),
        "slowest_action_seconds": max(seconds.values()),
        "action_seconds": seconds,
    }


def _visit(tab: Any, files: list[str]) -> dict[str, float]:
    """The example set at once, while the engine is still being loaded; then photographs of one's own."""
    seconds: dict[str, float] = {}

    def do(name: str, act: Callable[[], Any], shown: Any) -> None:
        started = time.perf_counter()
        act()
        shown.wait_for()
        seconds[name] = round(max(seconds.get(name, 0), time.perf_counter() - started), 3)

    def button(name: str) -> Callable[[], Any]:
        return tab.get_by_role("button", name=name).click  # type: ignore[no-any-return]

    learn, ask = tab.locator("input[type=file]").first, tab.locator("input[type=file]").last
    answers, task = tab.locator("#answers .engram-answer"), tab.locator("#task")
    do("example set", button("Example set"), task.locator("img").nth(11))
    do("classify 8 letters", button("Classify"), answers.nth(7))
    do("another layer", tab.get_by_label("labels alone").check, tab.locator("#graph line").nth(95))
    do("next task", button("Next task"), tab.get_by_text("Remembered from earlier tasks"))
    do("reset", button("Reset"), task.get_by_text("No pictures in this task yet"))
    tab.get_by_label("photographs").check()
    for number in range(5):
        chosen = files[5 * number : 5 * number + 5]
        tab.get_by_label("Class", exact=True).fill(f"class {number}")
        do("upload 5", lambda files=chosen: learn.set_input_files(files), tab.get_by_text(Path(chosen[0]).stem).first)  # type: ignore[misc]
        do("add class of 5", button("Add class"), task.get_by_text(f"class {number}"))
    do("upload 15", lambda: ask.set_input_files(files[25:40]), tab.get_by_text(Path(files[39]).stem).first)
    do("classify 15 photographs", button("Classify"), answers.nth(14))
    return seconds


@contextmanager
def _server() -> Iterator[tuple[str, float]]:
    """The command on a free port: its address, once it listens, and when it was started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = time.perf_counter()
    server = subprocess.Popen(
        [sys.executable, "-m", "engram.cli", "demo", "--no-browser", "--port", str(port)], stdout=subprocess.DEVNULL
    )
    try:
        while time.perf_counter() - started < LONGEST and server.poll() is None:
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}", started
    finally:
        server.terminate()


def _chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
