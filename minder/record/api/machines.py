"""Machines that were evicted, barred or accused."""

from __future__ import annotations

from typing import Literal

from minder.record.api.fields import Answer, IncidentId, JobName, Request, Text
from minder.record.api.incidents import IncidentSummary

__all__ = [
    "Machine",
    "MachineDetail",
    "MachineJob",
    "MachineSignal",
    "OutcomeRequest",
    "PastRetest",
    "Retest",
    "RetestRequest",
    "ReturnRequest",
]


class Retest(Answer):
    """The newest test of a machine that was ordered since it was barred. state: asked, running, passed or failed."""

    operation: str
    time: str
    state: str
    detail: str


class PastRetest(Answer):
    """One test of a machine. by, reason: who ordered it and why. job: whose controller has it done. ended: null until it has.
    detail: what the test said at its end."""

    operation: str
    state: str
    job: str | None
    asked: str
    by: str
    reason: str
    begun: str | None
    ended: str | None
    detail: str


class Machine(Answer):
    """What the ledger knows of one machine. barred_in: jobs that it is kept out of ("every job" for all of them).
    outcome: what the repair found last. incident: of the latest eviction or bar."""

    name: str
    barred_in: tuple[str, ...]
    evictions: int
    last_eviction: str | None
    incident: str | None
    outcome: str | None
    retest: Retest | None = None


class MachineJob(Answer):
    """A job that has the machine. role: training, standby, spare, evicted, or "not in it now". score: times the threshold, as its
    controller saw it last (`seen`); null where it does not say. machines: how many the job knows, this one among them."""

    name: str
    phase: str
    role: str
    ranks: tuple[int, ...]
    machines: int
    score: float | None
    seen: str | None
    rack: str | None
    switch: str | None
    serial: str | None


class MachineSignal(Answer):
    """What somebody or something reported of the machine."""

    time: str
    job: str | None
    what: str


class ProbeNumber(Answer):
    """One measurement of a probe. expected, limit, against: what it was compared with; null where it was not."""

    name: str
    device: str | None
    value: float
    unit: str
    verdict: str
    expected: float | None
    limit: float | None
    against: str


class MachineProbe(Answer):
    """One probe of a run. verdict: pass, slow, fail, not_judged or not_applicable; reason: one line."""

    probe: str
    verdict: str
    reason: str
    measures: tuple[ProbeNumber, ...]


class ProbeRun(Answer):
    """Probes that ran on the machine together. why: test, diagnose or retest."""

    time: str
    job: str | None
    by: str
    why: str
    probes: tuple[MachineProbe, ...]


class MachineDetail(Machine):
    """The machine with the incidents that name it, newest first (at most 100), its tests, newest first (at most 20), the jobs that
    have it, what was reported of it, newest first (at most 20), and what probes found, newest first (at most 5)."""

    incidents: tuple[IncidentSummary, ...]
    retests: tuple[PastRetest, ...] = ()
    jobs: tuple[MachineJob, ...] = ()
    signals: tuple[MachineSignal, ...] = ()
    probes: tuple[ProbeRun, ...] = ()


class OutcomeRequest(Request):
    """What the repair found: was the eviction right? incident: the machine's latest if not given."""

    outcome: Literal["confirmed", "no-fault-found"]
    note: Text
    incident: IncidentId | None = None


class ReturnRequest(Request):
    """Let a barred machine work again. job: only for this one; every job if not given. reason: why it is fit again.
    force: although its newest test failed or has not ended."""

    reason: Text
    job: JobName | None = None
    force: bool = False


class EvictRequest(Request):
    """Order a machine out of a job that runs. The policy's stages judge it like any other verdict, but nobody is asked to approve it."""

    reason: Text
    job: JobName


class RetestRequest(Request):
    """Have the site's test of a machine run by its agent. job: whose controller asks the agent; the job that bars it if not given."""

    reason: Text
    job: JobName | None = None
