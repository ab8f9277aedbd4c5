"""Dumps as strangers hand them in: other versions and names, rings that wrapped, remains of an earlier life, files that are too old."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

Documents = dict[int, dict[str, Any]]
VERSIONS = ("2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.7", "2.9", "2.10")
_LATER = {  # what versions before this one did not write
    "2.1": ("duration_ms",),
    "2.2": ("pg_status", "retired"),
    "2.3": ("timeout_ms", "record_id"),
    "2.5": ("thread_id", "thread_name"),
}
NAMES: tuple[Callable[[int], str], ...] = (
    lambda rank: f"nccl_trace_rank_{rank}",
    lambda rank: f"rank{rank:05d}.pkl",
    lambda rank: f"2026-03-02_job-4711_gpu8_rank_{rank}.pickle",
    lambda rank: f"node-{rank // 8}_local{rank % 8}_rank{rank}.bin",
    lambda rank: f"{rank}.json",
    lambda rank: f"fr.v2.9.{rank}",
    lambda rank: f"comm_lib_trace_rank_{rank}",
)


def as_version(documents: Documents, version: str) -> Documents:
    """As an older recorder would have written them."""
    number = float(version.split(".")[1])
    gone = [key for since, keys in _LATER.items() if number < float(since.split(".")[1]) for key in keys]
    found: Documents = {}
    for rank, document in documents.items():
        older = {key: value for key, value in document.items() if key not in gone}
        older["version"] = version
        older["entries"] = [{key: value for key, value in entry.items() if key not in gone} for entry in document["entries"]]
        found[rank] = older
    return found


def file_of(folder: Path, rank: int, seed: int) -> Path:
    """Where write_strangely puts a rank's dump."""
    chance = random.Random(seed)
    chance.choice([2, 3, 4, 5, "json"])
    return folder / chance.choice(NAMES)(rank)


def write_strangely(folder: Path, documents: Documents, job_toml: str | None, seed: int) -> Path:
    """Pickles of some protocol or JSON, under some name; the seed chooses."""
    chance = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    form, name = chance.choice([2, 3, 4, 5, "json"]), chance.choice(NAMES)
    for rank, document in documents.items():
        path = folder / name(rank)
        path.write_bytes(json.dumps(document).encode() if form == "json" else pickle.dumps(document, int(form)))
    (folder / "README.txt").write_text("dumps of the hang")
    if job_toml is not None:
        (folder / "job.toml").write_text(job_toml)
    return folder


def earlier_life(documents: Documents, ranks: list[int], count: int, dangling: bool) -> Documents:
    """The rings of these ranks still hold the end of an earlier generation: counters go back to 1 where the new one begins."""
    found = dict(documents)
    for rank in ranks:
        own, old = documents[rank]["entries"], []
        for entry in [dict(entry) for entry in own[-count:]]:
            entry["collective_seq_id"] += 900
            entry["p2p_seq_id"] += 900 if entry["is_p2p"] else 0
            entry["time_created_ns"] -= 3_600_000_000_000
            done = not dangling
            entry["state"], entry["retired"] = ("completed", True) if done else ("scheduled", False)
            entry["time_discovered_completed_ns"] = entry["time_created_ns"] + 1_000_000 if done else None
            old.append(entry)
        entries = [{**entry, "record_id": 5000 + number} for number, entry in enumerate([*old, *own])]
        found[rank] = {**documents[rank], "entries": entries}
    return found


def taken_early(documents: Documents, rank: int, share: float) -> Documents:
    """This rank's file is an older one: it ends where its first part was complete, and its counters with it."""
    entries = documents[rank]["entries"]
    kept = entries[: int(len(entries) * share)]
    while kept and kept[-1]["state"] != "completed":
        kept.pop()
    status: dict[str, dict[str, int]] = {}
    for entry in kept:
        number = entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"]
        keys = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
        status[str(entry["pg_id"])] = dict.fromkeys(keys, number)
    return {**documents, rank: {**documents[rank], "entries": kept, "pg_status": status}}


def wrapped(documents: Documents, seed: int) -> Documents:
    """Rings of different lengths, as with ranks that record more groups than others."""
    chance = random.Random(seed)
    return {rank: {**document, "entries": document["entries"][-chance.randrange(12, 60) :]} for rank, document in documents.items()}
