from __future__ import annotations

import threading

import pytest

from minder.model.errors import LeaseLostError, LedgerError
from minder.record.store.events import EventQuery, EventRow, EventStore
from minder.record.store.leases import Lease, LeaseStore


def test_a_lease_that_nobody_held_is_taken_once(database: str) -> None:
    stores = [LeaseStore(database) for _ in range(4)]
    taken: list[Lease | None] = []
    threads = [threading.Thread(target=lambda store=store: taken.append(store.take("llm", "me", None))) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (mine,) = [item for item in taken if item is not None]
    assert mine == stores[0].read("llm") and mine.token == 1
    for store in stores:
        store.close()


def test_whoever_takes_it_must_have_seen_it_as_it_is(database: str) -> None:
    store = LeaseStore(database)
    first = store.take("llm", "a", None)
    assert first is not None and store.take("other", "b", None) is not None
    seen = store.read("llm")
    store.beat(first)
    assert store.take("llm", "b", seen) is None
    second = store.take("llm", "b", store.read("llm"))
    assert second is not None and second.token == 2 and second.beats == 0
    with pytest.raises(LeaseLostError, match="llm is led by b now"):
        store.beat(first)
    store.release(first)
    assert store.read("llm") == second
    store.release(second)
    third = store.take("llm", "c", first)
    assert third is not None and third.token == 3
    store.close()


def test_no_write_gets_past_a_lost_lease(database: str) -> None:
    leases, old, new = LeaseStore(database), EventStore(database), EventStore(database)
    mine = leases.take("llm", "a", None)
    old.fence(mine)
    kept = old.insert(EventRow(1.0, "note", "{}"))
    old.check_fence()
    new.fence(leases.take("llm", "b", leases.read("llm")))
    writes = (
        lambda: old.insert(EventRow(2.0, "note", "{}")),
        lambda: old.insert_once(EventRow(2.0, "intent", "{}", operation_id="op")),
        lambda: old.insert_first(EventRow(2.0, "verdict", "{}", job="llm"), "llm"),
        old.check_fence,
    )
    for write in writes:
        with pytest.raises(LeaseLostError, match="acts no more"):
            write()
    assert old.select(EventQuery()) == [kept]
    assert new.insert_once(EventRow(3.0, "intent", "{}", operation_id="op"))[1]
    assert issubclass(LeaseLostError, LedgerError)
    for store in (leases, old, new):
        store.close()
