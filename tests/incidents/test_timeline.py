from __future__ import annotations

import pytest

from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.timeline import describe


@pytest.mark.parametrize("kind", [getattr(kinds, name) for name in kinds.__all__])
def test_every_kind_has_words_even_for_an_empty_payload(kind: str) -> None:
    assert describe(LedgerEvent(1, 0.0, kind, None, None, None, {}))


@pytest.mark.parametrize(
    ("kind", "payload", "line"),
    [
        (
            kinds.VERDICT,
            {"kind": "job", "tier": "page", "cause": "explicit", "confidence": 1.0},
            "the job reports a fault: page (a person should look), confidence 1.00",
        ),
        (
            kinds.PAUSE,
            {"scope": "rack", "target": "r1", "until_s": 0, "reason": "x"},
            "actions paused (rack r1) until 1970-01-01T00:00:00.000Z: x",
        ),
        (kinds.RECOVERY_PHASE, {"phase": "load", "state": "end", "detail": "step 40"}, "load ends: step 40"),
        (kinds.AMBIGUOUS, {"detail": "timed out"}, "not known whether it happened: timed out"),
        (
            kinds.DECISION,
            {"action": "none", "machines": ["m2"], "reason": "awaiting_approval", "detail": "minder decision approve x"},
            "decision, nothing is done: m2 (awaiting_approval)",
        ),
        (kinds.OUTCOME, {"machine": "m2", "outcome": "confirmed", "by": "ann"}, "m2 was found: confirmed: ann"),
        (kinds.TOKEN, {"name": "ci", "role": "viewer", "what": "created", "by": "ann"}, "token ci (viewer) created by ann"),
        (
            kinds.TOKEN,
            {"name": "ci", "role": "viewer", "what": "revoked", "by": "ann", "reason": "x"},
            "token ci (viewer) revoked by ann: x",
        ),
    ],
)
def test_what_happened_in_words(kind: str, payload: dict[str, object], line: str) -> None:
    assert describe(LedgerEvent(1, 0.0, kind, None, None, None, payload)) == line
