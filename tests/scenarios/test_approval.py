"""An eviction waits for an operator while real processes run: nothing is touched before the answer, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minder.cli import main
from minder.record.incidents import kinds

pytestmark = [pytest.mark.lab, pytest.mark.timeout(420)]


def test_a_fault_waits_for_the_operator_also_over_a_killed_controller(drama: Callable[..., Any], same_losses: Any) -> None:
    run = drama()
    config = run.stage.folder / "job.toml"
    config.write_text(config.read_text().replace("[policy]", '[policy]\napproval = "required"\napproval_timeout_s = 300.0'))
    run.start()
    run.reach(12)
    run.stage.inject("hang", 1)
    run.kill_after(kinds.APPROVAL_ASKED, 1)
    assert run.events(kinds.INTENT, kinds.BARRED) == [] and len(run.generations()) == 1
    run.start()
    run.until(lambda: run.events(kinds.CONTROLLER_STARTED))
    (asked,) = run.events(kinds.APPROVAL_ASKED)
    words = ["decision", "approve", str(asked.operation_id), "--reason", "looked at it", "--ledger", str(run.stage.ledger_path)]
    assert main(words) == 0
    assert run.finish() == "finished"
    assert run.evicted() == [run.name(1)]
    assert len(run.events(kinds.APPROVAL_ASKED)) == 1 and len(run.events(kinds.INTENT)) == 1
    assert [placed[1] for placed in run.generations()] == [run.name(1), run.name(4)]
    assert same_losses(run)
