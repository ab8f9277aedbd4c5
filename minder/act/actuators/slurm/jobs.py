"""One Slurm job: found by its id, started again without a bad node, or made smaller by it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from minder.act.actuators.slurm.commands import Commands
from minder.act.actuators.slurm.nodes import SlurmNodes
from minder.act.actuators.slurm.records import JobRecord, read_job
from minder.act.actuators.slurm.retries import find_retries
from minder.model.errors import ActuatorError, EngineUnavailableError

__all__ = ["SlurmJob"]

_PAUSE_S = 0.3
_RUNS = ("RUNNING", "SUSPENDED", "CONFIGURING")


class SlurmJob:
    """job_id: of a plain job or one task of an array. sleep: how to wait between two looks."""

    def __init__(self, job_id: int, commands: Commands, nodes: SlurmNodes, sleep: Callable[[float], None] = time.sleep) -> None:
        self.id = job_id
        self._commands = commands
        self._nodes = nodes
        self._sleep = sleep

    def show(self) -> JobRecord:
        """Raises EngineUnavailableError, or ActuatorError for a job that Slurm does not know (any more)."""
        return read_job(self._commands.call(["scontrol", "show", "job", str(self.id)]), self.id)

    def nodes(self) -> tuple[str, ...]:
        """The nodes of its allocation, in Slurm's order; none while it waits."""
        record = self.show()
        return () if record.state == "PENDING" else self._nodes.expand(record.node_list)

    def requeue_without(self, bad: Sequence[str], deadline_s: float = 60.0) -> str:
        """Start the job again on other nodes, now. Done twice it changes nothing: what counts is where the job is.

        Slurm holds a requeued job for two minutes; StartTime=now ends that. Returns one line. Raises ActuatorError if the job is over,
        may not be requeued, or is not requeued at the deadline; EngineUnavailableError if Slurm stopped answering.
        """
        without = f"without {', '.join(bad)}"

        def runs_elsewhere(job: JobRecord) -> str:
            inside = job.state in _RUNS and set(bad) & set(self._nodes.expand(job.node_list))
            return f"runs on {job.node_list}, {without}" if job.state in _RUNS and not inside else ""

        return self._requeue_until(runs_elsewhere, bad, f"was requeued {without} and may start now", deadline_s)

    def requeue(self, known: int, deadline_s: float = 60.0) -> str:
        """Start the job again, now, on whatever nodes it gets. `known`: its `Restarts` when this was asked; one that has more was started
        again since, and is left alone. Raises as `requeue_without`."""

        def restarted(job: JobRecord) -> str:
            return f"was started again (restart {job.restarts})" if job.restarts > known else ""

        return self._requeue_until(restarted, (), "was requeued and may start now", deadline_s)

    def _requeue_until(self, reached: Callable[[JobRecord], str], bad: Sequence[str], waits: str, deadline_s: float) -> str:
        """Requeue it until `reached` says how the aim was met, or until it waits with `bad` excluded. Each look repeats what is missing."""
        reason = f"`scontrol show job {self.id}` says why"
        for _ in range(max(1, round(deadline_s / _PAUSE_S))):
            job = self.show()
            if job.is_over:
                raise ActuatorError(f"Slurm job {self.id} is over ({job.state}): there is nothing to requeue")
            if job.state == "PENDING":
                reason = self._let_go(job, bad)
                if not reason:
                    return f"Slurm job {self.id} {waits}"
            elif how := reached(job):
                return f"Slurm job {self.id} {how}"
            elif job.state in _RUNS:
                if not job.requeue:
                    raise ActuatorError(f"Slurm job {self.id} may not be requeued: submit it with --requeue")
                self._commands.call(["scontrol", "requeue", str(self.id)])
            self._sleep(_PAUSE_S)
        raise ActuatorError(f"Slurm job {self.id} is not requeued after {deadline_s:.0f} s: {reason}")

    def own_retries(self) -> str:
        """What in the job's batch script starts its ranks again, one line; "" if nothing does, or it has none."""
        try:
            script = self._commands.call(["scontrol", "write", "batch_script", str(self.id), "-"])
        except EngineUnavailableError:
            raise
        except ActuatorError as error:
            detail = str(error)
            return "" if "not a batch job" in detail.lower() else f"whether its batch script starts it again cannot be read: {detail}"
        return find_retries(script)

    def _let_go(self, job: JobRecord, bad: Sequence[str]) -> str:
        """Tell a waiting job where it must not go, and that it need not wait. Returns why Slurm would not have that yet, else ""."""
        excluded = dict.fromkeys([*self._nodes.expand(job.excluded), *bad])
        try:
            self._commands.call(["scontrol", "update", f"JobId={self.id}", f"ExcNodeList={','.join(excluded)}", "StartTime=now"])
        except EngineUnavailableError:
            raise
        except ActuatorError as error:  # it started meanwhile, or its record is being written: the next look says where it is
            return str(error)
        return ""

    def release(self, bad: Sequence[str]) -> str:
        """Give nodes back out of the running allocation: Slurm ends what the job still has there, and goes on without them.

        Needs steps started with `srun --no-kill`. Returns one line. Raises as `show`, and ActuatorError for the node of the batch
        script, without which the job would end.
        """
        job = self.show()
        have = self._nodes.expand(job.node_list)
        leaving = [node for node in bad if node in have]
        if not leaving:
            return f"Slurm job {self.id} has no {', '.join(bad)} any more"
        if job.batch_host in leaving:
            raise ActuatorError(f"{job.batch_host} runs the batch script of job {self.id}: it stays in the allocation until the job ends")
        staying = [node for node in have if node not in leaving]
        self._commands.call(["scontrol", "update", f"JobId={self.id}", f"NodeList={','.join(staying)}"])
        left = sorted(set(self.nodes()) & set(leaving))
        if left:
            raise ActuatorError(f"{', '.join(left)} is in Slurm job {self.id} after it was given back")
        return f"Slurm job {self.id} goes on without {', '.join(leaving)}"
