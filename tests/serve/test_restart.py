"""An operator has a job started again in place over the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from minder.act.controller.lease import Leadership
from minder.record.incidents import Ledger, kinds

As = Callable[..., dict[str, str]]


def order(http: httpx.Client, who: dict[str, str], key: str = "a", job: str = "llm", **body: Any) -> httpx.Response:
    return http.post(f"/v1/jobs/{job}/restart", json={"reason": "a loader is stuck"} | body, headers=who | {"Idempotency-Key": key})


@pytest.fixture
def controller(ledger: Ledger) -> Iterator[Leadership]:
    """It leads the job, and does nothing else."""
    import threading

    leadership = Leadership(ledger.location, "llm", beat_s=0.2)
    assert leadership.lead(threading.Event(), lambda text: None)
    yield leadership
    leadership.close()


def test_the_order_is_written_once_under_the_operators_name(http: httpx.Client, as_: As, ledger: Ledger, controller: Leadership) -> None:
    alice = as_("operator", name="alice")
    first, again = order(http, alice), order(http, alice)
    assert first.status_code == 201 and again.content == first.content and "at its next tick" in first.json()["detail"]
    (event,) = ledger.events(kinds=[kinds.RESTART_ASKED])
    assert (event.job, event.payload["by"], event.payload["reason"]) == ("llm", "alice", "a loader is stuck")
    second = order(http, as_("operator", name="bob"), "b")
    assert second.status_code == 409 and "alice ordered it" in second.text


def test_where_no_controller_is_heard_nothing_is_written(http: httpx.Client, as_: As, ledger: Ledger) -> None:
    answer = order(http, as_("operator", name="alice"))
    assert answer.status_code == 409 and "no controller of llm is heard" in answer.text
    assert ledger.events(kinds=[kinds.RESTART_ASKED]) == []


def test_who_may_not_and_what_cannot_be_is_refused(http: httpx.Client, as_: As, ledger: Ledger) -> None:
    alice = as_("operator", name="alice")
    tries = [
        (order(http, as_("viewer")), 403),
        (order(http, as_("operator", jobs=("other",)), "b"), 403),
        (order(http, alice, "c", job="none"), 404),
        (order(http, alice, "d", reason=""), 422),
    ]
    assert [answer.status_code for answer, _ in tries] == [wanted for _, wanted in tries]
    assert ledger.events(kinds=[kinds.RESTART_ASKED]) == []
