"""The events table, and the triggers that make it append-only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from minder.model.errors import LedgerError

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ONCE = "kind IN ('intent', 'ambiguous', 'result')"

_SQLITE = (
    "CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: no UPDATE'); END",
    "CREATE TRIGGER events_no_delete BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: no DELETE'); END",
    # INSERT OR REPLACE deletes without firing the DELETE trigger in a connection that did not ask for recursive triggers
    "CREATE TRIGGER events_no_replace BEFORE INSERT ON events WHEN EXISTS (SELECT 1 FROM events WHERE id = NEW.id) "
    "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: no REPLACE'); END",
    "CREATE TRIGGER events_once BEFORE INSERT ON events WHEN NEW.kind IN ('intent', 'ambiguous', 'result') AND EXISTS "
    "(SELECT 1 FROM events WHERE operation_id = NEW.operation_id AND kind = NEW.kind) "
    "BEGIN SELECT RAISE(ABORT, 'this operation has such an event already'); END",
)
_POSTGRESQL = (
    "CREATE FUNCTION minder_append_only() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'the ledger is append-only: no %', TG_OP; END $$",
    "CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE ON events FOR EACH ROW EXECUTE FUNCTION minder_append_only()",
    "CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON events FOR EACH STATEMENT EXECUTE FUNCTION minder_append_only()",
)


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("time_s", sa.Float, nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("job", sa.String(255)),
        sa.Column("incident", sa.String(255)),
        sa.Column("operation_id", sa.String(255)),
        sa.Column("payload", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("events_incident", "events", ["incident", "id"])
    op.create_index("events_kind", "events", ["kind", "job", "id"])
    once = sa.text(_ONCE)
    op.create_index("events_operation_once", "events", ["operation_id", "kind"], unique=True, sqlite_where=once, postgresql_where=once)
    for statement in _SQLITE if op.get_bind().dialect.name == "sqlite" else _POSTGRESQL:
        op.execute(statement)


def downgrade() -> None:
    raise LedgerError("the ledger is append-only, its first schema has no older one: restore a copy of the file instead")
