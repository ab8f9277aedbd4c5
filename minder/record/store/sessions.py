"""Who is signed in to the service's pages. The browser keeps a random secret, the database its SHA-256 and whom it stands for.

A session of a token is never worth more than the token: revoking it ends every session of it. A session of a person who
signed in with the identity provider holds what the provider said of them then.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, delete, select

from minder.record.store.engine import reading, writing
from minder.record.store.events import EventRow, insert_row
from minder.record.store.opened import OpenedStore
from minder.record.store.tables import SESSIONS, TOKENS
from minder.record.store.tokens import TokenRecord, token_record

__all__ = ["SESSION_S", "Person", "SessionStore"]

SESSION_S = 12 * 3600.0


@dataclass(frozen=True, slots=True)
class Person:
    """Who signed in with an identity provider. token: a name for them that is safe in any place. jobs: None for every job.
    terms: what decided that they may come in; the caller compares it."""

    token: str
    name: str
    role: str
    jobs: tuple[str, ...] | None
    issuer: str
    subject: str
    terms: str


class SessionStore(OpenedStore):
    """The sessions table of one database. Every method raises LedgerError where the database refuses."""

    def begin(self, token_id: str, now_s: float) -> str:
        """A new session of this token; returns its secret. Sessions that are over are forgotten on the way."""
        with writing(self._engine) as connection:
            return _begin(connection, token_id, None, now_s, SESSION_S)

    def begin_person(self, person: Person, event: EventRow, now_s: float, life_s: float) -> str:
        """A new session of a person whom the identity provider vouches for, and its ledger event, or neither."""
        with writing(self._engine) as connection:
            insert_row(connection, event)
            return _begin(connection, person.token, json.dumps(asdict(person)), now_s, min(life_s, SESSION_S))

    def find(self, secret: str, now_s: float) -> TokenRecord | Person | None:
        """Whom a session stands for: a token that is valid, or a person; None where the session or its token no longer is."""
        columns = (SESSIONS.c.expires_s.label("ends_s"), SESSIONS.c.identity)
        joined = select(TOKENS, *columns).select_from(SESSIONS.outerjoin(TOKENS, SESSIONS.c.token == TOKENS.c.id))
        with reading(self._engine) as connection:
            row = connection.execute(joined.where(SESSIONS.c.digest == _digest(secret))).first()
        if row is None or row.ends_s <= now_s:
            return None
        if row.identity is not None:
            return _person(json.loads(row.identity))
        if row.id is None:
            return None
        record = token_record(row)
        return record if record.is_valid(now_s) else None

    def end(self, secret: str) -> None:
        """Sign out; ending a session that is not there is no error."""
        with writing(self._engine) as connection:
            connection.execute(delete(SESSIONS).where(SESSIONS.c.digest == _digest(secret)))


def _begin(connection: Connection, token: str, identity: str | None, now_s: float, life_s: float) -> str:
    secret = secrets.token_urlsafe(32)
    connection.execute(delete(SESSIONS).where(SESSIONS.c.expires_s <= now_s))
    values = {"token": token, "identity": identity, "created_s": now_s, "expires_s": now_s + life_s}
    connection.execute(SESSIONS.insert().values(digest=_digest(secret), **values))
    return secret


def _person(fields: dict[str, Any]) -> Person:
    return Person(**{**fields, "jobs": None if fields["jobs"] is None else tuple(fields["jobs"])})


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
