"""Commands that train, ask a model questions and compare answers."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

from rich.console import Console

from engram import flags
from engram.files import model_folder
from engram.options import STREAMS, AuditOptions, BenchOptions, TrainOptions, defaults


def quickstart(
    out: flags.Folder = Path("quickstart"), seconds: float = 45.0, device: flags.Device = "cpu", seed: int = 111
) -> None:
    """Train ProtoNet and CML-BGNN on embedded letters, test on unseen alphabets, write report.html.

    Args:
        out: folder for the report, checkpoints and run records
        seconds: training time of each model
        seed: of weights and tasks
    """
    from engram.tour import quickstart as call

    call(out=out, seconds=seconds, device=device, seed=seed)


TRAIN, BENCH, AUDIT = defaults(TrainOptions), defaults(BenchOptions), defaults(AuditOptions)


def train(recipe: flags.Recipe, options: Annotated[TrainOptions, flags.FLAT] = TRAIN) -> None:
    """Train a recipe, test the best weights, append a run record.

    Args:
        recipe: a name such as cml_bgnn/glyphs_5w1s (see engram list) or the path of a TOML file
    """
    from engram.machine.interruptions import INTERRUPTED
    from engram.report.rows import record_table
    from engram.training.experiment import train as call

    run = call(recipe, **options)
    Console().print(record_table(run.record).terminal())
    print(*run.remarks, f"checkpoints: {run.folder}", f"record: {run.record_file}", sep="\n")
    if run.record.note != options["note"]:  # what went wrong on the way
        print(f"engram: {run.record.note}", file=sys.stderr)
    if run.record.status == "interrupted":
        step = run.record.training["iterations"]
        print(f"engram: stopped and saved at step {step}: go on with the same command and --resume", file=sys.stderr)
        sys.exit(INTERRUPTED)


def features(
    model: flags.Model,
    out: flags.Target,
    data: flags.Data = None,
    device: flags.Device = "auto",
    which_weights: flags.WhichWeights = "chosen",
    views: flags.Views = 1,
    window: flags.Window = "",
    augmented: flags.Copies = None,
    trust_code: flags.TrustCode = False,
) -> None:
    """Write what a trained encoder sees of its dataset as feature stores, for training and tests on frozen features.

    Args:
        model: run or checkpoint folder
        out: folder for one store per split
        which_weights: those validation chose, those of the last step before it, or their moving average
        views: 2 averages the features of each picture and its mirror image
        window: the middle CROP x CROP pixels of each image, enlarged to SIZE x SIZE
        augmented: each training image that many times, every time under the recipe's augmentation anew
    """
    from engram.models.build import trusting_code
    from engram.models.features import write_features

    how = partial(write_features, data=data, device=device, which_weights=which_weights)
    with trusting_code(trust_code):
        written = how(model_folder(model), out, views=views, augmented=augmented, window=window)
    for split, store in written.items():
        print(f"{out / split}: {len(store.images)} features of {store.n_classes} classes")


def attach(head: flags.First, encoder: flags.Second, out: flags.Target, trust_code: flags.TrustCode = False) -> None:
    """Put a head trained on frozen features back on its encoder: one checkpoint, in half precision, that sees images.

    Args:
        head: run folder of the head
        encoder: run folder the features came from
        out: run folder to write
    """
    from engram.models.build import trusting_code
    from engram.models.packing import attach as call

    with trusting_code(trust_code):
        print(f"wrote {call(head, encoder, out)}")


def pack(run: flags.Model, out: flags.Target, bits: flags.Bits = 16) -> None:
    """Write a run's best weights in half precision or eight bits, without the optimiser: small enough to share.

    Args:
        run: run or checkpoint folder
        out: run folder to write
        bits: 16 for half precision; 8 for whole numbers with a scale for each row
    """
    from engram.models.packing import pack as call

    print(f"wrote {call(model_folder(run), out, bits)}")


def reproduce(
    studies: flags.Studies,
    dry_run: flags.Switch = False,
    budget: flags.Minutes = None,
    seeds: flags.Seeds = (),
    device: flags.Device = "auto",
    scale: flags.Scale = "short",
    engine: flags.Launcher = "local",
    address: flags.Address = "auto",
    per_gpu: flags.PerGpu = "1",
    data: flags.Data = None,
    results: flags.Results = Path("results/runs"),
    runs: flags.Folder = Path("runs"),
    report: flags.Page = Path("results/report.html"),
) -> None:
    """Run what a table or figure of the paper still misses, each run in its own process, and draw the report.

    Finished runs are found in the ledger; a stopped one goes on from its last checkpoint. See docs/studies.md.

    Args:
        studies: table1 ... table4, figure3, figure4, order-leak, memory-stream, ..., a TOML file of your own, or all
        dry_run: tell what is recorded, what is missing and how long it takes; run nothing
        budget: minutes for the whole call
        seeds: in place of the study's
        scale: short, minutes on one GPU; or paper, the paper's schedule
        engine: local, on this machine; or ray, on a cluster
        address: of the Ray cluster
        per_gpu: runs at a time on a GPU, or on the cores where there is none; auto: as their records say they fit
        runs: folder of the run folders
        report: HTML file to draw
    """
    from engram.reproduction.carry_out import reproduce as call

    call(
        studies, dry_run=dry_run, budget=budget, seeds=seeds, device=device, scale=scale, engine=engine,
        address=address, per_gpu=per_gpu, data=data, results=results, runs=runs, report=report,
    )  # fmt: skip


def bench(
    asked: flags.Asked, model: flags.OptionalModel = "", options: Annotated[BenchOptions, flags.FLAT] = BENCH
) -> None:
    """Measure a checkpoint, or a method that needs no training, on frozen tasks; append a run record.

    Args:
        model: run or checkpoint folder, or chance, pixel_centroid
    """
    from engram.evaluation.bench import bench as call
    from engram.ledger import record_path
    from engram.report.rows import record_table

    record, _ = call(model, **options, **vars(asked))
    Console().print(record_table(record).terminal())
    print(f"record: {record_path(Path(options['results']), record)}")
    if record.note != options["note"]:  # what went wrong on the way
        print(f"engram: {record.note}", file=sys.stderr)


def audit(
    asked: flags.AskedInAudit,
    model: flags.OptionalModel = "",
    options: Annotated[AuditOptions, flags.FLAT] = AUDIT,
    stream_length: flags.Count = STREAMS["stream_length"],
    n_sequences: flags.Count = STREAMS["n_sequences"],
    figure: flags.Figure = None,
    fail_on_leak: flags.Switch = False,
) -> None:
    """Look for channels through which predictions depend on what they should not; append a run record.

    A finding is a result: the exit status is 0 whether or not there are leaks. See docs/audit.md.

    Args:
        model: run or checkpoint folder, or chance, pixel_centroid
        stream_length: tasks of a stream
        n_sequences: independent streams for the statistical probes
        figure: draw the findings to this file
        fail_on_leak: exit with status 1 if there is a leak
    """
    from engram.probes.audit import audit_model
    from engram.report.audits import audit_figure, check_figure, findings_table

    check_figure(figure)
    run = audit_model(model, **options, **vars(asked), stream_length=stream_length, n_sequences=n_sequences)
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
