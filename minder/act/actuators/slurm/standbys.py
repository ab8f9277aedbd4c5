"""Nodes that stand by, as a Slurm job of their own: submitted where standbys are missing, cancelled where it has not started in time.

Slurm cannot add nodes to a running job. The job that is submitted starts agent and launcher on its nodes, by the site's own batch script;
its name is the operation, by which a second call finds it.
"""

from __future__ import annotations

from minder.act.actuators.slurm.commands import Commands
from minder.model.errors import ActuatorError

__all__ = ["SlurmStandbys"]


class SlurmStandbys:
    """script: the site's batch script, None where it has none."""

    def __init__(self, commands: Commands, script: str | None) -> None:
        self._commands, self._script = commands, script

    def ask(self, count: int, operation_id: str) -> str:
        """One job of `count` nodes. Raises ActuatorError without a script, EngineUnavailableError."""
        if self._script is None:
            raise ActuatorError("no standby is asked of Slurm: give engine.standby_script, a batch script that starts agent and launcher")
        known = self._found(operation_id)
        if known:
            return f"Slurm job {known[0]} asks for {count} standbys already"
        words = ["sbatch", "--parsable", f"--job-name={operation_id}", f"--nodes={count}", f"--comment=minder {operation_id}", self._script]
        number = self._commands.call(words).strip().partition(";")[0]
        return f"Slurm job {number} asks for {count} standbys"

    def forgo(self, operation_id: str) -> str:
        """Only while it waits for its nodes. Raises EngineUnavailableError."""
        if not self._found(operation_id, "--states=PENDING"):
            return f"no Slurm job of {operation_id} waits for nodes"
        self._commands.call(["scancel", "--state=PENDING", f"--name={operation_id}"])
        return f"the Slurm job of {operation_id} was cancelled: its nodes did not come in time"

    def _found(self, operation_id: str, *filters: str) -> list[str]:
        return self._commands.call(["squeue", "-h", "-o", "%i", f"--name={operation_id}", *filters]).split()
