"""The policy: what is set, and what other settings would have decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from minder.record.api.fields import Answer, JobName, Request

__all__ = ["DryRun", "DryRunRequest", "PolicySettings", "Redecided"]


class PolicySettings(Answer):
    """What is set."""

    job: str | None = Field(description="Job that the settings are of; null: what holds where a job sets nothing.")
    source: str = Field(description="Where the settings come from, in words.")
    settings: Mapping[str, Any] = Field(description="Keys of job.toml's [policy] and their values.")


class DryRunRequest(Request):
    """Take a job's past decisions again with other settings."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"job": "llm-70b", "policy": {"max_evictions_per_hour": 1}}]})

    job: JobName = Field(description="Job whose past decisions are taken again.")
    policy: Mapping[Annotated[str, Field(max_length=63)], Any] = Field(
        default={},
        description="Settings to try, on top of the job's own; keys as in job.toml's [policy].",
    )


class Redecided(Answer):
    """One past verdict: what was decided then, and what these settings would decide."""

    incident: str = Field(description="Incident that the verdict is of.")
    time: str = Field(description="When the verdict was, ISO 8601 in UTC.")
    machines: tuple[str, ...] = Field(description="Machines that it accuses.")
    then: str | None = Field(description="Action that was decided then; null where none was.")
    then_reason: str | None = Field(description="Word for the reason then; null where there was none.")
    now: str = Field(description="Action that these settings would decide.")
    now_reason: str = Field(description="Word for the reason of that.")
    detail: str = Field(description="The same in words.")


class DryRun(Answer):
    """What other settings would have decided."""

    job: str = Field(description="Job that was tried.")
    verdicts: int = Field(description="Number of verdicts that were decided anew.")
    evictions_then: int = Field(description="Number of evictions that were decided then.")
    evictions_now: int = Field(description="Number of evictions that these settings would decide.")
    changed: tuple[Redecided, ...] = Field(description="Decisions with another action or reason, oldest first, at most 200.")
    unknown: tuple[str, ...] = Field(description="What the ledger does not say and was assumed.")
