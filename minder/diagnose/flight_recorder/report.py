"""An analysis as docs/collectives.md has it, and as a table for reading."""

from __future__ import annotations

from typing import Any

from minder.diagnose.flight_recorder.analyse import Analysis
from minder.diagnose.flight_recorder.progress import follow
from minder.diagnose.flight_recorder.records import Collection

__all__ = ["as_document", "as_rows", "group_progress"]


def as_document(collection: Collection, analysis: Analysis) -> dict[str, Any]:
    """One JSON object; `missing_reasons` and `detail` are additions to the frozen fields."""
    missing = collection.missing
    return {
        "suspect_ranks": sorted(culprit.rank for culprit in analysis.culprits),
        "order": [
            {
                "rank": culprit.rank,
                "process_group": None if culprit.group is None else collection.groups[culprit.group].name,
                "description": None if culprit.group is None else collection.groups[culprit.group].description,
                "last_enqueued": culprit.last_enqueued,
                "last_completed": culprit.last_completed,
                "peers_enqueued": culprit.peers_enqueued,
                "peers_completed": culprit.peers_completed,
                "cause": culprit.cause,
                "confidence": round(culprit.confidence, 2),
            }
            for culprit in analysis.culprits
        ],
        "mismatches": [
            {
                "process_group": collection.groups[item.group].name,
                "sequence": item.sequence,
                "field": item.field,
                "by_rank": {str(rank): value for rank, value in item.by_rank.items()},
            }
            for item in analysis.mismatches
        ],
        "missing_ranks": sorted(missing),
        "missing_reasons": {str(rank): reason for rank, reason in sorted(missing.items())},
        "cause": analysis.cause,
        "confidence": analysis.confidence,
        "detail": analysis.detail,
    }


def as_rows(document: dict[str, Any]) -> list[list[str]]:
    """Header and one row per suspect."""
    header = ["rank", "cause", "confidence", "group", "launched", "completed", "peers launched", "peers completed"]
    rows = [header]
    for item in document["order"]:
        group = f"{item['process_group']} {item['description'] or ''}".strip()
        numbers = [item[key] for key in ("last_enqueued", "last_completed", "peers_enqueued", "peers_completed")]
        rows.append(
            [str(item["rank"]), item["cause"], f"{item['confidence']:.2f}", group, *("-" if n is None else str(n) for n in numbers)]
        )
    return rows


def group_progress(collection: Collection, analysis: Analysis) -> tuple[str, dict[int, tuple[int, int] | None]]:
    """A process group's name, and of each of its ranks the last operation that it launched and the last that it completed, None where
    that is not known. The group in which the first suspect is farthest behind; without a suspect the largest one."""
    blamed = [culprit.group for culprit in analysis.culprits if culprit.group is not None]
    number = blamed[0] if blamed else max(range(len(collection.groups)), key=lambda index: len(collection.groups[index].ranks))
    group, tracks = collection.groups[number], follow(collection).tracks[number]
    found: dict[int, tuple[int, int] | None] = dict.fromkeys(group.ranks)
    collective = any(track.enqueued for track in tracks.values())
    for rank, track in tracks.items():
        pair = (track.enqueued, track.completed) if collective else (track.p2p_enqueued, track.p2p_completed)
        if pair[0] is not None and pair[1] is not None:
            found[rank] = (pair[0], pair[1])
    described = "" if group.description == "undefined" else group.description  # what torch calls a group without a description
    return f"{group.name} {described}".strip(), found
