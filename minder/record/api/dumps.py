"""What stack dumps and Flight Recorder dumps say: the documents of `minder stacks` and `minder collectives`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from minder.record.api.fields import Answer

__all__ = ["CAPTURE_NAME", "DUMP_NAME", "MOST_DUMPS", "CollectivesResult", "StacksResult"]

MOST_DUMPS = 20_000
CAPTURE_NAME = r"\d{8}T\d{6}(?:\.\d{1,6})?Z"  # a capture's folder, by its time
DUMP_NAME = rf"(?:{CAPTURE_NAME}/)?[A-Za-z0-9_][A-Za-z0-9_.:-]{{0,199}}"


class StackGroup(Answer):
    """Processes that stand in the same place."""

    size: int = Field(description="Number of processes.")
    kind: str = Field(description="What they are doing there, in one word.")
    frames: tuple[str, ...] = Field(description="Functions that they are in, innermost first.")
    processes: tuple[str, ...] = Field(description="The processes, as `machine pid`.")


class StackSuspect(Answer):
    """A process that stands elsewhere than the others."""

    machine: str = Field(description="Machine that the process runs on.")
    pid: int | None = Field(description="Process id on that machine; null if not known.")
    rank: int | None = Field(description="Rank of the process; null if not known.")
    reason: str = Field(description="Why it stands out, in words.")
    confidence: float = Field(description="Confidence, 0 to 1.")


class Evictable(Answer):
    """What the stacks alone would take out."""

    machines: tuple[str, ...] = Field(
        description="Machines that the stacks would take out; empty where the program is at fault or no machine stands out.",
    )
    group: str | None = Field(description="Parallel group that the machines are; null where they are none.")


class StacksResult(Answer):
    """What stack dumps say of a hung job."""

    groups: tuple[StackGroup, ...] = Field(description="Processes that stand in the same place, the largest group first.")
    suspects: tuple[StackSuspect, ...] = Field(description="Processes that stand elsewhere than the others.")
    evict: Evictable = Field(description="What the stacks alone would have evicted.")
    blame: str = Field(description="Where the fault lies: `machine`, `group`, `program`, ...")
    because: str = Field(description="Why, in words.")
    without_stack: tuple[Mapping[str, str], ...] = Field(description="Processes whose dump holds no stack, with the reason.")
    ignored: tuple[str, ...] = Field(description="Files that are no dumps.")
    captures: int = Field(description="Number of captures that were read.")
    notes: tuple[str, ...] = Field(default=(), description="Warnings, one line each.")


class CollectiveSuspect(Answer):
    """A rank that holds the job up, and how far it and its peers are in that process group (operations, null if not known)."""

    rank: int = Field(description="Rank that holds the job up.")
    process_group: str | None = Field(description="Process group in which it is behind; null if not known.")
    description: str | None = Field(description="What that group is for, such as a parallel axis; null if not known.")
    last_enqueued: int | None = Field(description="Number of the newest operation that the rank enqueued there; null if not known.")
    last_completed: int | None = Field(description="Number of the newest operation that it completed there; null if not known.")
    peers_enqueued: int | None = Field(description="The same of its peers: newest operation enqueued; null if not known.")
    peers_completed: int | None = Field(description="The same of its peers: newest operation completed; null if not known.")
    cause: str = Field(description="Why the rank is behind, in one word.")
    confidence: float = Field(description="Confidence, 0 to 1.")


class CollectivesResult(Answer):
    """What Flight Recorder dumps say of a hung job."""

    suspect_ranks: tuple[int, ...] = Field(description="Ranks that hold the job up; empty: no rank stands out.")
    order: tuple[CollectiveSuspect, ...] = Field(description="The same with what was seen of each, the likeliest first.")
    mismatches: tuple[Mapping[str, Any], ...] = Field(description="Operations that ranks called differently.")
    missing_ranks: tuple[int, ...] = Field(description="Ranks without a dump.")
    missing_reasons: Mapping[str, str] = Field(description="Rank to the reason why it has no dump.")
    cause: str = Field(description="What holds the job up, in one word.")
    confidence: float = Field(description="Confidence, 0 to 1.")
    detail: str = Field(description="What was concluded, in words.")
    notes: tuple[str, ...] = Field(default=(), description="Warnings, one line each.")
