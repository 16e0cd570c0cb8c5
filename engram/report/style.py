"""The look of a page: one style sheet, system fonts, light and dark, from a phone's width up."""

from __future__ import annotations

from engram.report.svg import SERIES_DARK, SERIES_LIGHT


def _series(colours: tuple[str, ...]) -> str:
    return " ".join(f"--series-{n}: {c};" for n, c in enumerate(colours, start=1))


STYLE = f"""
:root {{ color-scheme: light dark; --page: #ffffff; --card: #f5f6f8; --text: #1b1f24; --quiet: #59616b; --line: #d8dce1;
  {_series(SERIES_LIGHT)} }}
@media (prefers-color-scheme: dark) {{
  :root {{ --page: #14171c; --card: #1d2127; --text: #e8eaed; --quiet: #a5adb8; --line: #363c45;
    {_series(SERIES_DARK)} }}
}}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; padding: 24px 16px 48px; max-width: 1080px; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: break-word; }}
h1 {{ font-size: 1.15rem; font-weight: 600; color: var(--quiet); margin: 0 0 4px; }}
h2 {{ font-size: 1.25rem; margin: 40px 0 4px; }}
h3 {{ font-size: 1rem; margin: 0 0 8px; }}
p {{ max-width: 68ch; margin: 6px 0 14px; }}
.headline {{ font-size: clamp(1.3rem, 1rem + 1.4vw, 1.8rem); line-height: 1.3; font-weight: 650; max-width: 34em;
  text-wrap: pretty; margin: 0 0 22px; }}
.how, footer, .note {{ color: var(--quiet); }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ text-align: left; vertical-align: top; padding: 8px 10px 8px 0; border-top: 1px solid var(--line); }}
thead th {{ border-top: 0; font-size: .85rem; font-weight: 600; color: var(--quiet); white-space: nowrap; }}
tbody th[scope=rowgroup] {{ padding-top: 18px; font-size: 1.02rem; border-top: 0; }}
tbody th[scope=row] {{ font-weight: 500; }}
td, .number {{ white-space: nowrap; }}
.number {{ text-align: right; }}
td.number:last-child, th.number:last-child {{ padding-right: 0; }}
.note {{ display: block; font-size: .85rem; font-weight: 400; white-space: normal; }}
.best {{ font-weight: 700; }}
.bar {{ display: block; height: 4px; min-width: 72px; margin-top: 4px; border-radius: 2px;
  background: var(--line); overflow: hidden; }}
.bar i {{ display: block; height: 100%; background: var(--series-1); }}
.figures {{ display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 330px), 1fr)); }}
.small {{ grid-template-columns: repeat(auto-fill, minmax(min(100%, 260px), 1fr)); }}
.one {{ max-width: 640px; }}
.wide {{ grid-template-columns: 100%; }}
figure {{ margin: 0; padding: 14px; background: var(--card); border-radius: 10px; min-width: 0; }}
svg {{ display: block; width: 100%; height: auto; }}
.episode {{ display: grid; gap: 18px; align-items: start; }}
.layers {{ display: grid; gap: 10px; grid-template-columns: repeat(auto-fill, minmax(145px, 1fr));
  align-content: start; }}
@media (min-width: 820px) {{ .episode.graph {{ grid-template-columns: minmax(0, 400px) minmax(0, 1fr); }} }}
.legend {{ font-size: .88rem; color: var(--quiet); margin: 12px 0 0; max-width: none; }}
.legend b {{ color: var(--text); }}
.legend span {{ display: inline-block; margin-right: 12px; }}
footer {{ margin-top: 44px; padding-top: 12px; border-top: 1px solid var(--line); font-size: .88rem; }}
@media (max-width: 520px) {{
  th, td {{ padding-right: 8px; }} thead th {{ font-size: .8rem; }}
  figure {{ padding: 10px; }} .bar {{ min-width: 56px; }} }}
"""
