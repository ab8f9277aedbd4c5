"""Which controller leads a job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from minder.model.errors import LedgerError

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "leases",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("beats", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("released", sa.Integer, nullable=False),
    )


def downgrade() -> None:
    raise LedgerError("the ledger is append-only, and an older schema does not know who leads: restore a copy of the file instead")
