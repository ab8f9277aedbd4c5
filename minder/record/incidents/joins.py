"""An operator's order to take one more machine into the pool of a running job, and what came of it."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from minder.model.errors import BadInputError
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.ledger import Ledger

__all__ = [
    "JOIN_KINDS",
    "JOIN_PREFIX",
    "Join",
    "agent_addresses",
    "check_join",
    "clash",
    "fold_joins",
    "join_payload",
    "new_join",
    "order_join",
    "wait_for_join",
]

JOIN_PREFIX = "join-"  # names of these operations begin with it
JOIN_KINDS = (kinds.JOB_REGISTERED, kinds.STANDBY_ADDED, kinds.RESULT, kinds.JOB_ENDED)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LOOK_S = 0.3
Addresses = Mapping[str, tuple[str | None, str | None]]  # machine to its agent's and its launcher's address


@dataclass(frozen=True, slots=True)
class Join:
    """A machine that is to become a standby: where its agent and launcher listen, what it shares with others, and what came of it."""

    operation_id: str
    machine: str
    agent: str
    launcher: str
    rack: str | None = None
    switch: str | None = None
    block: str | None = None
    state: Literal["asked", "done", "failed"] = "asked"
    detail: str = ""


def fold_joins(events: Iterable[LedgerEvent]) -> list[Join]:
    """Orders of the job's present run, oldest first, from its events of JOIN_KINDS in ledger order (pure)."""
    found: dict[str, Join] = {}
    for event in events:
        name, payload = event.operation_id or "", event.payload
        if event.kind == kinds.JOB_REGISTERED:
            found.clear()  # the next run begins with the machines of its configuration
        elif event.kind == kinds.STANDBY_ADDED:
            rack, switch, block = (None if payload.get(key) is None else str(payload[key]) for key in ("rack", "switch", "block"))
            machine, agent, launcher = (str(payload.get(key)) for key in ("machine", "agent", "launcher"))
            found[name] = Join(name, machine, agent, launcher, rack, switch, block)
        elif event.kind == kinds.RESULT and name in found:
            done = payload.get("outcome") in ("done", "already_done")
            found[name] = replace(found[name], state="done" if done else "failed", detail=str(payload.get("detail") or ""))
    return list(found.values())


def clash(wanted: Join, known: Addresses) -> str:
    """Why this machine cannot join, in words; "" where it can, or is there already under the same addresses."""
    if wanted.machine in known and known[wanted.machine] != (wanted.agent, wanted.launcher):
        agent, launcher = known[wanted.machine]
        return f"{wanted.machine} is known with other addresses (agent {agent}, launcher {launcher}): give it another name, or those"
    for machine, addresses in known.items():
        for address in (wanted.agent, wanted.launcher):
            if machine != wanted.machine and address in addresses:
                return f"{address} is {machine}'s: two names for one machine would give it two places"
    return ""


def order_join(ledger: Ledger, job: str, wanted: Join, by: str, reason: str) -> Join:
    """Write the order down for the job's controller. Raises BadInputError as of check_join."""
    check_join(ledger.events(job=job, kinds=JOIN_KINDS), job, wanted)
    name = new_join()
    ledger.append(kinds.STANDBY_ADDED, {**join_payload(wanted), "by": by, "reason": reason}, job=job, operation_id=name)
    return replace(wanted, operation_id=name)


def new_join() -> str:
    """A name for one more order."""
    return f"{JOIN_PREFIX}{uuid.uuid4().hex[:12]}"


def join_payload(wanted: Join) -> dict[str, Any]:
    """Payload of STANDBY_ADDED, without who and why."""
    return {key: getattr(wanted, key) for key in ("machine", "agent", "launcher", "rack", "switch", "block")}


def check_join(events: Sequence[LedgerEvent], job: str, wanted: Join) -> None:
    """Raises BadInputError where no such job runs, or the machine cannot join it. events: the job's, of JOIN_KINDS, in ledger order."""
    if not _NAME.fullmatch(wanted.machine):
        raise BadInputError(f"machine {wanted.machine!r}: letters, digits, '.', '_' and '-' only, 128 at most")
    runs = [event for event in events if event.kind in (kinds.JOB_REGISTERED, kinds.JOB_ENDED)]
    if not runs or runs[-1].kind == kinds.JOB_ENDED:
        raise BadInputError(f'no job "{job}" runs: `minder incidents list` shows the jobs that did')
    registered = runs[-1].payload
    if "run" in registered:
        raise BadInputError(f"job {job} is only watched: its scheduler decides where it runs")
    known = {
        **_registered(registered),
        **{item.machine: (item.agent, item.launcher) for item in fold_joins(events) if item.state == "done"},
    }
    why = clash(wanted, known)
    if why:
        raise BadInputError(why)


def _registered(payload: Mapping[str, Any]) -> dict[str, tuple[str | None, str | None]]:
    """Of machines whose addresses the job's registration names; an earlier version's did not."""
    agents, launchers = payload.get("agents") or {}, payload.get("launchers") or {}
    return {str(machine): (agents.get(machine), launchers.get(machine)) for machine in {**agents, **launchers}}


def agent_addresses(event: LedgerEvent) -> dict[str, str]:
    """Machine to its agent's address, as far as an event of JOB_REGISTERED or STANDBY_ADDED says; nothing of another event."""
    if event.kind == kinds.STANDBY_ADDED and event.payload.get("agent"):
        return {str(event.payload.get("machine")): str(event.payload["agent"])}
    if event.kind != kinds.JOB_REGISTERED:
        return {}
    return {machine: agent for machine, (agent, _) in _registered(event.payload).items() if agent}


def wait_for_join(read: Callable[..., Sequence[LedgerEvent]], job: str, operation_id: str, seconds: float) -> Join:
    """The order, as soon as something came of it or the time is over. read: as Ledger.events."""
    end_s = time.monotonic() + seconds
    while True:
        found = next(item for item in fold_joins(read(job=job, kinds=JOIN_KINDS)) if item.operation_id == operation_id)
        if found.state != "asked" or time.monotonic() >= end_s:
            return found
        time.sleep(_LOOK_S)
