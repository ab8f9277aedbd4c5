"""Draining a node and giving it back: read first, written with our own reason, read back. Another's drain is never touched.

Slurm has no compare-and-swap: between our reading and our writing lie some milliseconds in which a person's drain could be overwritten
(docs/assumptions.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from minder.act.actuators.slurm.commands import Commands
from minder.act.actuators.slurm.reason import operation_in, reason_text
from minder.act.actuators.slurm.records import NodeRecord, read_node
from minder.model.decision import ActionResult
from minder.model.errors import ActuatorError, EngineUnavailableError

__all__ = ["SlurmNodes"]

_LINE = "%N|%T|%E"  # the reason last: it may hold anything


class SlurmNodes:
    """commands: how Slurm is asked. max_drained: nodes that minder, whichever controller, may hold drained at once in this cluster."""

    def __init__(self, commands: Commands, now_s: Callable[[], float], max_drained: int = 2) -> None:
        self._commands = commands
        self._now_s = now_s
        self._max_drained = max_drained

    def show(self, node: str) -> NodeRecord:
        """Raises EngineUnavailableError, or ActuatorError for a node that Slurm does not know."""
        return read_node(self._commands.call(["scontrol", "show", "node", node]), node)

    def expand(self, node_list: str) -> tuple[str, ...]:
        """Names of Slurm's own list, in its order: "n[1-2]" is n1, n2."""
        if not node_list:
            return ()
        return tuple(self._commands.call(["scontrol", "show", "hostnames", node_list]).split())

    def ours(self) -> dict[str, str]:
        """Every node that carries a reason of minder's, by whichever controller, to its operation."""
        found: dict[str, str] = {}
        for line in self._commands.call(["sinfo", "-h", "-N", "-R", "-o", _LINE]).splitlines():
            parts = line.split("|", 2)
            if len(parts) != 3:
                raise EngineUnavailableError(f"Slurm's list of reasons cannot be read: {line[:120]}")
            operation = operation_in(parts[2].strip())
            if operation is not None:
                found[parts[0].strip()] = operation
        return found

    def show_all(self, nodes: Sequence[str]) -> list[NodeRecord]:
        """Several in one call, in their order. Raises as `show`."""
        if not nodes:
            return []
        blocks = re.split(r"(?m)^(?=NodeName=)", self._commands.call(["scontrol", "show", "node", ",".join(nodes)]))
        found = {block.split()[0].removeprefix("NodeName="): block for block in blocks if block.startswith("NodeName=")}
        return [read_node(found.get(node, ""), node) for node in nodes]

    def neighbours(self, nodes: Sequence[str], own_job: int) -> dict[str, tuple[str, ...]]:
        """Node to the other jobs that run on it ("slurm job 17 of alice"); nodes without any are left out."""
        found: dict[str, tuple[str, ...]] = {}
        if not nodes:
            return found
        words = ["squeue", "-h", "-t", "RUNNING,SUSPENDED,COMPLETING", "-w", ",".join(nodes), "-o", "%A|%u|%N"]
        for line in self._commands.call(words).splitlines():
            parts = line.split("|")
            if len(parts) != 3 or not parts[0].isdigit():
                raise EngineUnavailableError(f"Slurm's list of jobs cannot be read: {line[:120]}")
            if int(parts[0]) == own_job:
                continue
            for node in set(self.expand(parts[2])) & set(nodes):
                found[node] = (*found.get(node, ()), f"slurm job {parts[0]} of {parts[1]}")
        return found

    def drain(self, node: str, operation_id: str, why: str) -> ActionResult:
        """Keep new work away from a node; what runs there goes on. The same operation again changes nothing.

        "already_done" where others hold it: that stays as it is, and is not ours to undo. "failed" where nothing was done and
        a person must look; "ambiguous" where Slurm stopped answering after it was asked. Raises EngineUnavailableError as long as
        nothing was asked yet.
        """
        before = self.show(node)
        if before.is_held:
            return self._result(operation_id, "already_done", *_held(before, operation_id))
        held = {name: operation for name, operation in self.ours().items() if name != node}
        if len(held) >= self._max_drained:
            names = ", ".join(sorted(held)[:5])
            detail = f"{node} is not drained: minder holds {names} already, and engine.max_drained is {self._max_drained}"
            return self._result(operation_id, "failed", detail)
        try:
            self._commands.call(["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason_text(operation_id, why)}"])
            after = self.show(node)
        except EngineUnavailableError as error:
            return self._result(operation_id, "ambiguous", f"{node}: {error}")
        except ActuatorError as error:
            return self._result(operation_id, "failed", f"{node} is not drained: {error}")
        if after.is_drained and operation_in(after.reason) == operation_id:
            return self._result(operation_id, "done", f"{node} is drained in Slurm ({_states(after)})", _undo(node))
        if after.is_held:
            return self._result(operation_id, "already_done", *_held(after, operation_id))
        return self._result(operation_id, "ambiguous", f"{node} was drained, but Slurm shows {_states(after)}: look before anything else")

    def uncordon(self, node: str, operation_id: str, known: Collection[str]) -> ActionResult:
        """Let Slurm use a node again, if the drain on it is one of the operations in `known`; the result says so if it is not."""
        before = self.show(node)
        if not before.is_held:
            return self._result(operation_id, "already_done", f"{node} is not drained in Slurm ({_states(before)})")
        owner = operation_in(before.reason)
        if owner is None or owner not in known:
            whose = f"minder's operation {owner}, which this ledger does not know" if owner else before.reason_by or "an unknown user"
            detail = f"{node} is kept out by {whose}: {before.reason or 'no reason'}; that is not ours to undo"
            return self._result(operation_id, "failed", detail)
        try:
            self._commands.call(["scontrol", "update", f"NodeName={node}", "State=RESUME"])
            after = self.show(node)
        except EngineUnavailableError as error:
            return self._result(operation_id, "ambiguous", f"{node}: {error}")
        except ActuatorError as error:
            return self._result(operation_id, "failed", f"{node} was not given back: {error}")
        if after.is_held:
            return self._result(operation_id, "failed", f"{node} was given back, and is held again: {after.reason or _states(after)}")
        return self._result(operation_id, "done", f"{node} may be used by Slurm again ({_states(after)})")

    def _result(self, operation_id: str, outcome: str, detail: str, undo: str = "") -> ActionResult:
        return ActionResult(operation_id, self._now_s(), outcome, detail, undo)  # type: ignore[arg-type]


def _held(node: NodeRecord, operation_id: str) -> tuple[str, str]:
    """What to tell, and how to undo it, of a node that is kept out already."""
    if node.is_drained and operation_in(node.reason) == operation_id:
        return f"{node.name} was drained by this very operation before", _undo(node.name)
    who = node.reason_by or "an unknown user"
    return f"{node.name} was kept out by {who} before ({node.reason or _states(node)}): left as it is", ""


def _undo(node: str) -> str:
    return f"minder machine return {node} --config job.toml"


def _states(node: NodeRecord) -> str:
    return "+".join(sorted(node.states))
