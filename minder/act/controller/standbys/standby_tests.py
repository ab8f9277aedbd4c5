"""Standbys are tested while they wait: by their own launcher, at low priority, beside the workers at the barrier, again and again.

A test never stands in the job's way. It is ordered only while the job runs and only of machines that wait; the launcher ends it at once
when the machine gets ranks, and nothing here is waited for. What it measured is judged as every probe is, beside equal machines and the
machine's own past, and goes into the ledger: a standby whose probe failed is given no ranks until that probe passes. One of which nothing
is known yet is used where no proven one is left: unknown is not faulty.

A probe that was not measured (a busy machine passed its limit, it was killed) is run again before the next round, ever later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from minder.act.controller.state import JobState
from minder.diagnose.diagnostics.judgement import judge, worst
from minder.edge.probes.contract import find_programs
from minder.model.clock import Clock
from minder.model.errors import WireError
from minder.model.probes import ProbeResult
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.probes import past_results, probes_payload, read_past
from minder.record.incidents.proofs import PROOF_KINDS, Proof, ProofFold
from minder.wire.codec import from_json
from minder.wire.fleet import Fleet

__all__ = ["Proofs", "StandbyProbing", "StandbyTests"]

_WAIT_S = 20.0
_AT_ONCE = 4
_PATIENCE_S = 60.0  # so long may a launcher be silent in between
_SETTLED_S = 60.0  # loading and compiling would be measured instead of the machine
_AGAIN_S = 300.0  # after a test that came to nothing, or a probe of it
_MOST_EVENTS = 2000  # a controller that begins reads the newest
_OFFER = "probes beside"
_BY = "controller"


@dataclass(frozen=True, slots=True)
class StandbyProbing:
    """probes: by name. every_s: 0 for never."""

    probes: tuple[str, ...] = ()
    every_s: float = 0.0

    @property
    def is_on(self) -> bool:
        return self.every_s > 0 and bool(self.probes)


class Proofs:
    """What the ledger's probes prove of each machine; `refresh` reads what is new."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._fold, self._since_id = ledger, ProofFold(), 0

    def refresh(self) -> None:
        """Raises LedgerError; then the next call reads the same."""
        if self._since_id:
            events = self._ledger.events(since_id=self._since_id, kinds=PROOF_KINDS)
        else:
            events = self._ledger.events(kinds=PROOF_KINDS, newest_first=True, limit=_MOST_EVENTS)[::-1]
        self._fold.add(events)
        self._since_id = events[-1].id if events else self._since_id

    def of(self, machine: str) -> Proof:
        return self._fold.of(machine)


