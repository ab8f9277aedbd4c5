"""The standby pools of jobs, and the models that read their telemetry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from minder.record.api.fields import Answer

__all__ = ["JobModel", "ModelVersion", "Models", "Standby"]


class Standby(Answer):
    """A machine that was registered as a job's standby. state: "ready" (its controller saw it wait at the barrier lately), "not ready",
    "in use" (it has ranks), "barred", "maintenance", "unknown" (no controller says so: that is not health)."""

    machine: str
    job: str
    state: Literal["ready", "not ready", "in use", "barred", "maintenance", "unknown"]
    told_s: float | None


class ModelVersion(Answer):
    """A version of the registered detector. training: what the run that made it says of it. judged: outcome, opponent, why and time of
    the last `minder promote` of it; empty if there was none."""

    version: int
    champion: bool
    training: Mapping[str, str]
    judged: Mapping[str, str] = {}


class JobModel(Answer):
    """Which detector a job's job.toml names, and which one looks on."""

    job: str
    detector: str
    shadow: str | None


class Models(Answer):
    """registry: "available", "none" or "unreachable", and in detail why. champion: null while none is crowned. challengers: all others,
    newest first."""

    registry: Literal["available", "none", "unreachable"]
    detail: str
    champion: ModelVersion | None
    challengers: tuple[ModelVersion, ...]
    jobs: tuple[JobModel, ...]
