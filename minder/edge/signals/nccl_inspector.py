"""NCCL Inspector's records: one JSON object per completed operation (docs/collectives.md has the fields).

The plugin writes on completion, so a collective that hangs leaves no record: what counts is that records stop.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["InspectorLog", "InspectorRecord", "read_inspector"]

_MAX_LINE = 1 << 20


@dataclass(frozen=True, slots=True)
class InspectorRecord:
    """One completed collective, send or receive of one rank. sequence: counts each kind of operation of a communicator for itself."""

    communicator: str
    rank: int
    operation: str
    sequence: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class InspectorLog:
    """Records in file order, and how many lines were no record."""

    records: tuple[InspectorRecord, ...]
    skipped: int


def read_inspector(lines: Iterable[str]) -> InspectorLog:
    """Read a log. A line that is cut off (the process died while it wrote) or no record is counted and left out."""
    records, skipped = [], 0
    for line in lines:
        if not line.strip():
            continue
        try:
            if len(line) > _MAX_LINE:
                raise ValueError("too long")
            item = json.loads(line)
            if "coll_perf" in item or "p2p_perf" in item or "dump_stats" not in item:  # those tell what the plugin had to leave out
                records.append(_record(item))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            skipped += 1
    return InspectorLog(tuple(records), skipped)


def _record(item: Mapping[str, Any]) -> InspectorRecord:
    kind = "p2p" if "p2p_perf" in item else "coll"
    header, performance = item["header"], item[f"{kind}_perf"]
    size_bytes, sequence = int(performance[f"{kind}_msg_size_bytes"]), int(performance[f"{kind}_sn"])
    if size_bytes < 0 or sequence < 0:
        raise ValueError("less than nothing")
    return InspectorRecord(str(header["id"]), int(header["rank"]), str(performance[kind]), sequence, size_bytes)
