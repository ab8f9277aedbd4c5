"""A small story of a demo: a hang of m2, found, evicted, replaced; told through a real ledger, a status and a recording."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from minder.ingest.sources.jobfile import RecordedJob
from minder.ingest.sources.recorder import Recorder
from minder.model.decision import ActionResult, Decision
from minder.model.evidence import Evidence, Verdict
from minder.model.history import LedgerEvent
from minder.model.telemetry import Sample
from minder.model.topology import Parallelism
from minder.record.incidents import Ledger, kinds
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.outcome import judge_outcome
from minder.simulate.demo.play import Played
from minder.simulate.demo.report import Report
from minder.simulate.lab.faults import InjectionRecord

BEGIN_S = 1_795_228_000.0
FAULT_S = BEGIN_S + 20.0
JOB = "lab-86b2"
NAMES = tuple(f"{JOB}-m{i}" for i in range(6))
STANDBYS = (f"{JOB}-s0", f"{JOB}-s1")
VICTIM = NAMES[2]


@dataclass
class Story:
    """A stage that only remembers, with the folder of its run."""

    options: DemoOptions
    job: str = JOB
    lab_mode: str = "namespaces"
    telemetry: str = "built-in scraper every 1 s"
    injected: InjectionRecord | None = None
    status: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.options.out

    @property
    def status_path(self) -> Path:
        return self.folder / "state" / "status.json"

    @property
    def ledger_path(self) -> Path:
        return self.folder / "state" / "ledger.db"

    def say_status(self, **changes: Any) -> None:
        self.status.update(changes)
        self.status_path.write_text(json.dumps(self.status))

    def inject(self) -> None:
        self.injected = InjectionRecord("hang", VICTIM, FAULT_S, "stopped processes [4711]", lambda: None)

    def begin(self) -> None:
        with Ledger(self.ledger_path) as ledger:
            ledger.append(kinds.JOB_REGISTERED, {"machines": list(NAMES), "standbys": list(STANDBYS)}, job=JOB, time_s=BEGIN_S)
            started = {"generation": 1, "machines": list(NAMES), "reason": "start"}
            ledger.append(kinds.GENERATION_STARTED, started, job=JOB, time_s=BEGIN_S + 5)

    def accuse(self, message: str = "its training process has not run for 2.6 s") -> Verdict:
        seen = (Evidence("liveness", VICTIM, message, metric="job_alive_age_seconds", observed=2.6, expected=0.2, since_s=FAULT_S),)
        against = (Evidence("telemetry", VICTIM, "its agent still answers"),)
        return Verdict(FAULT_S + 3.0, "machine", "evict", (VICTIM,), "stall", 0.8, FAULT_S + 0.5, seen, against, ("stall",))

    def recover(self, verdict: Verdict) -> None:
        """Verdict, decision, evidence, eviction, restart, first step, end of the job."""
        with Ledger(self.ledger_path) as ledger:
            incident = ledger.open_incident(verdict, job=JOB, time_s=FAULT_S + 3.0)
            stages = tuple(f"{name}: pass" for name in ("tier", "membership", "budgets"))
            decision = Decision(
                "evict-1", FAULT_S + 3.1, "evict", (VICTIM,), "act", "every stage passed", verdict, replacements=STANDBYS[:1], stages=stages
            )
            where: dict[str, Any] = {"job": JOB, "incident": incident}
            ledger.append(kinds.DECISION, decision, operation_id="evict-1", time_s=FAULT_S + 3.1, **where)
            ledger.intend("evict-1", decision, time_s=FAULT_S + 3.2, **where)
            captured = {"machine": VICTIM, "what": "stacks", "data": {"long": "x" * 1000}}
            ledger.append(kinds.EVIDENCE, captured, time_s=FAULT_S + 3.4, **where)
            ledger.append(kinds.RECOVERY_PHASE, {"phase": "capture", "state": "end"}, time_s=FAULT_S + 3.5, **where)
            ledger.append(kinds.BARRED, {"machine": VICTIM, "reason": "stall"}, time_s=FAULT_S + 3.6, **where)
            undo = f"minder machine return {VICTIM}"
            ledger.complete("evict-1", ActionResult("evict-1", FAULT_S + 3.7, "done", "its workers are ended", undo))
            ledger.append(kinds.GENERATION_STARTED, {"generation": 2, "reason": "evict"}, time_s=FAULT_S + 3.8, **where)
            ledger.append(kinds.RECOVERY_PHASE, {"phase": "restart", "state": "end"}, time_s=FAULT_S + 4.4, **where)
            first = {"step": 26, "generation": 2, "resumed_from": 25, "last_step": 26}
            ledger.append(kinds.FIRST_STEP, first, time_s=FAULT_S + 5.5, **where)
            ledger.append(kinds.JOB_ENDED, {"outcome": "finished"}, job=JOB, time_s=FAULT_S + 20)

    def events(self) -> tuple[LedgerEvent, ...]:
        with Ledger(self.ledger_path) as ledger:
            return tuple(ledger.events(job=JOB))

    def played(self, **changes: Any) -> Played:
        outcome = judge_outcome("hang", VICTIM, FAULT_S, self.events())
        played = Played(self.options, JOB, VICTIM, FAULT_S, outcome, None, self.events(), 61.5)
        return replace(played, **changes)

    def record(self) -> Path:
        """A recording in which m2 stands still from the fault on, and s0 comes in for it."""
        folder = self.folder / "recording"
        job = RecordedJob(JOB, NAMES, STANDBYS, 1, Parallelism(tensor=1, pipeline=1, data=6), 1.0, {})
        with Recorder(folder, job) as recorder:
            for second in range(40):
                recorder.append_samples(_samples(BEGIN_S + second))
        return folder


def _samples(time_s: float) -> list[Sample]:
    stopped, resumed = time_s >= FAULT_S, time_s >= FAULT_S + 5.5
    steps = min(time_s, FAULT_S) - BEGIN_S + (time_s - FAULT_S - 5.5 if resumed else 0.0)
    found = []
    for index, name in enumerate((*NAMES, STANDBYS[0])):
        age_s = time_s - FAULT_S if name == VICTIM and stopped else 0.1 + 0.02 * index
        cpu = 0.0 if stopped and not resumed else 0.05 + 0.01 * index
        values = {"steps_total": steps, "job_cpu_ratio": cpu, "job_alive_age_seconds": age_s, "tcp_receive_queue_bytes": 0.0}
        if resumed if name == STANDBYS[0] else not (name == VICTIM and resumed):
            found.append(Sample(time_s + 0.1 * index, name, values))
    return found


@pytest.fixture
def story(tmp_path: Path) -> Story:
    options = DemoOptions("hang", out=tmp_path / "hang-seed0-1")
    (options.out / "state").mkdir(parents=True)
    return Story(options)


@pytest.fixture
def told(story: Story) -> Story:
    """The story to its end."""
    story.begin()
    story.inject()
    story.recover(story.accuse())
    story.record()
    return story


@pytest.fixture
def make_report(told: Story) -> Callable[..., Report]:
    """The story's report; what is given is changed in the run that it tells of."""

    def make(**changes: Any) -> Report:
        return Report(
            played=told.played(**changes),
            ledger=told.ledger_path,
            recording=told.folder / "recording",
            lab_mode=told.lab_mode,
            telemetry=told.telemetry,
            fault_detail="stopped processes [4711]",
        )

    return make
