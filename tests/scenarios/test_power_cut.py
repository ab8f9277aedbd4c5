"""Every machine loses its power and comes back: nobody reports an exit, nobody is to blame, and the job goes on from its last step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from minder.record.incidents import kinds

pytestmark = [pytest.mark.lab, pytest.mark.timeout(420)]


def test_the_job_goes_on_when_the_machines_are_back(drama: Callable[..., Any], same_losses: Any) -> None:
    run = drama(steps=80)
    run.start()
    run.reach(20)
    everybody = run.stage.lab.all_machines
    run.stage.power_off(everybody)
    time.sleep(5.0)
    assert not run.events(kinds.VERDICT), "everybody is silent: nothing is concluded from that"
    run.stage.power_on(everybody[::2])  # they boot at different speeds
    time.sleep(6.0)
    run.stage.power_on(everybody[1::2])
    assert run.finish() == "finished"
    assert run.evicted() == []
    assert [event.payload["kind"] for event in run.events(kinds.VERDICT)][:1] == ["job"]
    assert len(run.generations()) == 2 and run.generations()[0] == run.generations()[1]
    assert same_losses(run)
