"""An analysis as formats.md section 4 has it, and as a table for reading."""

from __future__ import annotations

from typing import Any

from minder.collectives.analyse import Analysis
from minder.collectives.records import Collection

__all__ = ["as_document", "as_rows"]


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
