"""Hashes of one step on equal machines: which one deviates, and where it began."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minder.diagnose.diagnostics.alignment import AlignmentRun, TensorHash, first_difference, judge_alignment, read_run
from minder.model.errors import BadInputError

FACTS = {"torch": "2.13.0", "gpu": "H100"}
ORDER = [(f"dense tp{shard} pp0 dp0", f"forward {name}") for name in "ab" for shard in range(2)]


def run(machine: str, wrong_from: int = 9, mark: str = "bad", **more: object) -> AlignmentRun:
    """A run whose tensors are wrong from that one on."""
    tensors = tuple(TensorHash(*key, f"{mark}{index}" if index >= wrong_from else f"good{index}") for index, key in enumerate(ORDER))
    return replace(AlignmentRun(machine, FACTS, "/".join(item.sha256 for item in tensors), tensors), **more)  # type: ignore[arg-type]


def states(*runs: AlignmentRun, history: dict[str, list[AlignmentRun]] | None = None) -> dict[str, str]:
    return {machine: verdict.state for machine, verdict in judge_alignment(runs, history).items()}


def test_the_one_that_deviates_fails_at_the_first_tensor_in_the_order_of_execution() -> None:
    runs = [run("a"), run("b", 1, devices={"dense tp1 pp0 dp0": "cuda:4"}), run("c")]
    verdict = judge_alignment(runs)["b"]
    assert (verdict.state, verdict.first) == ("fail", TensorHash("dense tp1 pp0 dp0", "forward a", "bad1"))
    assert verdict.device == "cuda:4"
    assert verdict.reason == "it alone differs from 2 of 3 equal machines, first at dense tp1 pp0 dp0: forward a (cuda:4)"
    assert states(*runs) == {"a": "pass", "b": "fail", "c": "pass"}


def test_two_machines_that_deviate_each_in_its_own_way_both_fail() -> None:
    assert states(run("a"), run("b", 1, "x"), run("c"), run("d", 2, "y"), run("e")) == {
        "a": "pass", "b": "fail", "c": "pass", "d": "fail", "e": "pass",
    }  # fmt: skip


def test_machines_that_agree_against_the_majority_differ_in_something_unknown() -> None:
    verdicts = judge_alignment([run("a"), run("b", 1), run("c"), run("d", 1), run("e")])
    assert {verdicts["b"].state, verdicts["d"].state} == {"not_judged"}
    assert "differ in something not known here" in verdicts["b"].reason


def test_two_machines_that_differ_are_not_judged_unless_their_own_past_decides() -> None:
    assert states(run("a"), run("b", 1)) == {"a": "not_judged", "b": "not_judged"}
    assert states(run("a"), run("b")) == {"a": "pass", "b": "pass"}
    past = {"a": [run("a")], "b": [run("b"), run("b")]}
    assert states(run("a"), run("b", 1), history=past) == {"a": "pass", "b": "fail"}
    assert judge_alignment([run("a"), run("b", 1)], past)["b"].first == TensorHash(*ORDER[1], "bad1")
    always = {"a": [run("a")], "b": [run("b", 1)]}
    assert states(run("a"), run("b", 1), history=always) == {"a": "pass", "b": "pass"}
    assert states(run("a"), run("b", 1), history={"b": [run("b")]}) == {"a": "not_judged", "b": "fail"}


@pytest.mark.parametrize(
    ("past", "state"),
    [([], "not_judged"), (["good"], "pass"), (["bad"], "fail"), (["good", "bad"], "not_judged"), (["other facts"], "not_judged")],
)
def test_a_machine_alone_is_judged_by_its_own_past(past: list[str], state: str) -> None:
    kinds = {"good": run("a"), "bad": run("a", 2), "other facts": run("a", facts={"torch": "2.12.0"})}
    assert states(run("a"), history={"a": [kinds[kind] for kind in past]}) == {"a": state}


def test_only_machines_of_equal_facts_are_compared() -> None:
    newer = {**FACTS, "driver": "570"}
    runs = [run("a"), run("b"), run("c", 0, facts=newer), run("d", 0, facts=newer), run("e", 0, "x", facts={"gpu": "A100"})]
    assert states(*runs) == {"a": "pass", "b": "pass", "c": "pass", "d": "pass", "e": "not_judged"}


def test_a_machine_whose_own_runs_differ_fails_alone_and_is_no_witness() -> None:
    wavering = run("b", differs=TensorHash(*ORDER[3], "bad3"))
    assert states(wavering) == {"b": "fail"}
    verdicts = judge_alignment([run("a"), wavering])
    assert verdicts["b"].first == wavering.differs
    assert verdicts["a"].state == "not_judged"


def test_a_majority_that_changed_against_its_own_past_convicts_no_unchanged_machine() -> None:
    changed = [run(name, 0, "new") for name in "abc"]
    past = {name: [run(name)] for name in "abcd"}
    assert states(*changed, run("d"), history=past)["d"] == "not_judged"
    assert states(*changed, run("d"), history={"d": past["d"]})["d"] == "fail"


def test_a_probe_that_did_not_run_is_not_a_pass_and_no_peer() -> None:
    assert states(run("a", problem="torch is not installed"), run("b")) == {"a": "not_judged", "b": "not_judged"}


def test_digests_alone_say_that_but_not_where() -> None:
    bare = [run("a", tensors=()), run("b", 1), run("c", tensors=())]
    verdict = judge_alignment(bare)["b"]
    assert (verdict.state, verdict.first, verdict.reason) == ("fail", None, "it alone differs from 2 of 3 equal machines")
    assert first_difference(run("a"), run("c")) is None


def test_the_programs_document_is_read_and_anything_else_refused() -> None:
    document = {"state": "failed", "facts": FACTS, "data": {"digest": "d", "tensors": [["c", "t", "h"]], "first": ["c", "t", "h"]}}
    found = read_run("a", document)
    assert (found.digest, found.differs) == ("d", TensorHash("c", "t", "h"))
    assert read_run("a", {"state": "not_applicable", "detail": "torch is not installed", "data": {}}).problem == "torch is not installed"
    for broken in (
        {},
        {"state": "measured", "facts": {}, "data": {}},
        {"state": "measured", "facts": {}, "data": {"digest": "d", "tensors": [[1]]}},
    ):
        with pytest.raises(BadInputError, match="the alignment of a is no document"):
            read_run("a", broken)
