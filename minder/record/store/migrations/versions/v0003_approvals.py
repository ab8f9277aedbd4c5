"""An operator is asked about an eviction once, and the question is answered once: the ledger itself refuses a second answer."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from minder.model.errors import LedgerError

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ONCE = "kind IN ('intent', 'ambiguous', 'result', 'approval_asked', 'approval_settled', 'approval_closed')"


def upgrade() -> None:
    once = sa.text(_ONCE)
    op.drop_index("events_operation_once", "events")
    op.create_index("events_operation_once", "events", ["operation_id", "kind"], unique=True, sqlite_where=once, postgresql_where=once)
    if op.get_bind().dialect.name != "sqlite":
        return
    op.execute("DROP TRIGGER events_once")  # the condition stands in it twice: the second is what lets the search use the partial index
    op.execute(
        f"CREATE TRIGGER events_once BEFORE INSERT ON events WHEN NEW.{_ONCE} AND EXISTS "
        f"(SELECT 1 FROM events WHERE operation_id = NEW.operation_id AND kind = NEW.kind AND {_ONCE}) "
        "BEGIN SELECT RAISE(ABORT, 'this operation has such an event already'); END"
    )


def downgrade() -> None:
    raise LedgerError(
        "the ledger is append-only, and an older schema would let a question be answered twice: restore a copy of the file instead"
    )
