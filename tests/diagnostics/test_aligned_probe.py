"""Alignment as one of the probes: hashes of the results, the past and what the ledger keeps of them."""

from __future__ import annotations

from typing import Any

import pytest

from minder.diagnose.diagnostics.judgement import judge
from minder.edge.probes.contract import find_program
from minder.model.history import LedgerEvent
from minder.model.probes import ProbeResult
from minder.record.incidents import kinds
from minder.record.incidents.probes import fold_probes, past_results, probes_payload

FACTS = {"processor": "x", "torch": "2"}


def result(digest: str, state: Any = "measured", **facts: str) -> ProbeResult:
    tensors = [["dense tp0 pp0 dp0", f"forward {number}", f"{digest}{number}"] for number in range(200)]
    return ProbeResult("alignment", 1, state, "", (), FACTS | facts, data={"digest": digest, "tensors": tensors})


def test_the_one_that_differs_from_its_equals_fails_at_its_first_tensor() -> None:
    found = judge({"m1": result("a"), "m2": result("a"), "m3": result("b"), "other": result("c", processor="y")})
    assert {machine: item.verdict for machine, item in found.items()} == {"m1": "pass", "m2": "pass", "m3": "fail", "other": "not_judged"}
    assert "first at dense tp0 pp0 dp0: forward 0" in found["m3"].reason


@pytest.mark.parametrize(("digest", "verdict"), [("a", "pass"), ("b", "fail")])
def test_one_machine_is_judged_by_what_the_ledger_keeps_of_others(digest: str, verdict: str) -> None:
    earlier = {machine: result("a") for machine in ("m1", "m2")}
    events = [
        LedgerEvent(
            number, 1.0, kinds.PROBES, None, None, None, probes_payload(machine, [found], list(judge(earlier).values()), by="x", why="test")
        )
        for number, (machine, found) in enumerate(earlier.items())
    ]
    past = past_results(fold_probes(events), "alignment")
    assert all("tensors" not in item.data for items in past.values() for item in items), "a digest is enough of what passed"
    (judged,) = judge({"m3": result(digest)}, past).values()
    assert judged.verdict == verdict


def test_what_a_fault_showed_is_kept_whole() -> None:
    found = judge({"m1": result("a"), "m2": result("a"), "m3": result("b")})
    payload = probes_payload("m3", [result("b")], [found["m3"]], by="x", why="test")
    assert len(payload["results"][0]["data"]["tensors"]) == 200


def test_without_torch_it_does_not_apply_and_without_a_document_it_is_not_judged() -> None:
    found = judge({"m1": result("a", "not_applicable"), "m2": ProbeResult("alignment", 1, "not_judged", "it took longer than 120 s")})
    assert (found["m1"].verdict, found["m2"].verdict) == ("not_applicable", "not_judged")
    assert "120 s" in found["m2"].reason


def test_it_is_a_probe_of_this_package() -> None:
    assert find_program("alignment").probe.limit_s == 120.0
