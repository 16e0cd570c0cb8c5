"""The command line: parse and call, no logic. Every command is a Python call of the same name."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal, NoReturn

import tyro
from rich.console import Console

from engram import flags
from engram.errors import EngramError

app = tyro.extras.SubcommandApp()


@app.command
def quickstart(
    out: flags.Folder = Path("quickstart"),
    seconds: float = 50.0,
    device: flags.Device = "cpu",
    seed: int = 111,
) -> None:
    """Train ProtoNet and CML-BGNN on embedded letters, test on unseen alphabets, write report.html.

    Args:
        out: folder for the report, checkpoints and run records
        seconds: training time of each model
        seed: of weights and tasks
    """
    from engram.quickstart import quickstart as call

    call(out=out, seconds=seconds, device=device, seed=seed)


@app.command
def data(dataset: flags.Dataset = None, data: flags.Data = None, build: flags.Switch = False) -> None:
    """Say where each benchmark can be had and in which forms it is read; check what is given.

    Args:
        dataset: glyphs, miniimagenet, tieredimagenet, omniglot, omniglot-alphabets or folder:PATH
        build: build the stores now rather than at first use
    """
    from engram.listing import show_data

    show_data(dataset, data, build)


@app.command
def train(
    recipe: flags.Recipe,
    data: flags.Data = None,
    out: flags.RunFolder = None,
    results: flags.Results = Path("results/runs"),
    device: flags.Device = "auto",
    seed: flags.Whole = None,
    iterations: flags.Whole = None,
    method: flags.Name = None,
    backbone: flags.Name = None,
    dataset: flags.Name = None,
    precision: flags.Precision = None,
    max_minutes: flags.Minutes = None,
    resume: flags.Switch = False,
    test: flags.Switch = True,
    predictions: flags.Switch = False,
    compile_encoder: flags.Switch = False,
    note: flags.Note = "",
) -> None:
    """Train a recipe, test the best weights, append a run record.

    Args:
        recipe: a name such as cml_bgnn/glyphs_5w1s (see engram list) or the path of a TOML file
        out: run folder for checkpoints
        seed: of weights and training tasks
        iterations: training steps
        method: a stem of engram list methods, or package.module:Class for your own
        backbone: conv32, conv64, conv4, ..., or package.module:Class for your own
        dataset: a name of engram data, or folder:PATH for your own images
        precision: bf16 applies on GPUs only
        max_minutes: stop training after this many minutes, then test
        resume: go on from the run folder's last checkpoint
        test: end after training, without the test protocols
        predictions: keep the probabilities of every query beside the record
        compile_encoder: torch.compile the backbone
    """
    from engram.report.console import record_table
    from engram.train.run import train as call

    run = call(
        recipe, data=data, out=out, results=results, device=device, seed=seed, iterations=iterations, method=method,
        backbone=backbone, dataset=dataset, precision=precision, max_minutes=max_minutes, resume=resume, test=test,
        predictions=predictions, compile_encoder=compile_encoder, note=note,
    )  # fmt: skip
    Console().print(record_table(run.record))
    print(f"checkpoints: {run.folder}\nrecord: {run.record_file}")


@app.command
def bench(
    model: flags.Model,
    recipe: flags.AskedRecipe = None,
    data: flags.Data = None,
    results: flags.Results = Path("results/runs"),
    device: flags.Device = "auto",
    split: Literal["train", "val", "test"] = "test",
    n_way: flags.Whole = None,
    n_shot: flags.Whole = None,
    n_query: flags.Whole = None,
    n_sequences: flags.Whole = None,
    stream_length: flags.Whole = None,
    slot_order: flags.Order = None,
    query_balance: flags.Balance = None,
    predictions: flags.Switch = False,
    note: flags.Note = "",
) -> None:
    """Measure a checkpoint, or a method that needs no training, on frozen tasks; append a run record.

    Args:
        model: run or checkpoint folder, or chance, pixel_centroid
        recipe: whose tasks to answer
        split: classes the tasks are drawn from
        n_way: classes of a task
        n_shot: support images per class
        n_query: queries per class
        n_sequences: independent sequences
        stream_length: tasks of a sequence
        slot_order: class-order only to reproduce the paper's protocol
        query_balance: dirichlet draws unbalanced queries
        predictions: keep the probabilities of every query beside the record
    """
    from engram.bench.run import bench as call
    from engram.report.console import record_table

    record, _ = call(
        model, recipe=recipe, data=data, results=results, device=device, split=split, predictions=predictions,
        n_way=n_way, n_shot=n_shot, n_query=n_query, n_sequences=n_sequences, stream_length=stream_length,
        slot_order=slot_order, query_balance=query_balance, note=note,
    )  # fmt: skip
    Console().print(record_table(record))


@app.command
def compare(first: flags.First, second: flags.Second) -> None:
    """Paired difference of two run records on the tasks both answered.

    Args:
        first: a run record, results/runs/*.json
        second: the run record to subtract
    """
    from engram.bench.run import compare as call
    from engram.report.console import comparison_table

    Console().print(comparison_table(first.stem, second.stem, call(first, second)))


@app.command(name="import-public")
def import_public(file: flags.File, out: flags.Target) -> None:
    """Turn a checkpoint of the authors' public code into one of ours.

    Args:
        file: the public .pth.tar
        out: run folder to write; bench it like any other
    """
    from engram.import_public import convert

    print(f"wrote {convert(file, out)}")


@app.command(name="list")
def list_(
    what: tyro.conf.Positional[Literal["all", "methods", "recipes"]] = "all",
    match: flags.Match = "",
    results: flags.Results = Path("results/runs"),
) -> None:
    """Show methods with what they declare, recipes, and what each has scored.

    Args:
        what: methods, recipes or both
        match: only names with this in them, such as cml_bgnn or mini_5w1s; recipes come with their descriptions
    """
    from engram.listing import show_list

    show_list(what, results, match)


@app.command
def report(root: flags.Folder = Path("."), check: flags.Switch = False) -> None:
    """Rebuild the tables of README and docs from results/runs.

    Args:
        root: the project's folder
        check: change nothing; fail if a table differs from its rebuild
    """
    from engram.report.tables import rebuild

    changed = rebuild(root, check)
    verb = "differs from its rebuild" if check else "rewritten"
    for file in changed:
        print(f"{file}: {verb}")
    if check and changed:
        raise EngramError(
            f"the tables of {', '.join(changed)} differ from results/runs: run engram report and commit the change"
        )
    if not changed:
        print("all tables agree with results/runs")


def main() -> None:
    """Entry point: bad input is one sentence on stderr and status 2, never a traceback."""
    try:
        app.cli(
            prog="engram",
            description="Few-shot learning that remembers.",
            config=(tyro.conf.CascadeSubcommandArgs, tyro.conf.FlagCreatePairsOff),
        )
        sys.stdout.flush()
    except EngramError as error:
        _end(f"engram: {error}", 2)
    except KeyboardInterrupt:
        _end("engram: stopped", 130)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:  # a disk, a permission: whatever no reader or writer has put better
        place = f"{error.filename}: " if error.filename else ""
        _end(f"engram: {place}{error.strerror or error}", 2)


def _end(sentence: str, status: int) -> NoReturn:
    print(" ".join(sentence.split()), file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
