"""Ends a machine's workers through its launcher, and, where the machine lives on this host, by cgroup and process group when
neither its launcher nor its agent answers.

The machine itself is left alone: it is barred from this job, and its agent goes on watching it.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from minder.model.clock import Clock
from minder.model.decision import ActionResult, Decision
from minder.model.errors import WireError
from minder.model.log import event
from minder.wire.fleet import Fleet

__all__ = ["LocalActuator", "LocalMachine", "kill_locally"]

_log = logging.getLogger("minder.actuators")
_END_DEADLINE_S = 2.0


@dataclass(frozen=True, slots=True)
class LocalMachine:
    """What a machine on this host can be ended by: its run folder's registry, and cgroups whose every process is the job's."""

    run_dir: Path | None = None
    cgroups: tuple[Path, ...] = ()


class LocalActuator:
    """`minder launch` does the work (actuators.contract.Actuator)."""

    name = "local"

    def __init__(self, job: str, fleet: Fleet, local: Mapping[str, LocalMachine], clock: Clock) -> None:
        self._job = job
        self._fleet = fleet
        self._local = local
        self._clock = clock

    def execute(self, decision: Decision) -> ActionResult:
        """End all workers of the decision's machines. Nothing is done where a worker is already gone."""
        generations = {machine: self._generation(machine) for machine in decision.machines}
        bodies = {
            machine: {
                "operation_id": f"{decision.operation_id}/end",
                "generation": generation,
                "desired": "ended",
                "world_size": 0,
                "assignments": [],
                "grace_s": 0,
            }
            for machine, generation in generations.items()
        }
        answers = self._fleet.post_workers(bodies, timeout_s=_END_DEADLINE_S)
        details, unsure = [], []
        for machine, answer in answers.items():
            asked = not isinstance(answer, WireError)
            killed = kill_locally(self._local[machine], self._job) if machine in self._local else None
            if asked:
                details.append(f"{machine}: its launcher ended the workers")
            elif killed is not None:
                details.append(f"{machine}: launcher silent, {killed} processes killed")
            else:
                unsure.append(machine)
                details.append(f"{machine}: {answer}")
        undo = "; ".join(f"minder machine return {machine}" for machine in decision.machines)
        event(
            _log, logging.WARNING if unsure else logging.INFO, "workers ended", job=self._job, machines=decision.machines,
            operation=decision.operation_id, detail="; ".join(details),
        )  # fmt: skip
        outcome: Literal["ambiguous", "done"] = "ambiguous" if unsure else "done"
        return ActionResult(decision.operation_id, self._clock.now_s(), outcome, "; ".join(details), undo)

    def _generation(self, machine: str) -> int:
        view = self._fleet.views().get(machine)
        known = [worker.generation for worker in view.workers] if view else []
        return max([0, int(self._fleet.launcher_state(machine).get("generation", 0) or 0), *known])


def kill_locally(machine: LocalMachine, job: str) -> int | None:
    """SIGKILL everything of the job on this machine: registered process groups, then the cgroups. Returns how many were alive;
    None if that cannot be known: no readable registry and no cgroup, or a process that is not ours to end."""
    alive = _registered(machine.run_dir, job)
    cgroups = [path for path in machine.cgroups if path.is_dir()]
    if alive is None and not cgroups:
        return None
    refused = [pid for pid in alive or () if not _kill(pid)]
    killed = len(alive or ()) + sum(_kill_cgroup(path) for path in cgroups)
    return None if refused else killed


def _kill(pid: int) -> bool:
    """Its whole process group, or, where it leads none, itself. False if we may not."""
    for end in (os.killpg, os.kill):
        try:
            end(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        except PermissionError:
            return False
        return True
    return True


def _registered(run_dir: Path | None, job: str) -> list[int] | None:
    if run_dir is None:
        return None
    try:
        registry = json.loads((run_dir / "jobs" / f"{job}.json").read_text())
        pids = [int(worker["pid"]) for worker in registry.get("workers", ()) if worker.get("pid")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return [pid for pid in pids if _is_worker(pid)]


def _is_worker(pid: int) -> bool:
    """Pids are used again: only a process that runs our worker bootstrap, or an older version's, is one of the job's."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"minder.edge.worker" in words or b"minder.worker" in words
    except OSError:
        return False


def _kill_cgroup(path: Path) -> int:
    """cgroup v2 ends all at once; v1 by pid, again until no process is left (a process may fork meanwhile)."""
    if (path / "cgroup.kill").exists():
        count = len(_members(path))
        (path / "cgroup.kill").write_text("1")
        return count
    killed: set[int] = set()
    for _ in range(20):
        members = [pid for pid in _members(path) if pid not in killed]
        if not members:
            break
        _signal_all(members)
        killed.update(members)
        time.sleep(0.01)
    return len(killed)


def _signal_all(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _members(path: Path) -> list[int]:
    try:
        return [int(line) for line in (path / "cgroup.procs").read_text().split()]
    except OSError:
        return []
