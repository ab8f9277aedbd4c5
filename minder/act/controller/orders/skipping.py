"""Batches that a job leaves out: ordered by a person or by the ladder, applied by the next generation, once.

An order waits in the ledger. GENERATION_STARTED names all batches that the generation leaves out, and the orders that it applies, before
any launcher is asked to run it: a controller that takes over reads them there. The generation goes on from the newest checkpoint that was
made from the batches which it would have had; `Checkpointer` passes over what was saved later. Nothing is left out of a job whose loader
did not ask for it, or without such a checkpoint: the order fails, with a line that says why.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from minder.act.controller.context import ContextMaker
from minder.act.controller.orders.job_work import JobWork
from minder.act.controller.state import JobState
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import Skips
from minder.act.policy.limits import SKIP
from minder.model.batch_ranges import consumed_alike, format_ranges, parse_ranges
from minder.model.clock import Clock
from minder.model.decision import Decision
from minder.model.evidence import Evidence, Verdict
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.skips import SKIP_KINDS, SkipFold, SkipOrder, changed
from minder.wire.fleet import Fleet

__all__ = ["Skipping"]

_DAY_S = 86_400.0
_ASKS_S = 10.0  # a loader has asked by then, once its rank has made a step
_SURE = 0.99
Ranges = tuple[range, ...]


class Skipping:
    """`tick` and `orders` once per tick; the rest is for the recovery and for the policy's context. Every method raises LedgerError. work:
    where the job's checkpoints lie."""

    def __init__(self, state: JobState, ledger: Ledger, fleet: Fleet, config: PolicyConfig, clock: Clock, work: JobWork) -> None:
        self._state, self._ledger, self._fleet, self._config, self._clock, self._work = state, ledger, fleet, config, clock, work
        self._fold, self._read_id = SkipFold(), 0
        self._asked_in, self._asks = 0, -1  # the newest generation whose loaders asked, and the version of the code that did
        self._ordered: set[tuple[str, int]] = set()  # orders that asked for a restart, and of which generation

    @property
    def known(self) -> SkipFold:
        """As the ledger says now."""
        for event in self._ledger.events(since_id=self._read_id, job=self._state.name, kinds=SKIP_KINDS):
            self._fold.add(event)
            self._read_id = event.id
        return self._fold

    def tick(self) -> None:
        """Learn whether the job's loaders skip, and write down which orders cannot be carried out."""
        state = self._state
        self._look()
        if state.phase not in ("starting", "running"):
            return
        for order in self.known.waiting:
            age_s = self._clock.now_s() - order.time_s
            if not state.numbers_batches and state.first_step_seen and not 0 <= age_s < _ASKS_S:
                self._fail(order, "the job's loader does not skip: it has to ask minder.skipped_batches()")
            elif self._loaders_ask and (why := self._unreachable(changed(self._fold.running, order), lives=True)):
                self._fail(order, why)

    def orders(self, now_s: float) -> list[Verdict]:
        """That the job is to go back for a person's order; asked once in a generation."""
        state = self._state
        waiting = self.known.waiting
        if not waiting or not state.numbers_batches or state.phase not in ("starting", "running"):
            return []
        order = waiting[0]
        if (order.operation_id, state.generation) in self._ordered:
            return []
        self._ordered.add((order.operation_id, state.generation))
        what = f"that batch {order.batches} is {'trained on again' if order.undo else 'left out'}"
        message = f"{order.by or 'an operator'} orders {what}: {order.note or 'no note'}"
        evidence = (Evidence(SKIP, None, message[:240], since_s=order.time_s),)
        return [Verdict(now_s, "job", "evict", (), "explicit", _SURE, order.time_s, evidence, (), (SKIP,))]

    def order(self, decision: Decision, incident: str | None) -> None:
        """What the ladder decided, as an order like an operator's; once."""
        if not decision.skip or any(item.operation_id == decision.operation_id for item in self.known.orders):
            return
        note = f"{decision.detail}; {incident}" if incident else decision.detail
        payload = {"batches": decision.skip, "note": note[:400], "by": "minder"}
        self._ledger.append(kinds.SKIP_ASKED, payload, job=self._state.name, incident=incident, operation_id=decision.operation_id)

    def choose(self) -> dict[str, Any]:
        """What the next generation leaves out, as its event names it; nothing of a job that never left anything out."""
        self._look()
        found, applied = self.known.running, list[str]()
        for order in self._fold.waiting if self._loaders_ask else ():
            wanted = changed(found, order)
            if why := self._unreachable(wanted):
                self._fail(order, why)
            else:
                found = wanted
                applied.append(order.operation_id)
        held = {"skip_batches": format_ranges(found)} if found else {}
        return held | ({"skip_operations": applied} if applied else {})

    def in_context(self, make: ContextMaker) -> ContextMaker:
        """The policy's context, with what is left out and what may be."""

        def made(state: JobState, standbys: Any, now_s: float) -> Any:
            context, found = make(state, standbys, now_s), self.known
            refused: Literal["", "off", "dry_run"] = "dry_run" if self._config.dry_run else ""
            refused = "off" if self._config.skip_batches != "auto" else refused
            waits = found.waiting[0].operation_id if found.waiting else ""
            skips = Skips(format_ranges(found.running), found.skipped_since(now_s - _DAY_S), self._saved(), refused, waits)
            return replace(context, skips=skips, offers=context.offers | ({"skip_batch"} if state.numbers_batches else frozenset()))

        return made

    def status(self) -> dict[str, Any]:
        """For status.json and the job's page."""
        waits = [{"batches": item.batches, "undo": item.undo, "by": item.by} for item in self._fold.waiting]
        return {"asks": self._state.numbers_batches, "batches": format_ranges(self._fold.running), "waits": waits}

    @property
    def _loaders_ask(self) -> bool:
        """Of the code that runs now; a generation that ended before its loaders came up says nothing against it."""
        return self._asks == self._state.update

    def _look(self) -> None:
        """Launchers remember it of ranks that have ended. A generation that fails at its first step is over before it was asked: what the
        same code did in the one before holds for it."""
        state = self._state
        if self._asked_in != state.generation and state.rank_machine:
            said = [self._fleet.launcher_state(machine) for machine in set(state.rank_machine.values())]
            if all(each.get("generation") == state.generation and "skips" in (each.get("offers") or ()) for each in said):
                self._asked_in, self._asks = state.generation, state.update
        state.numbers_batches = bool(state.generation) and self._loaders_ask

    def _saved(self) -> tuple[tuple[int, str], ...] | None:
        return self._work.saved(self._fleet.launcher_state(machine) for machine in sorted(set(self._state.rank_machine.values())))

    def _unreachable(self, wanted: Ranges, lives: bool = False) -> str:
        """Why a run that leaves these out has nothing to go on from, "" where it has; where nothing was saved at all, a job whose workers
        have ended begins anew either way."""
        saved = self._saved()
        if saved is None:
            return (
                "which steps are saved without it is not known: that needs Checkpointer(FOLDER) and checkpoint_dir in job.toml, or "
                'Checkpointer("memory"), checkpoints = "memory" and caches that answer'
            )
        if not saved:
            return "nothing is saved yet: the job would begin anew" if lives else ""
        if any(consumed_alike(step, parse_ranges(left_out), wanted) for step, left_out in saved):
            return ""
        gone = "; memory has the newest step only while the job trains: ring or flush_dir keeps older ones" if self._work.in_memory else ""
        return f"no complete checkpoint is from before it: the oldest is step {min(step for step, _ in saved)}{gone}"

    def _fail(self, order: SkipOrder, why: str) -> None:
        payload = {"detail": f"not {'taken back' if order.undo else 'left out'}: {why}"}
        self._ledger.append(kinds.SKIP_FAILED, payload, job=self._state.name, operation_id=order.operation_id)
