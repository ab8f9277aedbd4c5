"""Probes' numbers against equal machines and the machine's own past: what is named, and what is left unjudged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minder.diagnose.diagnostics.judgement import LEAST_PAST, LEAST_PEERS, judge, worst
from minder.model.probes import Measurement, ProbeJudgement, ProbeResult

CPU = {"processor": "Xeon X", "torch": "2.13"}


def result(value: float, time_s: float = 100.0, facts: dict[str, str] | None = None, state: Any = "measured", **more: Any) -> ProbeResult:
    item = Measurement("gemm_gflops", value, "GFLOP/s", **{"better": "higher", **more})
    return ProbeResult("gemm", 1, state, "", (item,), CPU if facts is None else facts, started_s=time_s)


def past(*values: float) -> list[ProbeResult]:
    return [result(value, time_s=float(index)) for index, value in enumerate(values)]


def alone(value: float, *earlier: float, **more: Any) -> ProbeJudgement:
    """One machine without equals."""
    items = [
        ProbeResult("gemm", 1, "measured", "", result(old, **more).measures, CPU, started_s=float(index))
        for index, old in enumerate(earlier)
    ]
    return judge({"m0": result(value, **more)}, {"m0": items})["m0"]


def fleet(*values: float, **more: Any) -> dict[str, str]:
    found = judge({f"m{index}": result(value, **more) for index, value in enumerate(values)})
    return {machine: item.verdict for machine, item in found.items()}


def test_a_machine_that_is_slower_than_its_equals_is_named_with_the_numbers() -> None:
    found = judge({f"m{index}": result(value) for index, value in enumerate((100.0, 101.0, 99.0, 60.0, 100.5, 100.0))})
    assert {machine: item.verdict for machine, item in found.items() if item.verdict != "pass"} == {"m3": "slow"}
    assert found["m3"].reason == "gemm_gflops is 60 GFLOP/s, 100 on 5 equal machines"
    (measure,) = found["m3"].measures
    assert measure.expected == 100.0 and measure.limit is not None and 60 < measure.limit < 100


@pytest.mark.parametrize("others", range(LEAST_PEERS))
def test_with_too_few_equals_and_no_past_nothing_is_judged(others: int) -> None:
    verdicts = fleet(10.0, *([100.0] * others))
    assert set(verdicts.values()) == {"not_judged"}
    assert "equal machines (4 are needed), 0 earlier results of its own (3 are needed)" in alone(10.0).reason


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.98, 1.02), min_size=LEAST_PEERS + 1, max_size=24),
    st.integers(0, 23),
    st.floats(1e-3, 1e12),
    st.sampled_from([0.1, 0.5, 0.7]),
)
def test_one_slow_machine_of_any_number_is_the_only_one_named(shares: Sequence[float], index: int, scale: float, loss: float) -> None:
    values = [scale * share for share in shares]
    values[index % len(values)] *= loss
    assert {machine for machine, verdict in fleet(*values).items() if verdict != "pass"} == {f"m{index % len(values)}"}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.96, 1.04), min_size=LEAST_PEERS + 1, max_size=24), st.sampled_from(["higher", "lower"]))
def test_machines_that_differ_by_a_few_percent_all_pass(shares: Sequence[float], better: str) -> None:
    assert set(fleet(*(1e9 * share for share in shares), better=better).values()) == {"pass"}


def test_other_hardware_driver_or_library_is_no_equal() -> None:
    results: dict[str, ProbeResult] = {f"new{index}": result(200.0, facts={"processor": "Y"}) for index in range(6)}
    found = judge({**results, "old": result(100.0)})
    assert found["old"].verdict == "not_judged" and found["old"].reason.startswith("0 equal machines")
    assert {item.verdict for machine, item in found.items() if machine != "old"} == {"pass"}


def test_the_reason_says_in_what_the_other_machines_differ() -> None:
    """Ranks wait on three of six machines, so they are tested at low priority."""
    low = {f"m{index}": result(100.0, facts={**CPU, "priority": "low"}) for index in range(3)}
    found = judge({**low, **{f"s{index}": result(100.0) for index in range(3)}})
    assert {item.reason.partition(")")[0] for item in found.values()} == {"2 equal machines (4 are needed; 3 others differ in priority"}


def test_another_version_of_the_probe_is_no_equal() -> None:
    newer = ProbeResult("gemm", 2, "measured", "", result(10.0).measures, CPU, started_s=9.0)
    assert judge({**{f"m{index}": result(100.0) for index in range(6)}, "n": newer})["n"].verdict == "not_judged"


@pytest.mark.parametrize(("state", "verdict"), [("failed", "fail"), ("not_judged", "not_judged"), ("not_applicable", "not_applicable")])
def test_what_the_probe_itself_says_stands_whatever_the_numbers_are(state: str, verdict: str) -> None:
    found = judge({**{f"m{index}": result(100.0) for index in range(6)}, "n": result(100.0, state=state)})
    assert found["n"].verdict == verdict
    assert {item.verdict for machine, item in found.items() if machine != "n"} == {"pass"}


def test_results_that_are_none_are_no_equals() -> None:
    crashed = {f"c{index}": ProbeResult("gemm", 1, "not_judged", "it was ended by SIGKILL") for index in range(9)}
    found = judge({**crashed, "m0": result(100.0)})
    assert {item.verdict for item in found.values()} == {"not_judged"}
    assert found["c0"].reason == "it was ended by SIGKILL"


@pytest.mark.parametrize(
    ("value", "earlier", "verdict"),
    [
        (60.0, (100.0, 101.0, 99.0), "slow"),
        (98.0, (100.0, 101.0, 99.0), "pass"),
        (140.0, (100.0, 101.0, 99.0), "pass"),
        (60.0, (100.0, 101.0), "not_judged"),
        (60.0, (100.0, 50.0, 150.0, 60.0, 130.0), "not_judged"),
    ],
)
def test_without_equals_a_machine_is_compared_with_its_own_past(value: float, earlier: tuple[float, ...], verdict: str) -> None:
    assert alone(value, *earlier).verdict == verdict
    assert len(earlier) >= LEAST_PAST or verdict == "not_judged"


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_numbers_that_differ_too_much_say_nothing(better: str) -> None:
    found = judge({f"m{index}": result(value, better=better) for index, value in enumerate((1.0, 90.0, 100.0, 300.0, 400.0, 900.0))})
    assert {item.verdict for item in found.values()} == {"not_judged"}
    assert found["m0"].reason.endswith("their numbers differ too much to show one that is twice as slow")


def test_what_all_equals_have_lost_since_is_no_machines_own_loss() -> None:
    before = {f"m{index}": past(100.0, 100.0, 101.0) for index in range(3)}
    assert {item.verdict for item in judge({machine: result(70.0) for machine in before}, before).values()} == {"pass"}
    values = {"m0": 70.0, "m1": 100.0, "m2": 99.0}
    found = judge({machine: result(value) for machine, value in values.items()}, before)
    assert {machine: item.verdict for machine, item in found.items()} == {"m0": "slow", "m1": "pass", "m2": "pass"}
    assert "on 3 earlier results of the machine" in found["m0"].reason


def test_a_machine_that_lost_against_itself_is_named_among_unequal_looking_equals() -> None:
    values = {"m0": 60.0, "m1": 70.0, "m2": 130.0, "m3": 100.0, "m4": 160.0}
    before = {machine: past(*[value] * 3) for machine, value in values.items()}
    before["m0"] = past(100.0, 100.0, 100.0)
    found = judge({machine: result(value) for machine, value in values.items()}, before)
    assert {machine: item.verdict for machine, item in found.items() if item.verdict != "pass"} == {"m0": "slow"}


def test_results_from_after_the_test_are_no_past() -> None:
    later = [result(100.0, time_s=200.0 + index) for index in range(5)]
    assert judge({"m0": result(60.0)}, {"m0": later})["m0"].verdict == "not_judged"


def test_machines_that_were_tested_before_are_equals_by_their_newest_result() -> None:
    before = {f"m{index}": [result(1.0, 1.0), result(100.0, 2.0)] for index in range(1, 6)}
    assert judge({"m0": result(60.0)}, before)["m0"].verdict == "slow"


@pytest.mark.parametrize(
    ("value", "earlier", "verdict"), [(0, (0, 0, 0), "pass"), (1, (0, 0, 0), "fail"), (1, (1, 1, 1), "pass"), (2, (1, 1, 1), "fail")]
)
def test_of_a_count_of_errors_only_growth_speaks(value: float, earlier: tuple[float, ...], verdict: str) -> None:
    assert alone(value, *earlier, better="zero", bad="fail").verdict == verdict


def test_a_first_error_among_equals_without_any_is_a_fault() -> None:
    assert fleet(0, 0, 0, 3, 0, 0, better="zero", bad="fail")["m3"] == "fail"


@pytest.mark.parametrize(
    ("offsets", "named"),
    [((0.01, 0.02, 0.0, 45.0, 0.01), {"m3"}), ((0.01, -45.0, 0.0, 0.02, 0.01), {"m1"}), ((5.0, 5.01, 5.0, 5.02, 5.01), set())],
)
def test_a_clock_is_wrong_against_the_other_clocks_and_not_where_the_controllers_is(offsets: Sequence[float], named: set[str]) -> None:
    found = fleet(*offsets, better="same", bad="fail", tolerance=0.1)
    assert {machine for machine, verdict in found.items() if verdict == "fail"} == named


def test_a_clock_that_was_read_well_is_not_wrong_against_clocks_that_a_busy_host_read_late() -> None:
    """Asked for alone it is known to 0.05 s; the others, asked for together, to 0.1 s, and all of them read too low by that."""
    late = {f"m{index}": result(-0.08, better="same", bad="fail", tolerance=0.1) for index in range(6)}
    assert judge({**late, "n": result(0.01, better="same", bad="fail", tolerance=0.05)})["n"].verdict == "pass"
    assert judge({**late, "n": result(0.5, better="same", bad="fail", tolerance=0.05)})["n"].verdict == "fail"


def test_a_difference_below_the_uncertainty_of_the_measurement_is_none() -> None:
    values = (1e-5, 1e-5, 1e-5, 1e-5, 3e-5)
    assert fleet(*values, better="lower")["m4"] == "slow"
    assert fleet(*values, better="lower", tolerance=5e-5)["m4"] == "pass"


def gpus(*values: float) -> ProbeResult:
    items = tuple(Measurement("gemm_gflops", value, "GFLOP/s", "higher", f"gpu{index}") for index, value in enumerate(values))
    return ProbeResult("gemm", 1, "measured", "", items, CPU, started_s=100.0)


def test_one_slow_gpu_is_named_beside_the_other_gpus_of_its_machine() -> None:
    found = judge({"m0": gpus(100, 100, 101, 99, 100, 60, 100, 100)})["m0"]
    assert found.verdict == "slow" and found.reason == "gemm_gflops of gpu5 is 60 GFLOP/s, 100 on 7 other GPUs of the machine"
    assert judge({"m0": gpus(100, 60)})["m0"].verdict == "not_judged"


def test_a_device_that_every_equal_machine_has_is_missed() -> None:
    found = judge({**{f"m{index}": gpus(100, 100) for index in range(5)}, "n": gpus(100)})
    assert found["n"].verdict == "fail" and found["n"].reason == "gpu1 is missing: every equal machine has it"
    assert judge({**{f"m{index}": gpus(100, 100) for index in range(LEAST_PEERS - 1)}, "n": gpus(100)})["n"].verdict == "not_judged"


def test_a_number_without_equals_does_not_hide_that_another_passed_and_is_told() -> None:
    extra = ProbeResult("gemm", 1, "measured", "", (*gpus(100).measures, Measurement("x", 1.0, "s", "lower")), CPU, started_s=100.0)
    found = judge({**{f"m{index}": gpus(100) for index in range(5)}, "n": extra})["n"]
    assert (found.verdict, found.reason) == ("pass", "as 5 equal machines; x is not judged")


def test_numbers_that_are_only_told_are_not_judged() -> None:
    said = judge({f"m{index}": result(value, better="none") for index, value in enumerate((1.0, 1.0, 1.0, 1.0, 900.0))})
    assert {item.verdict for item in said.values()} == {"pass"}
    assert {measure.verdict for item in said.values() for measure in item.measures} == {"not_applicable"}


def test_data_that_is_no_number_is_not_passed_unseen() -> None:
    hashes = ProbeResult("a_probe_of_hashes", 1, "measured", data={"digest": "ab"})
    assert {item.verdict for item in judge({f"m{index}": hashes for index in range(6)}).values()} == {"not_judged"}


@pytest.mark.parametrize(
    ("verdicts", "found"),
    [
        (("pass", "slow", "fail"), "fail"),
        (("pass", "not_judged"), "not_judged"),
        (("pass", "not_applicable"), "pass"),
        (("not_applicable", "not_applicable"), "not_applicable"),
        (("pass", "pass"), "pass"),
        ((), "not_judged"),
    ],
)
def test_of_several_verdicts_the_worst_counts_and_the_unknown_is_no_pass(verdicts: Any, found: str) -> None:
    assert worst(verdicts) == found
