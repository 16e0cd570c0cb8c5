"""Commands that ask a model questions and compare answers."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from engram import flags


def bench(
    model: flags.Model,
    asked: flags.Asked,
    recipe: flags.AskedRecipe = None,
    data: flags.Data = None,
    results: flags.Results = Path("results/runs"),
    device: flags.Device = "auto",
    split: flags.Split = "test",
    query_statistics: flags.Statistics = None,
    features: flags.Features = None,
    predictions: flags.Switch = False,
    note: flags.Note = "",
) -> None:
    """Measure a checkpoint, or a method that needs no training, on frozen tasks; append a run record.

    Args:
        model: run or checkpoint folder, or chance, pixel_centroid
        recipe: whose tasks to answer
        split: classes the tasks are drawn from
        query_statistics: queries normalises a task's queries together, where the method adapts to its task
        predictions: keep the probabilities of every query beside the record
    """
    from engram.evaluation.bench import bench as call
    from engram.ledger import record_path
    from engram.report.console import record_table

    record, _ = call(
        model, recipe=recipe, data=data, results=results, device=device, split=split, predictions=predictions,
        note=note, features=features, query_statistics=query_statistics, **vars(asked),
    )  # fmt: skip
    Console().print(record_table(record))
    print(f"record: {record_path(results, record)}")


def audit(
    model: flags.Model,
    recipe: flags.AskedRecipe = None,
    data: flags.Data = None,
    results: flags.Results = Path("results/runs"),
    device: flags.Device = "auto",
    split: flags.Split = "test",
    n_way: flags.Whole = None,
    n_shot: flags.Whole = None,
    n_query: flags.Whole = None,
    stream_length: flags.Count = 8,
    n_sequences: flags.Count = 100,
    names: flags.Names = None,
    pool_classes: flags.Whole = None,
    features: flags.Features = None,
    quick: flags.Switch = False,
    figure: flags.Figure = None,
    fail_on_leak: flags.Switch = False,
    note: flags.Note = "",
) -> None:
    """Look for channels through which predictions depend on what they should not; append a run record.

    A finding is a result: the exit status is 0 whether or not there are leaks. See docs/audit.md.

    Args:
        model: run or checkpoint folder, or chance, pixel_centroid
        recipe: whose data and tasks to ask about
        split: classes the tasks are drawn from
        n_way: classes of a task
        n_shot: support images per class
        n_query: queries per class
        stream_length: tasks of a stream
        n_sequences: independent streams for the statistical probes
        names: named streams carry the identity of each class
        pool_classes: classes a stream draws from: few, so that they recur and memory is put to the test
        quick: the exact probes alone
        figure: draw the findings to this file
        fail_on_leak: exit with status 1 if there is a leak
    """
    from engram.probes.audit_run import audit_model
    from engram.report.audit import audit_table, check_figure, write_figure

    check_figure(figure)
    run = audit_model(
        model, recipe=recipe, data=data, results=results, device=device, split=split, n_way=n_way, n_shot=n_shot,
        n_query=n_query, stream_length=stream_length, n_sequences=n_sequences, names=names,
        pool_classes=pool_classes, quick=quick, note=note, features=features,
    )  # fmt: skip
    Console().print(audit_table(run.record.audit, f"audit of {run.record.recipe_name}"))
    print(f"{run.report.summary}\nrecord: {run.record_file}")
    if figure:
        print(f"figure: {write_figure(figure, run.record.audit, run.record.recipe_name)}")
    if fail_on_leak and run.report.verdict == "leak":
        sys.exit(1)


def picture(model: flags.Model, out: flags.File, data: flags.Data = None, device: flags.Device = "auto") -> None:
    """Keep one answered test task of a model, with its images and the graph of every layer, for the report.

    Args:
        model: run or checkpoint folder
        out: file to write, results/pictures/NAME.npz
    """
    from engram.evaluation.picture import write_picture

    print(f"wrote {write_picture(model, out, data, device)}")


def compare(first: flags.First, second: flags.Second) -> None:
    """Paired difference of two run records on the tasks both answered.

    Args:
        first: a run record, results/runs/*.json
        second: the run record to subtract
    """
    from engram.evaluation.bench import compare as call
    from engram.report.console import comparison_table

    Console().print(comparison_table(first.stem, second.stem, call(first, second)))
