from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from minder.model.errors import LedgerError
from minder.model.history import LedgerEvent
from minder.record.store.answers import KEPT_S, Answer, AnswerKey, AnswerStore
from minder.record.store.events import EventQuery, EventRow, EventStore

KEY = AnswerKey("caller", "key", "digest")


@pytest.fixture
def store(database: str) -> Iterator[AnswerStore]:
    opened = AnswerStore(database)
    yield opened
    opened.close()


def written(database: str) -> list[LedgerEvent]:
    events = EventStore(database)
    found = events.select(EventQuery())
    events.close()
    return found


def tell(events: Sequence[LedgerEvent]) -> str:
    return ",".join(str(event.id) for event in events)


def act(store: AnswerStore, key: AnswerKey = KEY, now_s: float = 1.0) -> tuple[Answer, bool]:
    return store.act(key, [EventRow(now_s, "note", "{}")], now_s, 201, tell)


def test_the_same_request_is_done_once_and_answered_alike(store: AnswerStore, database: str) -> None:
    assert store.find(KEY) is None
    first, wrote = act(store)
    again, rewrote = act(store, now_s=2.0)
    assert (wrote, rewrote) == (True, False) and first == again == store.find(KEY)
    assert tell(written(database)) == first.body


def test_the_same_key_for_another_request_is_told_apart_and_another_caller_has_keys_of_its_own(store: AnswerStore, database: str) -> None:
    act(store)
    other = store.find(AnswerKey("caller", "key", "another"))
    assert other is not None and not other.same_request
    assert act(store, AnswerKey("somebody", "key", "digest"))[1]
    assert len(written(database)) == 2


def test_those_who_send_it_at_the_same_time_get_one_answer(database: str) -> None:
    AnswerStore(database).close()
    answers: list[Answer] = []

    def send() -> None:
        store = AnswerStore(database, busy_timeout_s=60.0)
        answers.append(act(store)[0])
        store.close()

    senders = [threading.Thread(target=send) for _ in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert len(answers) == 4 and len(set(answers)) == 1
    assert len(written(database)) == 1


def test_an_action_that_cannot_be_answered_is_not_done(store: AnswerStore, database: str) -> None:
    def fail(events: Sequence[LedgerEvent]) -> str:
        raise LedgerError("no")

    with pytest.raises(LedgerError):
        store.act(KEY, [EventRow(1.0, "note", "{}")], 1.0, 201, fail)
    assert written(database) == [] and store.find(KEY) is None


def test_answers_are_forgotten_after_a_week(store: AnswerStore) -> None:
    act(store)
    act(store, AnswerKey("caller", "later", "digest"), now_s=KEPT_S + 0.5)
    assert store.find(KEY) is not None
    act(store, AnswerKey("caller", "latest", "digest"), now_s=KEPT_S + 1.5)
    assert store.find(KEY) is None
