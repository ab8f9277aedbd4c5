"""Whom the contract lets do what: every operation of it, whoever adds one, for every role."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from minder.record.incidents import Ledger, kinds
from serve.settings import Limits

As = Callable[..., dict[str, str]]
OPEN = {"/v1/health", "/v1/ready"}
OF_ANYBODY = {"/v1/whoami"}
SIGNALS = ("/v1/signals", "/v1/signals/alertmanager", "/v1/signals/nvsentinel", "/v1/signals/gpud")
SESSIONS = "/v1/scores/sessions"
WITHOUT_TAG = {"/v1/whoami", "/v1/metrics", "/v1/health", "/v1/ready", "/v1/events/stream", "/v1/incidents/{incident}/bundle",
               "/v1/machines/{name}/telemetry", SESSIONS, f"{SESSIONS}/{{session}}", f"{SESSIONS}/{{session}}/verdicts"}  # fmt: skip
NAMES = {"/v1/incidents": "llm-1", "/v1/machines": "m2", "/v1/jobs": "llm", "/v1/decisions": "evict-1", "/v1/maintenance": "window-1",
         "/v1/scores/sessions": "s1"}  # fmt: skip


@pytest.fixture
def limits() -> Limits:
    return Limits(failure_burst=1000.0)


_CONTRACT: dict[str, Any] = {}


def operations(http: httpx.Client) -> Iterator[tuple[str, str, str, bool]]:
    """(method, path of the contract, path to call, is it an action) of each. The contract is asked for once: writing it takes longer
    than a test."""
    document = _CONTRACT or http.get("/v1/openapi.json").json()
    _CONTRACT.update(document)
    while http.get("/v1/ready").status_code == 503:  # it reads the ledger's past beside its first answers
        time.sleep(0.01)
    for path, methods in document["paths"].items():
        named = next((name for begin, name in NAMES.items() if path.startswith(begin + "/{")), "")
        for method, said in methods.items():
            keyed = any(item["name"] == "Idempotency-Key" for item in said.get("parameters", ()))
            yield method.upper(), path, path.format(incident=named, name=named, window=named, session=named), keyed


def call(http: httpx.Client, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    return http.request(method, path, headers=headers | {"Idempotency-Key": "a"}, json={} if method == "POST" else None)


def test_the_contract_is_looked_at_as_a_whole(http: httpx.Client) -> None:
    found = list(operations(http))
    assert len(found) >= 38 and sum(keyed for *_, keyed in found) >= 13
    assert {path for method, path, _, keyed in found if method != "GET" and not keyed} == {
        "/v1/scores", "/v1/stacks", "/v1/collectives", "/v1/policy/dry-run", *SIGNALS,
        SESSIONS, f"{SESSIONS}/{{session}}/rows", f"{SESSIONS}/{{session}}",
        "/v1/jobs/{name}/code", "/v1/jobs/{name}/code/pieces",  # content by its own hash: sent twice it is there once
    }, "whatever else changes something has a key"  # fmt: skip


def test_nothing_is_answered_without_a_token(http: httpx.Client, ledger: Ledger) -> None:
    before = ledger.events()
    for method, path, there, _ in operations(http):
        answer = call(http, method, there, {"Authorization": "Bearer minder_0123456789ab_" + "x" * 43} if method == "POST" else {})
        assert answer.status_code == (200 if path in OPEN else 401), (method, path)
    assert ledger.events() == before


@pytest.mark.parametrize("role", ["agent", "source", pytest.param("launcher", marks=pytest.mark.release)])
def test_a_machines_token_and_a_monitors_send_signals_and_nothing_else(http: httpx.Client, as_: As, ledger: Ledger, role: str) -> None:
    headers = as_(role, **({} if role == "source" else {"machine": "m1"}))
    before = ledger.events()
    for method, path, there, _ in operations(http):
        if path not in OPEN | OF_ANYBODY | set(SIGNALS):
            answer = call(http, method, there, headers)
            assert answer.status_code == 403 and f"has role {role}" in answer.json()["detail"], (method, path)
    assert ledger.events() == before


OF_ADMINS = {"POST /v1/jobs", "DELETE /v1/jobs/{name}"}


@pytest.mark.parametrize(("role", "needed"), [("viewer", ("operator", "admin")), ("operator", ("admin",))])
def test_who_may_less_does_less(http: httpx.Client, as_: As, ledger: Ledger, role: str, needed: tuple[str, ...]) -> None:
    headers, refused = as_(role), set[str]()
    before = ledger.events()
    for method, path, there, keyed in operations(http):
        if keyed and (answer := call(http, method, there, headers)).status_code == 403:
            assert any(f"of role {name}" in answer.json()["detail"] for name in needed), (method, path)
            refused.add(f"{method} {path}")
        elif keyed:
            assert role == "operator" and f"{method} {path}" not in OF_ADMINS, (method, path)
    assert len(refused) == sum(keyed for *_, keyed in operations(http)) if role == "viewer" else refused == OF_ADMINS
    assert ledger.events() == before


def test_another_jobs_reader_is_told_nothing_of_this_one(http: httpx.Client, as_: As, ledger: Ledger) -> None:
    ledger.append(kinds.SHADOW, {"detector": "x", "verdict": {"machines": ["m1"]}}, job="llm")
    headers = as_("viewer", jobs=("vision",))
    for method, path, there, _ in operations(http):
        if method == "GET" and path != "/v1/events/stream":
            answer = call(http, method, there, headers)
            assert answer.status_code != 200 or not any(name in answer.text for name in ("llm", '"m1"', '"m2"')), path


def test_what_pages_poll_has_a_tag_and_is_sent_once(http: httpx.Client, as_: As) -> None:
    headers = as_("viewer")
    for method, path, there, _ in operations(http):
        if method == "GET" and path not in WITHOUT_TAG and (answer := http.get(there, headers=headers)).status_code == 200:
            again = http.get(there, headers=headers | {"If-None-Match": answer.headers["ETag"]})
            assert (again.status_code, again.content) == (304, b""), path
