"""The lab's stage with a trainer of the matrix on it, and the places outside it that a cell needs: traces in memory, a small disk."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matrix_lab.cells import FAULTS, TRAINERS, Cell
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.stage import Stage
from minder.simulate.lab.machine import LabMachine
from minder.simulate.lab.record import Owner

__all__ = ["STEPS", "MatrixStage", "remove_leftovers", "small_disk", "trace_folder"]

STEPS, STEP_S = 40, 0.2
MACHINES, STANDBYS = 4, 2
_MEMORY = Path("/dev/shm")
_PREFIX = "minder-matrix-"
_TRAINERS = Path(__file__).parent.parent / "jobs" / "trainers"
_AGENT = Path(__file__).with_name("agent_with_pipe.py")
# What a site with steps of a fifth of a second would set.
_POLICY = {"restart_hung_after_s": 20.0, "start_limit_s": 40.0}


class MatrixStage(Stage):
    """Four machines and two standbys. `memory`: the folder of plan and traces."""

    def __init__(self, cell: Cell, out: Path, seed: int, memory: Path) -> None:
        target = (2 + seed) % MACHINES
        super().__init__(DemoOptions("none", out, machines=MACHINES, standbys=STANDBYS, machine=target, seed=seed, telemetry="scrape"))
        self.cell, self.fault, self.memory = cell, FAULTS[cell.fault], memory
        self.second_index = (target + 1) % MACHINES
        self.output = self.folder / "checkpoints"
        self.steps = int(self.fault.options.get("steps", STEPS))

    def __enter__(self) -> MatrixStage:
        super().__enter__()
        return self

    @property
    def roles(self) -> dict[str, str]:
        """Machine to role."""
        return {self.target.name: "target", self.lab.machines[self.second_index].name: "second"}

    @property
    def _pipe(self) -> Path | None:
        wanted = any(trouble.get("kernel_log") for trouble in self.fault.inside)
        return self.memory / "kernel-log" if wanted else None

    def _start_agent(self, machine: LabMachine) -> None:
        if self._pipe is None or machine.name != self.target.name:
            super()._start_agent(machine)
            return
        if not self._pipe.exists():
            os.mkfifo(self._pipe)
        command = [sys.executable, str(_AGENT), str(self._pipe), "agent", "--machine", machine.name, "--run-dir", str(machine.run_dir)]
        command += ["--listen", f"{machine.address}:9401", "--token-file", str(self.tokens / machine.name), "--gpu", "off"]
        command += ["--metrics-token-file", str(self._metrics_token_file)]
        command += ["--cgroup", machine.cgroup.name] if machine.cgroup else ["--processes-of", "registry", "--interface", "none"]
        machine.agent = machine.spawn(command, log_path=machine.place.directory / "agent.log")

    def _start_launcher(self, machine: LabMachine) -> None:
        plan = self.memory / "plan.json"
        if not plan.exists():
            plan.write_text(json.dumps([self._resolved(dict(trouble)) for trouble in self.fault.inside]))
        environment = {"GLOO_SOCKET_IFNAME": machine.place.data_interface, "MATRIX_PLAN": str(plan), "HF_HUB_OFFLINE": "1"}
        flags = ["--job", self.job, "--slots", "1"]
        flags += [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
        script = [str(_TRAINERS / TRAINERS[self.cell.trainer].script), "--output", str(self.output)]
        options = {"steps": STEPS, "step-seconds": STEP_S, **self.fault.options}
        script += [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self.lab.start_launcher(machine, self.tokens / machine.name, 9402, [*flags, "--", *script])

    def _resolved(self, trouble: dict[str, Any]) -> dict[str, Any]:
        """Roles become the names and ranks of this lab."""
        index = {"target": self.options.machine, "second": self.second_index}
        if role := trouble.pop("rank_of", None):
            trouble["rank"] = index[role]
        if role := trouble.pop("machine_of", None):
            trouble["machine"] = self.lab.machines[index[role]].name
        return trouble | ({"kernel_log": str(self._pipe)} if trouble.get("kernel_log") else {})

    def _job_toml(self, telemetry: dict[str, Any]) -> str:
        more = "".join(f"{name} = {value}\n" for name, value in _POLICY.items())
        return super()._job_toml(telemetry).replace("[policy]\n", f"[policy]\n{more}", 1)


@contextmanager
def trace_folder() -> Iterator[Path]:
    """In memory, so that a trace is no disk's work; its name says whose it is."""
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{_owner()}-", dir=_MEMORY) as folder:
        yield Path(folder)


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[None]:
    """A file system of its own on this folder. Raises OSError or CalledProcessError where that cannot be (it needs root)."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{_PREFIX}{_owner()}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", name, str(folder)], check=True, capture_output=True, timeout=30)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False, timeout=30)


def remove_leftovers() -> list[str]:
    """Mounts and trace folders of benches that were killed. The lab's own are removed by minder.simulate.lab.clean."""
    removed = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        source, folder = line.split()[:2]
        if _is_stale(source):
            subprocess.run(["umount", "--lazy", re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), folder)], check=False, timeout=30)
            removed.append(folder)
    for folder in _MEMORY.glob(f"{_PREFIX}*"):
        if _is_stale(folder.name):
            subprocess.run(["rm", "-rf", "--", str(folder)], check=False, timeout=30)
            removed.append(str(folder))
    return removed


def _owner() -> str:
    owner = Owner.current()
    return f"{owner.pid}.{owner.start_ticks}.{owner.pid_namespace}"


def _is_stale(name: str) -> bool:
    found = re.match(rf"{_PREFIX}(\d+)\.(\d+)\.(\d+)", name)
    return found is not None and not Owner(int(found[1]), int(found[2]), found[3]).alive
