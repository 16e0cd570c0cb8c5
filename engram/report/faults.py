"""What was tried to break Engram: files of results/faults, and the soak of results/speed.

``<!-- faults:begin NAME -->`` takes tried (inputs and kills, before and now), sanitizer, or soak.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engram.report.measured import NOT_MEASURED, files_of
from engram.report.svg import INK, SERIES, TEXT_SIZE, new_figure, style_axes, to_svg
from engram.report.table import Column, Table

FAULTS = ("tried", "sanitizer", "soak")
SOAK = "soak.svg"


def _column(when: str, what: str) -> Column[Mapping[str, Any]]:
    return Column(f"{when}: {what}", lambda row: f"{row[when][what]:,}" if what in row[when] else "", right=True)


COLUMNS = (
    Column[Mapping[str, Any]]("What", lambda row: row["What"]),
    *(_column(when, what) for when in ("Before", "Now") for what in ("tried", "failed")),
)


def faults_section(name: str, runs: str, results: Path) -> str:
    """One section, from the folder of all results."""
    link = runs.removesuffix("runs")
    if name == "soak":
        return _soak(results / "speed", f"{link}speed")
    return (_tried if name == "tried" else _sanitizer)(results / "faults", f"{link}faults")


def _tried(folder: Path, link: str) -> str:
    """A row for each kind: what the first campaign found, and the last whole runs, one of each seed, together."""
    runs = {content["seed"]: (content, file) for content, file in files_of(folder, "faults.*.json")}
    if not runs:
        return NOT_MEASURED
    now, together = defaultdict[str, Counter[str]](Counter), Counter[str]()
    for content, _ in runs.values():
        for kind, found in content["kinds"].items():
            name = kind.partition(",")[0] if kind.startswith("bytes: ") else kind
            for counts in (now[name], together):
                counts.update(tried=found["tried"], failed=found["failed"])
    now["**all**"] = together
    before = next((content for content, _ in files_of(folder, "before.json")), {})
    known = before.get("kinds", {})
    rows = [{"What": kind, "Before": known.get(kind, {}), "Now": counts} for kind, counts in now.items()]
    told = [
        f"[seed {seed}]({link}/{file}) in {content['seconds'] / 60:.0f} minutes on {content['cores']} cores, load "
        f"average {content['load_average']:.1f}"
        for seed, (content, file) in sorted(runs.items())
    ]
    note = f"Now: {'; '.join(told)}."
    return Table(COLUMNS, rows, note=f"Before: {before['note']}. {note}" if before else note).markdown()


def _sanitizer(folder: Path, link: str) -> str:
    if not (found := files_of(folder, "sanitizer.*.json")):
        return NOT_MEASURED
    content, file = found[-1]
    lines = [f"seed {seed}: {line}" for seed, log in content["log"].items() for line in log.splitlines()]
    about = f"{content['compiler']}, `{content['flags']}`: [{file}]({link}/{file})"
    return "\n".join([f"{about}\n", "```text", *lines, "```"])


def _soak(folder: Path, link: str) -> str:
    if not (found := files_of(folder, "soak.*.json")):
        return NOT_MEASURED
    content, file = found[-1]
    setting, slopes = content["setting"], content["growth"]["time"]["slope_a_minute"]
    return (
        f"{setting['rounds']} rounds in {setting['minutes']:g} minutes. After {setting['warm_up']:.1f} minutes of "
        f"warm-up memory changes by {slopes['resident_mib']:+.2f} MiB a minute, open files by "
        f"{slopes['open_files']:+.2f}: [{file}]({link}/{file})"
    )


def soak_figure(folder: Path) -> dict[str, str]:
    """Memory and open files over the last soak: file name -> SVG; without one, nothing."""
    if not (found := files_of(folder, "soak.*.json")):
        return {}
    looks, setting = found[-1][0]["growth"]["time"], found[-1][0]["setting"]
    figure = new_figure(720, 300)
    upper, lower = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": (2, 1)})
    for axes, name, words, colour in (
        (upper, "resident_mib", "memory, MiB", 0),
        (lower, "open_files", "open files", 1),
    ):
        style_axes(axes, "minutes" if axes is lower else "", words)
        axes.plot(looks["minutes"], looks[name], color=SERIES[colour], marker="os"[colour], markersize=3.5)
        axes.set_ylim(0, 1.25 * max(looks[name]))
        axes.axvline(setting["warm_up"], color=INK, alpha=0.4, linewidth=0.9, linestyle=(0, (5, 2)))
    upper.text(setting["warm_up"], 0, " after the warm-up", color=INK, va="bottom", fontsize=TEXT_SIZE - 1)
    return {SOAK: to_svg(figure, f"Memory and open files over {setting['minutes']:g} minutes of use")}
