"""Drawings as lean SVG that keeps what it says."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from engram.report.svg import SERIES, SERIES_LIGHT, new_figure, style_axes, to_svg


def test_a_lean_drawing_keeps_styles_and_turned_labels() -> None:
    figure = new_figure(200, 150)
    axes = figure.subplots()
    axes.plot([0, 1, 2], [0.1, 0.2, 0.3], marker="o", color=SERIES[0])
    style_axes(axes, "across", "upwards")
    text = to_svg(figure, "a line")
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    rules = dict(re.findall(r"\.([\w-]+)\{([^}]*)\}", text))
    assert rules and len(set(rules.values())) == len(rules)  # a style that occurs often is said once

    def style(element: ElementTree.Element) -> str:
        return element.get("style", "") + rules.get(element.get("class", ""), "")

    groups = [g for g in root.iter(f"{space}g") if len(g.findall(f"{space}use")) == 3 and "series-1" in style(g)]
    assert len(groups) == 1 and not any(style(use) for use in groups[0])  # said once, for all three
    assert all(g.attrib for g in root.iter(f"{space}g")), "a group says something about what is in it"
    within = {id(use) for g in root.iter(f"{space}g") if style(g) for use in g}
    alone = [use for use in root.iter(f"{space}use") if id(use) not in within]
    assert alone and all("stroke" in style(use) for use in alone)
    turned = [label.text for label in root.iter(f"{space}text") if "rotate(-90" in label.get("transform", "")]
    assert turned == ["upwards"] and "rotate(-0" not in text
    paths = [path.get("d", "") for path in root.iter(f"{space}path")]
    assert paths and not any(re.search(r"\.\d{2}|\s[A-Za-z]", path) for path in paths)


def test_a_drawing_takes_the_pages_colours_and_says_what_it_is() -> None:
    figure = new_figure(200, 150)
    figure.subplots().plot([0, 1], [0, 1], color=SERIES[1])
    text = to_svg(figure, "a < b")
    assert f"var(--series-2, {SERIES_LIGHT[1]})" in text and SERIES[1] not in text
    root = ElementTree.fromstring(text)
    assert root.get("aria-label") == "a < b" and root.get("viewBox") == "0 0 200 150"
