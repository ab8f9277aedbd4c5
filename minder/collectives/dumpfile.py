"""One dump file, whatever wrote it: pickle or JSON, NCCL or gloo, keys of version 1 or 2.

A file that cannot be read is not an error of the analysis: it is a rank that is missing, with the reason.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minder.collectives.lives import drop_earlier_life
from minder.collectives.pickles import MAX_CONTAINERS, UntrustedDataError, load_plain_pickle
from minder.collectives.records import (
    COALESCED,
    COLLECTIVE,
    COMPLETED,
    RECEIVE,
    SCHEDULED,
    SEND,
    STARTED,
    Group,
    RankDump,
    Signature,
    Signatures,
    Sizes,
    Status,
)

__all__ = ["MAX_FILE_BYTES", "UnreadableDumpError", "load_dump", "parse_dump", "read_dump"]

MAX_FILE_BYTES = 64 << 20
_MAX_ENTRIES = 200_000
_LARGEST = (1 << 62) - 1
_STATES = {"scheduled": SCHEDULED, "started": STARTED, "completed": COMPLETED}
_KINDS = {"send": SEND, "recv": RECEIVE, "coalesced": COALESCED}
_SHARED_NAMES = {
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_reduce_barrier": "barrier",
    "allreduce": "all_reduce",  # libraries and older recorders write some names without their first underscore
    "allgather": "all_gather",
    "allgather_into_tensor": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatter_tensor": "reduce_scatter",
    "alltoall": "all_to_all",
}


class UnreadableDumpError(ValueError):
    """Why a file gives no dump, in words for the report."""


def read_dump(path: Path, rank: int, signatures: Signatures) -> RankDump:
    """Raises UnreadableDumpError. Memory is bounded by MAX_FILE_BYTES and MAX_CONTAINERS."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise UnreadableDumpError(f"{path.name} is {size / 2**20:.0f} MiB: more than a dump can need")
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableDumpError(f"{path.name} cannot be read: {error.strerror}") from error
    return load_dump(data, rank, signatures, path.name)


def load_dump(data: bytes, rank: int, signatures: Signatures, name: str, since_s: float = 0.0) -> RankDump:
    """A dump in memory. since_s: what was launched before (unix seconds of that rank's clock) belongs to an earlier life of the process.

    Raises UnreadableDumpError.
    """
    if not data.strip():
        raise UnreadableDumpError(f"{name} is empty")
    try:
        document = _load_json(data) if data.lstrip()[:1] in (b"{", b"[") else load_plain_pickle(data)
    except UntrustedDataError as error:
        raise UnreadableDumpError(f"{name} is refused: {error}") from error
    except ValueError as error:
        raise UnreadableDumpError(f"{name} is no dump: {error}") from error
    if since_s and isinstance(document, Mapping) and isinstance(document.get("entries"), (list, tuple)):
        document = {**document, "entries": [entry for entry in document["entries"] if _created_s(entry) >= since_s]}
    return parse_dump(document, rank, signatures, name)


def _created_s(entry: Any) -> float:
    """inf where it is not told: the entry stays."""
    value = entry.get("time_created_ns") if isinstance(entry, Mapping) else None
    return value / 1e9 if isinstance(value, (int, float)) and value > 0 else float("inf")


def _load_json(data: bytes) -> Any:
    if len(data) > MAX_CONTAINERS and data.count(b"[") + data.count(b"{") > MAX_CONTAINERS:
        raise UntrustedDataError(f"it holds more than {MAX_CONTAINERS} containers")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is cut off or damaged ({str(error)[:80] or type(error).__name__})") from error


def parse_dump(document: Any, rank: int, signatures: Signatures, name: str = "the dump") -> RankDump:
    """A loaded document as columns. Raises UnreadableDumpError where it is no dump at all."""
    if not isinstance(document, Mapping) or not isinstance(document.get("entries", []), (list, tuple)):
        raise UnreadableDumpError(f"{name} is no Flight Recorder dump: no list of entries")
    if not {"entries", "pg_config", "pg_status"} & set(document):
        raise UnreadableDumpError(f"{name} is no Flight Recorder dump: neither entries nor pg_config")
    table = _Entries(signatures)
    entries = document.get("entries", [])
    for entry in entries[-_MAX_ENTRIES:]:
        table.add(entry)
    if entries and not table.rows:
        raise UnreadableDumpError(f"{name} has no entry that can be read")
    table.rows.sort(key=lambda row: row[3])
    columns = drop_earlier_life(np.array(table.rows, np.int64).reshape(-1, 11)).T
    return RankDump(
        rank=rank,
        names=tuple(table.names),
        descriptions=tuple(table.descriptions),
        name_E=columns[0].astype(np.int32),
        sequence_E=columns[1],
        p2p_E=columns[2],
        record_E=columns[3],
        created_E=columns[4],
        started_E=columns[5],
        completed_E=columns[6],
        state_E=columns[7].astype(np.int8),
        kind_E=columns[8].astype(np.int8),
        peer_E=columns[9].astype(np.int32),
        signature_E=columns[10].astype(np.int32),
        status=_status(document.get("pg_status")),
        local_ids=table.local_ids,
        groups=_groups(document.get("pg_config")),
        version=str(document.get("version", "")),
        library=str(document.get("nccl_version") or document.get("comm_lib_version") or ""),
        skipped=table.skipped,
        counts_operations=table.is_gloo,
        sides={name: frozenset(sides) for name, sides in table.sides.items()},
    )


