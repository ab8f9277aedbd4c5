"""What `scontrol show` prints, read strictly: what is missing or odd is an error, never a healthy node.

The long form is used, since there every free text (reason, comment) has a line of its own and cannot be taken for a field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from minder.model.errors import EngineUnavailableError

__all__ = ["JobRecord", "NodeRecord", "read_job", "read_node"]

_FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z:/]*)=(\S*)")
_REASON = re.compile(r"(?P<text>.*) \[(?P<user>\S+)@(?P<time>\S+)\]")
_STATE = re.compile(r"[A-Z_]+(?:\+[A-Z_]+)*\*?")
_SLURMS_OWN = ("not responding", "node unexpectedly rebooted", "none")  # down by itself: that is no order
# Of a line whose value is free text, only the key is looked at.
_FREE_TEXT = ("Reason=", "Comment=", "Extra=", "OS=", "JobName=", "Command=", "WorkDir=", "StdErr=", "StdIn=", "StdOut=", "AdminComment=")


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node. states: IDLE, ALLOCATED, MIXED, DOWN ..., with flags such as DRAIN and NOT_RESPONDING."""

    name: str
    states: frozenset[str]
    reason: str = ""
    reason_by: str = ""

    @property
    def is_drained(self) -> bool:
        """Slurm starts nothing new there; what runs goes on (DRAINING) or is over (DRAINED)."""
        return bool(self.states & {"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"})

    @property
    def is_held(self) -> bool:
        """Kept out of work, by a person or a health check: drained, or put down on purpose."""
        reason = self.reason.lower()
        return self.is_drained or ("DOWN" in self.states and bool(reason) and not reason.startswith(_SLURMS_OWN))

    @property
    def is_idle(self) -> bool:
        """Slurm could start a job there now."""
        return "IDLE" in self.states and not self.states & _UNFIT and not self.is_held


_UNFIT = frozenset(
    {"NOT_RESPONDING", "DOWN", "UNKNOWN", "POWERED_DOWN", "POWERING_DOWN", "PLANNED", "RESERVED", "COMPLETING", "REBOOT", "MAINT"}
)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job. node_list and excluded are Slurm's own lists ("n[1-3,5]"), "" for none; state: PENDING, RUNNING, COMPLETING, ..."""

    id: int
    state: str
    reason: str
    node_list: str
    excluded: str
    batch_host: str
    restarts: int
    requeue: bool
    partition: str
    nodes_wanted: int

    @property
    def is_over(self) -> bool:
        return self.state not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "RESIZING")


def read_node(text: str, name: str) -> NodeRecord:
    """From `scontrol show node NAME`. Raises EngineUnavailableError if that is not what it is."""
    fields = _fields(text)
    states = fields.get("State", "")
    if fields.get("NodeName") != name or not _STATE.fullmatch(states):
        raise EngineUnavailableError(f"Slurm's answer about node {name} cannot be read: {_start(text)}")
    flags = {*states.rstrip("*").split("+"), *(("NOT_RESPONDING",) if states.endswith("*") else ())}
    line = _line(text, "Reason=")
    if line is None:
        return NodeRecord(name, frozenset(flags))
    found = _REASON.fullmatch(line)
    if found is None:  # an unsigned reason counts all the same
        return NodeRecord(name, frozenset(flags), line)
    return NodeRecord(name, frozenset(flags), found["text"], found["user"])


def read_job(text: str, job_id: int) -> JobRecord:
    """From `scontrol show job ID` of a plain job. Raises EngineUnavailableError if that is not what it is."""
    fields = _fields(text)
    try:
        if sum(line.startswith("JobId=") for line in text.splitlines()) != 1:
            raise ValueError("an array or several jobs: give one task's own id")
        if int(fields["JobId"]) != job_id:
            raise ValueError("another job")
        return JobRecord(
            id=job_id,
            state=fields["JobState"],
            reason=_line_field(text, "JobState", "Reason"),
            node_list=_known(fields["NodeList"]),
            excluded=_known(fields["ExcNodeList"]),
            batch_host=_known(fields.get("BatchHost", "")),
            restarts=int(fields["Restarts"]),
            requeue=fields["Requeue"] == "1",
            partition=fields["Partition"],
            nodes_wanted=int(fields["NumNodes"].split("-")[0]),
        )
    except (KeyError, ValueError) as error:
        raise EngineUnavailableError(f"Slurm's answer about job {job_id} cannot be read ({error}): {_start(text)}") from error


def _fields(text: str) -> Mapping[str, str]:
    """The first value of every field, lines of free text left out."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip().startswith(_FREE_TEXT):
            for key, value in _FIELD.findall(line.split(" JobName=")[0]):
                found.setdefault(key, value)
    return found


def _line(text: str, start: str) -> str | None:
    return next((line.strip().removeprefix(start) for line in text.splitlines() if line.strip().startswith(start)), None)


def _line_field(text: str, first: str, key: str) -> str:
    line = _line(text, f"{first}=") or ""
    return next((str(value) for name, value in _FIELD.findall(line) if name == key), "")


def _known(value: str) -> str:
    return "" if value in ("(null)", "None", "N/A") else value


def _start(text: str) -> str:
    return " ".join(text.split())[:120] or "nothing"
