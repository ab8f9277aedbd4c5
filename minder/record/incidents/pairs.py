"""Pair tests in the ledger: the graph of a diagnosis, by whose order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from minder.model.errors import WireError
from minder.model.history import LedgerEvent
from minder.model.pairs import PairGraph, PairWord
from minder.wire.codec import from_json, to_json

__all__ = ["PairRun", "fold_pairs", "pair_words", "pairs_payload"]


@dataclass(frozen=True, slots=True)
class PairRun:
    """Pair tests that were judged together."""

    time_s: float
    job: str | None
    incident: str | None
    by: str
    why: str
    note: str
    graph: PairGraph


def pairs_payload(graph: PairGraph, *, by: str, why: str, note: str = "") -> dict[str, Any]:
    """Of a PAIRS event."""
    return {"by": by, "why": why, **({"note": note} if note else {}), "graph": to_json(graph)}


def fold_pairs(events: Iterable[LedgerEvent]) -> list[PairRun]:
    """From events of kind PAIRS, in the given order (pure). One that a newer version wrote otherwise is left out."""
    found = []
    for event in events:
        payload = event.payload
        try:
            graph = from_json(PairGraph, payload.get("graph"))
        except WireError:
            continue
        words = (str(payload.get("by") or "?"), str(payload.get("why") or "?"), str(payload.get("note") or ""))
        found.append(PairRun(event.time_s, event.job, event.incident, *words, graph))
    return found


def pair_words(graph: PairGraph, time_s: float) -> dict[str, PairWord]:
    """Machine to what the tests say of it; one that they did not judge is left out (pure)."""
    peers: dict[str, list[str]] = {}
    for one, other in graph.links:
        peers.setdefault(one, []).append(other)
        peers.setdefault(other, []).append(one)
    return {
        node.machine: PairWord(time_s, node.machine, node.state, node.reason, tuple(peers.get(node.machine, ())))
        for node in graph.nodes
        if node.state != "not_judged"
    }
