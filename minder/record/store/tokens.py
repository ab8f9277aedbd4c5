"""Tokens of the service. A token is shown once, when it is made; the database keeps its SHA-256 only.

A token is `minder_<id>_<secret>`: 256 random bits need no slow hash, and the id finds the row without comparing secrets in SQL.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, select, update

from minder.model.errors import BadInputError
from minder.record.store.engine import reading, writing
from minder.record.store.events import EventRow, insert_row
from minder.record.store.opened import OpenedStore
from minder.record.store.tables import TOKENS

__all__ = ["TokenRecord", "TokenStore", "new_id", "token_record"]

_FORM = re.compile(r"minder_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token without its secret. jobs: None for every job. Times in unix seconds."""

    id: str
    name: str
    role: str
    created_s: float
    created_by: str
    jobs: tuple[str, ...] | None = None
    machine: str | None = None
    expires_s: float | None = None
    revoked_s: float | None = None

    def is_valid(self, now_s: float) -> bool:
        return self.revoked_s is None and (self.expires_s is None or now_s < self.expires_s)

    def as_event(self, what: str, by: str, now_s: float, reason: str = "") -> EventRow:
        """The ledger event that says what was done with it (minder.record.incidents.kinds.TOKEN). what: "created" or "revoked"."""
        jobs = None if self.jobs is None else list(self.jobs)
        payload = {"what": what, "token": self.id, "name": self.name, "role": self.role, "jobs": jobs, "by": by}
        payload |= {key: value for key, value in (("machine", self.machine), ("reason", reason)) if value}
        return EventRow(now_s, "token", json.dumps(payload))


class TokenStore(OpenedStore):
    """The tokens table of one database. Every method raises LedgerError where the database refuses."""

    def create(self, wanted: TokenRecord) -> str:
        """Store a token of this description, and its ledger event; returns the token itself.

        Raises BadInputError where a valid token of that name exists.
        """
        secret = secrets.token_urlsafe(32)
        token = f"minder_{wanted.id}_{secret}"
        values = {name: getattr(wanted, name) for name in ("id", "name", "role", "machine", "created_s", "created_by", "expires_s")}
        jobs = None if wanted.jobs is None else json.dumps(list(wanted.jobs))
        with writing(self._engine) as connection:
            rows = connection.execute(select(TOKENS).where(TOKENS.c.name == wanted.name))
            if any(token_record(row).is_valid(wanted.created_s) for row in rows):
                raise BadInputError(f'a token named "{wanted.name}" exists: revoke it first, or choose another name')
            connection.execute(TOKENS.insert().values(**values, jobs=jobs, digest=_digest(token)))
            insert_row(connection, wanted.as_event("created", wanted.created_by, wanted.created_s))
        return token

    def find(self, token: str) -> TokenRecord | None:
        """The record of a token that is presented; None where it is not one of ours. It may be revoked or expired."""
        form = _FORM.fullmatch(token)
        if form is None:
            return None
        with reading(self._engine) as connection:
            row = connection.execute(select(TOKENS).where(TOKENS.c.id == form.group(1))).first()
        if row is None or not hmac.compare_digest(row.digest, _digest(token)):
            return None
        return token_record(row)

    def list(self) -> Sequence[TokenRecord]:
        """All tokens, revoked ones included, oldest first."""
        with reading(self._engine) as connection:
            return [token_record(row) for row in connection.execute(select(TOKENS).order_by(TOKENS.c.created_s, TOKENS.c.id))]

    def revoke(self, id_or_name: str, now_s: float, by: str, reason: str = "") -> TokenRecord:
        """End a valid token, and tell the ledger. Raises BadInputError where there is none."""
        with writing(self._engine) as connection:
            rows = connection.execute(select(TOKENS).where((TOKENS.c.id == id_or_name) | (TOKENS.c.name == id_or_name)))
            found = [record for row in rows if (record := token_record(row)).is_valid(now_s)]
            if not found:
                raise BadInputError(f'no valid token "{id_or_name}": `minder token list` shows all')
            connection.execute(update(TOKENS).where(TOKENS.c.id == found[0].id).values(revoked_s=now_s))
            insert_row(connection, found[0].as_event("revoked", by, now_s, reason))
        return found[0]


def new_id() -> str:
    """An id for a token to be made."""
    return secrets.token_hex(6)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def token_record(row: Row[Any]) -> TokenRecord:
    """A row of the table as a record."""
    return TokenRecord(
        id=row.id,
        name=row.name,
        role=row.role,
        created_s=row.created_s,
        created_by=row.created_by,
        jobs=None if row.jobs is None else tuple(json.loads(row.jobs)),
        machine=row.machine,
        expires_s=row.expires_s,
        revoked_s=row.revoked_s,
    )
