"""The page: parses, loads nothing, fits a phone, and says what the rows say."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from study_ledger import add_record, cells_of

from engram.errors import EngramError
from engram.report.episode import EpisodePicture
from engram.report.figures import PositionCurve, ReliabilityCurve
from engram.report.page import style_sheet
from engram.report.quickstart import QuickstartData, QuickstartRow, headline, quickstart_page
from engram.report.studies import study_table
from engram.report.svg import SERIES_DARK, SERIES_LIGHT
from engram.studies import load_study

ROWS = (
    QuickstartRow("Chance", "5-way 1-shot", 0.2003, 0.002, None, None, "the floor"),
    QuickstartRow("ProtoNet", "5-way 1-shot", 0.9702, 0.0031, 0.012, 48.0),
    QuickstartRow("CML-BGNN", "5-way 1-shot", 0.9688, 0.0034, 0.021, 130.0, "memory <by content>"),
    QuickstartRow("ProtoNet", "20-way 1-shot", 0.8812, 0.0041, 0.034, 48.0),
    QuickstartRow("CML-BGNN", "20-way 1-shot", 0.9031, 0.0038, 0.018, 130.0),
)
CURVES = (PositionCurve("named", [0.5, 0.6, 0.7], [0.01, 0.02, 0.01]), PositionCurve("alone", [0.5] * 2, [0.01] * 2))
STYLE, STUDY_STYLE = style_sheet("page.css"), style_sheet("page.css", "study.css")
VOID = {"meta", "br", "img", "link", "input", "hr"}


@pytest.fixture(scope="module")
def data(make_picture: Callable[..., EpisodePicture]) -> QuickstartData:
    return QuickstartData(
        rows=ROWS,
        seconds_total=142.3,
        device="cpu & friends",
        commit="c0ffee123456",
        how_to_read="Accuracy on alphabets that were never seen.",
        episodes=[make_picture(), make_picture(graph=False, seed=1)],
        positions=CURVES,
        reliability=[ReliabilityCurve("ProtoNet", [None, 0.5, 0.9], [None, 0.4, 0.85], [0, 10, 30], 0.0625)],
    )


@pytest.fixture(scope="module")
def html(data: QuickstartData) -> str:
    return quickstart_page(data)


class Reader(HTMLParser):
    """Checks that tags close in order; collects attributes and visible text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, k, v or "") for k, v in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, k, v or "") for k, v in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if "style" not in self.open and data.strip():
            self.words.append(data.strip())


@pytest.fixture(scope="module")
def reader(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    return reader


def test_the_page_parses_and_every_tag_closes(html: str, reader: Reader) -> None:
    assert html.startswith("<!DOCTYPE html>") and reader.open == []
    assert {"html", "svg", "image"} <= {t for t, _, _ in reader.attributes}
    identifiers = [v for _, k, v in reader.attributes if k == "id"]
    assert len(identifiers) == len(set(identifiers))


def test_the_page_loads_nothing(html: str, reader: Reader) -> None:
    loading = {"src", "href", "xlink:href", "srcset", "action", "poster", "data"}
    loads = [value for _, key, value in reader.attributes if key in loading]
    assert loads and all(v.startswith(("#", "data:image/png;base64,")) for v in loads)
    assert all(v.startswith("#") for v in re.findall(r"url\(([^)]*)\)", html))
    assert "@import" not in html and "<script" not in html and "<link" not in html
    outside = re.findall(r"https?://[^\s\"'<]+", html)
    assert set(outside) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, not addresses


def test_the_page_fits_a_phone_and_a_dark_room(html: str, reader: Reader) -> None:
    assert ("meta", "content", "width=device-width, initial-scale=1") in reader.attributes
    assert "@media (prefers-color-scheme: dark)" in html
    svg_style = re.search(r"\nsvg \{([^}]*)\}", html)
    assert svg_style and "width: 100%" in svg_style.group(1) and "height: auto" in svg_style.group(1)


def test_the_table_comes_first_with_numbers_as_given(html: str, reader: Reader) -> None:
    assert html.index("<table>") < html.index("<svg")
    text = " ".join(reader.words)
    assert "97.0 ± 0.3" in text and "0.012" in text and "48 s" in text and "2 min 10 s" in text and "the floor" in text
    assert "Made in 2 min 22 s on cpu & friends, with Engram at commit c0ffee123456." in text
    assert "memory &lt;by content&gt;" in html and "class &lt;0&gt;" in html  # nothing given can become markup


def test_bold_marks_the_best_and_what_cannot_be_told_from_it(html: str) -> None:
    assert re.findall(r'class="best">([\d.]+)', html) == ["97.0", "96.9", "90.3"]


def test_the_headline_names_the_best_of_each_setting(data: QuickstartData) -> None:
    plain = headline(data).replace("\u00a0", " ").replace("\u2011", "-")
    assert plain == (
        "2 min 22 s on cpu & friends: 97.0 ± 0.3 % right on 5-way 1-shot tasks (ProtoNet, level with CML-BGNN); "
        "90.3 ± 0.4 % right on 20-way 1-shot tasks (CML-BGNN)."
    )


def test_sections_without_material_are_left_out(data: QuickstartData) -> None:
    bare = quickstart_page(replace(data, episodes=(), positions=(), reliability=()))
    assert "<svg" not in bare and bare.count("<h2>") == 1
    with pytest.raises(EngramError, match="no rows"):
        quickstart_page(replace(data, rows=()))


def test_each_picture_has_a_sentence_on_how_to_read_it(html: str) -> None:
    assert html.count("<h2>") == html.count('<p class="how">') == 4
    assert all(s.strip().endswith(".") for s in re.findall(r'<p class="how">(.*?)</p>', html, re.S))


def colours(rules: str) -> dict[str, str]:
    return dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6});", rules))


def test_both_schemes_define_every_colour_that_is_used() -> None:
    light, _, rest = STYLE.partition("@media (prefers-color-scheme: dark)")
    dark = rest.partition("\n}\n")[0]
    assert set(re.findall(r"var\((--[\w-]+)", STYLE)) <= set(colours(light)) == set(colours(dark))
    for scheme, series in ((light, SERIES_LIGHT), (dark, SERIES_DARK)):
        assert [colours(scheme)[f"--series-{number}"] for number in range(1, 7)] == list(series)


def test_the_sheet_closes_what_it_opens_and_loads_nothing() -> None:
    assert STYLE.count("{") == STYLE.count("}") > 20 and "{{" not in STYLE
    assert not re.search(r"url\(|@import|https?:", STYLE)


def test_it_goes_on_from_the_sheet_of_every_page() -> None:
    added = STUDY_STYLE.removeprefix(STYLE)
    assert added != STUDY_STYLE and added.count("{") == added.count("}") > 20
    light, dark = (set(re.findall(r"(--\w+): #", rules)) for rules in added.splitlines()[1:3])
    assert light == dark == {"--good", "--bad", "--warn", "--info"}


def test_every_class_of_a_grid_has_a_rule(tmp_path: Path) -> None:
    add_record(tmp_path, "cml_bgnn/mini_5w1s_public_class_order", 0.9)
    grid = study_table(load_study("table1"), cells_of(tmp_path, "table1"), "runs", "report").html("grid cards")
    used = {name for names in re.findall(r'class="([^"]+)"', grid) for name in names.split()}
    assert {"figure", "meter", "marked", "badge", "todo"} <= used
    assert not {name for name in used if not re.search(rf"\.{name}\b", STUDY_STYLE)}
