"""Evictions that wait for an operator, over HTTP: who may see and answer them, and that one answer counts."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

import serve.decisions as decisions
from minder.model.clock import FakeClock
from minder.model.decision import Decision, Price
from minder.model.errors import BadInputError
from minder.model.evidence import Evidence, Verdict
from minder.record.client import Client
from minder.record.incidents import Ledger, kinds
from serve.heard import Heard
from serve.state import Service

As = Callable[..., dict[str, str]]
Send = Callable[..., httpx.Response]
NOW_S = 1_700_000_000.0


def ask(ledger: Ledger, name: str, machine: str = "m1", job: str = "llm") -> None:
    verdict = Verdict(
        NOW_S - 20, "machine", "evict", (machine,), "stall", 0.97, NOW_S - 30, (Evidence("stacks", machine, "in all_reduce"),)
    )
    decision = Decision(name, NOW_S - 19, "evict", (machine,), "act", "", verdict, Price(1.0, 9.0), ("s1",), (job,), ("tier: pass",))
    payload = {"decision": decision, "until_s": NOW_S + 600, "on_timeout": "page", "generation": 2, "incidents": [f"{job}-2"]}
    ledger.append_once(kinds.APPROVAL_ASKED, payload, job=job, incident=f"{job}-2", operation_id=name, time_s=NOW_S - 19)


@pytest.fixture
def asked(ledger: Ledger) -> list[str]:
    """Two questions about llm and one about another job, oldest first."""
    for name, job in (("evict-a", "llm"), ("evict-b", "llm"), ("evict-c", "other")):
        ask(ledger, name, job=job)
    return ["evict-a", "evict-b", "evict-c"]


@pytest.fixture
def send(http: httpx.Client, as_: As) -> Send:
    """send("evict-a/approve", key) -> the answer to an operator."""
    alice, count = as_("operator", name="alice"), iter(range(100))

    def call(path: str, key: str | None = None, **body: Any) -> httpx.Response:
        headers = alice | {"Idempotency-Key": key or f"key-{next(count)}"}
        return http.post(f"/v1/decisions/{path}", json={"reason": "checked"} | body, headers=headers)

    return call


def test_a_question_is_shown_with_all_that_speaks_for_it(http: httpx.Client, as_: As, asked: list[str]) -> None:
    found = http.get("/v1/decisions/evict-a", headers=as_()).json()
    assert (found["machines"], found["state"], found["open"], found["on_timeout"]) == (["m1"], "waiting", True, "page")
    assert (found["asked"], found["until"]) == ("2023-11-14T22:13:01.000Z", "2023-11-14T22:23:20.000Z")
    assert found["decision"]["price"]["waiting_gpu_s"] == 9.0 and found["decision"]["replacements"] == ["s1"]
    assert found["decision"]["verdict"]["evidence"][0]["message"] == "in all_reduce" and found["decision"]["stages"] == ["tier: pass"]
    missing = http.get("/v1/decisions/evict-z", headers=as_())
    assert missing.status_code == 404 and "GET /v1/decisions lists all" in missing.json()["detail"]


def test_lists_are_newest_first_in_pages_with_tags(http: httpx.Client, as_: As, asked: list[str], ledger: Ledger) -> None:
    viewer = as_()
    first = http.get("/v1/decisions?limit=2", headers=viewer)
    assert [item["id"] for item in first.json()["items"]] == ["evict-c", "evict-b"]
    ask(ledger, "evict-d")
    rest = http.get(f"/v1/decisions?limit=2&cursor={first.json()['next']}", headers=viewer).json()
    assert [item["id"] for item in rest["items"]] == ["evict-a"] and rest["next"] is None
    tag = http.get("/v1/decisions?job=other", headers=viewer).headers["etag"]
    assert http.get("/v1/decisions?job=other", headers=viewer | {"If-None-Match": tag}).status_code == 304
    assert http.get("/v1/decisions?state=approved", headers=viewer).json()["items"] == []
    for wrong in ("cursor=evict-z", "state=maybe", "cursor=../x"):
        assert http.get(f"/v1/decisions?{wrong}", headers=viewer).status_code == 422


def test_a_token_sees_and_answers_the_questions_of_its_jobs_only(http: httpx.Client, as_: As, asked: list[str], ledger: Ledger) -> None:
    scoped = as_("operator", jobs=("other",)) | {"Idempotency-Key": "k"}
    assert [item["id"] for item in http.get("/v1/decisions", headers=scoped).json()["items"]] == ["evict-c"]
    assert http.get("/v1/decisions/evict-a", headers=scoped).status_code == 403
    assert http.post("/v1/decisions/evict-a/approve", json={"reason": "x"}, headers=scoped).status_code == 403
    for role in ("viewer", "agent", "launcher"):
        headers = as_(role, **({"machine": "m1"} if role != "viewer" else {})) | {"Idempotency-Key": "k"}
        assert http.post("/v1/decisions/evict-a/approve", json={"reason": "x"}, headers=headers).status_code == 403
    assert http.post("/v1/decisions/evict-a/approve", json={"reason": "x"}).status_code == 401
    assert ledger.events(kinds=[kinds.APPROVAL_SETTLED]) == []


@pytest.mark.parametrize(
    ("dry_run", "said"), [(True, "nothing follows"), (False, "evicted at the controller's next tick"), (None, "next tick")]
)
def test_an_approval_says_that_a_controller_in_dry_run_evicts_nothing(
    http: httpx.Client, as_: As, send: Send, asked: list[str], monkeypatch: pytest.MonkeyPatch, dry_run: bool | None, said: str
) -> None:
    monkeypatch.setattr("serve.decisions.controller_heard", lambda *given: Heard("heard"))
    monkeypatch.setattr("serve.job_status.job_status", lambda *given: {"dry_run": dry_run})
    found = http.get("/v1/decisions/evict-a", headers=as_()).json()
    assert (found["controller"], found["dry_run"]) == ("heard", dry_run)
    assert said in send("evict-a/approve", "k").json()["detail"]


def test_an_answer_is_in_the_ledger_with_who_and_why_and_is_given_once(send: Send, asked: list[str], ledger: Ledger) -> None:
    first, again = send("evict-a/approve", "k"), send("evict-a/approve", "k")
    assert first.status_code == again.status_code == 201 and first.content == again.content
    assert again.headers["idempotent-replayed"] == "true" and "not yet carried out: no controller of llm is heard" in first.json()["detail"]
    (event,) = ledger.events(kinds=[kinds.APPROVAL_SETTLED])
    assert (event.payload["answer"], event.payload["by"], event.payload["reason"]) == ("approved", "alice", "checked")
    assert (event.job, event.incident, event.operation_id) == ("llm", "llm-2", "evict-a")
    assert [item.state for item in ledger.approvals("llm")] == ["approved", "waiting"]
    assert send("evict-b/reject").json()["detail"] == "evict-b is rejected: m1 stays in job llm"


@pytest.mark.parametrize("first", ["approve", "reject"])
def test_a_second_answer_is_a_conflict(send: Send, asked: list[str], first: str) -> None:
    send(f"evict-a/{first}")
    for second in ("approve", "reject"):
        answer = send(f"evict-a/{second}")
        assert answer.status_code == 409 and answer.headers["content-type"] == "application/problem+json"
        assert "already" in answer.json()["detail"] and "alice" in answer.json()["detail"]


def test_what_has_expired_cannot_be_answered(send: Send, asked: list[str], ledger: Ledger, clock: FakeClock) -> None:
    ledger.append(kinds.GENERATION_STARTED, {"generation": 3, "rank_machine": {}}, job="other")
    assert "restarted" in send("evict-c/approve").json()["detail"]
    clock.sleep(601.0)
    answer = send("evict-a/approve")
    assert answer.status_code == 409 and "no operator answered by" in answer.json()["detail"]
    assert ledger.events(kinds=[kinds.APPROVAL_SETTLED]) == []


@pytest.mark.parametrize("body", [{"reason": " "}, {"reason": "x" * 2001}, {"reason": None}, {"extra": 1}])
def test_an_answer_without_a_reason_is_refused(send: Send, asked: list[str], body: dict[str, Any]) -> None:
    assert send("evict-a/approve", **body).status_code == 422


def test_of_several_operators_at_once_one_is_heard(http: httpx.Client, as_: As, asked: list[str], ledger: Ledger) -> None:
    operators = [as_("operator", name=name) | {"Idempotency-Key": "k"} for name in ("ann", "bob", "cyd")]
    answers: list[httpx.Response] = []

    def say(headers: dict[str, str]) -> None:
        answers.append(http.post("/v1/decisions/evict-a/approve", json={"reason": "x"}, headers=headers))

    threads = [threading.Thread(target=say, args=(headers,)) for headers in operators]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409]
    assert len(ledger.events(kinds=[kinds.APPROVAL_SETTLED])) == 1


def test_an_answer_that_comes_between_the_look_and_the_write_is_a_conflict(
    send: Send, asked: list[str], ledger: Ledger, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = decisions.find_question

    def stale(*arguments: Any) -> Any:
        found = find(*arguments)
        monkeypatch.setattr(decisions, "find_question", find)
        ledger.answer_approval("evict-a", "rejected", by="bob", reason="first")
        return dataclasses.replace(found, state="waiting")

    monkeypatch.setattr(decisions, "find_question", stale)
    answer = send("evict-a/approve", "k")
    assert answer.status_code == 409 and "rejected by bob already" in answer.json()["detail"]
    assert send("evict-a/approve", "k").status_code == 409


def test_the_client_lists_shows_approves_and_rejects(http: httpx.Client, as_: As, asked: list[str], ledger: Ledger) -> None:
    client = Client("", as_("operator", name="carl")["Authorization"].removeprefix("Bearer "), http=http)
    assert [item.id for item in client.decisions(job="llm", state="waiting")] == ["evict-b", "evict-a"]
    assert client.decision("evict-a").decision.verdict.confidence == 0.97
    assert "approved" in client.approve("evict-a", "checked").detail and "rejected" in client.reject("evict-b", "flashing").detail
    with pytest.raises(BadInputError, match="was approved by carl already"):
        client.reject("evict-a", "changed my mind")
    told = [json.loads(json.dumps(dict(event.payload))) for event in ledger.events(kinds=[kinds.APPROVAL_SETTLED])]
    assert [item["reason"] for item in told] == ["checked", "flashing"]
