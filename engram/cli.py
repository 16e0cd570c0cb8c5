"""The command line: parse and call, no logic. Every command is a Python call of the same name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from engram.errors import EngramError

app = tyro.extras.SubcommandApp()
Device = Annotated[str, tyro.conf.arg(help="auto, cpu, cuda or cuda:1")]
Data = Annotated[Path | None, tyro.conf.arg(help="folder of the datasets; ENGRAM_DATA where not given")]
Results = Annotated[Path, tyro.conf.arg(help="ledger folder the run record is appended to")]
Order = Literal["shuffled", "class-order"]


@app.command
def quickstart(out: Path = Path("quickstart"), seconds: float = 50.0, device: Device = "cpu", seed: int = 111) -> None:
    """Train ProtoNet and CML-BGNN on embedded letters, test on unseen alphabets, write report.html.

    Args:
        out: folder for the report, checkpoints and run records
        seconds: training time of each model
        seed: of weights and tasks
    """
    from engram.quickstart import quickstart as call

    call(out=out, seconds=seconds, device=device, seed=seed)


@app.command
def data(dataset: tyro.conf.Positional[str | None] = None, data: Data = None, build: bool = False) -> None:
    """Say where each benchmark can be had and in which forms it is read; check what is given.

    Args:
        dataset: glyphs, miniimagenet, tieredimagenet, omniglot, omniglot-alphabets or folder:PATH; none = all
        build: build the stores now rather than at first use
    """
    from engram.listing import show_data

    show_data(dataset, data, build)


@app.command
def train(
    recipe: tyro.conf.Positional[str],
    data: Data = None,
    out: Path | None = None,
    results: Results = Path("results/runs"),
    device: Device = "auto",
    seed: int | None = None,
    iterations: int | None = None,
    method: str | None = None,
    backbone: str | None = None,
    dataset: str | None = None,
    precision: Literal["fp32", "bf16"] | None = None,
    max_minutes: float | None = None,
    resume: bool = False,
    test: bool = True,
    predictions: bool = False,
    compile_encoder: bool = False,
    note: str = "",
) -> None:
    """Train a recipe, test the best weights, append a run record.

    Args:
        recipe: a name such as cml_bgnn/glyphs_5w1s (see engram list) or the path of a TOML file
        out: run folder for checkpoints; runs/<recipe> where not given
        seed: in place of the recipe's
        iterations: in place of the recipe's
        method: in place of the recipe's; package.module:Class for your own
        backbone: in place of the recipe's; package.module:Class for your own
        dataset: in place of the recipe's; folder:PATH for your own
        precision: in place of the recipe's
        max_minutes: stop training after this many minutes, then test
        resume: go on from the run folder's last checkpoint
        test: answer the test protocols at the end
        predictions: keep the probabilities of every query beside the record
        compile_encoder: torch.compile the backbone
        note: a line for the record
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
    model: tyro.conf.Positional[str],
    recipe: str | None = None,
    data: Data = None,
    results: Results = Path("results/runs"),
    device: Device = "auto",
    split: Literal["train", "val", "test"] = "test",
    n_way: int | None = None,
    n_shot: int | None = None,
    n_query: int | None = None,
    n_sequences: int | None = None,
    stream_length: int | None = None,
    slot_order: Order | None = None,
    query_balance: Literal["balanced", "dirichlet"] | None = None,
    predictions: bool = False,
    note: str = "",
) -> None:
    """Measure a checkpoint, or a method that needs no training, on frozen tasks; append a run record.

    Args:
        model: run or checkpoint folder, or chance, pixel_centroid
        recipe: whose tasks to answer; the checkpoint's own where not given
        n_way: classes of a task, in place of the recipe's
        n_shot: labelled images per class
        n_query: queries per class
        n_sequences: independent sequences
        stream_length: tasks of a sequence
        slot_order: class-order only to reproduce the paper's protocol
        query_balance: dirichlet draws unbalanced queries
        predictions: keep the probabilities of every query beside the record
        note: a line for the record
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
def compare(first: tyro.conf.Positional[Path], second: tyro.conf.Positional[Path]) -> None:
    """Paired difference of two run records on the tasks both answered.

    Args:
        first: a run record (JSON)
        second: another
    """
    from engram.bench.run import compare as call
    from engram.report.console import comparison_table

    Console().print(comparison_table(first.stem, second.stem, call(first, second)))


@app.command(name="import-public")
def import_public(file: tyro.conf.Positional[Path], out: tyro.conf.Positional[Path]) -> None:
    """Turn a checkpoint of the authors' public code into one of ours.

    Args:
        file: the public .pth.tar
        out: run folder to write; bench it like any other
    """
    from engram.import_public import convert

    print(f"wrote {convert(file, out)}")


@app.command(name="list")
def list_(
    what: tyro.conf.Positional[Literal["all", "methods", "recipes"]] = "all", results: Results = Path("results/runs")
) -> None:
    """Show methods with what they declare, recipes, and what each has scored.

    Args:
        what: methods, recipes or both
    """
    from engram.listing import show_list

    show_list(what, results)


@app.command
def report(root: Path = Path("."), check: bool = False) -> None:
    """Rebuild the tables of README and docs from results/runs.

    Args:
        root: the project's folder
        check: change nothing; exit 1 if a table differs from its rebuild
    """
    from engram.report.tables import rebuild

    changed = rebuild(root, check)
    verb = "differs from its rebuild" if check else "rewritten"
    for file in changed:
        print(f"{file}: {verb}")
    if check and changed:
        raise EngramError(f"{len(changed)} tables differ from results/runs: run engram report and commit the change")
    if not changed:
        print("all tables agree with results/runs")


def main() -> None:
    """Entry point: bad input is one sentence on stderr and status 2, never a traceback."""
    try:
        app.cli(
            prog="engram", description="Few-shot learning that remembers.", config=(tyro.conf.CascadeSubcommandArgs,)
        )
    except EngramError as error:
        print(f"engram: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("engram: stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)


if __name__ == "__main__":
    main()
