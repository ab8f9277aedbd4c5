"""A machine is lost and no standby is left: the job goes on without its replica, and takes the machine in again when it comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from minder.cli import main
from minder.record.incidents import kinds

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]


def test_a_lost_machine_without_a_standby_costs_one_replica_until_it_comes_back(drama: Callable[..., Any]) -> None:
    run = drama(machines=3, standbys=0, steps=2000)
    config = run.stage.folder / "job.toml"
    config.write_text("min_machines = 2\ngrow_after_s = 3.0\n" + config.read_text())
    run.start()
    run.reach(3)
    lost, names = run.stage.lab.all_machines[1], [run.name(index) for index in range(3)]
    run.stage.power_off([lost])
    run.until(lambda: [event for event in run.events(kinds.FIRST_STEP) if event.payload["generation"] > 1], 60.0)
    assert run.generations()[-1] == {0: names[0], 1: names[2]} and run.evicted() == [names[1]]
    begun = run.events(kinds.GENERATION_STARTED)[-1].payload
    assert begun["last_step"] - begun["resumed_from"] <= 1
    run.until(lambda: run.status["size"] == {"machines": 2, "full": 3, "least": 2, "says": "goes on with 2 of 3 machines"})
    run.stage.power_on([lost])
    assert main(["machine", "return", lost.name, "--ledger", str(run.stage.ledger_path)]) == 0
    run.until(lambda: [event for event in run.events(kinds.FIRST_STEP) if event.payload["generation"] > 2], 60.0)
    assert run.generations()[-1] == {0: names[0], 1: names[2], 2: names[1]}
    lines = [json.loads(line) for line in (run.stage.folder / "train" / "losses.jsonl").read_text().splitlines()]
    last = {line["step"]: line["generation"] for line in lines}
    assert sorted(last) == list(range(1, max(last) + 1)) and {1, 2, 3} <= set(last.values())  # no step is missing
