"""The page as a server: 30 visitors at once, wrong values past the form, other paths, and what is left behind."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("gradio", reason="the page is an extra: pip install 'engram[page]'")
pytestmark = pytest.mark.extras
ADD, CLASSIFY, LAYER, SAVE, LOAD = 0, 2, 6, 7, 8
"""places of the buttons among the events of the page"""
VISITORS, ROUNDS = 30, 9
"""each round shows two classes; with two questions at the end a visitor makes 20 requests"""
MOST_MORE = 1.1
"""memory afterwards, of what it was before"""


class Served(NamedTuple):
    process: subprocess.Popen[str]
    port: int
    temporary: Path
    log: Path


def serve(folder: Path) -> Served:
    (folder / "tmp").mkdir(exist_ok=True)
    code = "from engram.page.app import serve; serve(browser=False)"
    log = folder / "log.txt"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        stdout=subprocess.PIPE,
        stderr=log.open("w"),
        text=True,
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
    )
    assert process.stdout is not None
    port = int(process.stdout.readline().split("://127.0.0.1:")[1].split("/")[0])
    return Served(process, port, folder / "tmp", log)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = serve(tmp_path_factory.mktemp("page"))
    yield served
    served.process.terminate()
    assert served.process.wait(30) == 128 + signal.SIGTERM
    assert not list(served.temporary.iterdir()), "uploads are gone"
    assert "Traceback" not in served.log.read_text()


def status(served: Served, path: str = "/", host: str | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    connection.request("GET", path, headers={"Host": host} if host else {})
    return connection.getresponse().status


def client(served: Served) -> Any:
    from gradio_client import Client

    patient = {"timeout": 60}  # 30 come at once
    return Client(f"http://127.0.0.1:{served.port}", verbose=False, analytics_enabled=False, httpx_kwargs=patient)


def resident_mib(served: Served) -> float:
    pages = int(Path(f"/proc/{served.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def picture(folder: Path, name: str, colour: tuple[int, int, int]) -> Any:
    from gradio_client import handle_file

    noise = np.random.default_rng(sum(colour)).integers(-20, 20, (40, 40, 3))
    Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8)).save(folder / f"{name}.png")
    return handle_file(folder / f"{name}.png")


def test_a_foreign_host_and_other_paths_are_refused(served: Served) -> None:
    assert status(served) == 200 and status(served, host="evil.example") == 400
    for path in ("/gradio_api/file=/etc/passwd", "/gradio_api/file=../../etc/passwd", f"/gradio_api/file={__file__}"):
        assert status(served, path) in (403, 404)


def test_wrong_values_past_the_form_are_answered(served: Served, tmp_path: Path) -> None:
    visitor, file = client(served), picture(tmp_path, "a", (9, 99, 9))
    for name in (None, "", "x" * 61):
        shown = visitor.predict("photographs", name, [file], fn_index=ADD)
        assert "engram-task" not in str(shown)
    for arguments, place in ((("no such layer",), LAYER), (("no such kind", "a", [file]), ADD), ((3, 4, 5), ADD)):
        with pytest.raises(Exception, match="."):
            visitor.predict(*arguments, fn_index=place)
    assert "refused: " in served.log.read_text()


def test_one_saves_and_another_loads(served: Served, tmp_path: Path) -> None:
    from gradio_client import handle_file

    first, second = client(served), client(served)
    for name, colour in (("red", (200, 30, 5)), ("green", (30, 200, 5))):
        first.predict("photographs", name, [picture(tmp_path, name, colour)], fn_index=ADD)
    saved = first.predict("photographs", fn_index=SAVE)
    task = second.predict([handle_file(saved["value"] if isinstance(saved, dict) else saved)], fn_index=LOAD)
    assert "green (1), red (1)" in str(task)
    query = [picture(tmp_path, "q", (190, 40, 3))]
    assert "<b>red</b>" in str(second.predict("photographs", query, 0, fn_index=CLASSIFY))
    assert "<b>unknown</b>" in str(second.predict("photographs", query, 1, fn_index=CLASSIFY))


def visit(served: Served, folder: Path, number: int) -> str:
    """Twenty requests; the last answer."""
    visitor = client(served)
    folder.mkdir()
    for turn in range(ROUNDS):
        for name, colour in ((f"v{number} red", (200, 30, turn)), (f"v{number} green", (30, 200, turn))):
            visitor.predict("photographs", name, [picture(folder, name, colour)], fn_index=ADD)
    query = picture(folder, "q", (190, 40, 3))
    shown = [visitor.predict("photographs", [query], 0, fn_index=CLASSIFY) for _ in range(2)]
    visitor.close()
    return str(shown[-1])


def test_thirty_visitors_at_once_see_their_own_pictures_alone_and_leave_no_memory_behind(
    served: Served, tmp_path: Path
) -> None:
    """Memory is compared with that after the first visitor, for whom torch and the weights are loaded."""
    visit(served, tmp_path / "first", VISITORS)
    before = resident_mib(served)
    with ThreadPoolExecutor(VISITORS) as pool:
        answers = list(pool.map(lambda number: visit(served, tmp_path / str(number), number), range(VISITORS)))
    for number, answer in enumerate(answers):
        assert f"v{number} red" in answer
        assert not any(f"v{other} red" in answer for other in range(VISITORS + 1) if other != number)
    end = time.monotonic() + 120  # until the last is known to have left
    while (after := resident_mib(served)) > MOST_MORE * before and time.monotonic() < end:
        time.sleep(1)
    assert after <= MOST_MORE * before, f"{after:.0f} MiB after {VISITORS} visitors, {before:.0f} MiB before"


def test_uploads_of_a_killed_page_are_gone_after_the_next_start(tmp_path: Path) -> None:
    first = serve(tmp_path)
    client(first).predict("photographs", "a", [picture(tmp_path, "a", (9, 9, 99))], fn_index=ADD)
    first.process.kill()
    first.process.wait()
    (left,) = first.temporary.glob("engram-page-*")
    assert any(left.rglob("*.png")) and left.stat().st_mode & 0o777 == 0o700
    second = serve(tmp_path)
    assert not left.exists()
    second.process.terminate()
    second.process.wait(30)
    assert not list(second.temporary.iterdir())
