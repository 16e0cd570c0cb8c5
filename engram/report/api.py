"""The reference of what ``import engram`` offers, read off the source: signatures and docstrings, nothing is imported.

``<!-- api:begin engram -->`` ... ``<!-- api:end -->`` holds it.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from engram.errors import EngramError
from engram.ledger import RunRecord

PACKAGE = Path(__file__).parent.parent
Definition = ast.ClassDef | ast.FunctionDef


def check_api_section(name: str, where: str, records: Sequence[RunRecord]) -> None:
    if name != "engram":
        raise EngramError(f"{where}: there is no reference of '{name}': write <!-- api:begin engram -->")


def api_section(name: str, records: Sequence[RunRecord], runs: str) -> str:
    """One heading for each public name, in the order of the alphabet."""
    parts = []
    for public, module in sorted(public_names().items(), key=lambda item: item[0].lower()):
        if (found := _find(module, public)) is not None:
            parts += _entry(public, module, found)
    return "\n".join(parts).rstrip()


def public_names() -> dict[str, str]:
    """Name -> module, from the table in the package's ``__init__``."""
    for node in ast.parse((PACKAGE / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_LAZY":
            return dict(ast.literal_eval(node.value))
    raise EngramError("engram/__init__.py has no table of public names")


def _find(module: str, name: str) -> Definition | None:
    """The definition of a name, through one re-export; None for a constant."""
    place = PACKAGE.joinpath(*module.split(".")[1:])
    tree = ast.parse((place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).read_text())
    for node in tree.body:
        if isinstance(node, Definition) and node.name == name:
            return node
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and any((alias.asname or alias.name) == name for alias in node.names)
        ):
            return _find(node.module, name)
    return None


def _entry(name: str, module: str, node: Definition) -> list[str]:
    lines = [f"## `engram.{name}`", "", f"*{module}*", ""]
    if isinstance(node, ast.FunctionDef):
        return [*lines, *_code(_signature(node, f"engram.{name}")), *_text(node), ""]
    start = next((m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"), None)
    lines += [*(_code(_signature(start, name)) if start else []), *_text(node), ""]
    lines += [f"- `{field}`: {text}" for field, text in _fields(node)]
    for method in _public_methods(node):
        signature = _signature(method, method.name)
        title = f"`{method.name}`" if _is_property(method) else f"`{signature}`"
        lines += [f"- {title}: {_first_paragraph(method)}"]
    return [*lines, ""]


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Annotated fields with the string below them."""
    for member, below in pairwise(node.body):
        described = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(member, ast.AnnAssign) and described:
            yield ast.unparse(member), " ".join(str(below.value.value).split())  # type: ignore[attr-defined]


def _public_methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and not member.name.startswith("_") and ast.get_docstring(member):
            yield member


def _is_property(node: ast.FunctionDef) -> bool:
    return any(getattr(decorator, "id", "") == "property" for decorator in node.decorator_list)


def _signature(node: ast.FunctionDef, name: str) -> str:
    """As written, without self and on one line."""
    arguments = re.sub(r"^(self|cls)(, )?", "", ast.unparse(node.args))
    returns = "" if node.returns is None or node.name == "__init__" else f" -> {ast.unparse(node.returns)}"
    return f"{name}({arguments}){returns}"


def _code(text: str) -> list[str]:
    return ["```python", text, "```", ""]


def _text(node: Definition) -> list[str]:
    """The docstring; lists of arguments stay lists, what is indented stays as it is."""
    text = inspect.cleandoc(ast.get_docstring(node) or "")
    text = re.sub(r"^(Args|Attributes \(after `fit`\)|Shapes):$", r"**\1**\n", text, flags=re.MULTILINE)
    return re.sub(r"^ {4}(\w+): ", r"- `\1`: ", text, flags=re.MULTILINE).splitlines()


def _first_paragraph(node: ast.FunctionDef) -> str:
    return " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
