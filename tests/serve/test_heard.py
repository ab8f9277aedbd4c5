"""Whether an approval will be carried out: the service says whether a controller is heard."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from minder.model.clock import FakeClock
from minder.record.incidents import Ledger, kinds
from minder.record.store.leases import LeaseStore
from serve.heard import HEARD_S, Listening
from serve.state import Service
from tests.serve.browsing import send_token, token_of
from tests.serve.test_decisions import ask

As = Callable[..., dict[str, str]]


@pytest.fixture
def leases(ledger: Ledger) -> Iterator[LeaseStore]:
    store = LeaseStore(ledger.location)
    yield store
    store.close()


def test_a_lease_says_whether_its_holder_lives(leases: LeaseStore, clock: FakeClock) -> None:
    listening = Listening(leases, clock)
    assert listening.heard("llm", None).state == "silent"  # no controller holds it
    lease = leases.take("llm", "process 1 on head", None)
    assert lease is not None
    assert listening.heard("llm", None).state == "unknown"  # held, but one look shows no beats
    leases.beat(lease)
    clock.sleep(1.0)
    assert listening.heard("llm", None).state == "heard"
    beaten_s = clock.now_s()
    clock.sleep(60.0)
    found = listening.heard("llm", None)
    assert (found.state, found.last_s) == ("silent", beaten_s)
    leases.release(lease)
    assert listening.heard("llm", None).state == "silent"


def test_a_fresh_status_is_enough_and_an_old_one_says_when(leases: LeaseStore, clock: FakeClock) -> None:
    listening, now_s = Listening(leases, clock), clock.now_s()
    assert listening.heard("llm", now_s - 1.0).state == "heard"
    found = listening.heard("llm", now_s - HEARD_S - 1.0)
    assert (found.state, found.last_s) == ("silent", now_s - HEARD_S - 1.0)


def test_the_fleet_page_lists_what_waits_for_a_person(
    http: httpx.Client, service: Service, ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    status = tmp_path / "status.json"
    service.settings.status_files["llm"] = status
    assert send_token(http, token_of(service)).status_code == 303

    def actions(age_s: float, *standbys: str) -> str:
        rows = [{"name": name, "role": "standby"} for name in standbys]
        status.write_text(json.dumps({"job": "llm", "now_s": clock.now_s() - age_s, "machines": rows}))
        page = http.get("/parts/fleet").text
        return page[page.index("To do") : page.index("</section>")]

    first = actions(1.0)
    assert "m2: kept out of llm, and no finding is recorded" in first and "0 of 1 standbys are ready" in first
    assert "no data" not in first and "waits for an answer" not in first
    assert "its controller is not heard" in actions(60.0)
    ask(ledger, "evict-a")
    asked = actions(1.0, "s9")
    assert asked.index("May m1 of llm be evicted?") < asked.index("m2: kept out")
    assert "standbys are ready" not in asked
    ledger.append(kinds.OUTCOME, {"machine": "m2", "outcome": "confirmed"}, job="llm", incident="llm-1")
    assert "m2: kept out" not in actions(1.0, "s9")


def test_an_approval_that_no_controller_carries_out_does_not_look_done(
    http: httpx.Client, service: Service, ledger: Ledger, as_: As, clock: FakeClock, tmp_path: Path
) -> None:
    ask(ledger, "evict-a")
    status = tmp_path / "status.json"
    status.write_text(json.dumps({"job": "llm", "now_s": clock.now_s() - 2580.0}))
    service.settings.status_files["llm"] = status
    found = http.get("/v1/decisions/evict-a", headers=as_()).json()
    assert (found["controller"], found["last_heard"]) == ("silent", "2023-11-14T21:30:20.000Z")
    assert send_token(http, token_of(service, "operator")).status_code == 303
    for page in ("/incidents/llm-2", "/incidents/llm-2/now", "/"):
        assert "Nothing will happen until it runs" in http.get(page).text
    headers = as_("operator", name="alice") | {"Idempotency-Key": "k1"}
    detail = http.post("/v1/decisions/evict-a/approve", json={"reason": "checked"}, headers=headers).json()["detail"]
    assert "not yet carried out: no controller of llm is heard (last heard 2023-11-14T21:30:20.000Z)" in detail
    page = http.get("/incidents/llm-2").text
    assert "Approved by alice, not yet carried out" in page and "Nothing will happen until it runs" in page
    assert "not yet carried out" in http.get("/").text
    status.write_text(json.dumps({"job": "llm", "now_s": clock.now_s()}))
    assert "Nothing will happen until it runs" not in http.get("/incidents/llm-2").text
    ledger.intend("evict-a", {"action": "evict", "machines": ["m1"]}, job="llm", incident="llm-2")
    assert http.get("/v1/decisions/evict-a", headers=as_()).json()["controller"] is None
    assert ledger.events(kinds=[kinds.APPROVAL_SETTLED])[0].payload["by"] == "alice"
