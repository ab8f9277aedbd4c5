"""Brings a ledger to the schema of this code, and refuses one that is newer."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from minder.model.errors import LedgerError
from minder.record.store.engine import reading, writing

__all__ = ["HEAD", "REVISIONS", "migrate", "schema_revision"]

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007")
HEAD = REVISIONS[-1]
_FOLDER = Path(__file__).parent / "migrations"


def migrate(engine: Engine) -> None:
    """Upgrade to HEAD where needed. Raises LedgerError where the database was written by a newer minder."""
    with reading(engine) as connection:
        found = schema_revision(connection)
    if found == HEAD:  # the usual case: Alembic is not even imported
        return
    _refuse_newer(engine, found)
    with writing(engine) as connection:  # one transaction, so that two processes cannot upgrade at once
        found = schema_revision(connection)
        _refuse_newer(engine, found)
        if found != HEAD:
            _upgrade(connection)


def schema_revision(connection: Connection) -> str | None:
    """The revision that the database says it has; None for an empty one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _refuse_newer(engine: Engine, found: str | None) -> None:
    if found is not None and found not in REVISIONS:
        raise LedgerError(
            f"ledger {engine.url.database} has schema {found}, this minder knows up to {HEAD}: upgrade minder, or name another ledger"
        )


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
