"""What was concluded from an upload: the lines that `minder replay` prints (docs/recordings.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from minder.record.api.fields import Answer, JobName, MachineName, Request

__all__ = ["PARTS", "EvidenceLine", "ScoreJob", "ScoreRequest", "ScoreResult", "VerdictLine"]

# Parts of a multipart upload, and the file of a recording that each one is.
PARTS = {
    "job": "job.toml",
    "telemetry": "telemetry.parquet",
    "events": "events.jsonl",
    "ranks": "ranks.json",
    "devices": "devices.json",
    "states": "states.jsonl",
    "statements": "statements.jsonl",
    "fleet": "fleet.parquet",
    "flows": "flows.parquet",
    "reach": "reach.parquet",
}


class EvidenceLine(Answer):
    """One piece of evidence; since: ISO 8601."""

    source: str
    metric: str | None = None
    machine: str | None = None
    device: str | None = None
    observed: float | None = None
    expected: float | None = None
    since: str | None = None
    message: str = ""


class VerdictLine(Answer):
    """One verdict, as `minder replay` prints it."""

    recording: str
    time: str
    kind: Literal["machine", "group", "job", "recovered"]
    tier: Literal["watch", "page", "evict"]
    machines: tuple[str, ...]
    confidence: float
    cause: str
    evidence: tuple[EvidenceLine, ...]
    against: tuple[EvidenceLine, ...]


class ScoreResult(Answer):
    """verdicts: none were due where the list is empty. rows, machines: how much data that rests on: 0 rows is no data, not health.
    not_judged: why the machines could not be compared, in a line each; an empty list of verdicts says nothing then.
    notes: what was ignored in the upload."""

    recording: str
    rows: int
    machines: int
    verdicts: tuple[dict[str, Any], ...]
    not_judged: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def lines(self) -> tuple[VerdictLine, ...]:
        """The verdicts as records."""
        return tuple(VerdictLine.model_validate(item) for item in self.verdicts)


class ScoreJob(Request):
    """The job of an upload, with the keys of a recording's job.toml. machines: those of the samples if not given."""

    name: JobName | None = None
    machines: tuple[MachineName, ...] | None = None
    standbys: tuple[MachineName, ...] = ()
    gpus_per_machine: Annotated[int, Field(strict=True, ge=1, le=1024)] | None = None
    sample_interval_seconds: Annotated[float, Field(strict=True, gt=0, le=3600, allow_inf_nan=False)] | None = None
    parallelism: Mapping[Literal["tensor", "pipeline", "data", "expert", "context", "rank_order"], int | str] = {}
    topology: Mapping[MachineName, Mapping[MachineName, MachineName]] = {}


class ScoreRequest(Request):
    """An upload as JSON. samples: {"timestamp": ISO 8601 or unix seconds, "machine", "device"?, metric: number or null, ...};
    metrics have canonical names and base units. events: lines of events.jsonl."""

    job: ScoreJob = ScoreJob()
    samples: tuple[Mapping[str, Annotated[float, Field(strict=True)] | str | None], ...]
    events: tuple[Mapping[str, Any], ...] = ()
