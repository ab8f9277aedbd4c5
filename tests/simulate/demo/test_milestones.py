from __future__ import annotations

from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.simulate.demo.milestones import find_milestones


def test_the_moments_of_an_incident_come_in_order(told) -> None:  # type: ignore[no-untyped-def]
    fault_s = told.injected.time_s
    found = [(item.key, round(item.time_s - fault_s, 1)) for item in find_milestones(fault_s, told.events())]
    assert found == [
        ("injected", 0.0),
        ("detected", 3.0),
        ("decided", 3.1),
        ("captured", 3.5),
        ("evicted", 3.6),
        ("restarted", 4.4),
        ("first_step", 5.5),
    ]


def test_what_happened_before_the_fault_is_no_milestone_of_it() -> None:
    early = LedgerEvent(1, 100.0, kinds.FIRST_STEP, "job", "job-1", None, {"step": 3})
    start = LedgerEvent(2, 200.0, kinds.FIRST_STEP, "job", None, None, {"step": 3})
    assert [item.key for item in find_milestones(150.0, [early, start])] == ["injected"]


def test_a_watch_is_no_detection_and_a_page_is_no_eviction() -> None:
    watch = LedgerEvent(1, 10.0, kinds.VERDICT, "job", "job-1", None, {"kind": "machine", "tier": "watch"})
    page = LedgerEvent(2, 11.0, kinds.DECISION, "job", "job-1", None, {"action": "page"})
    assert find_milestones(None, [watch, page]) == ()
