"""Commands that ask a model questions and compare answers."""

from __future__ import annotations

import sys
from typing import Annotated

from rich.console import Console

from engram import flags
from engram.options import AuditOptions, BenchOptions


def bench(
    asked: flags.Asked,
    model: flags.OptionalModel = "",
    options: Annotated[BenchOptions, flags.FLAT] = BenchOptions(),
) -> None:
    """Measure a checkpoint, or a method that needs no training, on frozen tasks; append a run record.

    Args:
        model: run or checkpoint folder, or chance, pixel_centroid
    """
    from engram.evaluation.bench import bench as call
    from engram.ledger import record_path
    from engram.report.rows import record_table

    record, _ = call(model, **options.given(), **vars(asked))
    Console().print(record_table(record).terminal())
    print(f"record: {record_path(options.results, record)}")
    if record.note != options.note:  # what went wrong on the way
        print(f"engram: {record.note}", file=sys.stderr)


def audit(
    asked: flags.AskedInAudit,
    model: flags.OptionalModel = "",
    options: Annotated[AuditOptions, flags.FLAT] = AuditOptions(),
    figure: flags.Figure = None,
    fail_on_leak: flags.Switch = False,
) -> None:
    """Look for channels through which predictions depend on what they should not; append a run record.

    A finding is a result: the exit status is 0 whether or not there are leaks. See docs/audit.md.

    Args:
        model: run or checkpoint folder, or chance, pixel_centroid
        figure: draw the findings to this file
        fail_on_leak: exit with status 1 if there is a leak
    """
    from engram.probes.audit import audit_model
    from engram.report.audits import audit_figure, check_figure, findings_table

    check_figure(figure)
    run = audit_model(model, **options.given(), **vars(asked))
    Console().print(findings_table(run.record.audit, "terminal", f"audit of {run.record.recipe_name}").terminal())
    print(f"{run.report.summary}\nrecord: {run.record_file}")
    if figure:
        figure.write_text(audit_figure(run.record.audit, run.record.recipe_name), encoding="utf-8")
        print(f"figure: {figure}")
    if fail_on_leak and run.report.verdict == "leak":
        sys.exit(1)


def picture(
    model: flags.Model,
    out: flags.File,
    data: flags.Data = None,
    device: flags.Device = "auto",
    trust_code: flags.TrustCode = False,
) -> None:
    """Keep one answered test task of a model, with its images and the graph of every layer, for the report.

    Args:
        model: run or checkpoint folder
        out: file to write, results/pictures/NAME.npz
    """
    from engram.evaluation.picture import write_picture
    from engram.models.build import trusting_code

    with trusting_code(trust_code):
        print(f"wrote {write_picture(model, out, data, device)}")


def compare(first: flags.First, second: flags.Second) -> None:
    """Paired difference of two run records on the tasks both answered.

    Args:
        first: a run record, results/runs/*.json
        second: the run record to subtract
    """
    from engram.evaluation.bench import compare as call
    from engram.report.rows import comparison_table

    Console().print(comparison_table(first.stem, second.stem, call(first, second)).terminal())
