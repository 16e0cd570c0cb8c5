"""What the report of studies adds to the style sheet: contents, badges, tables that become cards on a phone."""

from __future__ import annotations

from engram.report.style import STYLE

STUDY_STYLE = (
    STYLE
    + """
:root { --good: #0b6b3a; --bad: #b3261e; --warn: #8a5a00; --info: #2a5ea8; }
@media (prefers-color-scheme: dark) { :root { --good: #5fd38d; --bad: #ff8a80; --warn: #f0b95a; --info: #8ab4f8; } }
nav { display: flex; flex-wrap: wrap; gap: 6px 14px; padding: 12px 0; border-block: 1px solid var(--line);
  font-size: .9rem; }
a { color: var(--info); text-decoration-thickness: 1px; text-underline-offset: 2px; }
section { scroll-margin-top: 12px; }
h3.part { margin: 26px 0 6px; }
.figures { margin-top: 20px; }
.grid td, .grid th { padding: 9px 14px 9px 0; }
.grid td { white-space: normal; min-width: 9.5em; }
.grid tbody th[scope=row] { min-width: 11em; }
.figure { font-weight: 650; white-space: nowrap; }
.figure small { font-weight: 400; color: var(--quiet); font-size: .88em; }
.line { display: block; font-size: .85rem; color: var(--quiet); }
.line code, .todo code { font-size: .78rem; overflow-wrap: anywhere; }
.todo { color: var(--quiet); font-size: .88rem; }
.meter { position: relative; display: block; height: 6px; margin: 5px 0 4px; border-radius: 3px;
  background: var(--line); max-width: 180px; }
.meter i { display: block; height: 100%; border-radius: 3px; background: var(--series-1); }
.meter i.marked { background: var(--series-2); }
.meter b { position: absolute; top: -3px; width: 2px; height: 12px; background: var(--text); }
.badge { display: inline-block; margin: 3px 5px 0 0; padding: 0 7px; border: 1px solid currentColor; border-radius: 9px;
  font-size: .74rem; line-height: 1.55; color: var(--quiet); white-space: nowrap; }
.badge.good { color: var(--good); } .badge.bad { color: var(--bad); } .badge.warn { color: var(--warn); }
.claims td { white-space: normal; } .claims th[scope=row] { min-width: 15em; }
.claims .verdict { white-space: nowrap; font-weight: 600; }
.verdict.good { color: var(--good); } .verdict.bad { color: var(--bad); } .verdict.none { color: var(--quiet); }
.scroll { overflow-x: auto; } .scroll svg { min-width: 640px; }
.key { columns: 13em; font-size: .88rem; color: var(--quiet); padding-left: 1.6em; margin: 10px 0 0; }
details { font-size: .85rem; } summary { color: var(--info); cursor: pointer; }
.two { grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); }
.problems { font-size: .9rem; }
@media (max-width: 720px) {
  .cards thead { position: absolute; left: -9999px; }
  .cards, .cards tbody, .cards tr, .cards th, .cards td { display: block; width: 100%; }
  .cards th, .cards td { padding: 3px 0; border: 0; text-align: left; min-width: 0; }
  .cards tr { padding: 12px 0; border-top: 1px solid var(--line); }
  .cards tbody th[scope=rowgroup] { padding-top: 8px; }
  .cards tr:has(th[scope=rowgroup]) { border-top: 0; padding-bottom: 0; }
  .cards td[data-label]::before { content: attr(data-label); display: block; font-size: .78rem; font-weight: 600;
    color: var(--quiet); }
  .cards td.empty { display: none; }
  .cards td.number { text-align: left; }
}
@media print { nav { display: none; } figure, tr { break-inside: avoid; } }
"""
)
