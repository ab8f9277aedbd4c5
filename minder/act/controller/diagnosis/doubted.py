"""Whose state in memory a recovery does not read.

An evicted machine that answers may hold what nothing else has. Its checksums say that its bytes are those that were saved; they do not say
that they were computed right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from minder.act.controller.diagnosis.diagnosing import SOURCE as PROBES
from minder.act.policy.blame import FOLLOWS
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds

__all__ = ["DOUBTED", "KINDS", "doubted_machines"]

DOUBTED = "MINDER_DOUBTED"  # in a worker's environment: their names, as a JSON list
KINDS = (kinds.INTENT, kinds.BARRED, kinds.UNBARRED, kinds.TRIAL_ENDED)


def doubted_machines(events: Iterable[LedgerEvent], barred: Collection[str], inside: Collection[str] = ()) -> list[str]:
    """Of the barred machines those whose numbers were the reason, or that failed a test of their own (pure), and those of which it is not
    known why they were barred. Also those whose ranks another machine runs on trial for wrong numbers, until these follow the rank.
    events: KINDS of one job, oldest first. inside: machines that have ranks."""
    intents: dict[str | None, Mapping[str, Any]] = {}
    trusted: dict[str, bool] = {}
    tried: set[str] = set()
    for event in events:
        machine = str(event.payload.get("machine"))
        if event.kind == kinds.INTENT:
            intents[event.operation_id] = event.payload
            if event.payload.get("action") == "trial" and not _is_trusted(event.payload):
                tried |= set(event.payload["machines"])
        elif event.kind == kinds.BARRED:
            trusted[machine] = _is_trusted(intents.get(event.operation_id, {}))
        elif event.kind == kinds.UNBARRED or event.payload.get("finding") == FOLLOWS:
            tried.discard(machine)
    return sorted({machine for machine in barred if not trusted.get(machine, False)} | (tried - set(inside)))


def _is_trusted(intent: Mapping[str, Any]) -> bool:
    decision = intent.get("decision") or {}
    verdict = decision.get("verdict") or {}
    cause, sources = verdict.get("cause"), verdict.get("sources") or ()
    return cause not in (None, "numeric", "unknown") and decision.get("trouble") != "nan" and PROBES not in sources
