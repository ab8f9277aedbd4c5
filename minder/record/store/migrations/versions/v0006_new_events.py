"""Who follows the ledger asks for what is newer than what it has read, of some kinds: that is found without the past."""

from __future__ import annotations

from alembic import op

from minder.model.errors import LedgerError

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("events_kind_new", "events", ["kind", "id"])


def downgrade() -> None:
    raise LedgerError("the ledger is append-only, and its schemas only go forward: restore a copy of the file instead")
