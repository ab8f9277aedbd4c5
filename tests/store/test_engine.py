from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import text

from minder.model.clock import FakeClock
from minder.model.errors import BadInputError, LedgerError, MissingExtraError
from minder.record.store import engine
from minder.record.store.engine import MEMORY, open_engine, reading, writing


def test_sqlite_runs_in_wal_mode_and_syncs_every_commit(tmp_path: Path) -> None:
    with reading(open_engine(tmp_path / "deep" / "ledger.db")) as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 5000


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "ledger.db")
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE t (x INTEGER)"))
    with pytest.raises(LedgerError, match="no such table"), writing(engine) as connection:
        connection.execute(text("INSERT INTO t VALUES (1)"))
        connection.execute(text("INSERT INTO nowhere VALUES (1)"))
    with reading(engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM t")).scalar() == 0


def test_memory_keeps_its_tables_between_transactions() -> None:
    engine = open_engine(MEMORY)
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE t (x INTEGER)"))
    with reading(engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM t")).scalar() == 0


def test_a_lock_held_by_another_process_is_one_line(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "ledger.db", busy_timeout_s=0.05)
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE t (x INTEGER)"))
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="locked: another process holds it") as caught, writing(engine):
        pass
    assert "\n" not in str(caught.value)
    other.close()


def test_the_change_to_wal_is_waited_for_as_long_as_a_lock_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process makes the ledger, and takes its time: SQLite itself does not wait for the change of the journal's mode."""
    clock = FakeClock(0.0)

    def execute(statement: str) -> None:
        if clock.now_s() < held_s:
            raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(engine, "time", SimpleNamespace(sleep=clock.sleep, monotonic=clock.now_s))
    held_s = 4.9
    engine._switch_to_wal(SimpleNamespace(execute=execute), 5.0)
    held_s = clock.now_s() + 5.1
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        engine._switch_to_wal(SimpleNamespace(execute=execute), 5.0)


def test_what_is_no_database_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"this is a text file, of some length, and not a database at all" * 20)
    with pytest.raises(LedgerError, match=r"ledger\.db cannot be read: file is not a database"), reading(open_engine(path)):
        pass


def test_bad_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="is a folder"):
        open_engine(tmp_path)
    with pytest.raises(BadInputError, match=r"no ledger at .*--ledger"):
        open_engine(tmp_path / "missing.db", create=False)
    with pytest.raises(BadInputError, match=r"no ledger at .*--ledger"):
        open_engine(f"sqlite:///{tmp_path / 'missing.db'}", create=False)
    assert not (tmp_path / "missing.db").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match=r"ledger .* cannot be made"):
        open_engine(tmp_path / "file" / "ledger.db")


def test_an_url_that_cannot_be_used_says_why_and_hides_the_password() -> None:
    with pytest.raises(BadInputError, match="not understood"):
        open_engine("nosuchdatabase://user:secret@host/x")
    with pytest.raises(BadInputError) as caught:
        open_engine("nosuchdatabase://user:secret@host/x")
    assert "secret" not in str(caught.value)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"psycopg: pip install 'minder-cluster\[postgres\]'"):
        open_engine("postgresql://user:secret@host/x")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(LedgerError, match="check the owner and mode"), reading(open_engine(tmp_path / "ledger.db")):
        pass
