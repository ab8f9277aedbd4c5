"""The pool of a running job: a machine that was evicted comes back as a standby, and one that no configuration names joins it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minder.cli import main
from minder.record.incidents import kinds

pytestmark = [pytest.mark.lab, pytest.mark.timeout(420)]


def ready(run: Any) -> list[str]:
    """Standbys that could take a place now, as the status (and the terminal) shows them."""
    return [row["name"] for row in run.status.get("machines", ()) if row["role"] == "standby"]


def lose(run: Any, index: int, standby: str) -> None:
    """An operator orders the machine of this index out, which no load of this host delays, and the standby trains in its place."""
    generation = len(run.generations())
    words = ["--job", run.stage.job, "--reason", "fan 3 is dead", "--ledger", str(run.stage.ledger_path)]
    assert main(["machine", "evict", run.name(index), *words]) == 0
    run.until(lambda: len(run.generations()) > generation, 90.0)
    assert run.evicted()[-1] == run.name(index) and run.generations()[-1][index] == standby
    run.until(lambda: run.events(kinds.FIRST_STEP)[-1].payload["generation"] == len(run.generations()), 90.0)


def test_a_machine_that_is_returned_becomes_a_standby_and_takes_a_place_while_its_launcher_runs_on(drama: Callable[..., Any]) -> None:
    run = drama(standbys=1, steps=2000)
    run.start()
    run.reach(3)
    returned, first = run.stage.lab.all_machines[1], run.name(4)
    run.until(lambda: ready(run) == [first], 60.0)
    lose(run, 1, first)
    run.until(lambda: ready(run) == [])
    launcher = returned.launcher.pid
    assert main(["machine", "return", returned.name, "--ledger", str(run.stage.ledger_path)]) == 0
    run.until(lambda: ready(run) == [returned.name], 60.0)
    lose(run, 2, returned.name)
    assert returned.launcher.pid == launcher and returned.launcher.poll() is None
    (result,) = [event.payload for event in run.events(kinds.RESULT) if str(event.operation_id).startswith("rejoin-")]
    assert result["outcome"] == "done"


def test_a_machine_that_no_configuration_names_joins_and_takes_a_place_after_a_controller_restart(
    drama: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run = drama(standbys=1, steps=2000)
    config = run.stage.folder / "job.toml"
    kept, _, left_out = config.read_text().rpartition("[[machines]]")
    joining = run.stage.lab.all_machines[4]
    assert joining.name in left_out
    config.write_text(kept)
    run.start()
    run.reach(3)
    assert joining.name not in [row["name"] for row in run.status["machines"]]
    words = ["job", "add-standby", run.stage.job, joining.name, "--ledger", str(run.stage.ledger_path), "--reason", "the pool is empty"]
    agent, launcher = f"http://{joining.address}:9401", f"http://{joining.address}:9402"
    assert main([*words, "--agent", agent, "--launcher", f"http://{run.stage.lab.all_machines[0].address}:9402"]) == 2
    assert "two names for one machine" in capsys.readouterr().err
    assert main([*words, "--agent", agent, "--launcher", launcher]) == 0
    assert f"{joining.name} is a standby of {run.stage.job}" in capsys.readouterr().out
    run.until(lambda: ready(run) == [joining.name], 60.0)
    run.stage.kill_controller()
    run.start()
    run.until(lambda: run.events(kinds.CONTROLLER_STARTED) and ready(run) == [joining.name], 60.0)
    lose(run, 1, joining.name)
