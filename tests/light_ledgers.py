"""Ledgers of tests cost little: a new one gets its schema from the statements that the migrations left in the first (2 ms in place of 20),
and no commit waits for the disk. What the database is asked for in truth is tested in tests/store, where neither holds."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, Engine, event

from minder.record.store import engine, migrate

_STATEMENTS: list[str] = []
_TUNE, _UPGRADE = engine._tune_sqlite, migrate._upgrade


def lighten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine, "_tune_sqlite", _tune_without_waiting)
    patch.setattr(migrate, "_upgrade", _upgrade_once)


def _tune_without_waiting(opened: Engine, busy_timeout_s: float) -> None:
    _TUNE(opened, busy_timeout_s)
    event.listen(opened, "connect", lambda connection, _record: connection.execute("PRAGMA synchronous = OFF").close())


def _upgrade_once(connection: Connection) -> None:
    if connection.dialect.name != "sqlite" or migrate.schema_revision(connection) is not None:
        _UPGRADE(connection)
        return
    if not _STATEMENTS:
        _UPGRADE(connection)
        dump = connection.connection.driver_connection.iterdump()  # type: ignore[union-attr]
        _STATEMENTS.extend(line for line in dump if line not in ("BEGIN TRANSACTION;", "COMMIT;"))
        return
    cursor = connection.connection.cursor()  # in the transaction that SQLAlchemy has begun
    for statement in _STATEMENTS:
        cursor.execute(statement)
    cursor.close()