@dataclass(slots=True)
class _Test:
    """One test that is under way. whole: of all probes. heard_s: when its launcher last said something of it."""

    machine: str
    whole: bool
    body: Mapping[str, Any]
    heard_s: float
    asked: Future[dict[str, Mapping[str, Any] | WireError]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Again:
    """Probes that were not measured, and after how long they are run again."""

    probes: tuple[str, ...]
    wait_s: float


class StandbyTests:
    """`tick` once per tick; it raises LedgerError, and waits for no machine."""

    def __init__(self, state: JobState, ledger: Ledger, fleet: Fleet, clock: Clock, proofs: Proofs, wanted: StandbyProbing) -> None:
        self._state, self._ledger, self._fleet, self._clock, self._proofs = state, ledger, fleet, clock, proofs
        self._wanted = wanted
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="minder-standby")
        self._tests: dict[str, _Test] = {}
        self._tried_s: dict[str, float] = {}  # by the monotonic clock
        self._again: dict[str, _Again] = {}
        self._count = 0
        self.on_say: Callable[[str], None] = lambda text: None

    def tick(self, waiting: Sequence[str]) -> None:
        """waiting: machines outside the job whose workers stand at the barrier."""
        for test in list(self._tests.values()):
            if test.asked.done():
                self._turn(test)
        if self._wanted.is_on and self._state.phase == "running" and self._clock.now_s() - self._state.generation_start_s >= _SETTLED_S:
            for machine in waiting:
                if machine not in self._tests and len(self._tests) < _AT_ONCE and (probes := self._due(machine)):
                    self._begin(machine, probes)

    def close(self) -> None:
        """A test that runs goes on to its end, and no one reads it."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _due(self, machine: str) -> tuple[str, ...]:
        """Probes that are to be run now; none where the launcher would end its workers for them."""
        tried_s, last_s, monotonic_s = self._tried_s.get(machine), self._proofs.of(machine).time_s, self._clock.monotonic_s()
        passed_s = math.inf if tried_s is None else monotonic_s - tried_s
        again = self._again.get(machine)
        if last_s is not None and 0.0 <= self._clock.now_s() - last_s < self._wanted.every_s:
            probes = again.probes if again is not None and passed_s >= again.wait_s else ()
        else:
            probes = self._wanted.probes if passed_s >= min(_AGAIN_S, self._wanted.every_s) else ()
        return probes if probes and _OFFER in self._fleet.launcher_state(machine).get("offers", ()) else ()

    def _begin(self, machine: str, probes: tuple[str, ...]) -> None:
        self._count += 1
        self._tried_s[machine] = self._clock.monotonic_s()
        operation = f"standby-{self._state.name}-{machine}-{int(self._clock.now_s())}-{self._count}"
        orders = [{"id": name, "sha256": program.sha256} for name, program in find_programs(probes).items()]
        body = {"operation": operation, "beside": True, "probes": orders}
        whole = probes == self._wanted.probes
        self._tests[machine] = _Test(machine, whole, body, self._clock.monotonic_s(), self._ask(machine, body))

    def _ask(self, machine: str, body: Mapping[str, Any]) -> Future[dict[str, Mapping[str, Any] | WireError]]:
        self._ledger.check_fence()  # the leader's machines: who leads no longer asks them for nothing
        return self._threads.submit(self._fleet.probes, {machine: body}, "launcher", _WAIT_S)

    def _turn(self, test: _Test) -> None:
        error = test.asked.exception()
        answer = test.asked.result().get(test.machine) if error is None else None
        monotonic_s = self._clock.monotonic_s()
        if isinstance(answer, Mapping):
            test.heard_s = monotonic_s
            if answer.get("state") != "running":
                del self._tests[test.machine]
                if answer.get("state") == "done":
                    self._conclude(test, answer)
                return
        if test.machine in self._state.rank_machine.values() or monotonic_s - test.heard_s > _PATIENCE_S or "HTTP 4" in str(answer):
            del self._tests[test.machine]
            return
        test.asked = self._ask(test.machine, test.body)

    def _conclude(self, test: _Test, answer: Mapping[str, Any]) -> None:
        """Judged beside equal machines and the machine's past, and written down. A change is a note, which people are shown."""
        machine = test.machine
        try:
            results = from_json(tuple[ProbeResult, ...], answer.get("results") or ())
        except WireError:
            return
        if not results or machine in self._state.rank_machine.values():
            return
        silent, before = tuple(item.probe for item in results if item.state == "not_judged"), self._again.pop(machine, None)
        if silent:
            self._again[machine] = _Again(silent, _AGAIN_S if before is None else 2.0 * before.wait_s)
        past, was = read_past(self._ledger.events, self._clock.now_s()), self._proofs.of(machine)
        judged = [judge({machine: result}, past_results(past, result.probe))[machine] for result in results]
        why = "standby" if test.whole else "standby again"
        self._ledger.append(kinds.PROBES, probes_payload(machine, results, judged, by=_BY, why=why), job=self._state.name)
        self._proofs.refresh()
        self._report(machine, was, self._proofs.of(machine))
        self.on_say(f"probes of standby {machine}: {worst(item.verdict for item in judged).replace('_', ' ')}")

    def _report(self, machine: str, before: Proof, now: Proof) -> None:
        if now.state == before.state or not {"failed", "slow"} & {now.state, before.state}:
            return
        text = {
            "failed": f"standby {machine} is skipped until the probe passes: {now.detail}",
            "slow": f"standby {machine} is slow, and is used last: {now.detail}",
        }.get(now.state, f"standby {machine} passed its probes: it is used again")
        self._ledger.append(kinds.NOTE, {"text": text}, job=self._state.name)
