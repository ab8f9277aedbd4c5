"""The track record over HTTP: five figures, of the caller's jobs alone; what is not known is null."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from minder.ingest.sources.exposition import parse_exposition
from minder.record.api.track_record import DEFINITIONS
from minder.record.incidents import Ledger, kinds
from tests.serve.conftest import NOW_S

As = Callable[..., dict[str, str]]


def test_what_the_ledger_says_and_what_it_does_not(http: httpx.Client, as_: As, ledger: Ledger) -> None:
    before = http.get("/v1/track-record", headers=as_("viewer")).raise_for_status().json()
    assert before["false_isolation"] == {"share": None, "low": 0.0, "high": 1.0, "part": 0, "whole": 0, "unknown": 1}
    assert (before["recovery"]["part"], before["recovery"]["whole"]) == (1, 1)
    assert before["detection"]["median_s"] == 8.0 and before["signals"]["share"] is None
    outcome = {"machine": "m2", "outcome": "no-fault-found", "by": "alice"}
    ledger.append(kinds.OUTCOME, outcome, job="llm", incident="llm-1", time_s=NOW_S - 10.0)
    after = http.get("/v1/track-record?days=1&job=llm", headers=as_("viewer")).raise_for_status().json()
    assert (after["false_isolation"]["part"], after["false_by_person"]["part"], after["false_by_test"]["unknown"]) == (1, 1, 1)
    text = http.get("/v1/metrics", headers=as_("viewer")).text
    shares = {labels["figure"]: value for name, labels, value in parse_exposition(text) if name == "minder_service_track_record_share"}
    assert shares == {"false_isolation": 1.0, "recovery": 1.0}, "of the others nothing is known: they are absent"
    for named in ("false_isolation", "recovery", "returned", "signals", "detection"):
        assert DEFINITIONS[named] in text
        counted = f'minder_service_track_record_unknown{{figure="{named}"}}' in text
        assert counted == (named != "signals"), "what came while no controller ran cannot be counted"


def test_other_jobs_are_not_in_it(http: httpx.Client, as_: As) -> None:
    headers = as_("viewer", jobs=("other",))
    assert http.get("/v1/track-record", headers=headers).json()["detection"]["incidents"] == 0
    assert http.get("/v1/track-record?job=llm", headers=headers).status_code == 403
    assert http.get("/v1/track-record?days=0", headers=headers).status_code == 422
