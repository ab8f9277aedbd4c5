"""Two faults at once, standbys that are bad or missing, wrong tokens, dry run: a clear message or a right outcome, nothing lost."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from minder.record.incidents import kinds
from minder.simulate.lab.workers import training_workers
from minder.wire.machine_tokens import give_token

pytestmark = [pytest.mark.lab, pytest.mark.root, pytest.mark.timeout(420)]


def role_of(run: Any, machine: str) -> str:
    return str(next(row["role"] for row in run.status["machines"] if row["name"] == machine))


def test_two_faults_at_once_take_both_machines_out_or_heal_what_a_restart_heals(drama: Callable[..., Any], same_losses: Any) -> None:
    """The Xid speaks first, and the restart that follows ends the hanging process too: a machine whose new process works is
    kept. Were it still bad, it would be the next to go."""
    run = drama()
    run.start()
    run.reach(12)
    run.stage.inject("hang", 1)
    run.stage.inject("xid", 3)
    assert run.finish() == "finished"
    assert run.name(3) in run.evicted() and set(run.evicted()) <= {run.name(1), run.name(3)}
    assert same_losses(run)


@pytest.mark.release
def test_two_crashes_of_two_machines_within_the_clocks_error_still_bring_the_job_back(drama: Callable[..., Any], same_losses: Any) -> None:
    run = drama()
    run.start()
    run.reach(12)
    pids = [training_workers(run.stage.lab.all_machines[index])[0].pid for index in (1, 3)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert run.finish() == "finished"
    assert set(run.evicted()) <= {run.name(1), run.name(3)}
    assert same_losses(run)


@pytest.mark.release
def test_a_frozen_standby_is_not_chosen(drama: Callable[..., Any], same_losses: Any) -> None:
    run = drama(steps=100, at_step=50)
    run.start()
    run.reach(6)
    standby = run.stage.lab.all_machines[4]
    (registry,) = (standby.run_dir / "jobs").glob("*.json")
    os.kill(json.loads(registry.read_text())["workers"][0]["pid"], signal.SIGSTOP)
    run.until(lambda: run.status.get("machines") and role_of(run, standby.name) == "spare", 30.0)
    run.stage.inject("xid", 1)
    assert run.finish() == "finished"
    assert run.evicted() == [run.name(1)]
    assert run.generations()[-1][1] == run.name(5)
    assert same_losses(run)


@pytest.mark.release
@pytest.mark.root
def test_a_standby_whose_data_link_is_dead_is_replaced_by_the_next(drama: Callable[..., Any], same_losses: Any) -> None:
    run = drama()
    run.start()
    run.reach(10)
    run.stage.inject("dead-link", 4)
    run.stage.inject("xid", 1)
    assert run.finish() == "finished"
    assert set(run.evicted()) == {run.name(1), run.name(4)}
    assert run.generations()[-1][1] == run.name(5)
    assert same_losses(run)


def test_without_any_standby_a_person_is_told_and_dead_workers_restart_in_place(drama: Callable[..., Any], same_losses: Any) -> None:
    run = drama(standbys=0)
    run.start()
    run.reach(12)
    run.stage.inject("xid", 1)
    assert run.finish() == "finished"
    assert run.evicted() == []
    assert {event.payload["reason"] for event in run.events(kinds.DECISION)} >= {"no_standby"}
    assert run.generations() == [{rank: run.name(rank) for rank in range(4)}] * 2
    assert same_losses(run)


def test_a_dry_run_evicts_nobody_says_so_and_restarts_dead_workers_in_place(drama: Callable[..., Any], same_losses: Any) -> None:
    run = drama()
    run.start(act=False)
    run.reach(12)
    run.stage.inject("xid", 1)
    assert run.finish() == "finished"
    assert run.evicted() == []
    decisions = {(event.payload["action"], event.payload["reason"]) for event in run.events(kinds.DECISION)}
    assert ("page", "dry_run") in decisions and any(action == "restart" for action, _ in decisions)
    assert len(run.generations()) == 2
    assert same_losses(run)


def test_a_wrong_launcher_token_is_one_clear_line_and_starts_nothing(drama: Callable[..., Any]) -> None:
    run = drama()
    wrong = run.stage.folder / "state" / "wrong-tokens"
    for machine in run.stage.lab.all_machines:
        give_token(wrong, machine.name)
    path = run.stage.folder / "job.toml"
    path.write_text(f'launcher_token_dir = "{wrong}"\n{path.read_text()}')
    run.start()
    run.until(lambda: run.stage.controller_status() is not None, 60.0)
    said = [line for line in run.log().splitlines() if line.strip()]
    assert run.stage.controller_status() == 1
    *told, error = [line for line in said if line.startswith("minder: ")]  # what it set out to do, and one line of what went wrong
    assert "refuses us" in error and "401" in error and "token" in error, said
    assert [line.split()[1] for line in told] == ["leads", "waiting"], said
    assert run.events(kinds.GENERATION_STARTED) == []
