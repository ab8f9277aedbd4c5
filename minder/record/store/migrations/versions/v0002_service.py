"""What the service keeps beside the ledger: who may call it, and what it answered to an action that may be sent twice."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from minder.model.errors import LedgerError

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("role", sa.String(32), nullable=False),
        sa.Column("jobs", sa.Text),
        sa.Column("machine", sa.String(255)),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_s", sa.Float, nullable=False),
        sa.Column("created_by", sa.String(255), nullable=False),
        sa.Column("expires_s", sa.Float),
        sa.Column("revoked_s", sa.Float),
    )
    op.create_table(
        "answers",
        sa.Column("caller", sa.String(64), primary_key=True),
        sa.Column("idempotency_key", sa.String(255), primary_key=True),
        sa.Column("request_digest", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created_s", sa.Float, nullable=False),
    )
    op.create_index("answers_created", "answers", ["created_s"])


def downgrade() -> None:
    raise LedgerError("the ledger is append-only and holds tokens that an older schema does not have: restore a copy of the file instead")
