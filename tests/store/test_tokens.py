from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from minder.model.errors import BadInputError
from minder.record.store.engine import open_engine, reading
from minder.record.store.events import EventQuery, EventStore
from minder.record.store.tokens import TokenRecord, TokenStore, new_id


@pytest.fixture
def store(database: str) -> Iterator[TokenStore]:
    opened = TokenStore(database)
    yield opened
    opened.close()


def wanted(name: str = "alice", **fields: object) -> TokenRecord:
    return TokenRecord(new_id(), name, "operator", 1000.0, "root", **fields)  # type: ignore[arg-type]


def test_a_token_is_found_by_itself_and_stands_nowhere_in_the_database(store: TokenStore, database: str) -> None:
    record = wanted(jobs=("llm", "vision"), expires_s=2000.0)
    token = store.create(record)
    assert re.fullmatch(r"minder_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", token)
    assert store.find(token) == record and store.list() == [record]
    engine = open_engine(database)
    with reading(engine) as connection:
        rows = [*connection.execute(text("SELECT * FROM tokens")), *connection.execute(text("SELECT * FROM events"))]
    engine.dispose()
    assert rows and token[-43:] not in repr(rows)


@pytest.mark.parametrize("given", ["", "minder_", "Bearer x", "minder_000000000000_" + "x" * 43, "x' OR 1=1 --", "\x00", "é" * 60])
def test_what_is_no_token_of_ours_is_nobody(store: TokenStore, given: str) -> None:
    store.create(wanted())
    assert store.find(given) is None


def test_another_secret_behind_the_same_id_is_nobody(store: TokenStore) -> None:
    token = store.create(wanted())
    assert store.find(token[:-1] + ("A" if token[-1] != "A" else "B")) is None


def test_a_token_ends_when_it_is_revoked_or_expires(store: TokenStore) -> None:
    token = store.create(wanted(expires_s=2000.0))
    record = store.find(token)
    assert record is not None and record.is_valid(1999.0) and not record.is_valid(2000.0)
    store.revoke("alice", 1500.0, "root", "left")
    record = store.find(token)
    assert record is not None and not record.is_valid(1500.0)
    with pytest.raises(BadInputError, match=r'no valid token "alice": `minder token list`'):
        store.revoke("alice", 1600.0, "root")


def test_a_name_belongs_to_one_valid_token(store: TokenStore) -> None:
    first = wanted()
    store.create(first)
    with pytest.raises(BadInputError, match='named "alice" exists'):
        store.create(wanted())
    store.revoke(first.id, 1500.0, "root")
    store.create(wanted())
    assert [record.revoked_s is None for record in store.list()].count(True) == 1


def test_making_and_revoking_is_in_the_ledger(store: TokenStore, database: str) -> None:
    record = wanted(jobs=("llm",))
    store.create(record)
    store.revoke(record.id, 1500.0, "bob", "left the team")
    events = EventStore(database)
    told = [(event.kind, event.time_s, dict(event.payload)) for event in events.select(EventQuery())]
    events.close()
    common = {"token": record.id, "name": "alice", "role": "operator", "jobs": ["llm"]}
    assert told == [
        ("token", 1000.0, common | {"what": "created", "by": "root"}),
        ("token", 1500.0, common | {"what": "revoked", "by": "bob", "reason": "left the team"}),
    ]
    assert json.dumps(told)
