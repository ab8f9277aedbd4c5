"""A scoring session: rows of telemetry that are sent piece by piece, and the verdicts of what it holds. Nothing of it is in the ledger."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from minder.record.api.fields import Answer, JobName, Request
from minder.record.api.scores import ScoreJob

__all__ = ["RowsTaken", "ScoreSession", "SessionRequest"]


class SessionRequest(Request):
    """A session to begin."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "llm-70b", "job": {"gpus_per_machine": 8}}]})

    name: JobName = Field(default="stream", description="What the verdicts call the recording.")
    job: ScoreJob = Field(default=ScoreJob(), description="The job, with the keys of a recording's job.toml.")


class ScoreSession(Answer):
    """What a session holds."""

    id: str = Field(description="Id of the session.")
    name: str = Field(description="What the verdicts call the recording.")
    taken: int = Field(description="Number of rows that were taken since it began: send it as `after`, and no row is taken twice.")
    rows: int = Field(description="Number of rows that it holds now: the oldest are dropped where there are too many or they are too old.")
    machines: tuple[str, ...] = Field(description="Machines that its rows name, in order.")
    begin: str | None = Field(description="Time of its oldest row, ISO 8601 in UTC; null before the first.")
    end: str | None = Field(description="Time of its newest row, ISO 8601 in UTC; null before the first.")
    idle_s: float = Field(description="Seconds since it was last used.")
    ends_after_s: float = Field(description="Seconds without use after which it ends by itself.")


class RowsTaken(ScoreSession):
    """The session after rows were appended."""

    added: int = Field(description="Number of rows of this request that were taken.")
