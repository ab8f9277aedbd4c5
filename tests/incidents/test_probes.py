"""Probes in the ledger: what was measured is read back whole, and what was bad is no measure for later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minder.model.probes import Measurement, MeasurementVerdict, ProbeJudgement, ProbeResult
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.probes import PAST_S, fold_probes, past_results, probes_payload, read_past
from minder.record.incidents.timeline import describe

NOW_S = 1_700_000_000.0


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.db") as opened:
        yield opened


def result(value: float, state: str = "measured") -> ProbeResult:
    item = Measurement("disk_write", value, "B/s", "higher", tolerance=1.0)
    return ProbeResult("disk", 1, state, "", (item,), {"folder": "/x"}, "ab" * 32, NOW_S, 1.5)  # type: ignore[arg-type]


def judgement(verdict: str) -> ProbeJudgement:
    numbers = MeasurementVerdict("disk_write", None, 5.0, "B/s", verdict, "5 equal machines", 9.0, 8.0)  # type: ignore[arg-type]
    return ProbeJudgement("m1", "disk", verdict, "because", (numbers,))  # type: ignore[arg-type]


def write(ledger: Ledger, value: float, verdict: str, time_s: float = NOW_S, state: str = "measured") -> None:
    payload = probes_payload("m1", [result(value, state)], [judgement(verdict)], by="alice", why="test", note="odd noise")
    ledger.append(kinds.PROBES, payload, job="llm", time_s=time_s)


def test_results_and_judgements_come_back_as_they_were_written(ledger: Ledger) -> None:
    write(ledger, 5.0, "slow")
    (run,) = fold_probes(ledger.events(kinds=[kinds.PROBES]))
    assert (run.machine, run.job, run.by, run.why, run.time_s) == ("m1", "llm", "alice", "test", NOW_S)
    assert run.results == (result(5.0),) and run.judgements == (judgement("slow"),)


def test_what_was_slow_faulty_or_unknown_is_no_measure_for_later(ledger: Ledger) -> None:
    write(ledger, 1.0, "pass")
    write(ledger, 2.0, "slow")
    write(ledger, 3.0, "not_judged")
    write(ledger, 4.0, "fail")
    write(ledger, 5.0, "not_judged", state="not_judged")
    found = past_results(fold_probes(ledger.events(kinds=[kinds.PROBES])), "disk")
    assert [item.measures[0].value for item in found["m1"]] == [1.0, 3.0]
    assert past_results(fold_probes(ledger.events(kinds=[kinds.PROBES])), "gemm") == {}


def test_results_of_another_season_are_not_read(ledger: Ledger) -> None:
    write(ledger, 1.0, "pass", NOW_S - PAST_S - 1.0)
    write(ledger, 2.0, "pass", NOW_S - PAST_S + 1.0)
    assert [run.results[0].measures[0].value for run in read_past(ledger.events, NOW_S)] == [2.0]


def test_an_event_of_a_newer_version_is_left_out(ledger: Ledger) -> None:
    ledger.append(kinds.PROBES, {"machine": "m1", "results": [{"probe": 7}]})
    ledger.append(kinds.PROBES, {"machine": "m1", "results": "many"})
    assert fold_probes(ledger.events(kinds=[kinds.PROBES])) == []


def test_the_timeline_counts_verdicts_and_says_what_is_bad(ledger: Ledger) -> None:
    write(ledger, 5.0, "slow")
    write(ledger, 5.0, "not_judged")
    assert [describe(event) for event in ledger.events()] == ["probes of m1: 1 slow; disk: because", "probes of m1: 1 not judged"]
