"""Answers as HTML and SVG: bars with their uncertainty, the graph of a task, what was read from memory.

Pictures appear as JPEG made from decoded pixels, never as the files that were sent, and every name is escaped.
"""

from __future__ import annotations

import base64
import io
from html import escape

import numpy as np
from PIL import Image

from engram.page.session import Session, Shown

COLOURS = ("#0072b2", "#c44e00", "#00805d", "#a8518a", "#7a6400", "#5a5f66")
ROW, NODE = 46, 40
THINNEST = 0.03
"""edges less probable than this are not drawn"""


def image_tag(pixels: np.ndarray, alt: str, size: int = NODE) -> str:
    return f'<img src="{_data(pixels)}" width="{size}" height="{size}" alt="{escape(alt)}">'


def _data(pixels: np.ndarray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(np.moveaxis(pixels, 0, 2)).save(buffer, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def task_html(session: Session) -> str:
    """The task at hand, class by class, and how much is remembered from before."""
    rows: dict[str, list[str]] = {}
    for (name, _), thumbnail in zip(session.pending, session.pending_thumbnails, strict=True):
        rows.setdefault(name, []).append(image_tag(thumbnail, name))
    shown = "".join(f"<tr><th>{escape(name)}</th><td>{''.join(tags)}</td></tr>" for name, tags in rows.items())
    known = ", ".join(
        f"{escape(str(name))} ({count})"
        for name, count in zip(session.memory.classes, session.memory.counts.tolist(), strict=True)
    )
    before = f"<p>Remembered from earlier tasks: {known}.</p>" if known else ""
    here = f'<table class="engram-task">{shown}</table>' if shown else "<p>No pictures in this task yet.</p>"
    return f'<div class="engram"><h3>Task {session.task}</h3>{here}{before}</div>'


def answers_html(shown: Shown) -> str:
    """One block for each query: probabilities as bars, the 5 to 95 % range of the posterior as a line on each."""
    most = np.log(len(shown.classes))
    blocks = []
    for q, thumbnail in enumerate(shown.queries):
        bars = "".join(_bar(shown, q, int(c)) for c in np.argsort(-shown.probabilities[q])[:6])
        like = "".join(
            image_tag(shown.supports[s], shown.classes[int(shown.memory.labels[s])], NODE)
            for s in shown.alike[q].tolist()
        )
        facts = (
            f"not known {shown.uncertainty.epistemic[q] / most:.0%} · left open "
            f"{shown.uncertainty.aleatoric[q] / most:.0%} · familiar {shown.familiarity[q]:.0%} · "
            f"to label: number {shown.teaching.index(q) + 1}"
        )
        blocks.append(
            f'<div class="engram-answer">{image_tag(thumbnail, f"query {q + 1}", 64)}<div>'
            f"<b>{escape(shown.labels[q])}</b> <small>{facts}</small>{bars}<small>looks like</small> {like}</div></div>"
        )
    notes = "".join(f"<p><small>{escape(note)}</small></p>" for note in shown.notes)
    return f'<div class="engram">{"".join(blocks)}{notes}</div>'


def _bar(shown: Shown, q: int, c: int) -> str:
    share, low, high = shown.probabilities[q, c], *shown.spread[:, q, c]
    name = escape(shown.classes[c])
    return (
        f'<div class="engram-row"><span>{name}</span><svg viewBox="0 0 200 14" role="img" aria-label="{name}: '
        f'{share:.0%}, between {low:.0%} and {high:.0%}"><rect width="200" height="14" rx="2" opacity="0.12" '
        f'fill="currentColor"/><rect width="{200 * share:.1f}" height="14" rx="2" fill="{colour(c)}" opacity="0.75"/>'
        f'<line x1="{200 * low:.1f}" x2="{200 * high:.1f}" y1="7" y2="7" stroke="currentColor" stroke-width="2.5"/>'
        f"</svg><span>{share:.0%}</span></div>"
    )


def layers_of(shown: Shown) -> list[str]:
    """Names of what the graph can show: equation 4's start, then every layer of the engine."""
    count = len(shown.edges)
    return ["labels alone", *(f"layer {n + 1}" for n in range(count - 1)), "answer"]


def graph_html(shown: Shown, layer: int) -> str:
    """Remembered pictures on the left, class by class, queries on the right; edges as thick as their probability.

    Layer 0 is the start of equation 4: nothing is known of a query, so every edge is one half.
    """
    order = sorted(range(len(shown.supports)), key=lambda s: (int(shown.memory.labels[s]), int(shown.memory.tasks[s])))
    height = ROW * max(len(order), len(shown.queries)) + 10
    left = {s: height / 2 + ROW * (i - (len(order) - 1) / 2) for i, s in enumerate(order)}
    right = [height / 2 + ROW * (q - (len(shown.queries) - 1) / 2) for q in range(len(shown.queries))]
    lines, nodes = [], []
    for q, y in enumerate(right):
        for s in order:
            probability = 0.5 if layer == 0 else float(shown.edges[layer - 1, q, s])
            if probability >= THINNEST:
                ink = colour(int(shown.memory.labels[s]))
                lines.append(
                    f'<line x1="170" y1="{left[s]:.0f}" x2="430" y2="{y:.0f}" stroke="{ink}" '
                    f'stroke-width="{7 * probability:.2f}" stroke-opacity="{0.15 + 0.6 * probability:.2f}"/>'
                )
        nodes.append(_node(shown.queries[q], 430, y, "", f"query {q + 1}"))
    last = int(shown.memory.tasks[-1])
    for s in order:
        label, task = int(shown.memory.labels[s]), int(shown.memory.tasks[s])
        text = f"{shown.classes[label]}" + ("" if task == last else f" · task {task + 1}")
        nodes.append(_node(shown.supports[s], 130, left[s], text, text, faded=task != last))
    return (
        f'<div class="engram"><svg viewBox="0 0 500 {height:.0f}" style="max-width:720px" role="img" '
        f'aria-label="graph of the task">{"".join(lines)}{"".join(nodes)}</svg></div>'
    )


def _node(pixels: np.ndarray, x: float, y: float, text: str, alt: str, faded: bool = False) -> str:
    opacity = ' opacity="0.6"' if faded else ""
    place = f'x="{x - 6:.0f}" y="{y + 4:.0f}" text-anchor="end"'
    label = f'<text {place} font-size="12" fill="currentColor">{escape(text)}</text>'
    return (
        f'{label}<image href="{_data(pixels)}" x="{x:.0f}" y="{y - NODE / 2:.0f}" width="{NODE}" height="{NODE}"'
        f"{opacity}><title>{escape(alt)}</title></image>"
    )


def memory_html(shown: Shown) -> str:
    """What was read from memory: pictures of each class now and from earlier tasks, and the share of the latter."""
    now = shown.memory.tasks == shown.memory.tasks[-1]
    rows = []
    for number, name in enumerate(shown.classes):
        own = shown.memory.labels == number
        here, total = int((own & now).sum()), int(own.sum())
        cells = (str(here), str(total - here), f"{(total - here) / total:.0%}")
        rows.append(f"<tr><th>{escape(name)}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return (
        '<div class="engram"><table class="engram-memory"><tr><th>class</th><th>last task</th>'
        f"<th>read from memory</th><th>weight of memory</th></tr>{''.join(rows)}</table></div>"
    )
