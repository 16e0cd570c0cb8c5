"""Who may import whom: the table of docs/decisions/0001-layers.md, read off the source."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "engram"
CORE = {"errors", "card", "files", "processes", "spellings", "structure"}
MODEL = {"types", "protocol", "options", "data", "nn", "methods", "recipes", "ledger", "machine", "models"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "card": set(),
    "files": set(),
    "processes": set(),
    "spellings": set(),
    "structure": set(),
    "types": set(),
    "protocol": set(),
    "flags": {"protocol"},
    "options": {"flags", "protocol"},
    "recipes": {"protocol"},
    "ledger": {"protocol", "recipes"},
    "studies": {"protocol", "ledger", "recipes"},
    "data": {"types", "protocol"},
    "nn": set(),
    "methods": {"types", "nn"},
    "machine": {"recipes"},
    "models": MODEL - {"models"},
    "evaluation": MODEL,
    "training": MODEL | {"evaluation"},
    "probes": MODEL | {"evaluation"},
    "report": {"protocol", "ledger", "recipes", "studies"},
    "reproduction": {"protocol", "data", "ledger", "machine", "recipes", "report", "studies"},
    "import_public": MODEL,
    "listing": MODEL | {"report", "studies"},
    "classifier": MODEL | {"evaluation"},
    "page": MODEL | {"classifier", "report"},
    "tour": MODEL | {"evaluation", "training", "probes", "report"},
}
"""what the files of each package or module may import beside their own package and CORE: one way, no cycles"""
NUMPY_ONLY = "engram.evaluation.metrics."
"""statistics that have one definition: a report may use them, they need no torch"""
NO_TORCH = ("errors", "card", "protocol", "ledger", "recipes", "report", "reproduction")
NO_TORCH += ("studies", "options", "flags", "spellings", "files", "structure")
FILES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Dotted names of every import of a file, those inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def layer(dotted: str) -> str:
    return dotted.split(".")[1] if dotted.startswith("engram.") else ""


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_imports_only_what_its_layer_may(path: Path) -> None:
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    ours = {layer(name) for name in imports(path) if not name.startswith(NUMPY_ONLY)} - {""}
    assert "cli" not in ours or own == "__main__", "nothing imports the command line"
    assert "commands" not in ours or own == "cli", "commands are called by the command line alone"
    if own in ALLOWED:
        assert ours - CORE - {own} <= ALLOWED[own], f"{own} may not import {sorted(ours - CORE - ALLOWED[own])}"
    if own in NO_TORCH:
        assert not any(name.split(".")[0] == "torch" for name in imports(path)), f"{own} must not need torch"


@pytest.mark.parametrize("path", sorted((PACKAGE / "methods").glob("[!_]*.py")), ids=lambda p: p.stem)
def test_no_method_imports_a_method(path: Path) -> None:
    assert "methods" not in {layer(name) for name in imports(path)}


@pytest.mark.parametrize("folder", ["models", "training", "evaluation", "probes"])
def test_they_know_methods_only_through_the_table(folder: str) -> None:
    for path in (PACKAGE / folder).glob("*.py"):
        named = [n for n in imports(path) if n.startswith("engram.methods.") and n != "engram.methods.METHODS"]
        assert not named, f"{path.name} names {named}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_names_say_what_a_file_holds(path: Path) -> None:
    assert path.stem not in {"utils", "misc", "helpers", "common", "base"}
    assert path.read_text().count("\n") <= 250, "a file under 250 lines"
