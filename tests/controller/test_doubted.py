"""Whose memory a recovery does not read."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.diagnosis.doubted import DOUBTED, KINDS, doubted_machines
from minder.model.decision import Decision
from minder.model.evidence import Verdict
from minder.record.incidents import Ledger, kinds


@pytest.mark.parametrize(
    ("cause", "sources", "trouble", "is_doubted"),
    [
        ("absence", (), "", False),
        ("stall", ("stacks",), "hang", False),
        ("explicit", ("xid",), "machine", False),
        ("numeric", ("replay",), "", True),
        ("explicit", ("probes",), "", True),
        ("explicit", (), "nan", True),
        ("unknown", (), "", True),
    ],
    ids=["silent", "hangs", "says so itself", "wrong numbers", "failed its test", "not finite", "not known why"],
)
def test_a_machine_is_read_where_only_its_going_on_was_in_doubt(
    cause: Any, sources: tuple[str, ...], trouble: str, is_doubted: bool, tmp_path: Path
) -> None:
    verdict = Verdict(1.0, "machine", "evict", ("m1",), cause, 0.9, 1.0, (), (), sources)
    decision = Decision("evict-1", 1.0, "evict", ("m1",), "act", "", verdict, trouble=trouble)
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.intend("evict-1", decision, job="big", incident=None)
        ledger.append(kinds.BARRED, {"machine": "m1", "reason": "x"}, job="big", operation_id="evict-1")
        ledger.append(kinds.BARRED, {"machine": "m2", "reason": "a trial"}, job="big", operation_id="bar-2")
        events = ledger.events(job="big", kinds=KINDS)
    assert doubted_machines(events, {"m1", "m2"}) == (["m1", "m2"] if is_doubted else ["m2"])
    assert doubted_machines(events, set()) == []


@pytest.mark.parametrize(
    ("cause", "inside", "finding", "found"),
    [
        ("numeric", (), "", ["m1"]),
        ("numeric", ("m1",), "", []),
        ("numeric", (), "follows the rank", []),
        ("numeric", (), "did not come back", ["m1"]),
        ("crash", (), "", []),
    ],
    ids=["its ranks run elsewhere", "it has ranks", "they follow the rank", "the trial ended without them", "of a crash"],
)
def test_a_machine_on_trial_for_wrong_numbers_is_in_doubt(
    cause: Any, inside: tuple[str, ...], finding: str, found: list[str], tmp_path: Path
) -> None:
    verdict = Verdict(1.0, "machine", "evict", ("m1",), cause, 0.9, 1.0, (), ())
    decision = Decision("trial-1", 1.0, "trial", ("m1",), "act", "", verdict, replacements=("s0",))
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.intend("trial-1", decision, job="big", incident=None)
        if finding:
            ledger.append(kinds.TRIAL_ENDED, {"machine": "m1", "partner": "s0", "finding": finding}, job="big", operation_id="trial-1")
        events = ledger.events(job="big", kinds=KINDS)
    assert doubted_machines(events, (), inside) == found


def _environments(world: Any, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What each generation's ranks read of MINDER_DOUBTED, as it goes to the launchers; all ranks of one read the same."""
    found: list[list[str]] = []
    take = world.fleet._take

    def noting(item: Any, body: Any) -> Any:
        for each in body["assignments"] if body["desired"] == "run" else ():
            doubted = json.loads(each["env"].get(DOUBTED, "[]"))
            if not found or found[-1] != doubted:
                found.append(doubted)
        return take(item, body)

    monkeypatch.setattr(world.fleet, "_take", noting)
    return found


def test_ranks_learn_at_the_restart_whose_memory_is_in_doubt(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through decision, ledger and recovery: a machine whose GPU is gone is asked, one with a NaN of its own is not."""
    found = _environments(world, monkeypatch)
    app = world.app()
    with contextlib.closing(app):
        app.begin()
        world.tick(app, 5)
        for machine, cause, sources in (("m1", "explicit", ("xid",)), ("m2", "numeric", ("gradient",))):
            verdict = world.accuse(machine, cause=cause, sources=sources)
            world.script = lambda observation, said=verdict: [said]
            world.tick(app, 30)
        assert [event.payload["machine"] for event in app.ledger.events(kinds=[kinds.BARRED])] == ["m1", "m2"]
        assert app.state.generation == 3
    assert found == [[], ["m2"]]
