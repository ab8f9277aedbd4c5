"""Two real jobs on one machine: both run under launchers and controllers of their own, and a decision about the machine lists both."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.reporting.status import read_status
from minder.cli import main
from minder.record.incidents import kinds
from minder.simulate.lab.machine import LabMachine
from minder.simulate.lab.workers import TrainingWorker, training_workers

SCRIPT = Path(__file__).parent / "scripts" / "plain_training.py"
NEIGHBOUR, PORT = "other-team", 9403

pytestmark = [pytest.mark.lab, pytest.mark.root, pytest.mark.timeout(420)]


class Neighbour:
    """A second job of two ranks, on machines of the lab that another job trains on too."""

    def __init__(self, run: Any, machines: list[LabMachine]) -> None:
        stage = run.stage
        self.run, self.machines, self.folder = run, machines, stage.folder / NEIGHBOUR
        self.folder.mkdir()
        for machine in machines:
            own = machine.launcher
            words = ["--job", NEIGHBOUR, "--slots", "1", "--barrier", "bootstrap", "--", str(SCRIPT), "100000", "0.3"]
            stage.lab.start_launcher(machine, stage.tokens / machine.name, PORT, words)
            machine.launcher = own
        lines = [f'name = "{NEIGHBOUR}"', f'state_dir = "{self.folder}"', f'rendezvous_address = "{stage.lab.controller_address}"']
        lines.append(f'machine_token_dir = "{stage.tokens}"')
        for machine in machines:
            addresses = [f'agent = "http://{machine.address}:9401"', f'launcher = "http://{machine.address}:{PORT}"']
            lines += ["[[machines]]", f'name = "{machine.name}"', *addresses]
        (self.folder / "job.toml").write_text("\n".join(lines))
        with (self.folder / "log").open("wb") as log:
            command = [sys.executable, "-m", "minder", "run", "--config", str(self.folder / "job.toml")]
            environment = os.environ | stage.lab.mark
            self.controller = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def worker(self, machine: LabMachine) -> TrainingWorker:
        (found,) = [worker for worker in training_workers(machine) if worker.job == NEIGHBOUR]
        return found

    def trains(self) -> bool:
        return all(any(worker.job == NEIGHBOUR for worker in training_workers(machine)) for machine in self.machines) and self.step > 3

    @property
    def step(self) -> int:
        return int((read_status(self.folder / "status.json") or {}).get("step") or 0)

    def end(self) -> None:
        self.controller.kill()
        self.controller.wait()


@pytest.fixture
def shared(drama: Callable[..., Any]) -> Iterator[Callable[..., tuple[Any, Neighbour]]]:
    """shared(policy): a lab job that trains, and its neighbour that trains on its machines 1 and 3."""
    made: list[Neighbour] = []

    def make(policy: str = "") -> tuple[Any, Neighbour]:
        run = drama(steps=150)
        path = run.stage.folder / "job.toml"
        path.write_text(path.read_text().replace("[policy]\n", f"[policy]\n{policy}\n"))
        made.append(Neighbour(run, [run.stage.lab.all_machines[index] for index in (1, 3)]))
        run.start()
        run.reach(12)
        run.until(made[-1].trains, 60.0)
        return run, made[-1]

    yield make
    for neighbour in made:
        neighbour.end()


def decisions(run: Any, reason: str) -> list[dict[str, Any]]:
    return [event.payload for event in run.events(kinds.DECISION) if event.payload["reason"] == reason]


def test_a_machine_that_another_job_uses_too_is_paged_with_both_jobs(
    shared: Callable[..., Any], same_losses: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run, neighbour = shared()
    before = neighbour.worker(neighbour.machines[0])
    run.stage.inject("xid", 1)
    assert run.finish() == "finished"
    assert run.evicted() == [], "nobody has said that other jobs may die"
    paged = decisions(run, "shared_machine")[0]
    assert (paged["action"], paged["machines"], paged["jobs_affected"]) == ("page", [run.name(1)], [run.stage.job, NEIGHBOUR])
    assert f"{NEIGHBOUR} would die too" in paged["detail"]
    # the machine keeps its Xid through the restart in place: the incident stays open, and hears of it again
    (incident,) = {event.incident for event in run.events(kinds.DECISION) if event.payload["reason"] == "shared_machine"}
    assert main(["incidents", "show", incident, "--ledger", str(run.stage.ledger_path)]) == 0
    assert f"jobs affected: {run.stage.job}, {NEIGHBOUR}" in capsys.readouterr().out
    assert neighbour.worker(neighbour.machines[0]) == before, "the neighbour's process was not touched"
    assert same_losses(run)


@pytest.mark.release
def test_where_the_site_allows_it_the_eviction_lists_both_and_ends_its_own_workers_only(shared: Callable[..., Any]) -> None:
    run, neighbour = shared("allow_shared_machines = true")
    before, step = neighbour.worker(neighbour.machines[0]), neighbour.step
    run.stage.inject("xid", 1)
    (evicted,) = run.until(lambda: [item for item in decisions(run, "act") if item["action"] == "evict"])
    assert (evicted["machines"], evicted["jobs_affected"]) == ([run.name(1)], [run.stage.job, NEIGHBOUR])
    assert run.finish() == "finished"
    assert run.evicted() == [run.name(1)] and run.generations()[-1][1] == run.name(4)
    assert neighbour.worker(neighbour.machines[0]) == before
    run.until(lambda: neighbour.step > step, 60.0)
