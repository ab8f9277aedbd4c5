"""What the ledger relies on, on every database that it may live in."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from minder.model.errors import LedgerError
from minder.record.store.engine import open_engine, reading, safe_name, writing
from minder.record.store.events import EventQuery, EventRow, EventStore
from minder.record.store.migrate import HEAD, migrate, schema_revision


def note(number: int, **fields: Any) -> EventRow:
    return EventRow(float(number), "note", f'{{"n":{number}}}', **fields)


def test_what_one_process_writes_another_reads_in_order(database: str) -> None:
    first, second = EventStore(database), EventStore(database)
    written = [store.insert(note(number, job="llm", incident="llm-1")) for number, store in enumerate((first, second, first, second))]
    assert first.select(EventQuery()) == second.select(EventQuery()) == written
    assert [event.id for event in written] == sorted({event.id for event in written})
    assert first.select(EventQuery(since_id=written[1].id, limit=1)) == [written[2]]
    for store in (first, second):
        store.close()


def test_generations_come_without_the_machine_of_each_rank_where_that_is_asked(database: str) -> None:
    store = EventStore(database)
    ranks = '{"generation":2,"rank_machine":{"0":"a","1":"}\\"rank_machine"},"reason":"evicted"}'
    store.insert(EventRow(1.0, "generation_started", ranks, job="llm"))
    store.insert(EventRow(2.0, "note", '{"rank_machine":{"0":"a"},"loss":NaN}', job="llm"))
    generation, other = store.select(EventQuery(without_ranks=True))
    assert generation.payload == {"generation": 2, "reason": "evicted"}
    assert set(other.payload) == {"rank_machine", "loss"}
    whole = store.select(EventQuery(bare_kinds=("note",), without_ranks=True))
    assert [event.payload for event in whole] == [generation.payload, {}]
    found, cut = store.select_some(EventQuery(), 10)
    assert ([event.id for event in found], cut) == ([generation.id], True)
    found, cut = store.select_some(EventQuery(), 1000)
    assert ([event.id for event in found], cut) == ([generation.id, other.id], False)
    store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET payload = '{}'",
        "DELETE FROM events",
        "INSERT INTO events (id, time_s, kind, payload) VALUES (1, 0, 'note', '{}') ON CONFLICT (id) DO UPDATE SET payload = '{}'",
    ],
)
def test_no_row_can_be_changed_or_deleted(database: str, statement: str) -> None:
    store, engine = EventStore(database), open_engine(database)
    event = store.insert(note(1))
    with pytest.raises(DBAPIError, match="append-only"), engine.connect() as plain, plain.begin():
        plain.execute(text(statement))
    assert store.select(EventQuery()) == [event]
    engine.dispose()
    store.close()


@pytest.mark.server("postgresql")
def test_a_postgresql_table_cannot_be_emptied(postgres: Any) -> None:
    database = postgres.new_database()
    store, engine = EventStore(database), open_engine(database)
    store.insert(note(1))
    with pytest.raises(DBAPIError, match="append-only: no TRUNCATE"), engine.connect() as plain, plain.begin():
        plain.execute(text("TRUNCATE events"))
    assert len(store.select(EventQuery())) == 1
    engine.dispose()
    store.close()


def test_an_operation_has_one_intent_whoever_writes_it_first(database: str) -> None:
    stores = [EventStore(database), EventStore(database)]
    first, new = stores[0].insert_once(EventRow(1.0, "intent", '{"n":1}', operation_id="op"))
    again, newer = stores[1].insert_once(EventRow(2.0, "intent", '{"n":2}', operation_id="op"))
    assert (new, newer, again) == (True, False, first)
    assert stores[1].insert_once(EventRow(3.0, "result", "{}", operation_id="op"))[1]
    assert [event.kind for event in stores[0].select(EventQuery(operation_id="op"))] == ["intent", "result"]
    assert stores[0].select_unanswered("intent", "result", None) == []
    for store in stores:
        store.close()


def test_writers_at_the_same_time_number_incidents_without_a_gap_or_a_double(database: str) -> None:
    EventStore(database).close()
    names: list[str] = []

    def write() -> None:
        store = EventStore(database, busy_timeout_s=60.0)
        names.extend(str(store.insert_first(EventRow(1.0, "verdict", "{}", job="llm"), "llm").incident) for _ in range(5))
        store.close()

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(names) == sorted(f"llm-{number}" for number in range(1, 21))


def test_those_who_open_a_new_ledger_together_all_succeed(database: str) -> None:
    failed: list[BaseException] = []

    def open_it() -> None:
        try:
            EventStore(database, busy_timeout_s=60.0).close()
        except LedgerError as error:
            failed.append(error)

    together = [threading.Thread(target=open_it) for _ in range(4)]
    for each in together:
        each.start()
    for each in together:
        each.join()
    assert failed == []
    engine = open_engine(database)
    with reading(engine) as connection:
        assert schema_revision(connection) == HEAD
    engine.dispose()


def test_a_failed_write_leaves_nothing_and_a_newer_schema_is_refused(database: str) -> None:
    engine = open_engine(database)
    migrate(engine)
    with pytest.raises(LedgerError, match="nowhere") as caught, writing(engine) as connection:
        connection.execute(text("INSERT INTO events (time_s, kind, payload) VALUES (1, 'note', '{}')"))
        connection.execute(text("INSERT INTO nowhere VALUES (1)"))
    assert "\n" not in str(caught.value)
    with reading(engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM events")).scalar() == 0
    with writing(engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0999'"))
    with pytest.raises(LedgerError, match="has schema 0999"):
        migrate(engine)
    engine.dispose()


@pytest.mark.server("postgresql")
def test_a_lock_that_another_holds_is_one_line(postgres: Any) -> None:
    database = postgres.new_database()
    store, other = EventStore(database, busy_timeout_s=0.2), open_engine(database)
    with writing(other), pytest.raises(LedgerError, match="another process holds it; try again") as caught:
        store.insert(note(1))
    assert "\n" not in str(caught.value)
    assert store.insert(note(2)).payload == {"n": 2}
    store.close()
    other.dispose()


@pytest.mark.server("postgresql")
def test_a_server_that_goes_and_comes_back_is_one_line_and_nothing_is_lost(postgres: Any) -> None:
    store = EventStore(postgres.new_database(), busy_timeout_s=60.0)
    event = store.insert(note(1))
    postgres.stop()
    try:
        with pytest.raises(LedgerError, match="check that the server runs") as caught:
            store.insert(note(2))
        assert "\n" not in str(caught.value)
    finally:
        postgres.start()
    assert store.select(EventQuery()) == [event]
    assert store.insert(note(3)).id > event.id
    store.close()


def test_no_message_tells_a_password() -> None:
    name = safe_name("postgresql://minder:secret@127.0.0.1:1/ledger")
    assert "secret" not in name and "minder" in name and safe_name("/var/lib/ledger.db") == "/var/lib/ledger.db"
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError, match="cannot be read") as caught:
        EventStore("postgresql://minder:secret@127.0.0.1:1/ledger", busy_timeout_s=0.1)
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)
