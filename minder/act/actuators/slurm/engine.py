"""Slurm behind the engine contract: one job, and the nodes that it runs on or may come to run on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from minder.act.actuators.contract import EngineSnapshot
from minder.act.actuators.slurm.commands import Commands, FencedCommands
from minder.act.actuators.slurm.jobs import SlurmJob
from minder.act.actuators.slurm.nodes import SlurmNodes
from minder.act.actuators.slurm.standbys import SlurmStandbys
from minder.model.decision import ActionResult

__all__ = ["SlurmEngine"]


class SlurmEngine:
    """actuators.contract.Engine. job_id: the Slurm job; now_s: the clock; confirm: called last before every change, raises if another
    controller leads. standby_script: as in the configuration."""

    name = "slurm"

    def __init__(
        self, job_id: int, commands: Commands, now_s: Callable[[], float], max_drained: int = 2, confirm: Callable[[], None] = lambda: None,
        standby_script: str | None = None,
    ) -> None:  # fmt: skip
        self.max_held = max_drained
        self.job_name = str(job_id)
        self._now_s = now_s
        fenced = FencedCommands(commands, confirm)
        self.nodes = SlurmNodes(fenced, now_s, max_drained)
        self.job = SlurmJob(job_id, fenced, self.nodes)
        self._standbys = SlurmStandbys(fenced, standby_script)

    def look(self, machines: Sequence[str]) -> EngineSnapshot:
        time_s = self._now_s()  # what is read is at least as new
        job = self.job.show()
        members = () if job.state == "PENDING" else self.nodes.expand(job.node_list)
        known = list(dict.fromkeys([*machines, *members]))
        records = self.nodes.show_all(known)
        refusal = ""
        if job.is_over:
            refusal = f"Slurm job {job.id} is over ({job.state})"
        elif not job.requeue:
            refusal = f"Slurm job {job.id} may not be requeued: submit it with --requeue"
        return EngineSnapshot(
            time_s=time_s,
            members=members,
            free=tuple(record.name for record in records if record.is_idle and record.name not in members),
            cordoned={record.name: record.reason or "no reason" for record in records if record.is_held},
            cordoned_by_minder=self.nodes.ours(),
            neighbours=self.nodes.neighbours(known, job.id),
            refusal=refusal,
            restarts=job.restarts,
        )

    def cordon(self, machine: str, operation_id: str, why: str) -> ActionResult:
        return self.nodes.drain(machine, operation_id, why)

    def uncordon(self, machine: str, operation_id: str, known: Collection[str]) -> ActionResult:
        return self.nodes.uncordon(machine, operation_id, known)

    def release(self, machine: str) -> str:
        return self.job.release([machine])

    def restart(self, known: int) -> str:
        return self.job.requeue(known)

    def own_retries(self) -> str:
        return self.job.own_retries()

    def restart_without(self, machines: Sequence[str]) -> str:
        return self.job.requeue_without(machines)

    def ask_standbys(self, count: int, operation_id: str) -> str:
        return self._standbys.ask(count, operation_id)

    def forgo_standbys(self, operation_id: str) -> str:
        return self._standbys.forgo(operation_id)
