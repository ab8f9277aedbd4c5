"""A machine that is to be given back is tested first: ordered over the API, and heeded by the return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from minder.model.decision import ActionResult
from minder.record.incidents import Ledger, kinds
from serve.state import Service
from tests.serve.browsing import field, send_token, token_of

As = Callable[..., dict[str, str]]
Send = Callable[..., httpx.Response]


@pytest.fixture
def send(http: httpx.Client, as_: As) -> Send:
    count = 0

    def call(path: str, body: Any, key: str | None = None, **who: Any) -> httpx.Response:
        nonlocal count
        count += 1
        headers = as_(**({"role": "operator"} | who)) if who else operator
        return http.post(f"/v1/machines/{path}", json=body, headers=headers | {"Idempotency-Key": key or f"key-{count}"})

    operator = as_("operator", name="alice")
    return call


def settle(ledger: Ledger, outcome: Any, detail: str = "") -> None:
    """As the job's controller does it."""
    order = ledger.events(kinds=[kinds.RETEST_ASKED])[-1]
    name = str(order.operation_id)
    ledger.intend(name, {"action": "retest", "machines": ["m2"]}, job="llm")
    ledger.complete(name, ActionResult(name, 1.0, outcome, detail))


def test_a_test_is_ordered_once_and_what_came_of_it_is_shown(send: Send, http: httpx.Client, as_: As, ledger: Ledger) -> None:
    first, again = send("m2/retest", {"reason": "new HBM"}, "a"), send("m2/retest", {"reason": "new HBM"}, "a")
    assert first.status_code == 201 and first.content == again.content and again.headers["idempotent-replayed"] == "true"
    (order,) = ledger.events(kinds=[kinds.RETEST_ASKED])
    assert (order.job, order.payload["machine"], order.payload["reason"], order.payload["by"]) == ("llm", "m2", "new HBM", "alice")
    other = send("m2/retest", {"reason": "again"})
    assert other.status_code == 409 and str(order.operation_id) in other.json()["detail"]

    def shown() -> dict[str, str]:
        found = http.get("/v1/machines/m2", headers=as_()).json()["retest"]
        return {key: found[key] for key in ("operation", "state", "detail")}

    assert shown() == {"operation": order.operation_id, "state": "asked", "detail": ""}
    settle(ledger, "failed", "HBM bad")
    assert shown() == {"operation": order.operation_id, "state": "failed", "detail": "HBM bad"}
    assert send("m2/retest", {"reason": "once more"}).status_code == 201


def test_a_machine_is_not_given_back_before_its_test_passed_unless_somebody_says_why(send: Send, ledger: Ledger) -> None:
    send("m2/retest", {"reason": "new HBM"})
    assert send("m2/return", {"reason": "done"}).status_code == 409
    settle(ledger, "failed", "HBM bad")
    refused = send("m2/return", {"reason": "done"})
    assert refused.status_code == 409 and "HBM bad" in refused.json()["detail"]
    assert send("m2/return", {"reason": "the test is wrong", "force": True}).status_code == 201
    (event,) = ledger.events(kinds=[kinds.UNBARRED])
    assert event.payload["note"] == "the test is wrong" and "HBM bad" in event.payload["forced"]


def test_after_a_test_that_passed_it_goes_back(send: Send, ledger: Ledger) -> None:
    send("m2/retest", {"reason": "new HBM"})
    settle(ledger, "done", "fine")
    assert send("m2/return", {"reason": "tested"}).status_code == 201
    (event,) = ledger.events(kinds=[kinds.UNBARRED])
    assert "forced" not in event.payload


@pytest.mark.parametrize(
    ("path", "body", "who", "status"),
    [
        ("m2/retest", {"reason": "x"}, {"role": "viewer"}, 403),
        ("m2/retest", {"reason": "x"}, {"role": "agent", "machine": "m2"}, 403),
        ("m2/retest", {"reason": "x", "job": "llm"}, {"jobs": ("other",)}, 403),
        ("m2/retest", {"reason": "x"}, {"jobs": ("other",)}, 404),
        ("m9/retest", {"reason": "x"}, {}, 404),
        ("m2/retest", {"reason": " "}, {}, 422),
        ("m2/retest", {}, {}, 422),
        ("m1/retest", {"reason": "x", "job": "llm"}, {}, 201),
    ],
)
def test_who_may_order_what(send: Send, ledger: Ledger, path: str, body: Any, who: dict[str, Any], status: int) -> None:
    assert send(path, body, **who).status_code == status
    assert len(ledger.events(kinds=[kinds.RETEST_ASKED])) == (status == 201)


def test_past_tests_are_told_with_who_why_when_and_what_they_said(send: Send, http: httpx.Client, as_: As, ledger: Ledger) -> None:
    send("m2/retest", {"reason": "new HBM"})
    settle(ledger, "failed", "<b>HBM</b> bad")
    send("m2/retest", {"reason": "a second one"})
    newest, first = http.get("/v1/machines/m2", headers=as_()).json()["retests"]
    assert (newest["state"], newest["reason"], newest["begun"], newest["ended"]) == ("asked", "a second one", None, None)
    assert (first["state"], first["by"], first["reason"], first["detail"]) == ("failed", "alice", "new HBM", "<b>HBM</b> bad")
    assert first["asked"] and first["begun"] and first["ended"] and first["job"] == "llm"
    assert http.get("/v1/machines/m1", headers=as_()).json()["retests"] == []
    assert http.get("/v1/machines/m2", headers=as_(jobs=("other",))).status_code == 404


def test_the_page_of_a_machine_shows_its_tests_and_orders_one(http: httpx.Client, service: Service, ledger: Ledger) -> None:
    send_token(http, token_of(service, "operator"))
    page = http.get("/machines/m2").text
    assert "No test of it was ordered" in page
    form = {"csrf": field(page, "csrf"), "key": "a", "back": "/machines/m2", "job": "llm", "reason": "new HBM"}
    assert "Done and written down" in http.post("/machines/m2/retest", data=form).text
    (order,) = ledger.events(kinds=[kinds.RETEST_ASKED])
    settle(ledger, "failed", "<b>HBM</b> bad")
    page = http.get("/machines/m2").text
    for said in ("failed", "&lt;b&gt;HBM&lt;/b&gt; bad", "new HBM", str(order.operation_id), str(order.payload["by"])):
        assert said in page, said