class _Entries:
    """Entries as rows: name, sequence, p2p, record, created, started, completed, state, kind, peer, signature."""

    def __init__(self, signatures: Signatures) -> None:
        self._signatures = signatures
        self._seen: dict[str, int] = {}
        self.names: list[str] = []
        self.descriptions: list[str] = []
        self.local_ids: dict[str, str] = {}
        self.rows: list[tuple[int, ...]] = []
        self.skipped = 0
        self.is_gloo = False
        self.sides: dict[str, set[int]] = {}

    def add(self, entry: Any) -> None:
        try:
            self.rows.append(self._row(entry))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            self.skipped += 1

    def _row(self, entry: Mapping[str, Any]) -> tuple[int, ...]:
        name, description = _group_of(entry)
        number = self._seen.get(name)
        if number is None:
            number = self._seen[name] = len(self.names)
            self.names.append(name)
            self.descriptions.append(description)
        local = entry.get("pg_id")
        if local is not None:
            self.local_ids[name] = str(local)
        sequence = entry["collective_seq_id"] if "collective_seq_id" in entry else entry["seq_id"]
        completed = _time(entry, "time_discovered_completed_ns")
        state = COMPLETED if entry.get("retired") is True or completed else _STATES[entry.get("state", "scheduled")]
        operation = str(entry["profiling_name"])
        kind, peer = _kind(operation, bool(entry.get("is_p2p")))
        if peer >= 0:
            self.sides.setdefault(name, set()).add(_own_side(operation))
        self.is_gloo = self.is_gloo or operation.startswith("gloo:")
        return (
            number, _whole(sequence), _whole(entry.get("p2p_seq_id") or 0), _whole(entry.get("record_id", entry.get("id", len(self.rows)))),
            _time(entry, "time_created_ns", "time_created_us"), _time(entry, "time_discovered_started_ns"), completed, state, kind, peer,
            self._signatures.number(_signature(operation, entry)),
        )  # fmt: skip


def _group_of(entry: Mapping[str, Any]) -> tuple[str, str]:
    value = entry.get("process_group")
    if isinstance(value, (list, tuple)) and value:
        return str(value[0]), str(value[1]) if len(value) > 1 else ""
    if isinstance(value, str) and value:
        return value, ""
    return str(entry["pg_id"]), ""


def _kind(operation: str, is_p2p: bool) -> tuple[int, int]:
    """Kind and the peer's rank in the group: "nccl:send 0->1", "nccl:recv 1<-0"; gloo leaves the ranks out."""
    verb, _, ends = operation.rpartition(":")[2].partition(" ")
    kind = _KINDS.get(verb, COLLECTIVE)
    if kind == COALESCED and not is_p2p:
        return COLLECTIVE, -1
    if kind in (SEND, RECEIVE) and ends:
        return kind, int(ends.replace("<-", "->").partition("->")[2])
    return kind, -1


def _own_side(operation: str) -> int:
    """The number by which a message's title calls the rank itself: 1 in "nccl:recv 1<-0"."""
    return int(operation.rpartition(":")[2].partition(" ")[2].replace("<-", "->").partition("->")[0])


def _signature(operation: str, entry: Mapping[str, Any]) -> Signature:
    name = operation.rpartition(":")[2].partition(" ")[0]
    family = name.lstrip("_").removesuffix("_base").removesuffix("_single").removesuffix("_oop").lower()
    return Signature(
        name, _SHARED_NAMES.get(family, family), _sizes(entry.get("input_sizes")), _sizes(entry.get("output_sizes")),
        _texts(entry.get("input_dtypes")), _texts(entry.get("output_dtypes")),
    )  # fmt: skip


def _sizes(value: Any) -> Sizes:
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple([tuple([int(length) for length in shape]) for shape in value])


def _texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple([str(item) for item in value or ()])


def _whole(value: Any) -> int:
    number = int(value)
    if not -1 <= number <= _LARGEST:
        raise ValueError("a counter out of range")
    return number


def _time(entry: Mapping[str, Any], key: str, microseconds: str = "") -> int:
    value = entry.get(key)
    if value is None and microseconds and entry.get(microseconds) is not None:
        value = entry[microseconds] * 1000
    return max(_whole(value), 0) if value is not None else 0


def _status(value: Any) -> dict[str, Status]:
    """pg_status by rank-local id. Anything unreadable is left out: no data."""
    found = {}
    for key, item in value.items() if isinstance(value, Mapping) else ():
        if isinstance(item, Mapping):
            enqueued, completed = (item.get(f"last_{what}_collective") for what in ("enqueued", "completed"))
            if _is_counter(enqueued) and _is_counter(completed):
                found[str(key)] = Status(max(int(enqueued or 0), 0), max(int(completed or 0), 0))
    return found


def _is_counter(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= _LARGEST


def _groups(value: Any) -> tuple[Group, ...]:
    """pg_config by name, with a group's ranks alone or among what else is told of it. gloo's single nameless entry without ranks says
    nothing."""
    found = []
    for key, item in value.items() if isinstance(value, Mapping) else ():
        told = item if isinstance(item, Mapping) else {"ranks": item}
        ranks, name = _ranks(told.get("ranks")), str(told.get("name", key))
        if name and ranks:
            found.append(Group(name, str(told.get("desc", "")), ranks))
    return tuple(found)


def _ranks(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        return _listed(value)
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        return ()
    return _checked(value)


@functools.lru_cache(maxsize=4096)
def _listed(text: str) -> tuple[int, ...]:
    """ "[0, 1, 2]": every rank's dump repeats the same few texts."""
    return _checked(text.strip("[](){} ").split(","))


def _checked(value: Sequence[Any]) -> tuple[int, ...]:
    try:
        ranks = tuple(int(rank) for rank in value if str(rank).strip())
    except (TypeError, ValueError):
        return ()
    return ranks if all(0 <= rank < 1 << 24 for rank in ranks) and len(ranks) <= 1 << 20 else ()
