from __future__ import annotations

import time
from collections.abc import Callable

import httpx
import pytest

from minder.model.clock import FakeClock
from minder.record.incidents import Ledger, kinds
from minder.record.store.tokens import TokenStore
from serve.settings import Limits
from serve.state import Service

As = Callable[..., dict[str, str]]
READS = ["whoami", "metrics", "incidents", "incidents/llm-1", "incidents/llm-1/captures", "events", "events/stream", "machines",
         "machines/m2", "pauses", "jobs", "jobs/llm", "policy"]  # fmt: skip
ACTIONS = {
    "pauses": {"scope": "job", "target": "llm", "seconds": 60, "reason": "firmware"},
    "pauses/end": {"scope": "job", "target": "llm", "reason": "done"},
    "machines/m2/outcome": {"outcome": "confirmed", "note": "bad memory"},
    "machines/m2/return": {"reason": "repaired"},
    "incidents/llm-1/notes": {"text": "seen"},
}


@pytest.fixture
def limits() -> Limits:
    return Limits(rate=0.001, burst=40.0, failure_rate=0.001, failure_burst=40.0)


def test_nothing_is_read_and_nothing_done_without_a_token(http: httpx.Client, ledger: Ledger) -> None:
    before = ledger.events()
    answers = [http.get(f"/v1/{path}") for path in READS]
    answers += [http.post(f"/v1/{path}", json=body, headers={"Idempotency-Key": "a"}) for path, body in ACTIONS.items()]
    answers += [http.post(f"/v1/{path}", json={}) for path in ("scores", "policy/dry-run")]
    for answer in answers:
        assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json"), answer.url
        assert answer.headers["www-authenticate"] == "Bearer" and "minder token create" in answer.json()["detail"]
    assert ledger.events() == before


def test_health_and_readiness_need_no_token(http: httpx.Client) -> None:
    assert http.get("/v1/health").json()["status"] == "ok"
    for _ in range(500):  # a service that has just begun reads the past first
        if (answer := http.get("/v1/ready")).status_code == 200:
            break
        assert "ask again" in answer.json()["detail"]
        time.sleep(0.01)
    assert answer.json()["status"] == "ok"


def test_who_is_no_operator_acts_on_nothing_and_an_agent_reads_nothing(http: httpx.Client, ledger: Ledger, as_: As) -> None:
    callers = [as_("viewer"), as_("agent", machine="m1"), as_("launcher", machine="m1")]
    before = ledger.events()
    for headers in callers:
        for path, body in ACTIONS.items():
            answer = http.post(f"/v1/{path}", json=body, headers=headers | {"Idempotency-Key": "a"})
            assert answer.status_code == 403 and "role operator" in answer.json()["detail"], path
    for path in READS:
        assert path == "whoami" or http.get(f"/v1/{path}", headers=callers[1]).status_code == 403, path
    assert ledger.events() == before


def test_an_operator_and_an_admin_may_read_what_a_viewer_may(http: httpx.Client, as_: As) -> None:
    for role in ("viewer", "operator", "admin"):
        assert http.get("/v1/incidents", headers=as_(role)).status_code == 200


def test_a_token_for_one_job_sees_and_touches_no_other(http: httpx.Client, ledger: Ledger, as_: As) -> None:
    theirs = as_("operator", jobs=("vision",))
    for path in ("incidents", "events", "machines", "jobs"):
        assert http.get(f"/v1/{path}", headers=theirs).json()["items"] == []
    for path in ("incidents/llm-1", "incidents/llm-1/captures", "jobs/llm", "policy?job=llm"):
        assert http.get(f"/v1/{path}", headers=theirs).status_code == 403
    assert http.get("/v1/machines/m2", headers=theirs).status_code == 404
    before = ledger.events()
    for number, (path, body) in enumerate(ACTIONS.items()):
        answer = http.post(f"/v1/{path}", json=body, headers=theirs | {"Idempotency-Key": str(number)})
        assert answer.status_code in (403, 404, 409), path
    everything = {"scope": "all", "seconds": 60, "reason": "mine"}
    assert http.post("/v1/pauses", json=everything, headers=theirs | {"Idempotency-Key": "x"}).status_code == 403
    assert http.post("/v1/policy/dry-run", json={"job": "llm"}, headers=theirs).status_code == 403
    assert ledger.events() == before


def test_a_token_for_the_job_may_act_on_it(http: httpx.Client, as_: As) -> None:
    ours = as_("operator", jobs=("llm",))
    answers = [
        http.post(f"/v1/{path}", json=body, headers=ours | {"Idempotency-Key": str(number)})
        for number, (path, body) in enumerate(ACTIONS.items())
    ]
    assert [answer.status_code for answer in answers] == [201] * len(ACTIONS), [answer.text for answer in answers]


def test_a_revoked_and_an_expired_token_end_at_once(http: httpx.Client, service: Service, clock: FakeClock, as_: As) -> None:
    revoked, expiring = as_("admin", name="bob"), as_("viewer", expires_s=clock.now_s() + 60.0)
    assert {http.get("/v1/whoami", headers=headers).status_code for headers in (revoked, expiring)} == {200}
    service.tokens.revoke("bob", clock.now_s(), "root")
    clock.sleep(61.0)
    for headers in (revoked, expiring):
        answer = http.get("/v1/whoami", headers=headers)
        assert answer.status_code == 401 and "revoked or expired" in answer.json()["detail"]


def test_too_many_requests_of_one_caller_are_refused_and_others_go_on(http: httpx.Client, as_: As) -> None:
    greedy, other = as_("viewer"), as_("viewer")
    answers = [http.get("/v1/whoami", headers=greedy) for _ in range(45)]
    refused = [answer for answer in answers if answer.status_code != 200]
    assert len(refused) == 5 and {answer.status_code for answer in refused} == {429}
    assert int(refused[0].headers["retry-after"]) >= 1
    assert http.get("/v1/whoami", headers=other).status_code == 200


def test_guessing_tokens_is_slowed_down_and_a_right_token_still_works(http: httpx.Client, as_: As) -> None:
    statuses = [http.get("/v1/whoami", headers={"Authorization": f"Bearer guess{number}"}).status_code for number in range(42)]
    assert statuses[0] == 401 and statuses[-1] == 429
    assert http.get("/v1/whoami", headers=as_("viewer")).status_code == 200


def test_odd_authorization_headers_are_401(http: httpx.Client) -> None:
    for given in ("Basic abc", "Bearer", "Bearer ", "Bearer a b", "Bearer \x01", "bearer minder_0_0", "x" * 5000):
        assert http.get("/v1/whoami", headers={"Authorization": given}).status_code == 401, given


def test_the_ledger_says_who_made_a_token_but_no_answer_tells_a_secret(http: httpx.Client, as_: As, ledger: Ledger) -> None:
    headers = as_("viewer")
    secret = headers["Authorization"][-43:]
    for path in READS:
        if path != "events/stream":
            assert secret not in http.get(f"/v1/{path}", headers=headers).text
    assert [event.payload["by"] for event in ledger.events(kinds=[kinds.TOKEN])] == ["root"]
    store = TokenStore(ledger.location)
    assert len(store.list()) == 1
    store.close()
