"""Opens the ledger's database: SQLite in WAL mode that syncs at every commit, or PostgreSQL by URL.

One writer at a time, in both: incidents are counted, and events numbered, in the order in which they are committed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from minder.model.errors import BadInputError, LedgerError, MissingExtraError
from minder.model.private import make_private, open_private

__all__ = ["MEMORY", "database_errors", "open_engine", "reading", "safe_name", "writing"]

MEMORY = ":memory:"
_WRITE = "minder_write"
_SWITCH_PAUSE_S = 0.02
_CACHE_KIB = 512  # a connection; a service has fifteen, and the system keeps the file in its own cache
_STOPPED_WRITER_MS = 5000
_WRITER_LOCK = 0x6D696E646572  # "minder": PostgreSQL's advisory locks are numbers
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")


def open_engine(path_or_url: str | Path, *, busy_timeout_s: float = 5.0, create: bool = True) -> Engine:
    """An engine for a file path, ":memory:", or an SQLAlchemy URL ("postgresql+psycopg://...").

    `create=False` refuses a file that does not exist. Raises BadInputError (no such file, a folder, not a URL), MissingExtraError
    (no driver for the URL), LedgerError.
    """
    text = str(path_or_url)
    if "://" in text:
        return _open_url(text, busy_timeout_s, create)
    if text == MEMORY:
        engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    else:
        path = Path(text).expanduser()
        _check_file(path, create)
        engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": busy_timeout_s})
    _tune_sqlite(engine, busy_timeout_s)
    return engine


def _open_url(url: str, busy_timeout_s: float, create: bool) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.drivername in _POSTGRESQL:
            patience = {"connect_timeout": max(2, math.ceil(busy_timeout_s))}
            engine = create_engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True, connect_args=patience)
        else:
            engine = create_engine(parsed, pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError) as error:
        raise BadInputError(
            f'ledger URL "{safe_name(url)}" is not understood ({error}): give a file path or a postgresql:// URL'
        ) from error
    except ImportError as error:
        extra = "pip install 'minder-cluster[postgres]'"
        raise MissingExtraError(f"the ledger URL needs the Python package {error.name or 'psycopg'}: {extra}") from error
    if engine.dialect.name == "sqlite":
        if parsed.database and parsed.database != MEMORY:
            _check_file(Path(parsed.database), create)
        _tune_sqlite(engine, busy_timeout_s)
    elif engine.dialect.name == "postgresql":
        _tune_postgresql(engine, busy_timeout_s)
    return engine


def safe_name(path_or_url: str) -> str:
    """How a ledger may be called in a message: a URL without its password."""
    if "://" not in path_or_url:
        return path_or_url
    try:
        return make_url(path_or_url).render_as_string(hide_password=True)
    except ArgumentError:
        return path_or_url.split("://", 1)[0] + "://..."


def _tune_postgresql(engine: Engine, busy_timeout_s: float) -> None:
    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        if connection.get_execution_options().get(_WRITE, False):
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {max(1, int(busy_timeout_s * 1000))}")
            # a writer that is stopped in the middle must not hold up everybody: the server ends its transaction
            connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = {_STOPPED_WRITER_MS}")
            connection.exec_driver_sql("SET LOCAL synchronous_commit = on")  # an intent that was written survives a power cut
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITER_LOCK})")


def _check_file(path: Path, create: bool) -> None:
    if path.is_dir():
        raise BadInputError(f"ledger {path} is a folder: name a file in it, such as {path / 'ledger.db'}")
    if path.exists():
        return
    if not create:
        raise BadInputError(f"no ledger at {path}: nothing has run with it yet, or name another with --ledger or MINDER_LEDGER")
    try:
        make_private(path.parent)
        open_private(path, "a").close()  # SQLite gives its other files the mode of this one
    except OSError as error:
        raise LedgerError(f"ledger {path} cannot be made: {error.strerror}") from error


def _tune_sqlite(engine: Engine, busy_timeout_s: float) -> None:
    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say, not where the driver guesses
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {int(busy_timeout_s * 1000)}")
        _switch_to_wal(cursor, busy_timeout_s)
        cursor.execute("PRAGMA synchronous = FULL")  # an intent that was written survives a power cut
        cursor.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        cursor.execute("PRAGMA recursive_triggers = ON")  # INSERT OR REPLACE must not slip past the DELETE trigger
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        # a reader that turns writer in the middle of a transaction can fail at once, whatever the busy timeout
        immediate = connection.get_execution_options().get(_WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


def _switch_to_wal(cursor: Any, busy_timeout_s: float) -> None:
    """SQLite does not wait for the lock when the journal mode changes: processes that open a new ledger together would fail. As it waits
    for any other lock, this waits for `busy_timeout_s`: on a busy disk the first of them takes seconds."""
    import sqlite3

    end_s = time.monotonic() + busy_timeout_s
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= end_s:
                raise
            time.sleep(_SWITCH_PAUSE_S)


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """One consistent read. Raises LedgerError."""
    with database_errors(engine, "read"), engine.connect() as connection, connection.begin():
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """One write transaction: the lock is taken at its start, all of it is on disk at its end. Raises LedgerError."""
    with database_errors(engine, "written"), engine.connect() as plain:
        connection = plain.execution_options(**{_WRITE: True})
        with connection.begin():
            yield connection


@contextmanager
def database_errors(engine: Engine, verb: str) -> Iterator[None]:
    """Whatever the database says becomes one line."""
    try:
        yield
    except SQLAlchemyError as error:
        name = engine.url.database if engine.dialect.name == "sqlite" else engine.url.render_as_string(hide_password=True)
        raise LedgerError(f"ledger {name or MEMORY} cannot be {verb}: {_first_line(error)}{_advice(error)}") from error


def _first_line(error: SQLAlchemyError) -> str:
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return (str(cause).strip() or type(cause).__name__).splitlines()[0]


def _advice(error: SQLAlchemyError) -> str:
    text = str(error)
    if isinstance(error, OperationalError) and ("locked" in text or "lock timeout" in text):
        return ": another process holds it; try again"
    if isinstance(error, OperationalError) and ("connection" in text or "connect" in text):
        return ": check that the server runs, and the address, user and password in its URL"
    if "disk is full" in text or "disk I/O" in text:
        return ": free some space; nothing is acted on until it can be written"
    if "readonly" in text or "unable to open" in text:
        return ": check the owner and mode of the file and its folder"
    if "not a database" in text or "malformed" in text:
        return ": the file is damaged or is something else; move it away or name another"
    return ""
