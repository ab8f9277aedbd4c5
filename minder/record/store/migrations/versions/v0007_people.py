"""Who signed in to the service's pages with the identity provider, and not with a token."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from minder.model.errors import LedgerError

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sessions", sa.Column("identity", sa.Text))


def downgrade() -> None:
    raise LedgerError("the ledger is append-only, and its schemas only go forward: restore a copy of the file instead")
