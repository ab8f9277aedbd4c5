"""Versions of a job's code out of the ledger: what was ordered, what waits, what runs, what a rollback leads to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minder.model.errors import BadInputError
from minder.model.history import LedgerEvent
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.location import code_folder
from minder.record.incidents.updates import (
    UpdateFold,
    check_rollback,
    fold_updates,
    order_rollback,
    order_update,
    update_payload,
    version_rows,
)


class Story:
    """One job's events, in order."""

    def __init__(self) -> None:
        self.events: list[LedgerEvent] = []
        self.add(kinds.JOB_REGISTERED)

    def add(self, kind: str, name: str | None = None, **payload: Any) -> Story:
        number = len(self.events) + 1
        self.events.append(LedgerEvent(number, 100.0 * number, kind, "llm", None, name, payload))
        return self

    def ask(self, name: str, **payload: Any) -> Story:
        return self.add(kinds.UPDATE_ASKED, name, **payload)

    def begin(self, generation: int, update: int = 0, name: str | None = None) -> Story:
        return self.add(kinds.GENERATION_STARTED, "x", generation=generation, update=update, update_operation=name)

    @property
    def found(self) -> UpdateFold:
        return fold_updates(self.events)


def test_an_update_has_all_that_it_does_not_change_from_the_version_before() -> None:
    story = Story().ask("a", code="c1", env={"X": "1"}).ask("b", env={"Y": "2"}, args=["--lr", "1"]).ask("c", code="c3", env={"X": "3"})
    version = story.found.versions[3]
    assert (version.code, version.env, version.args, version.base) == ("c3", {"X": "3", "Y": "2"}, ("--lr", "1"), 2)
    assert version.program() == {"update": 3, "code": "c3", "env": {"X": "3", "Y": "2"}, "args": ["--lr", "1"]}
    assert [order.state for order in story.found.orders] == ["replaced", "replaced", "asked"]


def test_an_order_is_applied_by_the_generation_that_names_it() -> None:
    story = Story().begin(1).ask("a", code="c1").add(kinds.UPDATE_READY, "a")
    assert (story.found.running, story.found.wanted, story.found.orders[-1].state) == (0, 1, "ready")
    story.begin(2, 1, "a").begin(3, 1)
    assert (story.found.running, story.found.open, story.found.since_generation) == (1, None, 2)
    assert (story.found.orders[-1].state, story.found.orders[-1].applied) == ("applied", 2)


def test_what_no_launcher_takes_leaves_the_version_before() -> None:
    story = Story().begin(1).ask("a", code="c1").add(kinds.UPDATE_FAILED, "a", detail="m1 takes no updates")
    assert (story.found.wanted, story.found.orders[-1].detail) == (0, "m1 takes no updates")
    assert story.ask("b", env={"X": "1"}).found.versions[2].code == "", "it is no base of the next one"


def test_a_rollback_leads_to_the_version_before_and_the_next_update_goes_on_from_there() -> None:
    story = Story().begin(1).ask("a", code="c1").begin(2, 1, "a").ask("b", code="c2").begin(3, 2, "b")
    assert (story.found.previous, check_rollback(story.found, "llm", None)) == (1, 1)
    story.ask("c", to=1).begin(4, 1, "c").ask("d", env={"X": "1"})
    assert (story.found.running, story.found.versions[3].base, story.found.versions[3].code) == (1, 1, "c1")
    assert story.found.foreign(1) == story.found.foreign(3) == (2,), "checkpoints of what was taken back"
    assert story.found.foreign(2) == ()


def test_what_waits_can_be_taken_back_before_it_is_applied() -> None:
    story = Story().begin(1).ask("a", code="c1").begin(2, 1, "a").ask("b", code="c2", urgent=True)
    story.ask("c", to=check_rollback(story.found, "llm", None), urgent=True)
    assert (story.found.open, story.found.wanted) == (None, 1), "nothing is left to apply"


@pytest.mark.parametrize(("to", "why"), [(None, "no update to take back"), (4, "no version 4"), (0, "runs version 0")])
def test_what_is_no_rollback(to: int | None, why: str) -> None:
    with pytest.raises(BadInputError, match=why):
        check_rollback(Story().begin(1).found, "llm", to)


def test_another_run_begins_with_what_launchers_were_started_with() -> None:
    story = Story().begin(1).ask("a", code="c1").begin(2, 1, "a").ask("b", code="c2").add(kinds.JOB_REGISTERED)
    assert (story.found.running, story.found.open, story.found.previous) == (0, None, None)
    assert story.ask("c", code="c3").found.orders[-1].to == 3, "a number is used once"


def test_the_list_says_how_each_version_stands() -> None:
    story = Story().begin(1).ask("a", code="c1", by="ann", note="lower rate").begin(2, 1, "a").ask("b", args=["--lr", "2"])
    assert [(row["update"], row["state"], row["by"], row["note"]) for row in version_rows(story.found)] == [
        (2, "waits", "", ""),
        (1, "runs", "ann", "lower rate"),
        (0, "-", "", ""),
    ]


def test_an_order_that_changes_nothing_is_refused() -> None:
    with pytest.raises(BadInputError, match="changes nothing"):
        update_payload("", (0, 0), {}, None, False, "x")


def test_orders_are_written_for_a_job_with_launchers_that_runs(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        with pytest.raises(BadInputError, match='no job "llm" runs'):
            order_update(ledger, "llm", update_payload("", (0, 0), {"X": "1"}, None, False, "x"), "ann")
        ledger.append(kinds.JOB_REGISTERED, {"machines": ["m0"]}, job="llm")
        first = order_update(ledger, "llm", update_payload("", (0, 0), {"X": "1"}, None, True, "x"), "ann")
        back = order_rollback(ledger, "llm", None, True, "no", "bob")
        assert (first.to, first.urgent, back.to, back.by) == (1, True, 0, "bob")
        ledger.append(kinds.JOB_REGISTERED, {"machines": ["m0"], "run": "slurm 7"}, job="watched")
        with pytest.raises(BadInputError, match="only watched"):
            order_update(ledger, "watched", update_payload("", (0, 0), {"X": "1"}, None, False, "x"), "ann")
        assert code_folder(ledger.location) == tmp_path / "code"


def test_the_code_of_a_database_lies_in_the_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINDER_STATE_DIR", str(tmp_path))
    assert code_folder("postgresql://db/minder") == tmp_path / "code"
