"""Versions of a job's code: what was ordered, what runs, what it changes. Out of the ledger alone, in its order; pure but for `order_...`.

Version 0 is what the launchers were started with. Each update is the job's next version, and says all that it runs: what it does not change
it has from the version that was wanted before it. A rollback names an earlier version. An order is applied by the first generation that
names it, so at most once; a newer order takes the place of one that waits.
"""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from minder.model.clock import format_time
from minder.model.errors import BadInputError
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.ledger import Ledger
from minder.record.incidents.location import code_folder
from minder.record.incidents.orders import demand_running
from minder.wire.code_store import CodeStore

__all__ = [
    "UPDATE_KINDS",
    "Order",
    "UpdateFold",
    "Version",
    "check_rollback",
    "demand_launched",
    "fold_updates",
    "needed_code",
    "new_update",
    "order_rollback",
    "order_update",
    "order_words",
    "store_code",
    "update_payload",
    "version_rows",
    "version_table",
]

UPDATE_KINDS = (
    kinds.JOB_REGISTERED,
    kinds.UPDATE_ASKED,
    kinds.UPDATE_READY,
    kinds.UPDATE_FAILED,
    kinds.GENERATION_STARTED,
    kinds.FIRST_STEP,
)
_MOST_NOTE = 400
_KEPT = 20  # versions of each job whose code stays in the store


@dataclass(frozen=True, slots=True)
class Version:
    """All that one version runs. base: the number of the version that it was made from. code: digest of its files, "" for the script that
    the launchers were started with. args: of the script; None: the launchers' own."""

    number: int
    base: int = 0
    code: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    args: tuple[str, ...] | None = None
    by: str = ""
    note: str = ""
    time_s: float = 0.0

    def program(self) -> dict[str, Any]:
        """As a launcher reads it (minder.edge.launcher.updates.ProgramOrder)."""
        return {
            "update": self.number,
            "code": self.code,
            "env": dict(self.env),
            "args": None if self.args is None else list(self.args),
        }


@dataclass(frozen=True, slots=True)
class Order:
    """One order. to: the version that it asks for; back: it is a rollback. detail: why it failed. applied: the generation that runs it."""

    operation_id: str
    to: int
    time_s: float
    event_id: int
    urgent: bool = False
    back: bool = False
    by: str = ""
    note: str = ""
    state: Literal["asked", "ready", "applied", "failed", "replaced"] = "asked"
    detail: str = ""
    applied: int = 0

    @property
    def waits(self) -> bool:
        return self.state in ("asked", "ready")


