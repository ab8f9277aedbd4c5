from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from minder.model.errors import LedgerError
from minder.record.store.events import EventQuery, EventRow, EventStore


@pytest.fixture
def store(tmp_path: Path) -> EventStore:
    return EventStore(tmp_path / "ledger.db")


def raw(tmp_path: Path) -> sqlite3.Connection:
    """Somebody with another tool, who asked for nothing."""
    return sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)


def test_what_is_inserted_comes_back(store: EventStore) -> None:
    event = store.insert(EventRow(12.5, "note", '{"text":"x"}', job="llm", incident="llm-1", operation_id="op"))
    assert store.select(EventQuery()) == [event]
    assert (event.id, event.payload) == (1, {"text": "x"})


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET payload = '{}'",
        "UPDATE events SET id = 7 WHERE id = 1",
        "DELETE FROM events",
        "DELETE FROM events WHERE id = 1",
        "INSERT OR REPLACE INTO events (id, time_s, kind, payload) VALUES (1, 0, 'note', '{}')",
        "INSERT OR REPLACE INTO events (time_s, kind, operation_id, payload) VALUES (0, 'intent', 'op', '{}')",
        "INSERT INTO events (id, time_s, kind, payload) VALUES (1, 0, 'note', '{}') ON CONFLICT (id) DO UPDATE SET payload = '{}'",
    ],
)
def test_no_row_can_be_changed_or_deleted_by_whatever_tool(store: EventStore, tmp_path: Path, statement: str) -> None:
    event = store.insert(EventRow(1.0, "intent", '{"action":"evict"}', operation_id="op"))
    with pytest.raises(sqlite3.Error, match=r"append-only|already"):
        raw(tmp_path).execute(statement)
    assert store.select(EventQuery()) == [event]


def test_ids_are_never_used_again(store: EventStore, tmp_path: Path) -> None:
    assert [store.insert(EventRow(1.0, "note", "{}")).id for _ in range(3)] == [1, 2, 3]
    store.close()
    assert EventStore(tmp_path / "ledger.db").insert(EventRow(1.0, "note", "{}")).id == 4


def test_insert_once_returns_the_first_and_only_for_operations(store: EventStore) -> None:
    first, new = store.insert_once(EventRow(1.0, "intent", '{"n":1}', operation_id="op"))
    again, newer = store.insert_once(EventRow(2.0, "intent", '{"n":2}', operation_id="op"))
    assert (new, newer, again) == (True, False, first)
    assert store.insert_once(EventRow(3.0, "result", "{}", operation_id="op"))[1]
    notes = [store.insert(EventRow(4.0, "note", "{}", operation_id="op")) for _ in range(2)]
    assert len({note.id for note in notes}) == 2


def test_every_condition_of_a_query_holds(store: EventStore) -> None:
    for number in range(6):
        store.insert(EventRow(float(number), "note" if number % 2 else "verdict", "{}", job="a" if number < 3 else "b"))
    assert [event.id for event in store.select(EventQuery(since_id=2, job="b"))] == [4, 5, 6]
    assert [event.id for event in store.select(EventQuery(kinds=("note",)))] == [2, 4, 6]
    assert [event.id for event in store.select(EventQuery(without_kinds=("note",), job="a"))] == [1, 3]
    assert [event.id for event in store.select(EventQuery(limit=2))] == [1, 2]
    assert store.select(EventQuery(kinds=())) == []


def test_incidents_are_numbered_per_job_and_found_by_job_and_age(store: EventStore) -> None:
    names = [
        store.insert_first(EventRow(time_s, "verdict", "{}", job=job), job).incident for time_s, job in ((1, "a"), (2, "b"), (30, "a"))
    ]
    assert names == ["a-1", "b-1", "a-2"]
    store.insert(EventRow(40.0, "unbarred", "{}", incident="a-1"))
    assert [event.id for event in store.select(EventQuery(job="a", any_incident=True))] == [1, 3, 4]
    assert [event.id for event in store.select(EventQuery(incident_since_s=2.0))] == [2, 3]


def test_unanswered_operations_are_those_without_a_result(store: EventStore) -> None:
    for name in ("op1", "op2"):
        store.insert(EventRow(1.0, "intent", "{}", job="a", operation_id=name))
    store.insert(EventRow(2.0, "result", "{}", job="a", operation_id="op1"))
    store.insert(EventRow(2.0, "result", "{}", job="a"))  # a row without an operation must not hide the others
    assert [event.operation_id for event in store.select_unanswered("intent", "result", "a")] == ["op2"]
    assert store.select_unanswered("intent", "result", "b") == []


def test_a_table_that_is_gone_is_one_line(store: EventStore, tmp_path: Path) -> None:
    raw(tmp_path).execute("DROP TABLE events")
    with pytest.raises(LedgerError, match="no such table"):
        store.select(EventQuery())
