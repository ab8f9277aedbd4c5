"""Cordoning and tainting a node, and giving it back: read first, written on what was read, read again where another program wrote.

Another's cordon or taint is never undone. The API server refuses a write on a node that changed meanwhile (409), so nothing is overwritten.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from minder.act.actuators.kubernetes.calls import Calls
from minder.act.actuators.kubernetes.marks import MANAGER, held_by_others, is_ours, lifted, marked, operation_at
from minder.act.actuators.kubernetes.mirror import list_all
from minder.act.actuators.kubernetes.records import NodeRecord, read_node
from minder.act.actuators.kubernetes.register import Entry, Register
from minder.model.decision import ActionResult
from minder.model.errors import ActuatorError, EngineRefusalError, EngineUnavailableError

__all__ = ["Holding", "KubernetesNodes"]

_TRIES = 10


@dataclass(frozen=True, slots=True)
class Holding:
    """owner: what is written beside the operation ("training/llm"); hardware: the annotation of a serial number; most: nodes held at
    once in the cluster."""

    owner: str
    hardware: str | None = None
    most: int = 2


class KubernetesNodes:
    """confirm: called last before every write; raises if another controller leads."""

    def __init__(
        self, calls: Calls, register: Register, holding: Holding, now_s: Callable[[], float], confirm: Callable[[], None] = lambda: None
    ) -> None:
        self._calls = calls
        self.register = register
        self._holding = holding
        self._now_s = now_s
        self._confirm = confirm

    def show(self, node: str) -> NodeRecord:
        """Raises EngineUnavailableError, or EngineRefusalError for a node that Kubernetes does not know."""
        return read_node(self._calls.call("GET", f"/api/v1/nodes/{node}"))

    def show_all(self) -> list[NodeRecord]:
        """Raises EngineUnavailableError."""
        return [read_node(item) for item in list_all(self._calls, "/api/v1/nodes", {})[0]]

    def cordon(self, node: str, operation_id: str, why: str) -> ActionResult:
        """Keep new work away from a node; what runs there goes on. The same operation again changes nothing.

        "already_done" where others cordoned it: that stays as it is, and is not ours to undo. "failed" where nothing was done
        and a person must look; "ambiguous" where Kubernetes stopped answering after it was asked. Raises EngineUnavailableError as long
        as nothing was asked yet.
        """
        record = self.show(node)
        standing = self._standing(record, operation_id)
        if standing is not None:
            return standing
        entry = Entry(node, operation_id, record.uid, record.hardware(self._holding.hardware), self._holding.owner, why)
        full = self.register.reserve(entry, self._holding.most)
        if full:
            return self._result(operation_id, "failed", f"{node} is not cordoned: {full}")
        try:
            return self._mark(record, operation_id, why)
        except EngineUnavailableError as error:
            return self._result(operation_id, "ambiguous", f"{node}: {error}")
        except ActuatorError as error:
            self.register.drop(node)
            return self._result(operation_id, "failed", f"{node} is not cordoned: {error}")

    def _standing(self, record: NodeRecord, operation_id: str) -> ActionResult | None:
        """What is to be reported of a node that is kept out already, None if it is not."""
        if is_ours(record) and operation_at(record) == operation_id:
            return self._result(
                operation_id, "already_done", f"{record.name} was cordoned by this very operation before", _undo(record.name)
            )
        if is_ours(record):
            detail = f"{record.name} was kept out by minder's operation {operation_at(record)} before: left as it is"
            return self._result(operation_id, "already_done", detail)
        if record.unschedulable:
            detail = f"{record.name} was {held_by_others(record)} before: left as it is"
            return self._result(operation_id, "already_done", detail)
        return None

    def _mark(self, record: NodeRecord, operation_id: str, why: str) -> ActionResult:
        for _ in range(_TRIES):
            try:
                self._patch(record.name, marked(record, operation_id, self._holding.owner, why))
                detail = f"{record.name} is cordoned and tainted in Kubernetes"
                return self._result(operation_id, "done", detail, _undo(record.name))
            except EngineRefusalError as error:
                if error.status != 409:
                    raise
            record = self.show(record.name)
            standing = self._standing(record, operation_id)
            if standing is not None:
                if operation_at(record) != operation_id:
                    self.register.drop(record.name)
                return standing
            time.sleep(0.01)
        raise ActuatorError(f"it changed under {_TRIES} tries")

    def uncordon(self, node: str, operation_id: str, known: Collection[str]) -> ActionResult:
        """Let Kubernetes use a node again, if what keeps it out is one of the operations in `known`; the result says so if it is not."""
        entry = self.register.entries().get(node)
        try:
            record = self.show(node)
        except EngineRefusalError as error:
            if error.status != 404:
                raise
            return self._forget(operation_id, node, entry, known, "is no node of Kubernetes now")
        try:
            for _ in range(_TRIES):
                if not is_ours(record):
                    return self._not_ours(operation_id, record, entry, known)
                if operation_at(record) not in known:
                    whose = f"minder's operation {operation_at(record)}, which this ledger does not know"
                    return self._result(operation_id, "failed", f"{node} is kept out by {whose}; that is not ours to undo")
                try:
                    self._patch(node, lifted(record))
                    return self._given_back(operation_id, node)
                except EngineRefusalError as error:
                    if error.status != 409:
                        raise
                record = self.show(node)
            return self._result(operation_id, "failed", f"{node} was not given back: it changed under {_TRIES} tries")
        except EngineUnavailableError as error:
            return self._result(operation_id, "ambiguous", f"{node}: {error}")
        except EngineRefusalError as error:
            return self._result(operation_id, "failed", f"{node} was not given back: {error}")

    def _given_back(self, operation_id: str, node: str) -> ActionResult:
        self.register.drop(node)
        others = held_by_others(self.show(node))
        detail = f"{node}: minder's marks are gone" + (f"; it stays {others}" if others else ", Kubernetes may use it again")
        return self._result(operation_id, "done", detail)

    def _not_ours(self, operation_id: str, record: NodeRecord, entry: Entry | None, known: Collection[str]) -> ActionResult:
        others = held_by_others(record)
        if others and entry is None:
            return self._result(operation_id, "failed", f"{record.name} is {others}; that is not ours to undo")
        return self._forget(
            operation_id, record.name, entry, known, f"carries no mark of minder's{f' and stays {others}' if others else ''}"
        )

    def _forget(self, operation_id: str, node: str, entry: Entry | None, known: Collection[str], detail: str) -> ActionResult:
        if entry is None:
            return self._result(operation_id, "already_done", f"{node} {detail}")
        if entry.operation not in known:
            whose = f"minder's operation {entry.operation}, which this ledger does not know"
            return self._result(operation_id, "failed", f"{node} is kept out by {whose}; that is not ours to undo")
        self.register.drop(node)
        return self._result(operation_id, "done", f"{node} {detail}; its hardware is not barred any more")

    def hold_again(self, node: NodeRecord, entry: Entry) -> None:
        """Mark a node anew whose hardware is barred, and which registered without its marks. Raises ActuatorError if that fails."""
        self._mark(node, entry.operation, f"{entry.why} (the same hardware as {entry.node})")

    def _patch(self, node: str, body: dict[str, object]) -> None:
        self._confirm()
        self._calls.call("PATCH", f"/api/v1/nodes/{node}", body, {"fieldManager": MANAGER})

    def _result(self, operation_id: str, outcome: str, detail: str, undo: str = "") -> ActionResult:
        return ActionResult(operation_id, self._now_s(), outcome, detail, undo)  # type: ignore[arg-type]


def _undo(node: str) -> str:
    return f"minder machine return {node} --config job.toml"
