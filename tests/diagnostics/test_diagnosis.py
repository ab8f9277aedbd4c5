"""The tests of a whole job as one finding: whose fault, a fault that machines share, and what is not known."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from minder.diagnose.diagnostics.diagnosis import Diagnosis, TestRound, conclude, doubtful
from minder.model.probes import Judged, ProbeJudgement, ProbeResult

MACHINES = ("m0", "m1", "m2", "m3", "m4", "m5")


def round_of(machine: str, verdicts: Mapping[str, Judged], number: int = 1, own: tuple[str, ...] = ()) -> TestRound:
    """own: probes that saw the fault by themselves."""
    results = tuple(ProbeResult(name, 1, "failed" if name in own else "measured") for name in verdicts)
    judged = tuple(ProbeJudgement(machine, name, verdict, f"{name} of {machine}") for name, verdict in verdicts.items())
    return TestRound(machine, number, results, judged)


def all_pass(but: Mapping[str, TestRound] | None = None) -> list[TestRound]:
    return [(but or {}).get(name) or round_of(name, {"disk": "pass", "links": "pass"}) for name in MACHINES]


def test_a_fault_by_the_probes_own_word_counts_at_once() -> None:
    found = conclude(MACHINES, all_pass({"m2": round_of("m2", {"disk": "fail", "links": "pass"}, own=("disk",))}), {})
    assert list(found.failed) == ["m2"] and found.words() == "m2 fails disk: disk of m2"


@pytest.mark.parametrize(("second", "named"), [("fail", True), ("pass", False), ("not_judged", False)])
def test_a_fault_of_a_comparison_counts_when_it_is_seen_twice(second: Judged, named: bool) -> None:
    first = all_pass({"m2": round_of("m2", {"disk": "pass", "links": "fail"})})
    assert doubtful(first) == ("links",)
    rounds = [*first, *(round_of(name, {"links": second if name == "m2" else "pass"}, 2) for name in MACHINES)]
    found = conclude(MACHINES, rounds, {})
    assert list(found.failed) == (["m2"] if named else [])
    said = {"fail": "m2 fails links", "pass": "a fault that a second look did not show", "not_judged": "no second look was judged"}
    assert [word for word, text in said.items() if text in found.words()] == [second]


def test_without_a_second_look_a_comparison_names_no_machine() -> None:
    found = conclude(MACHINES, all_pass({"m2": round_of("m2", {"links": "fail"})}), {})
    assert found.failed == {} and "links of m2: seen once, and no second look was judged" in found.words()


@pytest.mark.parametrize(("broken", "named"), [(1, 1), (2, 2), (3, 0), (6, 0)])
def test_what_half_of_the_machines_show_is_no_machines_own(broken: int, named: int) -> None:
    bad = {name: round_of(name, {"disk": "fail"}, own=("disk",)) for name in MACHINES[:broken]}
    found = conclude(MACHINES, all_pass(bad), {})
    assert len(found.failed) == named and bool(found.shared) == (not named)
    if not named:
        assert f"disk fails on {broken} of 6 machines: no machine's own" in found.words()


def test_a_slow_machine_is_said_and_not_named_for_a_fault() -> None:
    found = conclude(MACHINES, all_pass({"m4": round_of("m4", {"gemm": "slow", "disk": "pass"})}), {})
    assert found.failed == {} and found.words() == "m4 is slow in gemm"


def test_what_said_nothing_is_neither_a_pass_nor_a_fault() -> None:
    rounds = [round_of(name, {"disk": "not_judged", "dcgm": "not_applicable", "links": "pass"}) for name in MACHINES[:4]]
    found = conclude(MACHINES, rounds, {"m5": "no answer"})
    assert found.failed == {} and found.unjudged == {"disk": 4}
    assert found.words() == "no fault found by links; not judged: disk; not tested: m4 (nothing came of it); not tested: m5 (no answer)"
    some = all_pass({"m1": round_of("m1", {"disk": "not_judged", "links": "pass"})})
    assert conclude(MACHINES, some, {}).words() == "no fault found by links; not judged: disk on 1 of 6"
    assert conclude(MACHINES, [], dict.fromkeys(MACHINES, "silent")).words().endswith("3 more not tested")
    assert Diagnosis(3).words() == "not judged: no probe said anything"


def test_all_passed_is_said_only_where_all_did() -> None:
    assert conclude(MACHINES, all_pass(), {}).words() == "all tests passed on 6 machines"
    assert "all tests passed" not in conclude((*MACHINES, "m6"), all_pass(), {}).words()
