"""Machines that were evicted, barred or accused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import ConfigDict, Field

from minder.record.api.fields import Answer, IncidentId, JobName, Request, Text
from minder.record.api.incidents import IncidentSummary

__all__ = [
    "Machine",
    "MachineDetail",
    "MachineJob",
    "MachineSignal",
    "MachineTelemetry",
    "OutcomeRequest",
    "PastRetest",
    "Retest",
    "RetestRequest",
    "ReturnRequest",
    "TelemetryPanel",
]


class Retest(Answer):
    """The newest test of a machine that was ordered since it was barred."""

    operation: str = Field(description="Id of the order.")
    time: str = Field(description="When its state last changed, ISO 8601 in UTC.")
    state: str = Field(description="`asked`, `running`, `passed` or `failed`.")
    detail: str = Field(description="End of what the test printed.")


class PastRetest(Answer):
    """One test of a machine."""

    operation: str = Field(description="Id of the order.")
    state: str = Field(description="`asked`, `running`, `passed` or `failed`.")
    job: str | None = Field(description="Job whose controller has it done; null if not known.")
    asked: str = Field(description="When it was ordered, ISO 8601 in UTC.")
    by: str = Field(description="Who ordered it.")
    reason: str = Field(description="Why it was ordered.")
    begun: str | None = Field(description="When the agent began it, ISO 8601 in UTC; null before.")
    ended: str | None = Field(description="When it ended, ISO 8601 in UTC; null before.")
    detail: str = Field(description="End of what the test printed.")


class Machine(Answer):
    """What the ledger knows of one machine."""

    name: str = Field(description="Name of the machine.")
    barred_in: tuple[str, ...] = Field(description="Jobs that it is kept out of; `every job` for all of them.")
    evictions: int = Field(description="How often it was evicted.")
    last_eviction: str | None = Field(description="When it was last evicted, ISO 8601 in UTC; null: never.")
    incident: str | None = Field(description="Incident of its latest eviction or bar; null where there is none.")
    outcome: str | None = Field(description="What the repair found last: `confirmed` or `no-fault-found`; null where nothing is recorded.")
    retest: Retest | None = Field(default=None, description="Its newest test since it was barred; null where none was ordered.")


class MachineJob(Answer):
    """A job that has the machine."""

    name: str = Field(description="Name of the job.")
    phase: str = Field(description="What the job's newest run is doing.")
    role: str = Field(description="`training`, `standby`, `spare`, `evicted` or `not in it now`.")
    ranks: tuple[int, ...] = Field(description="Ranks of the job on this machine now.")
    machines: int = Field(description="Number of machines that the job knows, this one among them.")
    score: float | None = Field(
        description="Anomaly score as the job's controller saw it last (1 is the threshold); null where it does not say.",
    )
    seen: str | None = Field(description="When the controller wrote that, ISO 8601 in UTC; null where it does not say.")
    rack: str | None = Field(description="Rack that the machine stands in; null if not known.")
    switch: str | None = Field(description="Switch that it hangs on; null if not known.")
    serial: str | None = Field(description="Serial number; null if not known.")


class MachineSignal(Answer):
    """What was reported of the machine."""

    time: str = Field(description="When it was reported, ISO 8601 in UTC.")
    job: str | None = Field(description="Job that it was reported for; null where for none.")
    what: str = Field(description="What was reported, in words.")


class ProbeNumber(Answer):
    """One measurement of a probe."""

    name: str = Field(description="What was measured.")
    device: str | None = Field(description="Device that it was measured on; null for the whole machine.")
    value: float = Field(description="What was found, in `unit`.")
    unit: str = Field(description="Unit of `value`, `expected` and `limit`.")
    verdict: str = Field(description="`pass`, `slow`, `fail` or `not_judged`.")
    expected: float | None = Field(description="What it was compared with; null where with nothing.")
    limit: float | None = Field(description="From where on it does not pass; null where it was compared with nothing.")
    against: str = Field(description="Whose figures `expected` is of: equal machines, or this machine's own past.")


class MachineProbe(Answer):
    """One probe of a run."""

    probe: str = Field(description="Name of the probe.")
    verdict: str = Field(description="`pass`, `slow`, `fail`, `not_judged` or `not_applicable`.")
    reason: str = Field(description="Why, in one line.")
    measures: tuple[ProbeNumber, ...] = Field(description="What it measured.")


class ProbeRun(Answer):
    """Probes that ran on the machine together."""

    time: str = Field(description="When they had run, ISO 8601 in UTC.")
    job: str | None = Field(description="Job for which they ran; null where for none.")
    by: str = Field(description="Who had them run.")
    why: str = Field(
        description="`test`, `diagnose`, `beside`, `retest`, `standby`, or `standby again` where a probe had not been measured."
    )
    probes: tuple[MachineProbe, ...] = Field(description="The probes and what each found.")


class MachineDetail(Machine):
    """The machine with its jobs, its incidents, its tests and what was reported of it."""

    incidents: tuple[IncidentSummary, ...] = Field(description="Incidents that name it, newest first, at most 100.")
    retests: tuple[PastRetest, ...] = Field(default=(), description="Its tests, newest first, at most 20.")
    jobs: tuple[MachineJob, ...] = Field(default=(), description="Jobs that have it, by name.")
    signals: tuple[MachineSignal, ...] = Field(default=(), description="What was reported of it, newest first, at most 20.")
    probes: tuple[ProbeRun, ...] = Field(default=(), description="What probes found on it, newest first, at most 5 runs.")


class OutcomeRequest(Request):
    """What the repair found."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"outcome": "confirmed", "note": "HBM of GPU 3"}]})

    outcome: Literal["confirmed", "no-fault-found"] = Field(description="What the repair found: was the eviction right?")
    note: Text = Field(description="What was found, in words.")
    incident: IncidentId | None = Field(default=None, description="Incident that is meant; the machine's latest if not given.")


