"""A standby that is configured and does not answer: another takes the place, or a person is told which one is silent and since when."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from minder.record.incidents import kinds
from minder.simulate.lab.machine import LabMachine

pytestmark = [pytest.mark.lab, pytest.mark.root, pytest.mark.timeout(420)]


def silence(machine: LabMachine) -> None:
    """Its launcher is stopped, as one that hangs: it holds its port and answers nobody. The agent goes on."""
    assert machine.launcher is not None
    os.kill(machine.launcher.pid, signal.SIGSTOP)


def ready(run: Any) -> list[str]:
    """Standbys that could take a place now, as the status (and the terminal) shows them."""
    return [row["name"] for row in run.status.get("machines", ()) if row["role"] == "standby"]


@pytest.mark.release
def test_the_next_standby_takes_the_place_of_one_that_was_never_started(drama: Callable[..., Any], same_losses: Any) -> None:
    run = drama()
    never, other = run.stage.lab.all_machines[4:]
    never.launcher.kill()
    never.launcher.wait()
    run.start()
    run.reach(12)
    run.until(lambda: ready(run) == [other.name], 30.0)
    run.stage.inject("xid", 1)
    assert run.finish() == "finished"
    assert run.evicted() == [run.name(1)]
    assert run.generations()[-1][1] == other.name
    assert same_losses(run)


def test_where_the_only_standby_is_silent_it_is_named_and_the_job_restarts_in_place(drama: Callable[..., Any], same_losses: Any) -> None:
    run = drama(standbys=1, steps=150)
    run.start()
    standby = run.stage.lab.all_machines[4]
    run.until(lambda: ready(run) == [standby.name], 60.0)
    run.reach(6)
    silence(standby)
    run.until(lambda: ready(run) == [], 30.0)
    run.stage.inject("xid", 1)
    assert run.finish() == "finished"
    assert run.evicted() == []
    pages = [event for event in run.events(kinds.DECISION) if event.payload["reason"] == "no_standby"]
    # looked at again after the first new step has closed its incident, it is a second one: on a slow host the verdict comes that late
    assert len({event.incident for event in pages}) <= 2 and len(pages) <= 3, "one trouble, however often it is looked at again"
    paged = pages[0].payload
    assert paged["action"] == "page" and paged["machines"] == [run.name(1)]
    assert paged["detail"].startswith(f"0 standbys are ready, 1 needed; {standby.name}: its launcher has been silent for ")
    assert paged["detail"] in run.log(), "the terminal says it too"
    assert run.generations() == [{rank: run.name(rank) for rank in range(4)}] * 2
    assert same_losses(run)


@pytest.mark.release
def test_one_that_falls_silent_as_it_is_called_goes_too_and_the_next_takes_over(drama: Callable[..., Any], same_losses: Any) -> None:
    """It is stopped together with the fault: it is chosen, does not answer the order to start, and is the next to go."""
    run = drama()
    run.start()
    run.reach(12)
    chosen, other = run.stage.lab.all_machines[4:]
    silence(chosen)
    run.stage.inject("xid", 1)
    assert run.finish() == "finished"
    assert run.evicted()[0] == run.name(1) and set(run.evicted()) <= {run.name(1), chosen.name}
    assert run.generations()[-1][1] == other.name
    evictions = [event.payload for event in run.events(kinds.DECISION) if event.payload["action"] == "evict"]
    if chosen.name in evictions[0]["replacements"]:
        assert evictions[-1]["machines"] == [chosen.name]
        assert f"launcher of {chosen.name}" in str(evictions[-1]["verdict"]["evidence"][0]["message"])
    assert same_losses(run)
