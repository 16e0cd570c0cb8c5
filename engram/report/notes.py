"""Notes below a table: a cell carries a mark, and what it stands for is told once."""

from __future__ import annotations


class Notes:
    """Notes in the order of their first mark, equal ones once."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, *texts: str) -> str:
        """`` <sup>1, 3</sup>`` for what is to be noted; "" for nothing."""
        told = [text for text in texts if text]
        self.texts += [text for text in dict.fromkeys(told) if text not in self.texts]
        numbers = ", ".join(str(number) for number in sorted({self.texts.index(text) + 1 for text in told}))
        return f" <sup>{numbers}</sup>" if numbers else ""

    def markdown(self) -> str:
        return "<br>".join(f"<sup>{number}</sup> {text}." for number, text in enumerate(self.texts, 1))
