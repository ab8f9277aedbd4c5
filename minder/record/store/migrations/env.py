"""Alembic's entry point: runs inside the transaction that minder.record.store.migrate opened."""

from __future__ import annotations

from alembic import context

from minder.record.store.tables import METADATA

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("run migrations by opening the ledger (minder.record.store.migrate), not by the alembic command")
context.configure(connection=connection, target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
