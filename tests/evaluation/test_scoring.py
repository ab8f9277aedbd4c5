"""The judging rule of docs/recordings.md, case by case."""

from __future__ import annotations

import math

from minder.ingest.sources.events import Truth
from minder.model.evidence import Tier, Verdict, VerdictKind
from minder.offline.evaluation.scoring import judge_recording, summarise

FAULT = Truth("r", "hang", "m1", 1000.0, ("m1",))
HEALTHY = Truth("h")


def verdict(time_s: float, *machines: str, kind: VerdictKind = "machine", tier: Tier = "evict") -> Verdict:
    return Verdict(time_s, kind, tier, machines, "stall", 0.9, time_s)


def outcome(truth: Truth, *verdicts: Verdict) -> str:
    return judge_recording(truth, verdicts).outcome


def test_the_right_machine_in_time_is_found() -> None:
    assert outcome(FAULT, verdict(1000.0, "m1")) == "found"
    assert outcome(FAULT, verdict(1420.0, "m1", tier="page")) == "found"
    assert judge_recording(FAULT, [verdict(1025.0, "m1")]).delay_s == 25.0


def test_too_early_too_late_or_anybody_else_is_wrong() -> None:
    assert outcome(FAULT, verdict(999.0, "m1")) == "wrong"
    assert outcome(FAULT, verdict(1421.0, "m1")) == "wrong"
    assert outcome(FAULT, verdict(1010.0, "m2")) == "wrong"
    assert outcome(FAULT, verdict(1010.0, "m1"), verdict(1300.0, "m2")) == "wrong"
    assert outcome(FAULT, verdict(1010.0, "m1", "m2", kind="group")) == "wrong"


def test_watch_job_and_recovered_lines_are_no_accusations() -> None:
    lines = [verdict(900.0, "m2", tier="watch"), verdict(900.0, kind="job"), verdict(900.0, "m2", kind="recovered")]
    assert outcome(HEALTHY, *lines) == "quiet"
    assert outcome(FAULT, *lines) == "missed"
    assert outcome(HEALTHY, verdict(5.0, "m1")) == "wrong"


def test_summary_counts_wrong_names_against_precision_and_silence_against_recall() -> None:
    cases = [(FAULT, verdict(1020.0, "m1")), (FAULT, verdict(1040.0, "m1")), (FAULT, verdict(1010.0, "m2")), (FAULT, None), (HEALTHY, None)]
    found = summarise([judge_recording(truth, [item] if item else []) for truth, item in cases])
    assert (found.precision, found.recall) == (2 / 3, 0.5)
    assert math.isclose(found.f1, 4 / 7)
    assert found.median_delay_s == 30.0
    assert (found.found, found.wrong, found.missed, found.quiet) == (2, 1, 1, 1)
