"""Commands that look things up, bring things in and write tables."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from engram import flags
from engram.errors import EngramError


def data(
    dataset: flags.Dataset = None, data: flags.Data = None, build: flags.Switch = False, shards: flags.Url = None
) -> None:
    """Say where to get each benchmark and which file formats are read; check what is given.

    Args:
        dataset: glyphs, miniimagenet, tieredimagenet, omniglot, omniglot-alphabets or folder:PATH
        build: build the stores now rather than at first use
        shards: write them in pieces to this URL, such as s3://bucket/data, which --data then reads
    """
    from engram.listing import show_data

    show_data(dataset, data, build, shards)


def import_public(file: flags.File, out: flags.Target) -> None:
    """Turn a checkpoint of the authors' public code into one of ours.

    Args:
        file: the public .pth.tar
        out: run folder to write; bench it like any other
    """
    from engram.import_public import convert

    print(f"wrote {convert(file, out)}")


def list_(
    what: Positional[Literal["all", "methods", "recipes"]] = "all",
    match: flags.Match = "",
    results: flags.Results = Path("results/runs"),
    variants: bool = False,
) -> None:
    """Show methods with what they declare, recipes, and what each has scored.

    Args:
        what: methods, recipes or both
        match: only names with this in them, such as cml_bgnn or mini_5w1s; recipes come with their descriptions
        variants: every recipe, not only those to begin with
    """
    from engram.listing import show_list

    show_list(what, results, match, variants)


def recipe(name: Positional[str]) -> None:
    """Print a recipe whole, as TOML to keep and change, with the variant or base that states each value.

    Args:
        name: such as cml_bgnn/mini_5w1s, or a TOML file of your own
    """
    from engram.recipes import recipe_text

    print(recipe_text(name), end="")


def report(root: flags.Folder = Path("."), check: flags.Switch = False, html: flags.OptionalPage = None) -> None:
    """Rebuild the tables of README and docs and results/summary.csv from results/runs; or draw the report of studies.

    Args:
        root: the project's folder
        check: change nothing; fail if a table differs from its rebuild
        html: draw the report to this file and leave README and docs alone
    """
    if html:
        from engram.report.report_page import write_report

        print(f"report: {write_report((), root / 'results/runs', html)}")
        return
    from engram.report.sections import rebuild

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
