"""What the service answered to an action: the same request with the same key gets the same answer and does nothing again.

The action's ledger events and its answer are one transaction: where the answer is found, the events are, after any crash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, select

from minder.model.history import LedgerEvent
from minder.record.store.engine import reading, writing
from minder.record.store.events import EventRow, insert_row
from minder.record.store.opened import OpenedStore
from minder.record.store.tables import ANSWERS

__all__ = ["KEPT_S", "Answer", "AnswerKey", "AnswerStore"]

KEPT_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """Who asked with which key, and the digest of what was asked."""

    caller: str
    key: str
    request_digest: str


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it was given. same_request: False where the key was used before for something else."""

    status: int
    body: str
    same_request: bool = True


class AnswerStore(OpenedStore):
    """The answers table of one database. Every method raises LedgerError where the database refuses."""

    def find(self, key: AnswerKey) -> Answer | None:
        """The earlier answer under this key."""
        with reading(self._engine) as connection:
            return _find(connection, key)

    def act(
        self, key: AnswerKey, rows: Sequence[EventRow], now_s: float, status: int, body: Callable[[Sequence[LedgerEvent]], str]
    ) -> tuple[Answer, bool]:
        """Write the events and the answer that `body` makes of them, or find the answer that was there first.

        The second value is True where this call wrote. Answers older than KEPT_S are forgotten on the way.
        """
        with writing(self._engine) as connection:
            if earlier := _find(connection, key):
                return earlier, False
            connection.execute(delete(ANSWERS).where(ANSWERS.c.created_s < now_s - KEPT_S))
            answer = Answer(status, body([insert_row(connection, row) for row in rows]))
            values: dict[str, Any] = {"caller": key.caller, "idempotency_key": key.key, "request_digest": key.request_digest}
            connection.execute(ANSWERS.insert().values(**values, status=status, body=answer.body, created_s=now_s))
        return answer, True


def _find(connection: Connection, key: AnswerKey) -> Answer | None:
    wanted = (ANSWERS.c.caller == key.caller) & (ANSWERS.c.idempotency_key == key.key)
    row: Row[Any] | None = connection.execute(select(ANSWERS).where(wanted)).first()
    return None if row is None else Answer(row.status, row.body, row.request_digest == key.request_digest)
