"""A person tests the machines of a lab job with `minder job diagnose`: while it runs, and while it stands; then it trains on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minder.cli import main
from minder.record.incidents import kinds

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]


def test_a_job_is_tested_by_hand_and_trains_on_as_if_it_had_not_been(
    drama: Callable[..., Any], same_losses: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = drama(fault="crash", machines=3, standbys=0, steps=80)
    job, machines = run.stage.job, sorted(machine.name for machine in run.stage.lab.all_machines)
    by_hand = ["job", "diagnose", job, "--config", str(run.stage.folder / "job.toml"), "--probes", "space,clock"]
    place = ["--job", job, "--ledger", str(run.stage.ledger_path)]

    def tested() -> list[str]:
        return sorted(event.payload["machine"] for event in run.events(kinds.PROBES) if event.payload["why"] == "diagnose")

    run.start()
    run.reach(3)
    assert main(by_hand) == 2 and f"ranks of {job} run or wait ({run.name(0)}: 0;" in capsys.readouterr().err
    assert main([*by_hand, "--force"]) == 0 and tested() == machines
    assert main(["pause", *place, "--for", "10m", "--reason", "tests by hand"]) == 0
    run.stage.inject("crash", 1)
    run.until(lambda: run.events(kinds.DECISION), 60.0)
    stands_at = run.step
    assert main([*by_hand, "--force"]) == 0 and tested() == sorted(machines * 2)
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.split()[:2] == [name, "pass"] for line in lines for name in machines) == 2 * len(machines)
    assert run.step == stands_at < 80 and len(run.generations()) == 1, "the tests start nothing"
    assert main(["unpause", *place]) == 0
    assert run.finish() == "finished" and len(run.generations()) == 2 and run.evicted() == []
    assert same_losses(run)
