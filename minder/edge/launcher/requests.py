"""POST /v1/workers as a record, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from minder.edge.launcher.updates import ProgramOrder
from minder.edge.launcher.variables import refused_variable
from minder.model.errors import WireError
from minder.wire.codec import from_json

__all__ = ["SlotAssignment", "WorkersRequest", "parse_request", "refused_ranks"]


@dataclass(frozen=True, slots=True)
class SlotAssignment:
    """The environment that makes the worker in `slot` one of the job's ranks."""

    slot: int
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkersRequest:
    """What the controller wants of this machine's workers. grace_s: seconds from the request to SIGKILL; 0: at once. program: the version
    that workers run; None: the launcher's own command."""

    operation_id: str
    generation: int
    desired: Literal["run", "parked", "ended"]
    world_size: int = 0
    assignments: tuple[SlotAssignment, ...] = ()
    grace_s: float = 5.0
    program: ProgramOrder | None = None


def parse_request(data: Any, slots: int, allow_env: Sequence[str] = ()) -> WorkersRequest:
    """allow_env: see `refused_variable`. Raises WireError that names the field or the variable."""
    request = from_json(WorkersRequest, data)
    if not request.operation_id:
        raise WireError("operation_id is empty: give each operation its own")
    if request.desired not in ("run", "parked", "ended"):
        raise WireError(f'desired is "{request.desired}": run, parked or ended')
    if request.generation < 0:
        raise WireError(f"generation is {request.generation}: 0 or more")
    if not 0.0 <= request.grace_s <= 3600.0:
        raise WireError(f"grace_s is {request.grace_s}: 0 to 3600 seconds")
    named = [assignment.slot for assignment in request.assignments]
    if len(set(named)) != len(named) or any(slot not in range(slots) for slot in named):
        raise WireError(f"assignments name the slots {named}: this machine has 0 to {slots - 1}, each at most once")
    for assignment in request.assignments:
        if why := refused_variable(assignment.env, allow_env):
            raise WireError(f"slot {assignment.slot}: {why}")
    if request.desired == "run" and not named:
        raise WireError("desired is run without assignments: name at least one slot")
    return request


def refused_ranks(ranks: Sequence[Mapping[str, str]], slots: int, allow_env: Sequence[str] = ()) -> str:
    """Why these environments of ranks are not run here, "" if they are: as for workers."""
    if len(ranks) > slots:
        return f"it has {len(ranks)} ranks here: this machine has {slots} slots"
    return next((why for env in ranks if (why := refused_variable(env, allow_env))), "")
