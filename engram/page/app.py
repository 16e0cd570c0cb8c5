"""The page itself, in Gradio: its parts, its buttons and what each of them calls."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from html import escape
from importlib import import_module
from importlib.util import find_spec
from threading import Thread
from types import SimpleNamespace
from typing import Any

from engram.errors import EngramError
from engram.page import uploads
from engram.page.uploads import Guard

LOOPBACK = "127.0.0.1"
KINDS = ("imagenet", "photographs", "glyphs")
LONGEST_NAME = 60
"""characters of a class"""
ARENA_MAX = -8
"""mallopt's number for how many heaps threads have; few are given back whole"""
FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
EMPTY = '<div class="engram"><h3>Task 1</h3><p>No pictures in this task yet.</p></div>'
CSS = """
.engram img, .engram image { border-radius: 4px; margin: 1px; display: inline-block; }
.engram svg { width: 100%; height: auto; color: var(--body-text-color); }
.engram-answer { display: flex; align-items: flex-start; gap: 12px; padding: 8px 0; }
.engram-answer { border-bottom: 1px solid var(--border-color-primary); }
.engram-answer > div { flex: 1; min-width: 0; }
.engram-row { display: grid; grid-template-columns: 8em 1fr 3em; gap: 8px; align-items: center; }
.engram-row span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.engram th, .engram td { padding: 2px 10px 2px 0; text-align: left; vertical-align: middle; }
"""


def build() -> Any:
    """The page, not yet served."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # before the import: Gradio would report to its makers
    if find_spec("gradio") is None:
        raise EngramError("the page needs the package gradio: pip install gradio")
    os.environ["GRADIO_TEMP_DIR"] = str(uploads.pictures())  # its own outlives the page and is read by others
    import gradio as gr
    from gradio import queueing

    queueing.traceback = SimpleNamespace(print_exc=_one_line)  # wrong values past the form are answered, not bugs
    with gr.Blocks(title="Engram", analytics_enabled=False, delete_cache=(60, 600)) as page:
        session, shown = gr.State(None), gr.State(None)
        gr.Markdown("# Engram\nA few pictures of each class, then questions. Nothing leaves this computer.")
        with gr.Row():
            with gr.Column():
                kind = gr.Radio(list(KINDS), value=KINDS[0], label="Weights")
                name = gr.Textbox(label="Class", placeholder="bolt", max_length=LONGEST_NAME)
                files = gr.File(label="Its pictures", file_count="multiple", height=140)
                with gr.Row():
                    add = gr.Button("Add class", variant="primary")
                    example = gr.Button("Example set")
                task = gr.HTML(EMPTY, elem_id="task")
                with gr.Row():
                    following = gr.Button("Next task")
                    reset = gr.Button("Reset")
                    save = gr.Button("Save")
                    load = gr.UploadButton("Load", file_types=[".zip"], file_count="multiple")
                saved = gr.File(label="What is remembered, without pictures", interactive=False, visible=False)
            with gr.Column():
                queries = gr.File(label="Pictures to ask about", file_count="multiple", height=140)
                reject = gr.Slider(0, 1, 0, step=0.05, label='Answer "unknown" where less is familiar')
                classify = gr.Button("Classify", variant="primary")
                answers, memory = gr.HTML(elem_id="answers"), gr.HTML(elem_id="memory")
        layer = gr.Radio([], label="Graph of the task: edges as thick as their probability", visible=False)
        graph = gr.HTML(elem_id="graph")
        results = [shown, answers, memory, layer, graph]
        add.click(_told(gr, "add"), [session, kind, name, files], [session, task, files, name])
        example.click(_told(gr, "example"), None, [session, task, queries, kind])
        classify.click(_told(gr, "classify"), [session, kind, queries, reject], results)
        following.click(_told(gr, "next_task"), [session, kind], [session, task, queries])
        for event in (kind.input, reset.click):
            event(_told(gr, "reset"), [kind], [session, task, files, queries, *results])
        layer.input(_told(gr, "layer"), [shown, layer], [graph])
        save.click(_told(gr, "save"), [session, kind], [saved])
        load.upload(_told(gr, "load"), [load], [session, task, kind, *results])
        page.load(_prepare, queue=False, api_visibility="private")
        page.unload(_left(gr, page))
    return page


def _one_line() -> None:
    kind, error, _ = sys.exc_info()
    print(
        f"refused: {kind.__name__ if kind else ''}: {' '.join(str(error).split())[:300]}", file=sys.stderr, flush=True
    )


def serve(host: str = LOOPBACK, port: int | None = None, browser: bool = True, block: bool = True) -> tuple[Any, str]:
    """Serve the page until interrupted; the page and its address."""
    _check_place(host, port)
    _allocator("mallopt", ARENA_MAX, 1)
    with _nothing_collected():
        page = build()
        import gradio as gr
        from starlette.middleware import Middleware

        theme = gr.themes.Base(font=FONTS, font_mono=["ui-monospace", "monospace"])  # names, so that none is fetched
        try:
            _, address, _ = page.launch(
                server_name=host, server_port=port, inbrowser=browser, share=False, quiet=True, footer_links=[],
                prevent_thread_lock=True, show_error=True, max_file_size="20mb", ssr_mode=False, theme=theme, css=CSS,
                app_kwargs={"middleware": [Middleware(Guard, host=host)]},
            )  # fmt: skip
        except OSError as error:
            raise EngramError(f"the page cannot be served at {host} ({error}): choose another --port") from error
    print(f"Engram's page: {address} (stop with Ctrl-C)", flush=True)
    if host != LOOPBACK:
        print(f"it listens on {host}: everyone who reaches this computer there can use it", flush=True)
    if block:
        # asked to end it ends as by Ctrl-C, and takes its uploads with it
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        page.block_thread()
    return page, address


def _check_place(host: str, port: int | None) -> None:
    """Gradio would try one port after another."""
    if port is not None and not 0 < port < 2**16:
        raise EngramError(f"--port = {port} but ports are numbered from 1 to {2**16 - 1}")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as place:
            place.bind(address)
    except (OSError, UnicodeError) as error:
        raise EngramError(f"--host = '{host}' is no address of this computer ({error}): leave it out") from error


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """While large packages are loaded: what they build stays, and to look through it for waste again and again takes a
    fifth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _actions() -> Any:
    return import_module("engram.page.actions")


