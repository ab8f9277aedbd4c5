"""Pair tests that a person ordered while the job runs: what was only a page for want of a proof is decided again.

The policy weighs a suspicion by the newest pair tests (minder.act.policy.proof), but it is asked about a suspicion once. So each one that
stands against a machine which new tests name goes to the policy again.
"""

from __future__ import annotations

from dataclasses import replace

from minder.act.controller.backlog import Item
from minder.act.controller.state import JobState
from minder.model.errors import WireError
from minder.model.evidence import Verdict
from minder.model.history import LedgerEvent
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.pairs import fold_pairs, pair_words
from minder.wire.codec import from_json

__all__ = ["PairNews"]

_STANDS_S = 3600.0  # an older suspicion is not of now


class PairNews:
    """`take_items` once per tick; it raises LedgerError. Pair tests of before this controller began are no news."""

    def __init__(self, state: JobState, ledger: Ledger) -> None:
        self._state, self._ledger = state, ledger
        self._since_id: int | None = None

    def take_items(self, now_s: float) -> list[Item]:
        """Suspicions to be decided again, as of now."""
        if self._since_id is None:
            newest = self._ledger.events(job=self._state.name, kinds=(kinds.PAIRS,), newest_first=True, limit=1)
            self._since_id = newest[0].id if newest else 0
            return []
        events = self._ledger.events(since_id=self._since_id, job=self._state.name, kinds=(kinds.PAIRS,))
        if not events:
            return []
        self._since_id = events[-1].id
        words = (pair_words(run.graph, run.time_s) for run in fold_pairs(events) if run.by != "minder")
        named = {name for found in words for name, word in found.items() if word.names_it}
        return self._standing(named & set(self._state.rank_machine.values()), now_s) if named else []

    def _standing(self, named: set[str], now_s: float) -> list[Item]:
        """The newest suspicion of each of these machines that has not recovered."""
        found: dict[tuple[str, ...], Item] = {}
        for event in self._ledger.events(job=self._state.name, kinds=(kinds.VERDICT,)):
            verdict = _read(event)
            if verdict is None or event.incident is None:
                continue
            if verdict.kind == "recovered":
                found.pop(verdict.machines, None)
            elif named & set(verdict.machines) and now_s - event.time_s <= _STANDS_S:
                found[verdict.machines] = (replace(verdict, time_s=now_s), event.incident)
        return list(found.values())


def _read(event: LedgerEvent) -> Verdict | None:
    try:
        return from_json(Verdict, event.payload)
    except WireError:  # written by a version that knows more than this one
        return None
