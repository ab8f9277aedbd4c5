"""What a capture says in the end."""

from __future__ import annotations

from dataclasses import dataclass

from minder.diagnose.stacks.records import Kind, Process
from minder.diagnose.stacks.rules import Blame
from minder.diagnose.stacks.scene import Member

__all__ = ["Accused", "Finding", "Group", "accuse"]


@dataclass(frozen=True, slots=True)
class Group:
    """Processes whose deciding threads stand in the same place; frames innermost first."""

    kind: Kind
    frames: tuple[str, ...]
    processes: tuple[Process, ...]


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
