"""What was concluded from an upload: the lines that `minder replay` prints (docs/recordings.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

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
    "studies": "studies.jsonl",
    "fleet": "fleet.parquet",
    "flows": "flows.parquet",
    "reach": "reach.parquet",
}


class EvidenceLine(Answer):
    """One piece of evidence."""

    source: str = Field(description="Rule that it comes from.")
    metric: str | None = Field(default=None, description="Canonical name of the metric; null where it is of none.")
    machine: str | None = Field(default=None, description="Machine that it is of; null where it is of none.")
    device: str | None = Field(default=None, description="Device of that machine; null where it is of none.")
    observed: float | None = Field(default=None, description="Observed value in the metric's base unit.")
    expected: float | None = Field(default=None, description="Value that its peers have, in the same unit.")
    since: str | None = Field(default=None, description="Since when, ISO 8601 in UTC.")
    message: str = Field(default="", description="The evidence in words.")


class VerdictLine(Answer):
    """One verdict, as `minder replay` prints it."""

    recording: str = Field(description="Name of the recording.")
    time: str = Field(description="When the verdict was due, ISO 8601 in UTC.")
    kind: Literal["machine", "group", "job", "recovered"] = Field(description="What it is about.")
    tier: Literal["watch", "page", "evict"] = Field(description="How grave.")
    machines: tuple[str, ...] = Field(description="Machines that it accuses.")
    confidence: float = Field(description="Confidence, 0 to 1.")
    cause: str = Field(description="Kind of fault.")
    evidence: tuple[EvidenceLine, ...] = Field(description="What speaks for it.")
    against: tuple[EvidenceLine, ...] = Field(description="What speaks against it.")


class ScoreResult(Answer):
    """What was concluded from an upload."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "recording": "upload",
                    "rows": 60,
                    "machines": 2,
                    "verdicts": [],
                    "not_judged": ["the samples span 29 s: a machine is compared after 30 s"],
                    "notes": [],
                }
            ]
        }
    )

    recording: str = Field(description="Name of the recording, as the verdicts call it.")
    rows: int = Field(description="Rows of telemetry that were read; 0 is no data, not health.")
    machines: int = Field(description="Number of machines in them.")
    verdicts: tuple[dict[str, Any], ...] = Field(description="Verdicts that were due, oldest first, as `minder replay` prints them.")
    not_judged: tuple[str, ...] = Field(
        default=(),
        description="Why the machines could not be compared, one line each: an empty list of verdicts says nothing then.",
    )
    notes: tuple[str, ...] = Field(default=(), description="What was ignored in the upload, one line each.")

    def lines(self) -> tuple[VerdictLine, ...]:
        """The verdicts as records."""
        return tuple(VerdictLine.model_validate(item) for item in self.verdicts)


class ScoreJob(Request):
    """The job of an upload, with the keys of a recording's job.toml."""

    name: JobName | None = Field(default=None, description="Name of the job.")
    machines: tuple[MachineName, ...] | None = Field(default=None, description="Machines of the job; those of the samples if not given.")
    standbys: tuple[MachineName, ...] = Field(default=(), description="Machines that stand by; they are not compared.")
    gpus_per_machine: Annotated[int, Field(strict=True, ge=1, le=1024)] | None = Field(
        default=None,
        description="Number of GPUs of each machine.",
    )
    sample_interval_seconds: Annotated[float, Field(strict=True, gt=0, le=3600, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Seconds between two samples of a machine; found from the samples if not given.",
    )
    parallelism: Mapping[Literal["tensor", "pipeline", "data", "expert", "context", "rank_order"], int | str] = Field(
        default={},
        description="Sizes of tensor, pipeline, data, expert and context, and rank_order: who is whose peer.",
    )
    topology: Mapping[MachineName, Mapping[MachineName, MachineName]] = Field(
        default={},
        description='Machine to what it shares with others, such as {"node-1": {"rack": "r12"}}.',
    )


class ScoreRequest(Request):
    """An upload as JSON."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "job": {"name": "llm-70b", "gpus_per_machine": 8},
                    "samples": [
                        {"timestamp": "2026-03-02T06:12:31Z", "machine": "node-1", "gpu_power_draw_watts": 512.5},
                        {"timestamp": "2026-03-02T06:12:31Z", "machine": "node-2", "gpu_power_draw_watts": 498.0},
                    ],
                }
            ]
        }
    )

    job: ScoreJob = Field(default=ScoreJob(), description="The job, with the keys of a recording's job.toml.")
    samples: tuple[Mapping[str, Annotated[float, Field(strict=True)] | str | None], ...] = Field(
        description="Rows: `timestamp` (ISO 8601 or unix seconds), `machine`, `device` if any, and metrics by their canonical names "
        "in base units; null is no data.",
    )
    events: tuple[Mapping[str, Any], ...] = Field(default=(), description="Lines of events.jsonl.")
