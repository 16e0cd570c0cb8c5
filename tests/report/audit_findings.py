"""Made-up findings of an audit, and records that hold them."""

from __future__ import annotations

from typing import Any

from result_records import make_evaluation, make_record

from engram.ledger import RunRecord


def finding(probe: str, verdict: str, effect: float | None, bound: float | None, **changes: Any) -> dict[str, Any]:
    return {
        "probe": probe,
        "question": f"Does {probe} matter?",
        "effect": effect,
        "unit": "probability",
        "bound": bound,
        "verdict": verdict,
        "kind": "exact",
        "declared": verdict == "declared",
        "detail": "mean change | 1e-3",
        **changes,
    }


FINDINGS = [
    finding("query order", "clean", 3e-16, 1e-5),
    finding("later tasks", "clean", 0.0, 0.0),
    finding("company", "declared", 0.64, 1e-5),
    finding("noise", "leak", 0.348, 0.048, unit="accuracy", kind="statistical", declared=True),
    finding("history erased", "not applicable", None, None),
]
PROTOCOL = make_evaluation(0.5, slot_order="class-order").protocol | {"n_sequences": 100}


def audit_record(number: int, **changes: object) -> RunRecord:
    return make_record(
        number, **{"kind": "audit", "training": {}, "audit": FINDINGS, "audit_protocol": PROTOCOL, **changes}
    )
