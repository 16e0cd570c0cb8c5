"""What mkdocs does for this site beyond its own: links into the repository, formulas as MathML, folders in the nav.

The site lies in ``site/`` of a checkout, as deep as ``docs/``. A link such as ``../results/runs/x.json`` therefore
works from both; mkdocs knows files of ``docs/`` alone, so such links are taken out of its sight, checked and put back.
"""

from __future__ import annotations

import html
import logging
import os
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

LOG = logging.getLogger("mkdocs.hooks.site")
LINK = re.compile(r"(?<=\]\()((?:\.\./)+[^)#\s]*)")
MARK = "repository:"
MATH = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config: Any) -> Any:
    """``Methods: "methods/*.md"`` in the nav stands for every page of the folder, so a new page needs no line."""
    docs = Path(config["docs_dir"])

    def pages(entry: Any) -> Any:
        if isinstance(entry, str):
            found = sorted(docs.glob(entry)) if "*" in entry else []
            return [page.relative_to(docs).as_posix() for page in found] or entry
        if isinstance(entry, dict):
            return {title: pages(inner) for title, inner in entry.items()}
        return [pages(inner) for inner in entry]

    config["nav"] = pages(config["nav"])
    return config


def on_page_markdown(text: str, page: Any, config: Any, files: Any) -> str:
    """Mark links that leave docs/; one whose target is not there fails a strict build."""
    docs = Path(config["docs_dir"]).resolve()
    folder = docs / Path(page.file.src_uri).parent

    def marked(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / link.group()))
        if target.is_relative_to(docs):
            return link.group()
        if not target.exists():
            LOG.warning("%s links to %s, which is not in the repository", page.file.src_uri, link.group())
        return MARK + link.group()

    return LINK.sub(marked, text)


def on_page_content(text: str, page: Any, config: Any, files: Any) -> str:
    """Put marked links back; write formulas so that a browser shows them without a script."""
    text = text.replace(f'href="{MARK}', 'href="')
    return MATH.sub(lambda m: convert(html.unescape(m[3]), display="block" if m[2] == "[" else "inline"), text)
