"""What stack dumps and Flight Recorder dumps say: the documents of `minder stacks` and `minder collectives`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minder.record.api.fields import Answer

__all__ = ["CAPTURE_NAME", "DUMP_NAME", "MOST_DUMPS", "CollectivesResult", "StacksResult"]

MOST_DUMPS = 20_000
CAPTURE_NAME = r"\d{8}T\d{6}(?:\.\d{1,6})?Z"  # a capture's folder, by its time
DUMP_NAME = rf"(?:{CAPTURE_NAME}/)?[A-Za-z0-9_][A-Za-z0-9_.:-]{{0,199}}"


class StackGroup(Answer):
    """Processes that stand in the same place; frames: innermost first."""

    size: int
    kind: str
    frames: tuple[str, ...]
    processes: tuple[str, ...]


class StackSuspect(Answer):
    """Who stands elsewhere than the others. confidence: 0 to 1."""

    machine: str
    pid: int | None
    rank: int | None
    reason: str
    confidence: float


class Evictable(Answer):
    """machines: whom the stacks would take out, none where the program or no machine is at fault; group: which parallel group they are."""

    machines: tuple[str, ...]
    group: str | None


class StacksResult(Answer):
    """blame: "machine", "group", "program", ...; because: why, in words. without_stack: processes whose dump says nothing.
    ignored: files that are no dumps. captures: how many were read. notes: what was warned of."""

    groups: tuple[StackGroup, ...]
    suspects: tuple[StackSuspect, ...]
    evict: Evictable
    blame: str
    because: str
    without_stack: tuple[Mapping[str, str], ...]
    ignored: tuple[str, ...]
    captures: int
    notes: tuple[str, ...] = ()


class CollectiveSuspect(Answer):
    """A rank that holds the job up, and how far it and its peers are in that process group (operations, null if not known)."""

    rank: int
    process_group: str | None
    description: str | None
    last_enqueued: int | None
    last_completed: int | None
    peers_enqueued: int | None
    peers_completed: int | None
    cause: str
    confidence: float


class CollectivesResult(Answer):
    """suspect_ranks: no rank where it is empty. order: the first to blame first. mismatches: operations that ranks called differently.
    missing_reasons: by rank, why it has no dump. confidence: 0 to 1. notes: what was warned of."""

    suspect_ranks: tuple[int, ...]
    order: tuple[CollectiveSuspect, ...]
    mismatches: tuple[Mapping[str, Any], ...]
    missing_ranks: tuple[int, ...]
    missing_reasons: Mapping[str, str]
    cause: str
    confidence: float
    detail: str
    notes: tuple[str, ...] = ()
