"""What of a text a vendor may read."""

from __future__ import annotations

import io
import zipfile

import pytest

from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.bundle import vendor_bundle

MACHINES = ["m1", "m10", "m1.rack.example", "m2", "odd name", ""]


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("m1 waits", "peer-4 waits"),
        ("from m10.", "from peer-3."),
        ("m1.rack.example: up", "peer-1: up"),
        ("m1.other.example", "peer-4.other.example"),
        ("m1-ib0, m100, xm1, a.m1", "m1-ib0, m100, xm1, a.m1"),
        ("link of odd name lost", "link of peer-2 lost"),
        ("m2 itself, of the job llm", "m2 itself, of the job the-job"),
        ("...", "..."),
    ],
)
def test_names_of_others_are_replaced_as_words(said: str, read: str) -> None:
    incident = {"machines": ["m2"], "kind": "machine", "tier": "evict", "cause": "explicit", "confidence": 0.9, "time_s": 2.0}
    events = [
        LedgerEvent(1, 1.0, kinds.VERDICT, "llm", "llm-1", None, {**incident, "since_s": 1.0, "evidence": [], "against": []}),
        LedgerEvent(2, 2.0, kinds.EVIDENCE, "llm", "llm-1", None, {"machine": "m2", "what": "evidence", "data": {"kernel": [said]}}),
    ]
    registered = [LedgerEvent(0, 0.0, kinds.JOB_REGISTERED, "llm", None, None, {"machines": MACHINES, "standbys": []})]
    with zipfile.ZipFile(io.BytesIO(vendor_bundle(events, registered))) as archive:
        (capture,) = (name for name in archive.namelist() if name.startswith("captures/"))
        assert f'"{read}"' in archive.read(capture).decode()
