"""One self-contained HTML page: no network, no scripts, every figure inline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from engram.report.episode import EpisodePicture, adjacency_maps, class_letter, episode_matrix
from engram.report.figures import ReliabilityCurve, reliability_diagram
from engram.report.svg import SERIES_DARK, SERIES_LIGHT

RELIABILITY_TITLE, RELIABILITY = (
    "Can the confidence be trusted?",
    "Points on the dashed line mean that answers given with 80 % confidence are right 80 % of the time; points below "
    "it are overconfident, above it too timid; the bars show how many answers had each confidence.",
)


class Section(NamedTuple):
    """A heading, one sentence on how to read what follows, and the HTML of it; "" = the section is left out."""

    title: str
    how_to_read: str
    body: str


def style_sheet(*names: str) -> str:
    """System fonts, light and dark, from a phone's width up, with the colours of the figures."""
    text = "".join(f"\n{Path(__file__).with_name(name).read_text(encoding='utf-8')}" for name in names)
    for kind, colours in (("light", SERIES_LIGHT), ("dark", SERIES_DARK)):
        series = " ".join(f"--series-{number}: {colour};" for number, colour in enumerate(colours, 1))
        text = text.replace(f"/* series: {kind} */", series)
    return text


def render_page(title: str, headline: str, sections: Sequence[Section], footer: str, *more: str) -> str:
    """The page as one string. ``title``, ``headline`` and ``footer`` are plain text.

    ``more``: further style sheets; a page with such lists its sections on top.
    """
    shown = [section for section in sections if section.body]
    parts = [
        f'<section id="{anchor(s.title)}">\n<h2>{escape(s.title)}</h2>\n<p class="how">{escape(s.how_to_read)}</p>\n'
        f"{s.body}\n</section>"
        for s in shown
    ]
    links = [f'<a href="#{anchor(s.title)}">{escape(s.title.split(",")[0])}</a>' for s in shown]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            '<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>\n<style>{style_sheet('page.css', *more)}</style>\n</head>",
            f"<body>\n<header>\n<h1>{escape(title)}</h1>",
            f'<p class="headline">{escape(headline)}</p>\n</header>',
            *(["<nav>", *links, "</nav>"] if more else []),
            "<main>",
            *parts,
            f"</main>\n<footer>{escape(footer)}</footer>\n</body>\n</html>\n",
        ]
    )


def anchor(title: str) -> str:
    """``Table 1: miniImageNet`` -> ``table-1-miniimagenet``"""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def figure_grid(pictures: Sequence[str], kind: str = "figures") -> str:
    """Drawings side by side as the page's width allows; ``kind`` is a class of the style sheet."""
    drawn = [f"<figure>{limited(p)}</figure>" for p in pictures]
    return "\n".join([f'<div class="{kind}">', *drawn, "</div>"]) if drawn else ""


def limited(svg: str, growth: float = 1.35) -> str:
    """A drawing that fills its place but is not blown up beyond reading size."""
    match = re.search(r'width="(\d+)"', svg)
    width = round(int(match.group(1)) * growth) if match else 600
    return svg.replace('style="stroke-linejoin: round"', f'style="stroke-linejoin: round; max-width: {width}px"', 1)


def wide(figures: Sequence[str]) -> str:
    """One below the other."""
    return f'<div class="figures wide">{chr(10).join(figures)}</div>' if figures else ""


def reliability_section(curves: Sequence[ReliabilityCurve]) -> Section:
    diagrams = [reliability_diagram(curve) for curve in curves]
    return Section(RELIABILITY_TITLE, RELIABILITY, figure_grid(diagrams, "figures small"))


def episode_html(picture: EpisodePicture) -> str:
    maps = adjacency_maps(picture)
    layers = "\n".join(['<div class="layers">', *(limited(m) for m in maps), "</div>"]) if maps else ""
    names = "".join(f"<span><b>{class_letter(c)}</b> {escape(n)}</span>" for c, n in enumerate(picture.class_names))
    return (
        f'<figure><h3>{escape(picture.title)}</h3>\n<div class="episode{" graph" if maps else ""}">'
        f"{limited(episode_matrix(picture), 1.0)}\n{layers}</div>\n"
        f'<p class="legend">{names}</p></figure>'
    )
