"""The policy: what is set, and what other settings would have decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from minder.record.api.fields import Answer, JobName, Request

__all__ = ["DryRun", "DryRunRequest", "PolicySettings", "Redecided"]


class PolicySettings(Answer):
    """job: null for what holds where a job sets nothing. source: where the settings come from."""

    job: str | None
    source: str
    settings: Mapping[str, Any]


class DryRunRequest(Request):
    """policy: settings to try, on top of the job's own (keys as in job.toml's [policy])."""

    job: JobName
    policy: Mapping[Annotated[str, Field(max_length=63)], Any] = {}


class Redecided(Answer):
    """One past verdict: what was decided then, and what these settings would decide."""

    incident: str
    time: str
    machines: tuple[str, ...]
    then: str | None
    then_reason: str | None
    now: str
    now_reason: str
    detail: str


class DryRun(Answer):
    """verdicts: how many were decided anew. changed: those with another action or reason, oldest first (at most 200).
    unknown: what the ledger does not tell and was assumed."""

    job: str
    verdicts: int
    evictions_then: int
    evictions_now: int
    changed: tuple[Redecided, ...]
    unknown: tuple[str, ...]
