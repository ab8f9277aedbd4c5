"""What is kept of a Flight Recorder dump: columns instead of entries, so that thousands of ranks fit.

Shape legend: E entries of one rank, in the order in which it enqueued them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "COALESCED",
    "COLLECTIVE",
    "COMPLETED",
    "NEEDS_ALL",
    "RECEIVE",
    "SCHEDULED",
    "SEND",
    "STARTED",
    "Collection",
    "Group",
    "RankDump",
    "Signature",
    "Signatures",
    "Sizes",
    "Status",
]

COLLECTIVE, SEND, RECEIVE, COALESCED = 0, 1, 2, 3
SCHEDULED, STARTED, COMPLETED = 1, 2, 3
# After one rank completed such an operation, all had given their part: a rank that still has it open waits for no other.
NEEDS_ALL = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "allreduce_coalesced"})
Sizes = tuple[tuple[int, ...], ...]


class Signature(NamedTuple):
    """What one rank put into an operation. Its family joins names of one operation: _all_gather_base is an all_gather."""

    name: str
    family: str
    input_sizes: Sizes
    output_sizes: Sizes
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]


class Signatures:
    """Signatures by number: a training job repeats few of them millions of times. by_bytes: the same by their serialised shapes."""

    def __init__(self) -> None:
        self.by_bytes: dict[bytes, int] = {}
        self._numbers: dict[Signature, int] = {}
        self.known: list[Signature] = []

    def number(self, signature: Signature) -> int:
        found = self._numbers.get(signature)
        if found is None:
            found = self._numbers[signature] = len(self.known)
            self.known.append(signature)
        return found


class Status(NamedTuple):
    """A rank's own counters of one group. The number is of collectives or of point-to-point operations, whichever came last."""

    enqueued: int
    completed: int


@dataclass(frozen=True, slots=True)
class Group:
    """A process group; `ranks` in group order, so that a local rank is an index."""

    name: str
    description: str
    ranks: tuple[int, ...]

    @property
    def label(self) -> str:
        """Its description, where its maker gave it one; else its name."""
        described = "" if self.description == "undefined" else self.description  # what torch calls a group without a description
        return described or f"group {self.name}"


@dataclass(frozen=True, slots=True)
class RankDump:
    """One rank's dump. Times are unix nanoseconds, 0 where the recorder did not note one.

    name_E indexes `names`, the groups that this rank used; peer_E is the peer's rank inside the group, -1 for collectives.
    status is keyed by the rank-local id of a group, `local_ids` maps group names to them (only entries can tell).
    """

    rank: int
    names: tuple[str, ...]
    descriptions: tuple[str, ...]
    name_E: np.ndarray
    sequence_E: np.ndarray
    p2p_E: np.ndarray
    record_E: np.ndarray
    created_E: np.ndarray
    started_E: np.ndarray
    completed_E: np.ndarray
    state_E: np.ndarray
    kind_E: np.ndarray
    peer_E: np.ndarray
    signature_E: np.ndarray
    status: Mapping[str, Status] = field(default_factory=dict)
    local_ids: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()
    version: str = ""
    library: str = ""
    skipped: int = 0
    sides: Mapping[str, frozenset[int]] = field(default_factory=dict)  # by group, what the titles of messages call the rank itself
    counts_operations: bool = False  # gloo: its status counts every operation, sends too, which its entries do not show

    @property
    def entries(self) -> int:
        return len(self.name_E)

    @property
    def is_from_the_start(self) -> bool:
        """Whether the first entry is the first thing that the rank launched. Old recorders do not number their entries, so that the
        groups' own counters, which begin at 1, have to agree."""
        if not self.entries or int(self.record_E[0]) > 0:
            return False
        is_collective_E = self.kind_E == COLLECTIVE
        for use_E, number_E in ((is_collective_E, self.sequence_E), (~is_collective_E, self.p2p_E)):
            _, first = np.unique(self.name_E[use_E], return_index=True)
            if (number_E[use_E][first] > 1).any():
                return False
        return True


@dataclass(frozen=True, slots=True)
class Collection:
    """What was collected from a job at one time. `unreadable` gives the reason by rank; `missing` are all ranks without a
    dump, and `stale` those of them whose dump is older than their peers'."""

    dumps: Mapping[int, RankDump]
    groups: tuple[Group, ...]
    world: tuple[int, ...]
    signatures: tuple[Signature, ...]
    unreadable: Mapping[int, str] = field(default_factory=dict)
    stale: frozenset[int] = frozenset()
    followed: Any = field(
        default=None, compare=False, repr=False
    )  # minder.diagnose.flight_recorder.progress.Progress, once it is worked out

    @property
    def missing(self) -> dict[int, str]:
        return {rank: self.unreadable.get(rank, "no dump") for rank in self.world if rank not in self.dumps}
