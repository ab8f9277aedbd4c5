"""Names of files in the folder of an upload, besides those of a recording. They are ours, whatever a sender calls them."""

from __future__ import annotations

__all__ = ["LAST", "NEW", "ROWS", "SEGMENTS", "SESSION"]

ROWS = "rows.ndjson"  # rows that are to be appended to a session
LAST, NEW = "last.parquet", "new.parquet"  # the session's table that they go on, and what comes of it
SEGMENTS, SESSION = "segments", "session.json"  # a session that is to be scored: its tables in order, and its job
