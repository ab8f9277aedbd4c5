"""Who is signed in to the service's pages. The browser keeps a random secret, the database its SHA-256 and which token it stands for.

A session is never worth more than its token: whoever revokes the token ends every session of it.
"""

from __future__ import annotations

import hashlib
import secrets

from sqlalchemy import delete, select

from minder.store.engine import reading, writing
from minder.store.opened import OpenedStore
from minder.store.tables import SESSIONS, TOKENS
from minder.store.tokens import TokenRecord, token_record

__all__ = ["SESSION_S", "SessionStore"]

SESSION_S = 12 * 3600.0


class SessionStore(OpenedStore):
    """The sessions table of one database. Every method raises LedgerError where the database refuses."""

    def begin(self, token_id: str, now_s: float) -> str:
        """A new session of this token; returns its secret. Sessions that are over are forgotten on the way."""
        secret = secrets.token_urlsafe(32)
        with writing(self._engine) as connection:
            connection.execute(delete(SESSIONS).where(SESSIONS.c.expires_s <= now_s))
            values = {"digest": _digest(secret), "token": token_id, "created_s": now_s, "expires_s": now_s + SESSION_S}
            connection.execute(SESSIONS.insert().values(**values))
        return secret

    def find(self, secret: str, now_s: float) -> TokenRecord | None:
        """The token that a session stands for, which is valid; None where the session or its token no longer is."""
        joined = select(TOKENS, SESSIONS.c.expires_s.label("ends_s")).join(SESSIONS, SESSIONS.c.token == TOKENS.c.id)
        with reading(self._engine) as connection:
            row = connection.execute(joined.where(SESSIONS.c.digest == _digest(secret))).first()
        if row is None or row.ends_s <= now_s:
            return None
        record = token_record(row)
        return record if record.is_valid(now_s) else None

    def end(self, secret: str) -> None:
        """Sign out; ending a session that is not there is no error."""
        with writing(self._engine) as connection:
            connection.execute(delete(SESSIONS).where(SESSIONS.c.digest == _digest(secret)))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
