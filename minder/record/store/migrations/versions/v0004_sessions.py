"""Who is signed in to the service's pages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from minder.model.errors import LedgerError

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sessions",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("token", sa.String(32), nullable=False),
        sa.Column("created_s", sa.Float, nullable=False),
        sa.Column("expires_s", sa.Float, nullable=False),
    )
    op.create_index("sessions_expires", "sessions", ["expires_s"])


def downgrade() -> None:
    raise LedgerError("the ledger is append-only, an older schema does not know who is signed in: restore a copy of the file instead")