class ReturnRequest(Request):
    """Let a barred machine work again."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "replaced, burn-in passed"}]})

    reason: Text = Field(description="Why the machine is fit again.")
    job: JobName | None = Field(default=None, description="Job that may use it again; every job if not given.")
    force: bool = Field(default=False, description="Also where its newest test failed or has not ended.")


class EvictRequest(Request):
    """Order a machine out of a job that runs. The policy's stages judge it like any other verdict, but no approval is asked for."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"job": "llm-70b", "reason": "fan 3 is dead"}]})

    reason: Text = Field(description="Why; the next person reads it.")
    job: JobName = Field(description="Job that the machine is taken out of.")


class RetestRequest(Request):
    """Have the site's test of a machine run by its agent."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "new HBM"}]})

    reason: Text = Field(description="Why; the next person reads it.")
    job: JobName | None = Field(
        default=None,
        description="Job whose controller asks the agent; the job that bars the machine if not given.",
    )


class TelemetryPanel(Answer):
    """One metric of a machine against its peers, at the times of its window; null is no data."""

    unit: str = Field(description="Base unit of the metric; `ratio` runs from 0 to 1, `1` counts.")
    line: tuple[float | None, ...] = Field(description="The machine, the mean over its devices.")
    low: tuple[float | None, ...] = Field(description="The lowest of its peers.")
    middle: tuple[float | None, ...] = Field(description="The median of its peers.")
    high: tuple[float | None, ...] = Field(description="The highest of its peers.")


class MachineTelemetry(Answer):
    """A window of a machine's telemetry, and its scores in it. No data is no sign of health."""

    machine: str = Field(description="Name of the machine.")
    job: str = Field(description="Job whose machines are its peers.")
    begin: str = Field(description="When the window begins, ISO 8601 in UTC.")
    end: str = Field(description="When the window ends, ISO 8601 in UTC.")
    source: str = Field(
        description="Where it comes from: `prometheus`, `recording`, `live` (the controller's last ten minutes), `ledger` (what an "
        "incident kept), or `none`.",
        examples=["prometheus", "recording", "live", "ledger", "none"],
    )
    no_data: str = Field(description="Why there is nothing, or why a better source has nothing, and what to set; empty if neither.")
    peers: int = Field(description="Number of peers that it is compared with; of a large job some, evenly chosen.")
    times: tuple[float, ...] = Field(description="Times of the values, in unix seconds.")
    metrics: Mapping[str, TelemetryPanel] = Field(description="Metrics by their canonical names, those furthest from the peers first.")
    scores: tuple[tuple[float, float], ...] = Field(
        description="Times in unix seconds and anomaly scores (1 is the threshold); empty where the source holds none."
    )
