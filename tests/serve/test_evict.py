"""An operator orders a machine out of a job over the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from minder.record.incidents import Ledger, kinds

As = Callable[..., dict[str, str]]


def order(http: httpx.Client, who: dict[str, str], machine: str, key: str = "a", **body: Any) -> httpx.Response:
    body = {"job": "llm", "reason": "fan 3 is dead"} | body
    return http.post(f"/v1/machines/{machine}/evict", json=body, headers=who | {"Idempotency-Key": key})


def test_the_order_is_written_once_under_the_operators_name(http: httpx.Client, as_: As, ledger: Ledger) -> None:
    alice = as_("operator", name="alice")
    first, again = order(http, alice, "m1"), order(http, alice, "m1")
    assert first.status_code == 201 and again.content == first.content and "m1 at its next tick" in first.json()["detail"]
    (event,) = ledger.events(kinds=[kinds.SIGNAL])
    assert (event.job, event.payload["by"], event.payload["signal"]["kind"]) == ("llm", "alice", "order")
    assert event.payload["signal"]["message"] == "alice: fan 3 is dead"


def test_who_may_not_and_what_cannot_be_is_refused_and_nothing_is_written(http: httpx.Client, as_: As, ledger: Ledger) -> None:
    alice = as_("operator", name="alice")
    tries = [
        (order(http, as_("viewer"), "m1"), 403),
        (order(http, as_("agent", machine="m1"), "m1"), 403),
        (order(http, as_("operator", jobs=("other",)), "m1", "b"), 403),
        (order(http, alice, "m2", "c"), 409),  # it was evicted already
        (order(http, alice, "m1", "d", job="none"), 404),
        (order(http, alice, "m1", "e", reason=""), 422),
    ]
    assert [answer.status_code for answer, _ in tries] == [wanted for _, wanted in tries]
    by_signal = {"signals": [{"id": "1", "kind": "order", "machine": "m1", "message": "alice: out"}]}
    assert http.post("/v1/signals", headers=as_("agent", machine="m1"), json=by_signal).status_code == 422
    assert ledger.events(kinds=[kinds.SIGNAL]) == []
