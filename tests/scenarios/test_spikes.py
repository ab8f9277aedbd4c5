"""One rank's gradient a thousand times too large: the job trains on, and a person is told whose it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minder.record.incidents import kinds

pytestmark = [pytest.mark.lab, pytest.mark.timeout(280)]


def test_the_machine_whose_own_gradient_spiked_is_paged_and_stays(drama: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINDER_LAB_FAULT", "spike@35:2")
    run = drama(fault="none", steps=90)
    run.start()
    assert run.finish() == "finished"
    decided = [event.payload for event in run.events(kinds.DECISION)]
    assert [(item["action"], item["machines"], item["verdict"]["cause"]) for item in decided] == [("page", [run.name(2)], "numeric")]
    assert "step 35" in decided[0]["verdict"]["evidence"][0]["message"]
    assert run.evicted() == [] and len(run.generations()) == 1
