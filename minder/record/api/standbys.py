"""The standby pools of jobs, and the models that read their telemetry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from minder.record.api.fields import Answer

__all__ = ["JobModel", "ModelVersion", "Models", "Standby"]


class Standby(Answer):
    """A machine that was registered as a job's standby."""

    machine: str = Field(description="Name of the machine.")
    job: str = Field(description="Job that it stands by for.")
    state: Literal["ready", "untested", "not ready", "in use", "barred", "maintenance", "unknown"] = Field(
        description="`ready`: its controller lately saw it wait, proven where standbys are tested; `untested`: it waits, no probe of "
        "it has been judged yet, and it is used where none is ready; `unknown`: no controller reports, which is not health.",
    )
    proof: Literal["passed", "unknown", "slow", "failed"] | None = Field(
        default=None,
        description="What its probes prove: one that `failed` is skipped until that probe passes, `unknown` was never judged; null where "
        "standbys are not tested or the service does not see it.",
    )
    proof_detail: str = Field(default="", description="What failed or is slow; empty otherwise.")
    tested_s: float | None = Field(default=None, description="When its controller tested it last, in unix seconds; null if it never did.")
    told_s: float | None = Field(
        description="When the job's controller last wrote, in unix seconds; null where the service does not see it.",
    )


class ModelVersion(Answer):
    """A version of the registered detector."""

    version: int = Field(description="Number of the version in the registry.")
    champion: bool = Field(description="Whether it is the champion.")
    training: Mapping[str, str] = Field(description="What the run that made it recorded.")
    judged: Mapping[str, str] = Field(
        default={},
        description="Outcome, opponent, reason and time of the last `minder promote` of it; empty if there was none.",
    )


class JobModel(Answer):
    """Which detector a job's job.toml names, and which one looks on."""

    job: str = Field(description="Name of the job.")
    detector: str = Field(description="Detector that its job.toml names.")
    shadow: str | None = Field(description="Detector that looks on; null where there is none.")


class Models(Answer):
    """What the model registry of this machine holds."""

    registry: Literal["available", "none", "unreachable"] = Field(description="Whether a registry answers.")
    detail: str = Field(description="Why it does not; empty where it does.")
    champion: ModelVersion | None = Field(description="The champion; null while none is crowned.")
    challengers: tuple[ModelVersion, ...] = Field(description="All other versions, newest first.")
    jobs: tuple[JobModel, ...] = Field(description="Which detector each job names.")
