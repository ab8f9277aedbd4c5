"""The lab's stage for hours of faults: two controllers in line, the ledger on a small disk of its own, a job that ends when asked to."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from minder.act.controller.reporting.status import read_status
from minder.model.errors import LedgerError
from minder.model.history import LedgerEvent
from minder.model.private import make_private, open_private, write_private
from minder.record.incidents import Ledger
from minder.record.store.leases import LeaseStore
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.stage import Stage
from minder.simulate.lab.machine import LabMachine

__all__ = ["FLUSH_EVERY", "ChaosStage", "Size"]

FLUSH_EVERY = 10
_MOST_STEPS = 1_000_000  # the job ends before, when the stop file says so
_DISK = "size=48m"
# Faults come every minute: budgets of a site's day would be spent after the first few.
_POLICY = {
    "max_evictions_per_job": 1000, "max_evictions_per_hour": 1000, "max_machines_per_hour": 1000, "max_restarts": 20,
    "max_restarts_per_day": 1000, "breaker_window_s": 30.0, "restart_hung_after_s": 40.0, "start_limit_s": 120.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Size:
    """Of the lab. ledger: a URL, "" for SQLite on a small disk. for_s: so long after the first steps no fault strikes, and the job is
    ended. stand_s: how long a job that steps in its usual time may stand; a slower machine gets more."""

    machines: int = 6
    standbys: int = 3
    step_seconds: float = 0.5
    telemetry: str = "auto"
    ledger: str = ""
    for_s: float = inf
    stand_s: float = 240.0


class ChaosStage(Stage):
    """Enter it, `start_controllers`; the rest is for the injectors."""

    def __init__(self, size: Size, out: Path, seed: int) -> None:
        lab: dict[str, Any] = {"machines": size.machines, "standbys": size.standbys, "telemetry": size.telemetry}
        super().__init__(DemoOptions("none", out, seed=seed, memory=True, steps=_MOST_STEPS, step_seconds=size.step_seconds, **lab))
        self.size = size
        self.output = self.folder / "train"
        self.disk = self.folder / "ledger"
        self.agent_environment: dict[str, dict[str, str]] = {}
        self.controllers: dict[str, subprocess.Popen[bytes]] = {}
        self.wanted: set[str] = set()  # controllers that are started again when they end
        self.started_s: dict[str, float] = {}  # by controller
        self.lost: set[str] = set()  # machines on which nothing may be started until they are repaired
        self._events: list[LedgerEvent] = []
        self._leases: LeaseStore | None = None

    def __enter__(self) -> ChaosStage:
        super().__enter__()
        make_private(self.disk)
        if not self.size.ledger and self.lab.mode == "namespaces":
            # The lab's name in front: `minder lab clean` finds the mount if this process is killed.
            mount = ["mount", "-t", "tmpfs", "-o", f"{_DISK},mode=700", f"mdr{self.lab.run_id}", str(self.disk)]
            subprocess.run(mount, check=True, capture_output=True)
            self._stack.callback(subprocess.run, ["umount", "--lazy", str(self.disk)], check=False, capture_output=True)
        for name in ("a", "b"):
            self._stack.callback(self._stop_store, name)
            text = (
                (self.folder / "job.toml")
                .read_text()
                .replace(f'state_dir = "{self.folder / "state"}"', f'state_dir = "{self.state(name)}"')
            )
            write_private(self.folder / f"{name}.toml", text)
        return self

    def __exit__(self, *unused: object) -> None:
        self.stop_controllers()
        self.close_leases()
        with contextlib.suppress(OSError):  # the small disk goes with the lab, and what stands on it is wanted
            shutil.copytree(self.disk, self.folder / "ledger-kept", ignore=shutil.ignore_patterns("ballast"), dirs_exist_ok=True)
        super().__exit__(*unused)

    @property
    def ledger_url(self) -> str:
        return self.size.ledger or str(self.disk / "ledger.db")

    @property
    def ledger_path(self) -> Path:
        return self.disk / "ledger.db"

    def state(self, name: str) -> Path:
        """The state folder of one controller, as on a machine of its own."""
        return self.folder / f"state-{name}"

    def ledger(self) -> Ledger:
        return Ledger(self.ledger_url, create=False)

    def events(self, *wanted: str) -> list[LedgerEvent]:
        """Of the job, as far as the ledger could be read. An event that is dated ahead, by a controller whose clock is wrong, gets the time
        at which it was found."""
        try:
            with self.ledger() as ledger:
                fresh = ledger.events(since_id=self._events[-1].id if self._events else 0, job=self.job)
        except LedgerError:
            fresh = []
        now_s = time.time()
        self._events += [replace(event, time_s=min(event.time_s, now_s)) for event in fresh]
        return [event for event in self._events if not wanted or event.kind in wanted]

    def status(self) -> dict[str, Any]:
        """What the controller that wrote last says."""
        paths = [path for name in self.controllers if (path := self.state(name) / "status.json").exists()]
        return (read_status(max(paths, key=lambda path: path.stat().st_mtime)) or {}) if paths else {}

    def start_controllers(self) -> None:
        """Both: the first that takes the lease leads, the other waits."""
        self.start_one("a")
        end_s = time.monotonic() + 120.0
        while self.leader() is None and time.monotonic() < end_s:
            time.sleep(0.1)
        self.start_one("b")

    def start_one(self, name: str, environment: Mapping[str, str] | None = None) -> None:
        """One controller of the two; from now on it is started again when it ends."""
        command = [sys.executable, "-m", "minder", "run", "--config", str(self.folder / f"{name}.toml"), "--act"]
        ours = os.environ | self.lab.mark | {"MINDER_LEDGER": self.ledger_url, "MINDER_STATE_DIR": str(self.disk)} | dict(environment or {})
        with open_private(self.folder / f"{name}.log", "ab") as log:
            self.controllers[name] = subprocess.Popen(
                command, env=ours, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )  # fmt: skip
        self.started_s[name] = time.time()
        self.wanted.add(name)

    def stop_one(self, name: str) -> None:
        """As a supervisor does it: SIGTERM, and SIGKILL where that does not help."""
        self.wanted.discard(name)
        process = self.controllers[name]
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20.0)
        process.kill()
        process.wait()

    def stop_controllers(self) -> None:
        for name in list(self.controllers):
            self.stop_one(name)

    def leader(self) -> str | None:
        """The name of the controller whose process holds the lease; None where none of ours does."""
        try:
            if self._leases is None:
                self._leases = LeaseStore(self.ledger_url)
            lease = self._leases.read(self.job)
        except LedgerError:
            return None
        pid = re.match(r"process (\d+) ", "" if lease is None or lease.released else lease.holder)
        return next((name for name, process in self.controllers.items() if pid and process.pid == int(pid[1])), None)

    def close_leases(self) -> None:
        """Nothing of this process has a file of the ledger open any more."""
        if self._leases is not None:
            self._leases.close()
            self._leases = None

    def stop_job_at(self, step: int) -> None:
        """The last step; well ahead of the one that the job is at."""
        draft = self.output / "stop.draft"
        draft.write_text(str(step))
        draft.replace(self.output / "stop")

    def start_launcher(self, machine: LabMachine) -> None:
        if machine.name not in self.lost:
            self._start_launcher(machine)

    def restart_agent(self, machine: LabMachine) -> None:
        if machine.name not in self.lost:
            super().restart_agent(machine)

    def _agent_environment(self, machine: LabMachine) -> dict[str, str]:
        return self.agent_environment.get(machine.name, {})

    def _stop_store(self, name: str) -> None:
        from minder.act.recovery.rendezvous import RendezvousHost

        RendezvousHost(self.state(name), self.lab.controller_address).stop()

    def _script(self) -> list[str]:
        """Steps in memory every time, and every few steps on a disk."""
        more = ["--stop-file", str(self.output / "stop"), "--flush-dir", str(self.folder / "flushed"), "--flush-every", str(FLUSH_EVERY)]
        return [*super()._script(), *more]

    def _job_toml(self, telemetry: dict[str, Any]) -> str:
        text = super()._job_toml(telemetry).replace("breaker_share = 0.5", "breaker_share = 0.9")
        text = re.sub(r"^record_dir = .*\n", "", text, flags=re.MULTILINE)
        return text.replace("[policy]\n", "[policy]\n" + "".join(f"{name} = {value}\n" for name, value in _POLICY.items()), 1)
