"""Whose memory a recovery does not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.doubted import doubted_machines
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
        events = ledger.events(job="big", kinds=[kinds.INTENT, kinds.BARRED])
    assert doubted_machines(events, {"m1", "m2"}) == (["m1", "m2"] if is_doubted else ["m2"])
    assert doubted_machines(events, set()) == []
