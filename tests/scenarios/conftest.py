"""A lab with a job on it, its controller in our hands: started, killed, started again; what came of it is in the ledger."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.reporting.status import read_status
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.stage import Stage


class Drama:
    """One lab run. `until` and the rest wait for what the ledger or the status says, and fail with the controller's log."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def events(self, *wanted: str) -> list[LedgerEvent]:
        with self.stage.ledger() as ledger:
            return [event for event in ledger.events(job=self.stage.job) if not wanted or event.kind in wanted]

    @property
    def status(self) -> dict[str, Any]:
        return read_status(self.stage.status_path) or {}

    @property
    def step(self) -> int:
        return int(self.status.get("step") or 0)

    def log(self) -> str:
        path = self.stage.folder / "controller.log"
        return path.read_text()[-3000:] if path.exists() else "no controller.log"

    def until(self, what: Callable[[], Any], limit_s: float = 90.0, pause_s: float = 0.1) -> Any:
        """Wait until `what()` is true, while the controller lives or the job is over."""
        end_s = time.monotonic() + limit_s
        while not (found := what()):
            told = [(event.kind, event.payload.get("detail") or event.payload.get("machines")) for event in self.events()][-12:]
            assert time.monotonic() < end_s, f"not within {limit_s:.0f} s; status {self.status}; ledger {told}; log {self.log()}"
            time.sleep(pause_s)
        return found

    def reach(self, step: int) -> None:
        self.until(lambda: self.step >= step, 120.0)

    def finish(self) -> str:
        """Wait for the end of the job; "finished" or "failed"."""
        (end,) = self.until(lambda: self.events(kinds.JOB_ENDED), 150.0)
        return str(end.payload["outcome"])

    def generations(self) -> list[dict[int, str]]:
        """Rank to machine of every generation that was started, in order."""
        found = [event.payload["rank_machine"] for event in self.events(kinds.GENERATION_STARTED)]
        return [{int(rank): machine for rank, machine in placed.items()} for placed in found]

    def evicted(self) -> list[str]:
        return [str(event.payload["machine"]) for event in self.events(kinds.BARRED)]

    def name(self, index: int) -> str:
        return self.stage.lab.all_machines[index].name

    def start(self, *, act: bool = True) -> None:
        if act:
            self.stage.start_controller()
            return
        command = [sys.executable, "-m", "minder", "run", "--config", str(self.stage.folder / "job.toml")]
        with (self.stage.folder / "controller.log").open("ab") as log:
            self.stage._controller = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def kill_after(self, kind: str, count: int) -> None:
        """kill -9 the controller as soon as the ledger shows its `count`-th event of this kind."""
        self.until(lambda: len(self.events(kind)) >= count, 60.0, pause_s=0.01)
        self.stage.kill_controller()


@pytest.fixture(scope="session")
def same_losses(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Drama], bool]:
    """Whether a run's losses equal those of an undisturbed run, step by step, bit for bit."""
    from minder.simulate.lab.reference import compare_losses, reference_losses

    cache = tmp_path_factory.mktemp("undisturbed")

    def compare(run: Drama) -> bool:
        options = run.stage.options
        reference = reference_losses(options.seed, options.total_steps, options.machines, cache)
        comparison = compare_losses(run.stage.folder / "train", reference)
        assert comparison.equal, comparison.detail
        return True

    return compare


@pytest.fixture
def drama(tmp_path: Path) -> Iterator[Callable[..., Drama]]:
    """drama(steps=60, standbys=0): a lab of four machines and two standbys, its controller not yet started."""
    made: list[Stage] = []
    os.environ.pop("MINDER_LEDGER", None)

    def make(**changes: Any) -> Drama:
        values: dict[str, Any] = {
            "fault": "hang",
            "machines": 4,
            "standbys": 2,
            "machine": 1,
            "telemetry": "scrape",
            "steps": 70,
            "at_step": 12,
        }
        stage = Stage(DemoOptions(out=tmp_path / "out", **{**values, **changes}))
        stage.__enter__()
        made.append(stage)
        return Drama(stage)

    yield make
    for stage in made:
        stage.__exit__(None, None, None)
