"""The entries of a dump as columns.

Recorders write the same keys into every entry, so that columns can be cut out of all entries at once, and what repeats (groups, titles,
shapes) is read once. Entries of which that is not true are read one by one.

Shape legend: E entries in the order in which they stand in the dump, C their columns: name, sequence, p2p, record, created, started,
completed, state, kind, peer, signature.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np

from minder.diagnose.flight_recorder.records import (
    COALESCED,
    COLLECTIVE,
    COMPLETED,
    RECEIVE,
    SCHEDULED,
    SEND,
    STARTED,
    Signature,
    Signatures,
    Sizes,
)

__all__ = ["LARGEST", "EntryTable", "read_entries"]

LARGEST = (1 << 62) - 1
_COLUMNS = 11
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
_USUAL = itemgetter(
    "process_group", "pg_id", "profiling_name", "is_p2p", "collective_seq_id", "p2p_seq_id", "record_id", "time_created_ns",
    "time_discovered_started_ns", "time_discovered_completed_ns", "state", "retired",
)  # fmt: skip
_SHAPES = itemgetter("profiling_name", "input_sizes", "output_sizes", "input_dtypes", "output_dtypes")
_FLAGS = {bool, type(None)}
_NUMBERS = {int, type(None)}


@dataclass(slots=True)
class EntryTable:
    """Entries as rows of whole numbers. names, descriptions: of the groups, by number; sides: by group, what the titles of messages call
    the rank itself; skipped: entries that could not be read."""

    rows_EC: np.ndarray
    names: list[str] = field(default_factory=list)
    descriptions: list[str] = field(default_factory=list)
    local_ids: dict[str, str] = field(default_factory=dict)
    sides: dict[str, set[int]] = field(default_factory=dict)
    skipped: int = 0
    is_gloo: bool = False


def read_entries(entries: Sequence[Any], signatures: Signatures) -> EntryTable:
    """All entries that can be read, in their order."""
    try:
        return _read_alike(entries, signatures)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        table = _Entries(signatures)
        for entry in entries:
            table.add(entry)
        rows_EC = np.array(table.rows, np.int64).reshape(-1, _COLUMNS)
        return EntryTable(rows_EC, table.names, table.descriptions, table.local_ids, table.sides, table.skipped, table.is_gloo)


def _read_alike(entries: Sequence[Any], signatures: Signatures) -> EntryTable:
    """Entries that all have the usual keys with values of the usual types. Raises whatever one that has not makes of it."""
    table = EntryTable(np.zeros((len(entries), _COLUMNS), np.int64))
    if not entries:
        return table
    groups, locals_, titles, p2p, *numbers, states, retired = zip(*map(_USUAL, entries), strict=True)
    if {*map(type, retired), *map(type, p2p)} - _FLAGS or {kind for column in numbers for kind in set(map(type, column))} - _NUMBERS:
        raise TypeError("values of other types")
    rows_EC = table.rows_EC
    rows_EC[:, 0] = _number_groups(table, groups, locals_)
    for place, column in zip((1, 2, 3, 4, 5, 6), numbers, strict=True):
        if place in (1, 3) and None in column:
            raise TypeError("a counter is missing")
        rows_EC[:, place] = [value or 0 for value in column] if None in column else column
    if (rows_EC[:, 1:4] < -1).any() or (rows_EC[:, 4:7] < -1).any() or (rows_EC > LARGEST).any():
        raise ValueError("a counter out of range")
    np.maximum(rows_EC[:, 4:7], 0, out=rows_EC[:, 4:7])
    known = np.fromiter(map(_STATES.__getitem__, states), np.int64, len(states))
    done = np.fromiter((flag is True for flag in retired), bool, len(retired)) | (rows_EC[:, 6] > 0)
    rows_EC[:, 7] = np.where(done, COMPLETED, known)
    _read_titles(table, titles, p2p)
    rows_EC[:, 10] = _number_signatures(entries, signatures)
    return table


def _number_groups(table: EntryTable, groups: Sequence[Any], locals_: Sequence[Any]) -> list[int]:
    """Each entry's group by number, in the order in which groups appear."""
    keys = groups if set(map(type, groups)) == {tuple} else [tuple(group) if type(group) is list else group for group in groups]
    known: dict[tuple[str, str], int] = {}
    numbers: dict[str, int] = {}
    for name, description in dict.fromkeys(keys):
        if not (isinstance(name, str) and isinstance(description, str)):
            raise TypeError("a group of another kind")
        number = known[name, description] = numbers.setdefault(name, len(numbers))
        if number == len(table.names):
            table.names.append(name)
            table.descriptions.append(description)
    found = list(map(known.__getitem__, keys))
    last = dict(zip(found, locals_, strict=True))
    table.local_ids = {table.names[number]: str(local) for number, local in last.items() if local is not None}
    return found


def _read_titles(table: EntryTable, titles: Sequence[Any], p2p: Sequence[Any]) -> None:
    """Kind and peer of every entry by its title, which few different ones are."""
    pairs = list(zip(titles, p2p, strict=True))
    known = {pair: _kind(str(pair[0]), pair[1] is True) for pair in set(pairs)}
    kinds, peers = ({pair: both[place] for pair, both in known.items()} for place in (0, 1))
    table.rows_EC[:, 8] = list(map(kinds.__getitem__, pairs))
    table.rows_EC[:, 9] = list(map(peers.__getitem__, pairs))
    table.is_gloo = any(str(title).startswith("gloo:") for title, _ in known)
    if any(peer >= 0 for peer in peers.values()):
        for number, pair in set(zip(table.rows_EC[:, 0].tolist(), pairs, strict=True)):
            if peers[pair] >= 0:
                table.sides.setdefault(table.names[number], set()).add(_own_side(str(pair[0])))


def _number_signatures(entries: Sequence[Mapping[str, Any]], signatures: Signatures) -> list[int]:
    known = signatures.by_bytes
    keys = [marshal.dumps(shapes, 1) for shapes in map(_SHAPES, entries)]
    for key, entry in dict(zip(keys, entries, strict=True)).items():
        if key not in known:
            known[key] = signatures.number(_signature(str(entry["profiling_name"]), entry))
    return list(map(known.__getitem__, keys))


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
        state = COMPLETED if _flag(entry.get("retired")) or completed else _state(entry.get("state"))
        operation = str(entry["profiling_name"])
        kind, peer = _kind(operation, _flag(entry.get("is_p2p")))
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
    if isinstance(value, str):  # "[[4096, 4096]]"
        value = json.loads(value.replace("(", "[").replace(")", "]").replace(",]", "]"))
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple([tuple([int(length) for length in shape]) for shape in value])


def _texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple([str(item) for item in value or ()])


def _whole(value: Any) -> int:
    number = int(value)
    if not -1 <= number <= LARGEST:
        raise ValueError("a counter out of range")
    return number


def _state(value: Any) -> int:
    """A word that no list has is of an operation that is not complete: one that were would say so, or have a time."""
    return _STATES.get(str(value).strip().lower(), SCHEDULED)


def _flag(value: Any) -> bool:
    return value is True or value == 1 or (isinstance(value, str) and value.strip().lower() in ("true", "1"))


def _time(entry: Mapping[str, Any], key: str, microseconds: str = "") -> int:
    value = entry.get(key)
    if value is None and microseconds and entry.get(microseconds) is not None:
        value = int(entry[microseconds]) * 1000
    return max(_whole(value), 0) if value is not None else 0
