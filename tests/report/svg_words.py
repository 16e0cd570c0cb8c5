"""The words of a drawing."""

from __future__ import annotations

from xml.etree import ElementTree


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(e.itertext()).strip() for e in root.iter("{http://www.w3.org/2000/svg}text")]