class UpdateFold:
    """Feed it one job's events of UPDATE_KINDS in ledger order; others change nothing. running: the version of the present generation;
    since_s, since_generation: when it began to run. versions: by number, 0 among them. stepped: those of this run that have made a step."""

    def __init__(self) -> None:
        self.versions: dict[int, Version] = {0: Version(0)}
        self.orders: list[Order] = []
        self.running = 0
        self.since_s = float("-inf")
        self.since_generation = 0
        self.stepped: set[int] = set()
        self._ran: list[int] = [0]  # versions of this run, oldest first, without repetition in a row

    @property
    def open(self) -> Order | None:
        """The order that waits for a generation."""
        return self.orders[-1] if self.orders and self.orders[-1].waits else None

    @property
    def wanted(self) -> int:
        return self.running if self.open is None else self.open.to

    @property
    def previous(self) -> int | None:
        """The version that the running one was made from: where a rollback leads. None where nothing was updated."""
        return self.versions[self.running].base if self.running else None

    def lineage(self, number: int) -> frozenset[int]:
        """The version and all those that it was made from: whose checkpoints it can read for sure."""
        found = {number}
        while number:
            number = self.versions[number].base
            found.add(number)
        return frozenset(found)

    def foreign(self, number: int) -> tuple[int, ...]:
        """Versions that ran, and that this one was not made from."""
        own = self.lineage(number)
        return tuple(sorted(item for item in set(self._ran) if item not in own))

    def add(self, event: LedgerEvent) -> None:
        if event.kind == kinds.JOB_REGISTERED:  # another run begins with the launchers' own command
            self._settle("replaced", "the job was begun anew")
            self.running, self.since_s, self.since_generation, self._ran = 0, float("-inf"), 0, [0]
            self.stepped.clear()
        elif event.kind == kinds.UPDATE_ASKED and event.operation_id:
            self._ask(event, event.operation_id)
        elif event.kind == kinds.UPDATE_READY:
            self._replace(event.operation_id, lambda order: replace(order, state="ready"))
        elif event.kind == kinds.UPDATE_FAILED:
            detail = str(event.payload.get("detail") or "")
            self._replace(event.operation_id, lambda order: replace(order, state="failed", detail=detail))
        elif event.kind == kinds.GENERATION_STARTED:
            self._begin(event)
        elif event.kind == kinds.FIRST_STEP:
            self.stepped.add(self.running)

    def _ask(self, event: LedgerEvent, name: str) -> None:
        payload, back = event.payload, "to" in event.payload
        to = int(payload["to"]) if back else max(self.versions) + 1
        by, note = str(payload.get("by") or ""), str(payload.get("note") or "")
        if back and to not in self.versions:
            return
        if not back:
            base = self.versions[self.wanted]
            env = {**base.env, **{str(key): str(value) for key, value in (payload.get("env") or {}).items()}}
            args = base.args if payload.get("args") is None else tuple(map(str, payload["args"]))
            code = str(payload.get("code") or base.code)
            self.versions[to] = Version(to, base.number, code, env, args, by, note, event.time_s)
        self._settle("replaced", f"{by or 'an operator'} ordered another version")
        order = Order(name, to, event.time_s, event.id, bool(payload.get("urgent")), back, by, note)
        if back and to == self.running:  # what had waited is taken back: nothing is left to apply
            order = replace(order, state="applied", applied=self.since_generation)
        self.orders.append(order)

    def _begin(self, event: LedgerEvent) -> None:
        number, generation = int(event.payload.get("update") or 0), int(event.payload.get("generation") or 0)
        name = event.payload.get("update_operation")
        self._replace(name, lambda order: replace(order, state="applied", applied=generation))
        if number != self.running and number in self.versions:
            self.running, self.since_s, self.since_generation = number, event.time_s, generation
            self._ran.append(number)

    def _settle(self, state: Literal["replaced"], detail: str) -> None:
        if self.open is not None:
            self.orders[-1] = replace(self.orders[-1], state=state, detail=detail)

    def _replace(self, name: Any, change: Any) -> None:
        self.orders = [change(item) if item.operation_id == name and item.waits else item for item in self.orders]


def fold_updates(events: Iterable[LedgerEvent]) -> UpdateFold:
    """Of one job, in ledger order."""
    found = UpdateFold()
    for event in events:
        found.add(event)
    return found


def new_update() -> str:
    """A name for one more order."""
    return f"update-{uuid.uuid4().hex[:12]}"


def update_payload(
    code: str, about: tuple[int, int], env: Mapping[str, str], args: Sequence[str] | None, urgent: bool, note: str
) -> dict[str, Any]:  # fmt: skip
    """Payload of UPDATE_ASKED without who. code: digest, "" for none; about: how many files, and bytes. Raises BadInputError for an order
    that changes nothing."""
    if not code and not env and args is None:
        raise BadInputError("the update changes nothing: give --code DIR, --env NAME=VALUE or --args")
    files = {"code": code, "files": about[0], "size_bytes": about[1]} if code else {}
    return {**files, "env": dict(env), "args": None if args is None else list(args), "urgent": urgent, "note": note[:_MOST_NOTE]}


def check_rollback(found: UpdateFold, job: str, to: int | None) -> int:
    """The version that a rollback leads to. to: as it was asked for; None: the one that the running version was made from. Raises
    BadInputError."""
    known = ", ".join(str(number) for number in sorted(found.versions)[-8:])
    if to is None and found.open is not None and not found.open.back:
        to = found.running  # what waits is taken back before it is applied
    elif to is None:
        to = found.previous
    if to is None:
        raise BadInputError(f"{job} runs what its launchers were started with: there is no update to take back")
    if to not in found.versions:
        raise BadInputError(f"{job} has no version {to}: it has {known}")
    if to == found.wanted:
        raise BadInputError(f"{job} runs version {to}, or will with its next generation: nothing to take back")
    return to


def order_update(ledger: Ledger, job: str, payload: Mapping[str, Any], by: str) -> Order:
    """Write an update down for the job's controller. Raises BadInputError where the job does not run, or is only watched."""
    return _order(ledger, job, {**payload, "by": by})


