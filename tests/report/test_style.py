"""The style sheet: whole, from no network, and every colour that is used is defined for light and dark."""

from __future__ import annotations

import re

from engram.report.style import STYLE
from engram.report.svg import SERIES_DARK, SERIES_LIGHT


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
