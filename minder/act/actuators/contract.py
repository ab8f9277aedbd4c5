"""What an actuator is: it executes a decision, once, and can say how to undo it. What an engine is: who owns the machines.

Neither decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from minder.model.decision import ActionResult, Decision

__all__ = ["Actuator", "Engine", "EngineSnapshot"]


class Actuator(Protocol):
    """`execute` is idempotent by operation id. An outcome that is not known is "ambiguous", never "done"."""

    name: str

    def execute(self, decision: Decision) -> ActionResult: ...


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """What the engine says of the job and its machines at one moment; what is not in it is not known.

    members: machines of the job's allocation. free: machines on which the engine could start it anew. cordoned: machine to why it is
    kept out of work, by whomever. cordoned_by_minder: machines anywhere that minder keeps out, to the operation. neighbours: machine to
    the other jobs on it.
    refusal: why the job cannot be started again elsewhere, "" if it can. restarts: how often the engine has started it again, by anybody.
    """

    time_s: float
    members: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    cordoned: Mapping[str, str] = field(default_factory=dict)
    cordoned_by_minder: Mapping[str, str] = field(default_factory=dict)
    neighbours: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refusal: str = ""
    restarts: int | None = None


class Engine(Protocol):
    """A scheduler that owns the machines of one job (docs/adr/0012). Every call may be made twice.

    Each raises EngineUnavailableError where the scheduler did not answer in time, and ActuatorError where it refused.
    `job_name`: how the job's own processes know it (their environment). `max_held`: machines that minder may keep out at once,
    whichever controller does it.
    """

    name: str
    job_name: str
    max_held: int

    def look(self, machines: Sequence[str]) -> EngineSnapshot: ...

    def cordon(self, machine: str, operation_id: str, why: str) -> ActionResult:
        """No new work for the machine; what runs there goes on. A machine that others hold is left as it is."""
        ...

    def uncordon(self, machine: str, operation_id: str, known: Collection[str]) -> ActionResult:
        """Undo a cordon of one of the operations in `known`, and no other."""
        ...

    def release(self, machine: str) -> str:
        """Take the machine out of the job's allocation; the job goes on. Returns one line."""
        ...

    def restart_without(self, machines: Sequence[str]) -> str:
        """Have the whole job started again on other machines. Returns one line."""
        ...

    def restart(self, known: int) -> str:
        """Have the whole job started again where it may be; one that was started again more than `known` times was already. Returns one
        line."""
        ...

    def own_retries(self) -> str:
        """What of the job's own starts it again by itself, one line; "" if nothing does."""
        ...

    def ask_standbys(self, count: int, operation_id: str) -> str:
        """Ask for machines that may stand by for the job. An operation that was asked already asks for no more. Returns one line; raises
        ActuatorError where this engine, as it is configured, cannot be asked."""
        ...

    def forgo_standbys(self, operation_id: str) -> str:
        """What this operation asked for and has not come is not wanted any more; what has come stays. Returns one line."""
        ...
