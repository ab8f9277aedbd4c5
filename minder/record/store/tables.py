"""The tables. Migrations create them (and the triggers that make the ledger append-only); code reads and writes through them.

EVENTS is the ledger. TOKENS, SESSIONS and ANSWERS belong to the service: who may call it, who is signed in to its pages, and what it
answered to an action that may be sent twice.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Integer, MetaData, String, Table, Text

__all__ = ["ANSWERS", "EVENTS", "LEASES", "METADATA", "SESSIONS", "TOKENS"]

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

TOKENS = Table(
    "tokens",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("name", String(255), nullable=False),
    Column("role", String(32), nullable=False),
    Column("jobs", Text),  # JSON list; null: every job
    Column("machine", String(255)),  # whom an agent's or a launcher's token speaks for
    Column("digest", String(64), nullable=False),  # SHA-256 of the token, which is stored nowhere
    Column("created_s", Float, nullable=False),
    Column("created_by", String(255), nullable=False),
    Column("expires_s", Float),
    Column("revoked_s", Float),
)

ANSWERS = Table(
    "answers",
    METADATA,
    Column("caller", String(64), primary_key=True),
    Column("idempotency_key", String(255), primary_key=True),
    Column("request_digest", String(64), nullable=False),
    Column("status", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_s", Float, nullable=False),
)

SESSIONS = Table(
    "sessions",
    METADATA,
    Column("digest", String(64), primary_key=True),  # SHA-256 of what the browser keeps
    Column("token", String(32), nullable=False),  # TOKENS.id, or a name for the person in `identity`
    Column("created_s", Float, nullable=False),
    Column("expires_s", Float, nullable=False),
    Column("identity", Text),  # JSON: who signed in with the identity provider; null where the session is a token's
)

LEASES = Table(
    "leases",
    METADATA,
    Column("name", String(255), primary_key=True),
    Column("token", BigInteger, nullable=False),  # grows whenever another process takes the lease
    Column("beats", BigInteger, nullable=False),  # grows while its holder lives
    Column("holder", String(255), nullable=False),
    Column("released", Integer, nullable=False),
)
