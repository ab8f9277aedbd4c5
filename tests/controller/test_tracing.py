"""Traced steps on their way from launchers to the rules: asked beside the tick, in the job's own generation, and kept for people."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.reading.tracing import StepTraces
from minder.act.controller.reporting.study_notes import FILE, StudyNotes
from minder.model.errors import WireError
from minder.model.evidence import StepStudy
from minder.model.observation import JobView
from minder.record.incidents import kinds

BEGUN_S = 1_700_000_000.0
MACHINES = ("m0", "m1", "m2", "m3")


def job(generation: int = 1, **changes: Any) -> JobView:
    values: dict[str, Any] = {
        "name": "llm", "generation": generation, "phase": "running", "machines": MACHINES, "standbys": (), "barred": (),
        "rank_machine": dict(enumerate(MACHINES)), "quiet_until_s": 0.0, "generation_start_s": BEGUN_S,
    }  # fmt: skip
    return JobView(**{**values, **changes})


class Launchers:
    """A fleet of four launchers, one rank each: two replicas of two stages. `steps` holds what each has to report."""

    def __init__(self) -> None:
        self.steps: dict[str, list[dict[str, Any]]] = {machine: [] for machine in MACHINES}
        self.silent: set[str] = set()
        self.offsets: dict[str, tuple[float, float]] = {}
        self.started_s = 1.0
        self.asked: list[dict[str, int]] = []

    def trace(self, count: int, slow: int | None = None, first: int = 10, **changes: Any) -> None:
        for number in range(first, first + count):
            for rank, machine in enumerate(MACHINES):
                dp_rank, stage = rank % 2, rank // 2
                seconds = 0.2 if rank == slow else 0.1
                begin = [0.0, seconds, 0.5, 0.5 + 2 * seconds]
                row = {
                    "job": "llm", "dp_rank": dp_rank, "stage": stage, "rank": rank, "step": number, "begin_s": BEGUN_S + number,
                    "kinds": ["forward-compute", "forward-send", "backward-compute", "backward-recv"], "kind": [0, 1, 2, 3],
                    "begin": begin, "seconds": [seconds, 0.01, 2 * seconds, 0.01], "mb": [0, 0, 0, 0], "mc": [0, -1, 0, -1],
                }  # fmt: skip
                if stage:
                    row |= {"kinds": ["forward-compute", "forward-recv", "backward-compute", "backward-send"]}
                self.steps[machine].append({**row, **changes})

    def traces(self, since: Mapping[str, int], timeout_s: float) -> dict[str, Any]:
        self.asked.append(dict(since))
        answers = {m: {"started_s": self.started_s, "next": len(self.steps[m]), "steps": self.steps[m][n:]} for m, n in since.items()}
        return {machine: WireError("HTTP 404") if machine in self.silent else answer for machine, answer in answers.items()}

    def clock_offsets(self) -> dict[str, tuple[float, float]]:
        return self.offsets


@pytest.fixture
def look() -> Callable[..., StepStudy | None]:
    """One look at what launchers report, to its end."""

    def look(traces: StepTraces, view: JobView) -> StepStudy | None:
        traces._due_s = traces._study_due_s = -1.0
        traces.ask(view, 1.0, None)
        end_s = time.monotonic() + 10.0
        while traces._pending is not None and not traces._pending[0].done() and time.monotonic() < end_s:
            time.sleep(0.002)
        found = traces.take(view.generation)
        return found[0] if found else None

    return look


@pytest.fixture
def launchers() -> Launchers:
    return Launchers()


@pytest.fixture
def traces(launchers: Launchers) -> Any:
    made = StepTraces(launchers, lambda: BEGUN_S + 100.0)  # type: ignore[arg-type]
    yield made
    made.close()


def test_what_launchers_report_is_studied_and_asked_for_once(launchers: Launchers, traces: StepTraces, look: Any) -> None:
    assert look(traces, job()) is None and launchers.asked == [dict.fromkeys(MACHINES, 0)]
    launchers.trace(6)
    study = look(traces, job())
    assert study is not None and study.judged and study.steps == 6 and {item.machine for item in study.workers} == set(MACHINES)
    launchers.trace(1, first=16)
    assert look(traces, job()) is None, "one more step is no other study"
    assert launchers.asked[-1] == dict.fromkeys(MACHINES, 6)


def test_nothing_is_asked_of_a_job_that_starts_or_has_none(launchers: Launchers, traces: StepTraces, look: Any) -> None:
    look(traces, job(phase="recovering"))
    traces.ask(None, 1.0, None)
    assert launchers.asked == []


def test_steps_of_another_job_rank_or_generation_do_not_count(launchers: Launchers, traces: StepTraces, look: Any) -> None:
    launchers.trace(6, job="theirs")
    launchers.trace(6, rank=7)
    assert look(traces, job(generation_start_s=BEGUN_S + 14.0)) is None
    launchers.trace(6, first=10)
    assert look(traces, job(generation_start_s=BEGUN_S + 14.0)) is None, "only two of them are of this generation"


def test_a_study_of_a_generation_that_is_over_is_dropped(launchers: Launchers, traces: StepTraces) -> None:
    launchers.trace(6)
    traces.ask(job(), 1.0, None)
    while traces._pending is not None and not traces._pending[0].done():
        time.sleep(0.002)
    assert traces.take(2) == ()


def test_a_launcher_that_began_anew_is_asked_from_the_start(launchers: Launchers, traces: StepTraces, look: Any) -> None:
    launchers.trace(4)
    look(traces, job())
    launchers.started_s = 900.0
    look(traces, job())
    assert look(traces, job()) is None and launchers.asked[-1] == dict.fromkeys(MACHINES, 0)


def test_machines_that_do_not_answer_leave_steps_that_are_not_whole(launchers: Launchers, traces: StepTraces, look: Any) -> None:
    launchers.trace(6)
    launchers.silent = {"m3"}
    study = look(traces, job())
    assert study is None or not study.judged


def test_a_clock_that_is_surely_off_is_corrected(launchers: Launchers, traces: StepTraces, look: Any) -> None:
    launchers.trace(6)
    for row in launchers.steps["m2"]:
        row["begin_s"] += 30.0
    launchers.offsets = {"m1": (0.002, 0.003), "m2": (30.0, 0.003)}
    study = look(traces, job())
    assert study is not None and study.begin_s == BEGUN_S + 10 and study.end_s is not None and study.end_s < BEGUN_S + 20


def test_the_page_has_the_newest_and_the_ledger_changes_and_one_an_hour(tmp_path: Path) -> None:
    written: list[tuple[str, dict[str, Any]]] = []
    notes = StudyNotes(tmp_path, lambda kind, payload: written.append((kind, payload)))
    for at_s, cause in ((0.0, "none"), (30.0, "worker"), (70.0, "worker"), (80.0, "none"), (600.0, "worker"), (3700.0, "worker")):
        notes.note([StepStudy(at_s, cause, "why", slowdown=1.2, trusted=True)], "llm", 3)
    assert [(kind, payload["cause"]) for kind, payload in written] == [(kinds.STEP_STUDY, word) for word in ("none", "worker", "worker")]
    assert written[0][1] == {**written[0][1], "generation": 3, "slowdown": 1.2} and "workers" not in written[0][1]
    shown = json.loads((tmp_path / FILE).read_text())
    assert (shown["job"], shown["generation"], shown["time_s"], shown["cause"]) == ("llm", 3, 3700.0, "worker")


def test_a_study_that_blames_a_machine_is_in_the_ledger_before_the_machine_is_gone(tmp_path: Path) -> None:
    written: list[str] = []
    notes = StudyNotes(tmp_path, lambda kind, payload: written.append(payload["cause"]))
    for at_s, cause, blamed in ((0.0, "stage imbalance", ()), (30.0, "worker", ("m1",)), (40.0, "worker", ("m1",)), (50.0, "none", ())):
        notes.note([StepStudy(at_s, cause, "why", slowdown=1.5, trusted=True, blamed=blamed)], "llm", 3)
    assert written == ["stage imbalance", "worker"]


def test_steps_that_become_slow_without_a_single_cause_are_in_the_ledger_within_a_minute(tmp_path: Path) -> None:
    """So are steady ones again, and a study that is not to be trusted: to a report each is something else."""
    written: list[tuple[float, bool]] = []
    notes = StudyNotes(tmp_path, lambda kind, payload: written.append((payload["slowdown"], payload["trusted"])))
    for at_s, slowdown, trusted in ((0.0, 1.02, True), (300.0, 1.4, True), (360.0, 1.38, True), (600.0, 1.03, True), (700.0, 1.03, False)):
        notes.note([StepStudy(at_s, "none", "why", slowdown=slowdown, trusted=trusted)], "llm", 3)
    assert written == [(1.02, True), (1.4, True), (1.03, True), (1.03, False)]


def test_the_first_study_of_a_generation_is_in_the_ledger_whatever_the_one_before_said(tmp_path: Path) -> None:
    written: list[tuple[int, int]] = []
    notes = StudyNotes(tmp_path, lambda kind, payload: written.append((payload["generation"], payload["last_step"])))
    for step, generation in ((10, 3), (20, 3), (30, 4), (40, 4)):
        notes.note([StepStudy(float(step), "stage imbalance", "why", 8, step - 8, step, slowdown=1.5)], "llm", generation)
    assert written == [(3, 10), (4, 30)]
