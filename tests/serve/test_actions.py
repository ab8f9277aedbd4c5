from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from minder.model.clock import FakeClock
from minder.record.incidents import Ledger, kinds

As = Callable[..., dict[str, str]]
Send = Callable[..., httpx.Response]
PAUSE = {"scope": "job", "target": "llm", "seconds": 3600, "reason": "switch firmware"}


@pytest.fixture
def operator(as_: As) -> dict[str, str]:
    return as_("operator", name="alice")


@pytest.fixture
def send(http: httpx.Client, operator: dict[str, str]) -> Send:
    """send(path, body, key) -> the answer to an operator's action."""
    count = 0

    def call(path: str, body: Any, key: str | None = None) -> httpx.Response:
        nonlocal count
        count += 1
        return http.post(f"/v1/{path}", json=body, headers=operator | {"Idempotency-Key": key or f"key-{count}"})

    return call


def test_an_action_sent_twice_is_done_once_and_another_body_is_refused(send: Send, ledger: Ledger, clock: FakeClock) -> None:
    first = send("pauses", PAUSE, "a")
    clock.sleep(10.0)
    again = send("pauses", PAUSE, "a")
    assert (first.status_code, again.status_code) == (201, 201) and first.content == again.content
    assert "idempotent-replayed" not in first.headers and again.headers["idempotent-replayed"] == "true"
    for path, body in (("pauses", PAUSE | {"seconds": 60}), ("pauses/end", {"scope": "all", "reason": "x"})):
        other = send(path, body, "a")
        assert other.status_code == 422 and "Idempotency-Key was used" in other.json()["detail"]
    (event,) = ledger.events(kinds=[kinds.PAUSE])
    assert first.json()["events"] == [event.id]


def test_an_action_without_a_key_is_refused(http: httpx.Client, operator: dict[str, str], ledger: Ledger) -> None:
    for key in ({}, {"Idempotency-Key": "x" * 256}, {"Idempotency-Key": "two words"}):
        answer = http.post("/v1/pauses", json=PAUSE, headers=operator | key)
        assert answer.status_code == 422 and "Idempotency-Key" in answer.json()["detail"]
    assert ledger.events(kinds=[kinds.PAUSE]) == []


