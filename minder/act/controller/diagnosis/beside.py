"""Quick probes beside a restart in place: of the machine that failed, by its agent, at low priority. They never hold the restart up: they
begin once the new generation has been ordered, and each tick asks what came of them.

Only probes that disturb nothing run, for `Rung.beside_s` at most. What they say is in the incident, for the next decision about it. A fault
that a probe saw by itself (a lost GPU, a full disk) is a verdict at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from minder.act.controller.backlog import Item
from minder.act.controller.diagnosis.diagnosing import probe_verdict
from minder.act.controller.state import JobState
from minder.act.policy.ladder import PERSON, LadderConfig
from minder.diagnose.diagnostics.diagnosis import TestRound
from minder.diagnose.diagnostics.judgement import judge_machines
from minder.edge.probes.contract import find_programs
from minder.model.clock import Clock
from minder.model.decision import Decision
from minder.model.errors import WireError
from minder.model.evidence import Verdict
from minder.model.probes import ProbeResult
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.probes import past_results, probes_payload, read_past
from minder.wire.codec import from_json
from minder.wire.fleet import Fleet

__all__ = ["Beside", "quick_probes"]

_MOST_MACHINES = 4
_GRACE_S = 5.0  # beyond the probes' own limit: an answer is asked for once a tick


def quick_probes() -> tuple[str, ...]:
    """Those that slow down nothing else on the machine."""
    return tuple(name for name, program in find_programs().items() if not program.probe.disturbs)


@dataclass(slots=True)
class _Run:
    decision: Decision
    incident: str
    begun_s: float  # by the monotonic clock
    limit_s: float
    left: list[str]
    answers: dict[str, tuple[ProbeResult, ...]] = field(default_factory=dict)


class Beside:
    """`begin` after a restart, `tick` once per tick, then `take_items` are to be decided on. `tick` raises LedgerError."""

    def __init__(self, state: JobState, ledger: Ledger, fleet: Fleet, clock: Clock, ladder: LadderConfig | None = None) -> None:
        """ladder: whose rungs say how long."""
        self._state, self._ledger, self._fleet, self._clock, self._ladder = state, ledger, fleet, clock, ladder or LadderConfig()
        self._run: _Run | None = None
        self._items: list[Item] = []

    def begin(self, decision: Decision, incident: str) -> None:
        """Of the machines that the failure is remembered of. A newer restart replaces the probes of an older one."""
        named = dict.fromkeys([*(item.machine for item in decision.verdict.failures), *decision.verdict.machines])
        machines = [name for name in named if name in self._fleet.machines][:_MOST_MACHINES]
        if "probes" in decision.beside and machines:
            self._run = _Run(decision, incident, self._clock.monotonic_s(), self._limit_s(decision), machines)

    def tick(self) -> None:
        run = self._run
        if run is None:
            return
        self._ledger.check_fence()
        for machine, answer in self._fleet.probes(dict.fromkeys(run.left, self._order(run)), "agent").items():
            self._hear(run, machine, answer)
        run.left = [name for name in run.left if name not in run.answers]
        if not run.left or self._clock.monotonic_s() - run.begun_s > run.limit_s + _GRACE_S:
            self._run = None
            self._settle(run)

    def take_items(self) -> list[Item]:
        found, self._items = self._items, []
        return found

    def _limit_s(self, decision: Decision) -> float:
        """As the rung says that was climbed; a ladder that has it no longer says what is usual."""
        climb = self._ladder.climb(decision.trouble)
        return next((item.beside_s for _, item in climb if item.rung == decision.rung and item.beside), PERSON.beside_s)

    def _order(self, run: _Run) -> dict[str, Any]:
        programs = find_programs(quick_probes())
        probes = [
            {"id": name, "sha256": item.sha256, "limit_s": min(item.probe.limit_s, run.limit_s)} for name, item in programs.items()
        ]  # fmt: skip
        return {"operation": f"{run.decision.operation_id}/beside", "probes": probes, "force": True}

    def _hear(self, run: _Run, machine: str, answer: Mapping[str, Any] | WireError) -> None:
        """What is not known by the end of the time is not known: the restart does not wait for it."""
        if isinstance(answer, WireError) or answer.get("state") != "done":
            return
        try:
            run.answers[machine] = from_json(tuple[ProbeResult, ...], answer.get("results") or ())
        except WireError:
            return

    def _settle(self, run: _Run) -> None:
        past = read_past(self._ledger.events, self._clock.now_s())
        judged = judge_machines(run.answers, lambda probe: past_results(past, probe))
        for machine, results in run.answers.items():
            payload = probes_payload(machine, results, judged[machine], by="minder", why="beside")
            self._append(run, kinds.PROBES, payload)
            one = TestRound(machine, 1, results, tuple(judged[machine]))
            faults = [item for item in one.judgements if one.own_word(item.probe)]
            if faults:
                verdict = probe_verdict(machine, faults, self._clock.now_s(), run.decision.time_s)
                self._append(run, kinds.VERDICT, verdict)
                self._items.append((verdict, run.incident))

    def _append(self, run: _Run, kind: str, payload: Verdict | Mapping[str, Any]) -> None:
        self._ledger.append(kind, payload, job=self._state.name, incident=run.incident, operation_id=run.decision.operation_id)
