"""One dump file, whatever wrote it: pickle or JSON, NCCL or gloo, keys of version 1 or 2.

A file that cannot be read is not an error of the analysis: it is a rank that is missing, with the reason.
"""

from __future__ import annotations

import codecs
import functools
import gzip
import io
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minder.diagnose.flight_recorder.entries import LARGEST, read_entries
from minder.diagnose.flight_recorder.lives import drop_earlier_life
from minder.diagnose.flight_recorder.pickles import MAX_CONTAINERS, UntrustedDataError, collector_paused, load_plain_pickle
from minder.diagnose.flight_recorder.records import Group, RankDump, Signatures, Status

__all__ = ["MAX_FILE_BYTES", "UnreadableDumpError", "load_dump", "parse_dump", "read_dump"]

MAX_FILE_BYTES = 64 << 20
_MAX_ENTRIES = 200_000


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
        data = _unpacked(data)
        document = _load_json(data) if data.lstrip()[:1] in (b"{", b"[") else load_plain_pickle(data)
    except UntrustedDataError as error:
        raise UnreadableDumpError(f"{name} is refused: {error}") from error
    except ValueError as error:
        raise UnreadableDumpError(f"{name} is no dump: {error}") from error
    if since_s and isinstance(document, Mapping) and isinstance(document.get("entries"), (list, tuple)):
        document = {**document, "entries": [entry for entry in document["entries"] if _created_s(entry) >= since_s]}
    return parse_dump(document, rank, signatures, name)


def _unpacked(data: bytes) -> bytes:
    """Without gzip, without a hole at its beginning, and without a byte order mark, in which an editor may have left a JSON dump.

    Raises ValueError.
    """
    if data.startswith(b"\x1f\x8b"):
        try:
            with gzip.open(io.BytesIO(data)) as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"its gzip is cut off or damaged ({error})") from error
        if len(data) > MAX_FILE_BYTES:
            raise UntrustedDataError(f"it unpacks to more than {MAX_FILE_BYTES >> 20} MiB")
    if data.startswith(b"\0\0"):
        data = data.lstrip(b"\0")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16").encode()
    return data.removeprefix(codecs.BOM_UTF8)


def _created_s(entry: Any) -> float:
    """inf where it is not written: the entry stays."""
    value = entry.get("time_created_ns") if isinstance(entry, Mapping) else None
    return value / 1e9 if isinstance(value, (int, float)) and value > 0 else float("inf")


def _load_json(data: bytes) -> Any:
    if len(data) > MAX_CONTAINERS and data.count(b"[") + data.count(b"{") > MAX_CONTAINERS:
        raise UntrustedDataError(f"it holds more than {MAX_CONTAINERS} containers")
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        newest = _newest_document(data.decode(errors="replace")) if error.msg == "Extra data" else None
        if newest is None:
            raise ValueError(f"it is cut off or damaged ({str(error)[:80]})") from error
        return newest
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is cut off or damaged ({str(error)[:80] or type(error).__name__})") from error


def _newest_document(text: str) -> Any:
    """Of several documents one after the other, as a file that is written on in turn holds them, the last that is whole; None for none."""
    decoder, at, newest = json.JSONDecoder(), 0, None
    while at < len(text):
        try:
            newest, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return newest
        at += len(text[at:]) - len(text[at:].lstrip())
    return newest


def parse_dump(document: Any, rank: int, signatures: Signatures, name: str = "the dump") -> RankDump:
    """A loaded document as columns. Raises UnreadableDumpError where it is no dump at all."""
    document = _unwrapped(document)
    if not isinstance(document, Mapping) or not isinstance(document.get("entries", []), (list, tuple)):
        raise UnreadableDumpError(f"{name} is no Flight Recorder dump: no list of entries")
    if not _KEYS & set(document):
        raise UnreadableDumpError(f"{name} is no Flight Recorder dump: neither entries nor pg_config")
    entries = document.get("entries", [])
    with collector_paused():
        table = read_entries(entries[-_MAX_ENTRIES:], signatures)
    if entries and not len(table.rows_EC):
        raise UnreadableDumpError(f"{name} has no entry that can be read")
    columns = drop_earlier_life(table.rows_EC[np.argsort(table.rows_EC[:, 3], kind="stable")]).T
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


_KEYS = frozenset({"entries", "pg_config", "pg_status"})


def _unwrapped(document: Any) -> Any:
    """The dump inside a record of a collector's own: {"rank": 3, "host": ..., "dump": {...}}."""
    if not isinstance(document, Mapping) or _KEYS & set(document):
        return document
    inner = [value for value in document.values() if isinstance(value, Mapping) and _KEYS & set(value)]
    return inner[0] if len(inner) == 1 else document


def _status(value: Any) -> dict[str, Status]:
    """pg_status by rank-local id. Anything unreadable is left out: no data."""
    found = {}
    for key, item in value.items() if isinstance(value, Mapping) else ():
        if isinstance(item, Mapping):
            enqueued, completed = (_counter(item.get(f"last_{what}_collective")) for what in ("enqueued", "completed"))
            if enqueued is not None and completed is not None:
                found[str(key)] = Status(max(enqueued, 0), max(completed, 0))
    return found


def _counter(value: Any) -> int | None:
    """A counter, as a number or, from recorders that write JSON by hand, as a text; None where it is neither."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value.strip()):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= LARGEST else None


def _groups(value: Any) -> tuple[Group, ...]:
    """pg_config by name, with a group's ranks alone or among what else is written of it. gloo's single nameless entry without ranks says
    nothing."""
    found = []
    for key, item in value.items() if isinstance(value, Mapping) else ():
        entry = item if isinstance(item, Mapping) else {"ranks": item}
        ranks, name = _ranks(entry.get("ranks")), str(entry.get("name", key))
        if name and ranks:
            found.append(Group(name, str(entry.get("desc", "")), ranks))
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
