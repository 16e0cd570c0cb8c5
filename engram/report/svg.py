"""Matplotlib drawings as small SVG strings that take their colours from the page they stand in.

Figures are drawn with marker colours; the SVG then says ``currentColor`` and ``var(--series-1, ...)`` instead, so one
drawing reads on a light and on a dark page. One user unit is one CSS pixel at full size.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK = "#010203"
"""drawn in the colour of the page's text"""
SERIES_LIGHT = ("#0072b2", "#c44e00", "#00805d", "#a8518a", "#7a6400", "#5a5f66")
SERIES_DARK = ("#5ab4f0", "#ff9a52", "#35c99a", "#e7a3cb", "#e3cf4a", "#b4bac2")
"""Okabe and Ito's hues, darkened or lightened until each reads on its background"""
SERIES = tuple(f"#0a0b{n:02x}" for n in range(1, len(SERIES_LIGHT) + 1))
DASHES = ("-", (0, (5, 2)), (0, (1, 1.6)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)), (0, (8, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P")
TEXT_SIZE = 12.0
IMAGE_BLUE = (0.18, 0.52, 0.84)
"""for bitmaps, which cannot follow the page: in the middle, so it reads on both"""

_SETTINGS: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "engram"}
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


def new_figure(width: float, height: float) -> Figure:
    """An empty drawing of so many pixels, laid out so that labels do not overlap."""
    return Figure(figsize=(width / 72, height / 72), layout="constrained")


def style_axes(axes: Axes, x_label: str, y_label: str) -> None:
    """Quiet axes: two spines, a faint grid, everything in the page's ink."""
    axes.set_xlabel(x_label, color=INK, fontsize=TEXT_SIZE)
    axes.set_ylabel(y_label, color=INK, fontsize=TEXT_SIZE)
    axes.tick_params(colors=INK, labelcolor=INK, labelsize=TEXT_SIZE - 1, length=3)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK)
        spine.set_alpha(0.5)
    axes.grid(True, color=INK, alpha=0.13, linewidth=0.8)
    axes.set_axisbelow(True)


def to_svg(figure: Figure, description: str) -> str:
    """The drawing as an SVG element; ``description`` is what a screen reader says."""
    stream = io.StringIO()
    with rc_context(_SETTINGS):
        figure.savefig(stream, format="svg", transparent=True, metadata=_NO_METADATA)
    text = stream.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.S)
    text = _lean(_own_identifiers(text[text.index("<svg") :]))
    text = re.sub(r"font-family:[^;\"]*", "font-family: system-ui, sans-serif", text)
    for marker, light, number in zip(SERIES, SERIES_LIGHT, range(1, 99), strict=False):
        text = text.replace(marker, f"var(--series-{number}, {light})")
    text = text.replace(INK, "currentColor")
    width, height = (round(v * 72) for v in figure.get_size_inches())
    root = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(description)}" '
        'style="stroke-linejoin: round">'
    )
    text = _classed(_ungrouped(text[text.index(">") + 1 :]))
    return re.sub(r"\n\s*", "\n", f"{root}{text}").strip()


def _lean(text: str) -> str:
    """The same drawing in fewer bytes: tenths of a pixel, no turns by nothing, one style for a series' markers."""
    text = re.sub(r' transform="rotate\(-?0 [^"]*"', "", text)
    text = re.sub(r'\s(?:d|x|y)="[^"]*"', lambda m: re.sub(r"(\.\d)\d+", r"\1", m.group()), text)
    text = re.sub(r'(?<=\sd=")[^"]*', lambda m: re.sub(r"\s*([A-Za-z])\s*", r"\1", m.group()).strip(), text)
    return re.sub(r"<g([^>]*)>\s*((?:<use [^>]*/>\s*){2,})</g>", _styled_together, text)


def _styled_together(group: re.Match[str]) -> str:
    attributes, markers = group.groups()
    styles = re.findall(r'\sstyle="[^"]*"', markers)
    if len(set(styles)) != 1 or len(styles) != markers.count("<use") or "style=" in attributes:
        return group.group()
    return f"<g{attributes}{styles[0]}>\n{markers.replace(styles[0], '')}</g>"


def _ungrouped(text: str) -> str:
    """Without groups that say nothing about what is in them."""
    kept: list[bool] = []

    def decide(tag: re.Match[str]) -> str:
        if tag.group() != "</g>":
            kept.append(tag.group() != "<g>")
            return tag.group() if kept[-1] else ""
        return tag.group() if kept.pop() else ""

    return re.sub(r"<g(?:\s[^>]*)?>|</g>", decide, text)


def _classed(text: str) -> str:
    """Styles that occur three times or more said once; classes are named after the drawing, as a page holds several."""
    often = [style for style, times in Counter(re.findall(r'style="([^"]*)"', text)).items() if times > 2]
    prefix = "c" + hashlib.sha256(text.encode()).hexdigest()[:5]
    rules = "".join(f".{prefix}-{number}{{{re.sub(r'(?<=[:;]) ', '', style)}}}" for number, style in enumerate(often))
    for number, style in enumerate(often):
        text = text.replace(f'style="{style}"', f'class="{prefix}-{number}"')
    return f"<style>{rules}</style>{text}" if rules else text


def _own_identifiers(text: str) -> str:
    """Only identifiers that are used, prefixed by a digest of the drawing: several drawings share one page."""
    used = set(re.findall(r'href="#([^"]+)"', text)) | set(re.findall(r"url\(#([^)]+)\)", text))
    text = re.sub(r'\s\bid="([^"]+)"', lambda m: m.group() if m.group(1) in used else "", text)
    prefix = "e" + hashlib.sha256(text.encode()).hexdigest()[:5]
    short = {name: f"{prefix}-{number}" for number, name in enumerate(sorted(used))}
    text = re.sub(r'\bid="([^"]+)"', lambda m: f'id="{short[m.group(1)]}"', text)
    text = re.sub(r'href="#([^"]+)"', lambda m: f'href="#{short[m.group(1)]}"', text.replace("xlink:href", "href"))
    return re.sub(r"url\(#([^)]+)\)", lambda m: f"url(#{short[m.group(1)]})", text)


def standalone(svg: str) -> str:
    """With colours of its own: a file shown as an image inherits none from the page."""

    def rules(ink: str, colours: Sequence[str]) -> str:
        series = "".join(f"--series-{n}:{colour};" for n, colour in enumerate(colours, 1))
        return f"svg{{color:{ink};{series}}}"

    dark = rules("#e6edf3", SERIES_DARK)
    style = f"<style>{rules('#1f2328', SERIES_LIGHT)}@media(prefers-color-scheme:dark){{{dark}}}</style>"
    place = svg.index(">") + 1
    return f"{svg[:place]}\n{style}{svg[place:]}\n"