def order_rollback(ledger: Ledger, job: str, to: int | None, urgent: bool, note: str, by: str) -> Order:
    """The same path, to an earlier version. Raises BadInputError as check_rollback."""
    number = check_rollback(fold_updates(ledger.events(job=job, kinds=UPDATE_KINDS)), job, to)
    return _order(ledger, job, {"to": number, "urgent": urgent, "note": note[:_MOST_NOTE], "by": by})


def _order(ledger: Ledger, job: str, payload: Mapping[str, Any]) -> Order:
    demand_launched(ledger, job)
    name = new_update()
    ledger.append(kinds.UPDATE_ASKED, payload, job=job, operation_id=name)
    return next(item for item in fold_updates(ledger.events(job=job, kinds=UPDATE_KINDS)).orders if item.operation_id == name)


def demand_launched(ledger: Ledger, job: str) -> None:
    """Raises BadInputError where the job does not run, or runs without launchers."""
    demand_running(ledger, job)
    begun = ledger.events(job=job, kinds=(kinds.JOB_REGISTERED,))
    if begun and "run" in begun[-1].payload:
        raise BadInputError(f"job {job} is only watched: its owner changes its code")


def store_code(ledger: Ledger, job: str, folder: Path) -> tuple[str, tuple[int, int]]:
    """A folder into the store beside the ledger: (its digest, (files, bytes)). Raises BadInputError, also where the job does not run."""
    demand_launched(ledger, job)
    store = CodeStore(code_folder(ledger.location))
    try:
        tree = store.add_folder(folder)
        store.prune({tree.digest, *needed_code(ledger.events(kinds=(kinds.UPDATE_ASKED,)))})
    except OSError as error:
        raise BadInputError(f"the code cannot be kept in {store.folder}: {error.strerror}") from error
    return tree.digest, (len(tree.files), tree.size_bytes)


def needed_code(events: Iterable[LedgerEvent]) -> set[str]:
    """Digests of the newest versions of every job, from events of UPDATE_ASKED: what the store keeps whatever its size."""
    found: dict[str | None, list[str]] = {}
    for event in events:
        if event.payload.get("code"):
            found.setdefault(event.job, []).append(str(event.payload["code"]))
    return {digest for digests in found.values() for digest in digests[-_KEPT:]}


def order_words(order: Order, job: str) -> str:
    """How an order stands, one line for a terminal."""
    what = f"the rollback to version {order.to}" if order.back else f"update {order.to}"
    if order.state == "asked":
        return f"{what} of {job} waits for its controller: the order stands, and `minder job updates {job}` says what comes of it"
    if order.state == "ready":
        when = "its job is started again for it now" if order.urgent else "it comes with the next restart, after a day at the latest"
        return f"{what} of {job} is with all its launchers: {when}"
    if order.state == "applied":
        return f"{what} of {job} runs"
    return f"{what} of {job}: {order.detail}"


def version_table(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The rows of version_rows for a terminal, header first."""
    header = ("version", "state", "code", "variables", "arguments", "by", "when", "note")
    return [header, *(_table_row(row) for row in rows)]


def _table_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    variables = " ".join(f"{name}={value}" for name, value in row["env"].items())
    arguments = "" if row["args"] is None else shlex.join(row["args"])
    said = (row["state"], row["code"] or "-", variables or "-", arguments or "-", row["by"] or "-", (row["time"] or "-")[:19])
    return (str(row["update"]), *said, row["detail"] or row["note"] or "-")


def version_rows(found: UpdateFold) -> list[dict[str, Any]]:
    """Every version, newest first, as JSON: what it runs, who ordered it, and how it stands."""
    rows = []
    for number, version in sorted(found.versions.items(), reverse=True):
        orders = [item for item in found.orders if item.to == number]
        waits = found.open is not None and found.open.to == number
        last = orders[-1] if orders else None
        state = "waits" if waits else "runs" if found.running == number else last.state if last is not None else "-"
        rows.append({
            "update": number,
            "state": "applied before" if state == "applied" else state,
            "base": version.base if number else None,
            "code": version.code[:12],
            "env": dict(version.env),
            "args": None if version.args is None else list(version.args),
            "by": version.by,
            "note": version.note,
            "time": format_time(version.time_s) if number else None,
            "detail": last.detail if last is not None and state in ("failed", "replaced") else "",
        })  # fmt: skip
    return rows
