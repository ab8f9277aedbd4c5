from __future__ import annotations

import dataclasses

import pytest

from minder.model.decision import Decision
from minder.model.evidence import Evidence, Verdict
from minder.model.history import Pause
from minder.record.incidents.outlook import cost_per_minute, outlook
from minder.record.incidents.record import Incident, Timings

VERDICT = Verdict(100.0, "machine", "evict", ("m2",), "stall", 0.98, 92.0)


def incident_of(state: str = "open", cause: str = "stall", reason: str | None = None, **fields: object) -> Incident:
    verdict = dataclasses.replace(VERDICT, cause=cause)
    decision = None if reason is None else Decision("evict-1", 101.0, "page", ("m2",), reason, "asked again at 160 s", verdict)  # type: ignore[arg-type]
    known = {"machines": ("m2",), "decision": decision, "timings": Timings(acted_s=110.0)}
    return Incident("llm-1", "llm", state, 100.0, None, "", verdict, **(known | fields))  # type: ignore[arg-type]


def test_what_comes_next_follows_from_where_it_stands() -> None:
    assert outlook(incident_of("acting"), operation_timeout_s=900.0).by_s == 1010.0
    assert "first new step" in outlook(incident_of("recovering", replacements=("s1",))).what
    assert not outlook(incident_of()).waits_for_person
    assert "dry run" in outlook(incident_of(reason="dry_run")).what and outlook(incident_of(reason="dry_run")).waits_for_person
    assert "asked again at 160 s" in outlook(incident_of(reason="cooldown")).what
    assert outlook(incident_of("closed")).what == "Nothing: it is over."
    assert "m2" in outlook(incident_of("closed", evicted=("m2",))).what


def test_a_paused_incident_waits_for_the_pause_that_covers_it() -> None:
    pauses = (Pause("job", "other", 900.0, "x"), Pause("job", "llm", 500.0, "firmware"))
    assert outlook(incident_of(reason="paused"), pauses).by_s == 500.0


@pytest.mark.parametrize("reason", ["no_standby", "breaker", "budget_job", "max_restarts", "tier_too_low", "no_machine_to_blame"])
def test_what_the_policy_leaves_to_people_says_so(reason: str) -> None:
    assert outlook(incident_of(reason=reason)).waits_for_person


def test_each_minute_costs_what_stands_still() -> None:
    assert cost_per_minute(incident_of(), 64).gpu_minutes == 64.0
    assert cost_per_minute(incident_of(), None).gpu_minutes is None
    assert cost_per_minute(incident_of("closed", gpu_seconds_lost=600.0), 64).why == "over; it cost 10.0 GPU-minutes in all"
    slow = Evidence("progress", "m2", metric="step_seconds", observed=2.0, expected=1.5)
    assert cost_per_minute(incident_of(cause="slowdown", evidence=(slow,)), 64).gpu_minutes == 16.0
    assert cost_per_minute(incident_of(cause="slowdown"), 64).gpu_minutes is None, "nobody measured it: no number is made up"
