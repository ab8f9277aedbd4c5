from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import alembic.command
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

import minder.record.store.migrate as migrations
from minder.model.errors import LedgerError
from minder.record.store.engine import open_engine, reading, writing
from minder.record.store.events import EventQuery, EventRow, EventStore
from minder.record.store.migrate import HEAD, REVISIONS, migrate, schema_revision
from minder.record.store.tables import METADATA


def scripts() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent / "migrations"))
    return config


def test_a_new_file_gets_the_schema_and_opening_again_changes_nothing(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "ledger.db")
    migrate(engine)
    migrate(engine)
    with reading(engine) as connection:
        assert schema_revision(connection) == HEAD
        differences = compare_metadata(MigrationContext.configure(connection), METADATA)
    assert {item[0] for item in differences} == {"remove_index"}, "the indexes alone are the migrations' own affair"


def test_revisions_in_code_are_those_in_the_folder() -> None:
    script = ScriptDirectory.from_config(scripts())
    assert tuple(item.revision for item in reversed(list(script.walk_revisions()))) == REVISIONS
    assert script.get_current_head() == HEAD


def test_a_newer_ledger_is_refused_in_one_line_and_left_alone(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "ledger.db")
    migrate(engine)
    with writing(engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0999'"))
    with pytest.raises(LedgerError, match=r"has schema 0999, this minder knows up to .*: upgrade minder") as caught:
        migrate(engine)
    assert "\n" not in str(caught.value)
    with reading(engine) as connection:
        assert schema_revision(connection) == "0999"


def test_there_is_no_way_back_from_the_first_schema(tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "ledger.db")
    migrate(engine)
    config = scripts()
    with writing(engine) as connection, pytest.raises(LedgerError, match="append-only"):
        config.attributes["connection"] = connection
        alembic.command.downgrade(config, "base")
    with reading(engine) as connection:
        assert schema_revision(connection) == HEAD


@pytest.mark.lab
def test_processes_that_open_a_new_ledger_together_all_succeed(tmp_path: Path) -> None:
    code = "import sys; from minder.record.store.events import EventStore; EventStore(sys.argv[1])"
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "ledger.db")], stderr=subprocess.PIPE, text=True) for _ in range(4)
    ]
    assert [(process.communicate()[1][-300:], process.returncode) for process in started] == [("", 0)] * 4


def test_opening_an_up_to_date_ledger_does_not_import_alembic(tmp_path: Path) -> None:
    migrate(open_engine(tmp_path / "ledger.db"))
    code = (
        "import sys; from minder.record.store.engine import open_engine; from minder.record.store.migrate import migrate; "
        "migrate(open_engine(sys.argv[1])); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "ledger.db")], check=False).returncode == 0


def test_an_older_ledger_learns_to_keep_one_answer_per_question(database: str) -> None:
    engine, config = open_engine(database), scripts()
    with writing(engine) as connection:
        config.attributes["connection"] = connection
        alembic.command.upgrade(config, "0002")
        connection.execute(text("INSERT INTO events (time_s, kind, payload, operation_id) VALUES (1, 'intent', '{}', 'op')"))
    engine.dispose()
    store = EventStore(database)
    assert [event.kind for event in store.select(EventQuery())] == ["intent"]
    for kind in ("intent", "approval_settled"):
        first, new = store.insert_once(EventRow(2.0, kind, '{"n":1}', operation_id="op"))
        again, newer = store.insert_once(EventRow(3.0, kind, '{"n":2}', operation_id="op"))
        assert (new, newer, again) == (kind != "intent", False, first)
    assert store.insert(EventRow(4.0, "note", "{}", operation_id="op")).id
    store.close()


def test_the_check_for_a_second_event_of_an_operation_reads_an_index(tmp_path: Path) -> None:
    """It runs at every action: a ledger of years must not make evictions wait for a scan of all actions that ever were."""
    engine = open_engine(tmp_path / "ledger.db")
    migrate(engine)
    with reading(engine) as connection:
        trigger = connection.execute(text("SELECT sql FROM sqlite_master WHERE name = 'events_once'")).scalar_one()
        search = trigger.partition("EXISTS (")[2].partition(") BEGIN")[0].replace("NEW.operation_id", "'x'").replace("NEW.kind", "'intent'")
        (plan,) = connection.execute(text(f"EXPLAIN QUERY PLAN {search}")).scalars(3).all()
    assert "events_operation_once (operation_id=? AND kind=?)" in plan
