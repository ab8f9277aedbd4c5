from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import httpx
import pytest

from minder.record.api.access import Caller
from minder.record.client.stream import parse_stream
from minder.record.incidents import Ledger, kinds
from minder.record.store.events import EventStore
from serve.routes.events import Filter
from serve.tail import Tail

As = Callable[..., dict[str, str]]


def test_pages_hold_every_event_once_in_order_without_captures(http: httpx.Client, ledger: Ledger, as_: As) -> None:
    headers, seen, cursor = as_(), [], ""
    while True:
        page = http.get(f"/v1/events?job=llm&limit=4{cursor}", headers=headers).json()
        seen += page["items"]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert [item["id"] for item in seen] == [event.id for event in ledger.events(job="llm")]
    (capture,) = [item for item in seen if item["kind"] == "evidence"]
    assert capture["data"] == {"machine": "m2", "what": "stacks"} and capture["what"] == "captured stacks of m2"


def test_a_page_ends_where_its_events_are_large_and_none_is_lost(
    http: httpx.Client, ledger: Ledger, as_: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.routes.events._MOST_LETTERS", 1000)
    written = [ledger.append(kinds.NOTE, {"text": "x" * length}, job="big").id for length in (10, 5000, 700, 700, 10)]
    for caller in (as_(), as_(jobs=("big",))):
        pages, cursor = [], ""
        while True:
            page = http.get(f"/v1/events?job=big{cursor}", headers=caller).json()
            pages.append([item["id"] for item in page["items"]])
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
        assert pages == [written[:2], written[2:4], written[4:]]


def test_kinds_are_chosen_by_name(http: httpx.Client, as_: As) -> None:
    headers = as_()
    found = http.get("/v1/events?kind=verdict&kind=decision", headers=headers).json()["items"]
    assert [item["kind"] for item in found] == ["verdict", "decision", "verdict"]
    answer = http.get("/v1/events?kind=gossip", headers=headers)
    assert answer.status_code == 422 and "kind must be one of" in answer.json()["detail"]


def test_a_filter_lets_through_what_the_caller_wants_and_may_see(ledger: Ledger) -> None:
    scoped = Caller(token="t", name="n", role="viewer", jobs=("llm",))
    ours, fleet = ledger.append(kinds.NOTE, {}, job="llm", incident="llm-1"), ledger.append(kinds.NOTE, {})
    theirs = ledger.append(kinds.NOTE, {}, job="vision")
    assert [Filter(scoped).takes(event) for event in (ours, fleet, theirs)] == [True, False, False]
    everything = Caller(token="t", name="n", role="viewer")
    assert [Filter(everything, kinds=("pause",)).takes(event) for event in (ours, fleet)] == [False, False]
    assert Filter(everything, incident="llm-1").takes(ours) and not Filter(everything, incident="llm-2").takes(ours)


def test_the_tail_gives_new_events_to_all_and_old_ones_to_who_is_behind(ledger: Ledger) -> None:
    async def run() -> None:
        events = EventStore(ledger.location)
        tail = Tail(events, poll_s=0.01)
        following = asyncio.create_task(tail.follow())
        start = events.last_id()
        waiting = [asyncio.create_task(tail.after(start, 60.0)) for _ in range(3)]
        await asyncio.sleep(0.05)
        note = ledger.append(kinds.NOTE, {"text": "new"}, job="llm")
        assert [list(found) for found in await asyncio.gather(*waiting)] == [[note]] * 3
        assert [event.id for event in await tail.after(2, 1.0)] == [event.id for event in ledger.events(since_id=2)]
        assert list(await tail.after(note.id, 0.01)) == []
        following.cancel()
        events.close()

    asyncio.run(run())


def test_a_stream_is_read_as_it_was_written() -> None:
    body = {"id": 7, "time": "t", "kind": "note", "job": None, "incident": None, "what": "w", "data": {}}
    lines = [": alive", "", "event: degraded", 'data: {"what": "x"}', "", "id: 7", "event: note", f"data: {json.dumps(body)}", "", "id: 8"]
    assert [event.id for event in parse_stream(lines)] == [7]


@pytest.mark.parametrize("seen", ["-1", "x", "99999999999999999999"])
def test_an_odd_last_event_id_is_refused(http: httpx.Client, as_: As, seen: str) -> None:
    assert http.get("/v1/events/stream", headers=as_() | {"Last-Event-ID": seen}).status_code == 422
