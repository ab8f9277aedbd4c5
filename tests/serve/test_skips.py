"""Batches that a job leaves out, over the API and on its page."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from minder.record.client import Client
from minder.record.incidents import Ledger, kinds

As = Callable[..., dict[str, str]]


def post(http: httpx.Client, who: dict[str, str], key: str = "a", **body: object) -> httpx.Response:
    return http.post("/v1/jobs/llm/skips", json=body, headers=who | {"Idempotency-Key": key})


def test_an_operator_orders_it_once_under_their_name(http: httpx.Client, as_: As, ledger: Ledger) -> None:
    alice = as_("operator", name="alice")
    assert [post(http, alice, batches="121,120", reason="it spikes").status_code for _ in range(2)] == [201, 201]
    (event,) = ledger.events(kinds=[kinds.SKIP_ASKED])
    assert (event.payload["batches"], event.payload["by"], event.payload["note"]) == ("120-121", "alice", "it spikes")
    client = Client(str(http.base_url), "x", http=http)
    http.headers.update(alice)
    assert client.skip_batches("llm", "fine", undo=True).detail.startswith("skip-")
    assert ledger.events(kinds=[kinds.SKIP_ASKED])[-1].payload["undo"] is True


def test_who_may_not_and_what_cannot_be_is_refused(http: httpx.Client, as_: As, ledger: Ledger) -> None:
    alice = as_("operator", name="alice")
    answers = [
        (post(http, as_("viewer"), batches="5", reason="y"), 403),
        (post(http, as_("operator", jobs=("other",)), "b", batches="5", reason="y"), 403),
        (post(http, alice, "c", batches="five", reason="y"), 422),
        (post(http, alice, "d", undo=True, reason="y"), 409),
    ]
    assert [answer.status_code for answer, _ in answers] == [wanted for _, wanted in answers], [answer.text for answer, _ in answers]
    assert ledger.events(kinds=[kinds.SKIP_ASKED]) == []
