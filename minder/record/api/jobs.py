"""Jobs, as the ledger and their controllers know them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from minder.record.api.fields import Answer, MachineName, Request, Text

__all__ = [
    "CodeList",
    "CodePiece",
    "CodeState",
    "Job",
    "JobDetail",
    "RestartRequest",
    "RollbackRequest",
    "SkipRequest",
    "StandbyRequest",
    "UpdateRequest",
]


class Job(Answer):
    """A job of the ledger."""

    name: str = Field(description="Name of the job.")
    phase: Literal["starting", "running", "recovering", "suspended", "diagnosing", "replaying", "finished", "failed"] = Field(
        description="What its newest run is doing: `suspended`, `diagnosing` and `replaying` stand so that its machines can be tested."
    )
    generation: int = Field(
        description="Generation that runs or ran last: 1 is the first start, each restart adds one; 0 before the first.",
    )
    runs: int = Field(description="How often the job was begun under this name.")
    registered: str | None = Field(description="When its newest run was registered, ISO 8601 in UTC; null where it was not.")
    machines: tuple[str, ...] = Field(description="Machines that have ranks now; empty once the job is over.")
    barred: tuple[str, ...] = Field(description="Machines that are kept out of it.")
    open_incidents: tuple[str, ...] = Field(description="Ids of its incidents that are not closed.")
    watched: bool = Field(default=False, description="Whether it was registered here, so that the service watches it.")


class RestartRequest(Request):
    """Have a job started again in place, now. Restarts that are left, pauses and dry run hold as ever."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "hangs since the switch was rebooted"}]})

    reason: Text = Field(description="Why; the next person reads it.")


Address = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#@]+$", max_length=300)]


class StandbyRequest(Request):
    """Give a running job one more standby. The job's tokens go to its agent and launcher, so the service must allow their hosts."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "machine": "node-0104",
                    "agent": "http://10.0.0.104:9401",
                    "launcher": "http://10.0.0.104:9402",
                    "reason": "repaired",
                    "rack": "r12",
                }
            ]
        }
    )

    machine: MachineName = Field(description="Name of the machine, as its agent and telemetry call it.")
    agent: Address = Field(description="Address of its agent, such as http://10.0.0.104:9401.")
    launcher: Address = Field(description="Address of its launcher, such as http://10.0.0.104:9402.")
    reason: Text = Field(description="Why; the next person reads it.")
    rack: MachineName | None = Field(default=None, description="Rack that it shares with other machines.")
    switch: MachineName | None = Field(default=None, description="Switch that it shares with other machines.")
    block: MachineName | None = Field(
        default=None, description="Block of the network in which it lies, the machines below one spine switch."
    )


Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_PRINT = "cc42155088fca5730758db72b2a5bca33112a941dfaa2d43098ec422ce4ea213"  # of print(1)
_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class CodeFileEntry(Request):
    """One file of a version of a job's code."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=300)] = Field(
        description="Path below the code's folder, with slashes; no `..`, no absolute path."
    )
    size_bytes: int = Field(ge=0, description="Its size in bytes.")
    sha256: Sha256 = Field(description="SHA-256 of its content, in hexadecimal digits.")
    executable: bool = Field(default=False, description="Whether its owner may run it.")


class CodeList(Request):
    """All files of a version of a job's code. Symbolic links are no files."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"files": [{"path": "train.py", "size_bytes": 0, "sha256": _EMPTY}]}]})

    files: tuple[CodeFileEntry, ...] = Field(min_length=1, max_length=5000, description="Its files, in any order.")


class CodePiece(Request):
    """A piece of one file, after those that were sent before."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"file": {"path": "train.py", "size_bytes": 9, "sha256": _PRINT}, "offset": 0, "data": "cHJpbnQoMSkK"}]
        }
    )

    file: CodeFileEntry = Field(description="The file that it belongs to.")
    offset: int = Field(ge=0, description="Where it begins, in bytes.")
    data: Annotated[str, StringConstraints(max_length=700_000)] = Field(description="Its bytes, as base64.")


class CodeState(Answer):
    """What the service has of a version of a job's code."""

    code: str = Field(description="Digest of the whole version; an update names it.")
    missing: tuple[str, ...] = Field(description="SHA-256 of the contents that it does not have yet; empty: the version can be used.")


class UpdateRequest(Request):
    """Give a running job another version of its code, arguments or variables; what is left out stays as it is."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"args": ["--lr", "1e-4"], "reason": "the loss oscillates", "urgent": True}]})

    code: Sha256 | None = Field(default=None, description="Digest of its files, as `POST /v1/jobs/{name}/code` says; null: as they are.")
    env: Mapping[str, str] = Field(default_factory=dict, max_length=200, description="Variables of the ranks that are set besides.")
    args: tuple[str, ...] | None = Field(default=None, max_length=1000, description="Arguments of the script; null: as they are.")
    urgent: bool = Field(default=False, description="Whether the job is started again for it now; else it comes with its next restart.")
    reason: Text = Field(description="Why; the next person reads it.")


class RollbackRequest(Request):
    """Go back to an earlier version of a job's code, on the path of an update."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "the loss is worse"}]})

    to: int | None = Field(default=None, ge=0, description="Number of the version, 0: as its launchers were started; null: the one before.")
    urgent: bool = Field(default=True, description="Whether the job is started again for it now; else it comes with its next restart.")
    reason: Text = Field(description="Why; the next person reads it.")


class SkipRequest(Request):
    """Leave batches out of a running job, or train on them again."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"batches": "120-123", "reason": "the loss spikes there"}]})

    batches: Annotated[str, StringConstraints(min_length=1, max_length=2000)] | None = Field(
        default=None, description="Global batches, from 0, as numbers and ranges; null with `undo`: those of the last order."
    )
    undo: bool = Field(default=False, description="Whether they are trained on again.")
    reason: Text = Field(description="Why; the next person reads it.")


class JobDetail(Job):
    """A job, with what its controller last wrote."""

    status: Mapping[str, Any] | None = Field(
        description="What its controller last wrote (machines, scores, step); null where the service does not see that file.",
    )
    status_age_s: float | None = Field(
        description="Age of that status in seconds; null where there is none. An old status is no sign of health.",
    )
