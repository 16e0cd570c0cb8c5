"""Every method, in every variant, behaves as its card says: the exact probes find what it declares and nothing else."""

from __future__ import annotations

from copy import deepcopy

import pytest

from engram.probes.audit import audit
from engram.probes.catalogue import PROBES
from tests.test_contract import STORE, VARIANTS, Variant, trained

NOTHING_TO_READ = Variant("proto_memory")
"""without names it equals ProtoNet: tests/methods/test_proto_memory.py"""


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != NOTHING_TO_READ], ids=str)
def test_behaviour_is_what_the_card_declares(variant: Variant) -> None:
    method = deepcopy(trained(variant)[0])
    report = audit(method, STORE, n_way=4, n_shot=2, n_query=1, stream_length=2, names=variant.names, quick=True)
    assert [f.probe for f in report.findings] == [name for name, p in PROBES.items() if p.kind == "exact"]
    for finding in report.findings:
        if finding.verdict == "not applicable":
            assert not finding.declared, f"{finding.probe} is declared but was not asked: {finding.detail}"
        else:
            assert finding.depends == finding.declared, finding
    leaks = {f.probe for f in report.findings if f.verdict == "leak"}
    slot_leaks = {"query order, earlier tasks", "history permuted"}
    assert leaks == (slot_leaks if method.card.slot_memory else set())