def test_the_same_action_from_several_at_once_is_done_once(send: Send, ledger: Ledger) -> None:
    answers: list[httpx.Response] = []
    senders = [threading.Thread(target=lambda: answers.append(send("pauses", PAUSE, "a"))) for _ in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert {answer.status_code for answer in answers} == {201} and len({answer.content for answer in answers}) == 1
    assert len(ledger.events(kinds=[kinds.PAUSE])) == 1


def test_every_action_is_in_the_ledger_with_who_and_why(send: Send, ledger: Ledger) -> None:
    last = ledger.events()[-1].id
    send("pauses", PAUSE)
    send("pauses/end", {"scope": "job", "target": "llm", "reason": "done early"})
    send("machines/m2/outcome", {"outcome": "confirmed", "note": "HBM of GPU 3"})
    send("machines/m2/return", {"reason": "repaired"})
    send("incidents/llm-1/notes", {"text": "vendor case 17"})
    told = [(event.kind, event.payload) for event in ledger.events(since_id=last) if event.kind != kinds.TOKEN]
    assert [kind for kind, _ in told] == [kinds.PAUSE, kinds.UNPAUSE, kinds.OUTCOME, kinds.UNBARRED, kinds.NOTE]
    assert {payload["by"] for _, payload in told} == {"alice"} and all(len(payload["token"]) == 12 for _, payload in told)
    why = [payload.get("reason") or payload.get("note") or payload.get("text") for _, payload in told]
    assert why == ["switch firmware", "done early", "HBM of GPU 3", "repaired", "vendor case 17"]


def test_pauses_reach_the_policy_and_end(
    send: Send, http: httpx.Client, operator: dict[str, str], ledger: Ledger, clock: FakeClock
) -> None:
    send("pauses", PAUSE)
    send("pauses", {"scope": "all", "seconds": 60, "reason": "power"})
    assert {pause.scope for pause in ledger.history("llm", clock.now_s()).pauses} == {"job", "all"}
    listed = http.get("/v1/pauses", headers=operator).json()["items"]
    assert [(item["scope"], item["target"], item["reason"]) for item in listed] == [
        ("job", "llm", "switch firmware"),
        ("all", None, "power"),
    ]
    assert send("pauses/end", {"scope": "rack", "target": "r9", "reason": "x"}).status_code == 409
    assert send("pauses/end", {"scope": "all", "reason": "over"}).status_code == 201
    assert ledger.history("llm", clock.now_s()).pauses == ()


def test_what_the_repair_found_and_the_way_back(send: Send, http: httpx.Client, operator: dict[str, str], ledger: Ledger) -> None:
    assert http.get("/v1/machines?barred=true", headers=operator).json()["items"][0]["barred_in"] == ["llm"]
    assert send("machines/m2/outcome", {"outcome": "no-fault-found", "note": "clean"}).status_code == 201
    assert send("machines/m2/outcome", {"outcome": "confirmed", "note": "x", "incident": "llm-2"}).status_code == 422
    assert send("machines/m9/outcome", {"outcome": "confirmed", "note": "x"}).status_code == 404
    back = send("machines/m2/return", {"reason": "burn-in passed", "job": "llm"}).json()["detail"]
    assert back.startswith("m2 may work again in job llm: it waits as a standby")
    assert send("machines/m2/return", {"reason": "again"}).status_code == 409
    found = http.get("/v1/machines/m2", headers=operator).json()
    assert (found["barred_in"], found["evictions"], found["outcome"]) == ([], 1, "no-fault-found")
    assert [item["id"] for item in found["incidents"]] == ["llm-1"]
    assert ledger.incident("llm-1").outcomes == {"m2": "no-fault-found"} and ledger.history("llm").barred == frozenset()


BAD = [
    ("pauses", PAUSE | {"seconds": 0}),
    ("pauses", PAUSE | {"seconds": 1e300}),
    ("pauses", PAUSE | {"reason": "  "}),
    ("pauses", PAUSE | {"reason": "bell \a"}),
    ("pauses", PAUSE | {"reason": "x" * 2001}),
    ("pauses", PAUSE | {"target": "../etc"}),
    ("pauses", PAUSE | {"scope": "all"}),
    ("pauses", {"scope": "rack", "seconds": 60, "reason": "x"}),
    ("pauses", PAUSE | {"extra": 1}),
    ("pauses", []),
    ("machines/m2/outcome", {"outcome": "maybe", "note": "x"}),
    ("machines/m2/outcome", {"outcome": "confirmed"}),
]
RAW = [
    b'{"scope":"all","seconds":NaN,"reason":"x"}',
    b'{"scope":"all","seconds":1e999,"reason":"x"}',
    b'{"scope":"all","seconds":' + b"9" * 6000 + b',"reason":"x"}',
    b'{"scope":"all","seconds":60,"reason":"\\ud800"}',
    b'{"scope":"all","seconds":60,"reason":"\\u0000"}',
    b"[" * 30_000,
    b"\xff\xfe",
    b"",
]


def test_bad_bodies_are_refused_in_one_line_and_nothing_is_written(
    send: Send, http: httpx.Client, operator: dict[str, str], ledger: Ledger
) -> None:
    before = ledger.events()
    answers = [send(path, body) for path, body in BAD]
    headers = operator | {"Content-Type": "application/json"}
    answers += [
        http.post("/v1/pauses", content=body, headers=headers | {"Idempotency-Key": str(number)}) for number, body in enumerate(RAW)
    ]
    for answer in answers:
        assert answer.status_code in (400, 422) and answer.headers["content-type"] == "application/problem+json", answer.text
        assert answer.json()["detail"] and "\n" not in answer.json()["detail"]
    assert ledger.events() == before


@pytest.mark.parametrize("seconds", [True, "60", [60], None, 1e400])
def test_a_number_is_a_number(http: httpx.Client, ledger: Ledger, as_: As, seconds: Any) -> None:
    """`true` was once taken for a pause of one second."""
    headers = as_("operator") | {"Idempotency-Key": "n", "Content-Type": "application/json"}
    before = len(ledger.events())
    body = json.dumps({"scope": "all", "seconds": seconds, "reason": "x"})
    assert http.post("/v1/pauses", headers=headers, content=body).status_code == 422
    assert len(ledger.events()) == before
