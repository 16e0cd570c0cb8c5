"""The command line: parse and call, no logic. Every command is a Python call of the same name."""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import Any, NoReturn

import tyro

from engram import flags
from engram.commands.own import demo, forget, predict, remember, suggest
from engram.commands.run import attach, audit, bench, compare, features, pack, picture, quickstart, reproduce, train
from engram.commands.show import data, import_public, list_, recipe, report
from engram.errors import EngramError, EngramWarning

app = tyro.extras.SubcommandApp()
OWN = (predict, suggest, remember, forget, demo)
TOOLS = (quickstart, data, train, features, attach, pack, bench, audit, compare, picture, reproduce)
for command in (*TOOLS, import_public, list_, recipe, report, *OWN):
    app.command(name=command.__name__.strip("_").replace("_", "-"))(command)


USUAL = warnings.formatwarning
SILENT = "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK", "0") != "0"
"""of the processes that torchrun starts the first speaks for all"""


def main() -> None:
    """Entry point: bad input is one sentence on stderr and status 2, never a traceback."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who called: a file opened later must not take its number
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):  # names of files may hold what no encoding has
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.formatwarning = _formatted  # type: ignore[assignment]
    if SILENT:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    try:
        with flags.NAMED:
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


def _formatted(message: Warning | str, category: type[Warning], *place: Any) -> str:
    """A warning of Engram is one sentence too; those of others are as they were."""
    return f"engram: {message}\n" if category is EngramWarning else USUAL(message, category, *place)


def _end(sentence: str, status: int) -> NoReturn:
    if not SILENT:
        print(" ".join(sentence.split()), file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
