"""What a capture says in the end: as a record, as docs/stacks.md writes it, for reading, and as one voice among the verdict rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from minder.diagnose.stacks.records import Kind, Process
from minder.diagnose.stacks.roles import Blame
from minder.diagnose.stacks.scene import Member
from minder.model.evidence import Evidence, Suspect

__all__ = ["Accused", "Finding", "Group", "accuse", "suspects_from_stacks", "to_document", "to_rows"]


@dataclass(frozen=True, slots=True)
class Group:
    """Processes whose deciding threads stand in the same place; frames innermost first. starts: they compile, warm up, load or prepare,
    which may take long in one place."""

    kind: Kind
    frames: tuple[str, ...]
    processes: tuple[Process, ...]
    starts: bool = False


@dataclass(frozen=True, slots=True)
class Accused:
    """One suspect; pid and rank as far as they are known. confidence 0 to 1."""

    machine: str
    pid: int | None
    rank: int | None
    reason: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Finding:
    """Suspects, whom to evict, and whose fault it is. `because`: one line for the operator. `group`: like "pp:0", if a whole group goes.

    passes: what the others wait for is work for all of them, such as a checkpoint, and comes to its end in a healthy job.
    """

    suspects: tuple[Accused, ...] = ()
    evict: tuple[str, ...] = ()
    group: str | None = None
    blame: Blame = "unknown"
    because: str = ""
    groups: tuple[Group, ...] = ()
    without_stack: tuple[Process, ...] = ()
    ignored: tuple[str, ...] = ()
    captures: int = 1
    passes: bool = False


def accuse(member: Member, confidence: float, reason: str | None = None) -> Accused:
    process = member.process
    return Accused(
        process.machine, process.pid, process.rank, reason or f"outside any collective: {member.role.reason}", round(confidence, 2)
    )


def to_document(finding: Finding) -> dict[str, Any]:
    """The JSON document; `because`, `without_stack`, `ignored` and `captures` are additions to the format."""
    return {
        "groups": [
            {"size": len(group.processes), "kind": group.kind, "frames": list(group.frames), "processes": [p.name for p in group.processes]}
            for group in finding.groups
        ],
        "suspects": [
            {"machine": s.machine, "pid": s.pid, "rank": s.rank, "reason": s.reason, "confidence": s.confidence} for s in finding.suspects
        ],
        "evict": {"machines": list(finding.evict), "group": finding.group},
        "blame": finding.blame,
        "because": finding.because,
        "without_stack": [{"process": process.name, "problem": process.problem} for process in finding.without_stack],
        "ignored": list(finding.ignored),
        "captures": finding.captures,
    }


def to_rows(finding: Finding) -> tuple[list[list[str]], list[str]]:
    """Rows of the table of groups (the first is its header), and the answer, which is read before it."""
    rows = [["size", "kind", "innermost frames", "processes"]]
    rows += [[str(len(g.processes)), g.kind, " < ".join(g.frames[:3]) or "-", _names(g.processes)] for g in finding.groups]
    evict = ", ".join(finding.evict) or "none"
    lines = [f"evict    {evict}{f' (group {finding.group})' if finding.group else ''}", f"blame    {finding.blame}"]
    lines += [f"because  {finding.because}"] if finding.because else []
    lines += [f"suspect  {s.machine}{_who(s.pid, s.rank)}: {s.reason} ({s.confidence:.2f})" for s in finding.suspects] or ["suspect  none"]
    lines += [f"no stack {process.name}: {process.problem}" for process in finding.without_stack]
    return rows, lines


def _who(pid: int | None, rank: int | None) -> str:
    return (f" pid {pid}" if pid is not None else "") + (f" rank {rank}" if rank is not None else "")


def _names(processes: Sequence[Process]) -> str:
    names = [process.name for process in processes[:3]]
    return ", ".join(names) + (f" and {len(processes) - 3} more" if len(processes) > 3 else "")


def suspects_from_stacks(finding: Finding, time_s: float, since_s: float | None = None) -> tuple[Suspect, ...]:
    """What a finding accuses, for minder's verdicts. time_s: when the capture was known; since_s: when the stall began, if known.

    An eviction is one suspect (machine, or group where a whole parallel group goes) of tier evict. Other suspects are watched, and
    a fault of the software or the workload is the job's, whether or not it shows on one machine. No suspect is none. Work that passes by
    itself, such as a checkpoint, may by itself not even page (`alone`).
    """
    begins_s = time_s if since_s is None else since_s
    evidence = tuple(Evidence("stacks", suspect.machine, suspect.reason, since_s=begins_s) for suspect in finding.suspects)
    if finding.evict:
        confidence = max((suspect.confidence for suspect in finding.suspects), default=0.5)
        kind: Literal["machine", "group"] = "group" if finding.group is not None else "machine"
        return (Suspect(time_s, "stacks", kind, finding.evict, "stall", confidence, begins_s, "evict", evidence),)
    machines = tuple(dict.fromkeys(suspect.machine for suspect in finding.suspects))
    confidence = max((suspect.confidence for suspect in finding.suspects), default=0.5)
    if finding.blame in ("software", "workload"):
        evidence = evidence or (Evidence("stacks", None, finding.because, since_s=begins_s),)
        alone: Literal["watch"] | None = "watch" if finding.passes else None
        return (Suspect(time_s, "stacks", "job", (), "stall", confidence, begins_s, "watch", evidence, alone=alone),)
    if not finding.suspects:
        return ()
    return (Suspect(time_s, "stacks", "machine", machines, "stall", confidence, begins_s, "watch", evidence),)