@cache
def _prepare() -> None:
    """Load what the buttons call while the visitor looks at the empty page; any sooner, and the page would wait."""

    def load() -> None:
        with _nothing_collected():
            _actions().prepare()

    Thread(target=load, daemon=True).start()


def _told(gr: Any, name: str) -> Callable[..., Any]:
    """An action by its name; bad input becomes a notice in the sentence of the error, and the page stays as it is."""

    def call(request: Any, *arguments: Any) -> Any:
        uploads.came(request.session_hash, arguments)
        try:
            found = getattr(_actions(), name)(*arguments)
        except EngramError as error:
            gr.Warning(escape(str(error)), duration=12)
            return gr.skip()
        if name == "save":  # goes with the visitor
            uploads.came(request.session_hash, [[found["value"]]])
        parts = [gr.update(**v) if isinstance(v, dict) else v for v in (found if isinstance(found, list) else [found])]
        return parts if isinstance(found, list) else parts[0]

    return _with_request(gr, call)


def _left(gr: Any, page: Any) -> Callable[..., Any]:
    """When a visitor leaves, pictures, session and memory go at once; Gradio would keep the session for an hour."""

    def call(request: Any) -> None:
        uploads.left(request.session_hash)
        page.app.state_holder.session_data.pop(request.session_hash, None)
        gc.collect()
        _allocator("malloc_trim", 0)

    return _with_request(gr, call)


def _allocator(call: str, *numbers: int) -> None:
    """Ask the allocator of Linux, which else keeps for each thread what its visitors have needed; elsewhere nothing."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            getattr(ctypes.CDLL(None), call)(*numbers)


def _with_request(gr: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    """Gradio hands the request over where the first argument is said to be one."""
    call.__annotations__ = {"request": gr.Request}
    return call
