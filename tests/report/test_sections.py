"""Marked sections of pages: filled from records, repeatable, and hand edits are found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from audit_findings import audit_record
from result_records import make_evaluation, make_record
from stream_records import CONTENT, PROTO, stream_record

from engram.errors import EngramError, EngramWarning
from engram.ledger import write_record
from engram.report.sections import departures_section, rebuild


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "docs/methods").mkdir(parents=True)
    (tmp_path / "README.md").write_text("# T\n\n<!-- results:begin all -->\n<!-- results:end -->\n\nafter\n")
    (tmp_path / "docs/methods/cml_bgnn.md").write_text("<!-- results:begin cml_bgnn -->\nold\n<!-- results:end -->\n")
    (tmp_path / "docs/methods/maml.md").write_text("<!-- results:begin maml -->\nold\n<!-- results:end -->\n")
    (tmp_path / "docs/plain.md").write_text("The marker `<!-- results:begin NAME -->` in a sentence is no marker.\n")
    write_record(tmp_path / "results/runs", make_record(1, make_evaluation(0.51834)))
    return tmp_path


def test_rebuild_fills_the_marked_places_and_is_idempotent(project: Path) -> None:
    pages = ["README.md", "docs/methods/cml_bgnn.md", "docs/methods/maml.md"]
    assert rebuild(project, check=False) == [*pages, "results/summary.csv"]
    assert rebuild(project, check=False) == []
    readme, page = (project / "README.md").read_text(), (project / "docs/methods/cml_bgnn.md").read_text()
    assert readme.startswith("# T\n") and readme.endswith("<!-- results:end -->\n\nafter\n")
    assert "51.83 ± 0.42" in readme
    link = page.split("](")[1].split(")")[0]
    assert (project / "docs/methods" / link).is_file()  # links hold from where the page is
    assert "Task 8" in page and "old" not in page
    assert "No runs are recorded yet." in (project / "docs/methods/maml.md").read_text()


def test_check_finds_a_hand_edit_and_writes_nothing(project: Path) -> None:
    rebuild(project, check=False)
    readme = project / "README.md"
    edited = readme.read_text().replace("51.83", "91.83")
    readme.write_text(edited)
    assert rebuild(project, check=True) == ["README.md"]
    assert readme.read_text() == edited


def test_no_records_is_said_in_the_table(project: Path) -> None:
    for path in (project / "results/runs").iterdir():
        path.unlink()
    rebuild(project, check=False)
    assert "No runs are recorded yet." in (project / "README.md").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no marker\n", "no result table"),
        ("<!-- results:begin all -->\n", "has no '<!-- results:end -->'"),
        ("<!-- results:begin all -->\n<!-- results:begin all -->\n<!-- results:end -->\n", "has no"),
        ("<!-- results:end -->\n<!-- results:begin all -->\n<!-- results:end -->\n", "stands without"),
        ("<!-- results:begin all -->\n<!-- results:end -->\n<!-- results:end -->\n", "stands without"),
        ("<!-- results:begin cml_bgn -->\n<!-- results:end -->\n", "did you mean 'cml_bgnn'"),
    ],
)
def test_broken_markers_are_told_in_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "README.md").write_text(text)
    with pytest.raises(EngramError, match=message):
        rebuild(tmp_path, check=False)
    assert (tmp_path / "README.md").read_text() == text


def test_an_unreadable_record_is_named_and_left_out_but_never_passes_a_check(project: Path) -> None:
    rebuild(project, check=False)
    (project / "results/runs/broken.json").write_text("{")
    with pytest.raises(EngramError, match=r"cannot be checked while records do not count: .*broken\.json"):
        rebuild(project, check=True)
    with pytest.warns(EngramWarning, match=r"not in the tables: .*broken\.json"):
        assert rebuild(project, check=False) == []


def test_reports_do_not_import_torch(project: Path) -> None:
    script = (
        "import sys, pathlib; from engram.report import figures, page, sections; "
        "sections.rebuild(pathlib.Path(sys.argv[1]), check=False); "
        "assert 'matplotlib' in sys.modules and 'torch' not in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script, str(project)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def audited(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text("<!-- results:begin all -->\n<!-- results:end -->\n")
    (tmp_path / "docs").mkdir()
    name = "cml_bgnn/mini_5w1s"
    (tmp_path / "docs/audit.md").write_text(f"# A\n\n<!-- audit:begin {name} -->\nold\n<!-- audit:end -->\n\nafter\n")
    write_record(tmp_path / "results/runs", audit_record(1))
    return tmp_path


def test_rebuild_fills_audits_and_check_finds_a_hand_edit(audited: Path) -> None:
    page = audited / "docs/audit.md"
    assert rebuild(audited, check=False) == ["README.md", "docs/audit.md", "results/summary.csv"]
    text = page.read_text()
    assert text.endswith("<!-- audit:end -->\n\nafter\n") and "old" not in text and rebuild(audited, check=True) == []
    link = text.split("](")[1].split(")")[0]
    assert (page.parent / link).is_file()
    page.write_text(text.replace("**leak**", "clean"))
    assert rebuild(audited, check=True) == ["docs/audit.md"]
    write_record(audited / "results/runs", audit_record(2, recipe_name="cml_bgnn/other"))
    assert rebuild(audited, check=False) == ["docs/audit.md"] and page.read_text() == text  # not of this recipe


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- audit:begin cml_bgnn/mini_5w1 -->\n<!-- audit:end -->\n", "did you mean 'cml_bgnn/mini_5w1s'"),
        ("<!-- audit:begin -->\n<!-- audit:end -->\n", "names no known section"),
        ("<!-- audit:begin all -->\n<!-- results:end -->\n", "stands without"),
        ("<!-- audit:begin all -->\n", "has no '<!-- audit:end -->'"),
        ("<!-- audit:end -->\n", "stands without a '<!-- audit:begin NAME -->'"),
    ],
)
def test_broken_markers_are_told_and_no_page_is_written(audited: Path, text: str, message: str) -> None:
    (audited / "docs/audit.md").write_text(text)
    before = (audited / "README.md").read_text()
    with pytest.raises(EngramError, match=message):
        rebuild(audited, check=False)
    assert (audited / "docs/audit.md").read_text() == text and (audited / "README.md").read_text() == before


def test_rebuild_writes_tables_and_figures_and_check_finds_what_differs(tmp_path: Path) -> None:
    runs, page = tmp_path / "results/runs", tmp_path / "docs/memory.md"
    page.parent.mkdir()
    page.write_text("".join(f"<!-- streams:begin {part} -->\n<!-- streams:end -->\n" for part in ("table", "paired")))
    for number, recipe in ((1, CONTENT), (2, PROTO)):
        write_record(runs, stream_record(runs, number, recipe, 0.6, length=128))
    figure = "docs/figures/encounters.svg"
    files = ["docs/memory.md", "docs/figures/memory_along_stream_named.svg", "docs/figures/forgetting.svg", figure]
    files.append("results/summary.csv")
    assert rebuild(tmp_path, check=True) == files and not (tmp_path / figure).exists()
    assert rebuild(tmp_path, check=False) == files and rebuild(tmp_path, check=True) == []
    link = page.read_text().split("](")[1].split(")")[0]
    assert (page.parent / link).is_file() and "prefers-color-scheme:dark" in (tmp_path / figure).read_text()
    (tmp_path / figure).write_text("<svg/>")
    assert rebuild(tmp_path, check=True) == [figure]
    page.write_text("<!-- streams:begin pairs -->\n<!-- streams:end -->\n")
    with pytest.raises(EngramError, match="did you mean 'paired'"):
        rebuild(tmp_path, check=True)


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        ("own", "tests.glyphs", "test.glyphs"),
        ("speed", "step", "steps"),
        ("quickstart", "20-wey", "20-way"),
        ("departures", "protonet", "proto_net"),
        ("claims", "al", "all"),
        ("results", "mamal", "maml"),
    ],
)
def test_a_misspelt_section_of_any_kind_is_told(project: Path, kind: str, name: str, meant: str) -> None:
    (project / "README.md").write_text(f"<!-- {kind}:begin {name} -->\n<!-- {kind}:end -->\n")
    with pytest.raises(EngramError, match=f"README.md: '{kind}:begin {name}' names no known section.*'{meant}'"):
        rebuild(project, check=True)


def test_the_section_numbers_departures_and_then_revisions() -> None:
    text = departures_section("tadam")
    first, since = text.split("Changes of behaviour")
    assert first.startswith("1. **Base classes in running statistics.** Public code: ")
    assert "3. **Alpha.** Paper: learned in the text, in the results chosen on validation classes" in first
    assert "1. **base classes:**" in since and "2. **task embedding:**" in since
    assert departures_section("proto_memory") == "None are known."
    assert "**Temperature.** Paper: 1" in departures_section("proto_net")
