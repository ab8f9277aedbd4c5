"""The ledger's one table. Migrations create it (and the triggers that make it append-only); code reads and writes through it."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Integer, MetaData, String, Table, Text

__all__ = ["EVENTS", "METADATA"]

METADATA = MetaData()

EVENTS = Table(
    "events",
    METADATA,
    # SQLite numbers rows by itself only for a plain INTEGER key
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("time_s", Float, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("job", String(255)),
    Column("incident", String(255)),
    Column("operation_id", String(255)),
    Column("payload", Text, nullable=False),
    sqlite_autoincrement=True,
)
