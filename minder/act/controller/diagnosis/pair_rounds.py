"""Pair tests of a job's machines while it stands: round after round, a wave at a time, by the job's launchers.

`tick` asks, once per tick, what came of the tests of a wave; the next wave is ordered when all of it is known. Each meeting has a secret of
its own, which is written nowhere. So a controller that takes over does not know those of the one before it: it begins anew, by operations
of other names, and what still runs of the old ones ends by itself within their limit.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minder.diagnose.diagnostics.pair_sides import Side, blamed_tests, join_sides, replaced
from minder.diagnose.diagnostics.pairs import PairResult, PairTest, judge_pairs, plan_first_round, plan_second_round
from minder.edge.probes.contract import find_program
from minder.edge.probes.pair_order import new_meeting
from minder.model.clock import Clock
from minder.model.errors import BadInputError, WireError
from minder.model.pairs import PairGraph
from minder.model.probes import ProbeResult
from minder.wire.codec import from_json
from minder.wire.fleet import Fleet

__all__ = ["PairRounds", "Paths"]

_LIMIT_S = 45.0  # of one test
_PATIENCE_S = 20.0  # so long may a launcher be silent, or refuse
_MOST_ROUNDS = 4


class Paths:
    """How machines reach each other. address: of a machine on the job's network; it raises BadInputError where there is none. domains:
    machine to what it hangs on."""

    def __init__(self, address: Callable[[str], str], domains: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.address, self.domains = address, domains or {}


class PairRounds:
    """Of one operation. `tick` until `is_over`; `graph` is what is known so far."""

    def __init__(self, operation_id: str, generation: int, machines: Sequence[str], fleet: Fleet, clock: Clock, paths: Paths) -> None:
        self._name, self._generation = f"{operation_id}/pairs-{secrets.token_hex(4)}", generation
        self._fleet, self._clock, self._paths = fleet, clock, paths
        self._planned = list(plan_first_round(machines, paths.domains))
        self._results: list[PairResult] = []
        self._rounds, self._waves = 1, 0
        self._is_second_look = False
        self._wave: list[PairTest] = []
        self._orders: dict[str, dict[str, Any]] = {}  # machine to its order of this wave
        self._heard: dict[str, Side] = {}
        self._troubled_s: dict[str, float] = {}
        self.is_over = False

    @property
    def graph(self) -> PairGraph:
        return judge_pairs(self._results, self._paths.domains)

    def tick(self) -> None:
        if not self._wave and not self._next_wave():
            self.is_over = True
            return
        wanted = {name: order for name, order in self._orders.items() if name not in self._heard}
        for machine, answer in self._fleet.probes(wanted).items():
            self._hear(machine, answer)
        if all(name in self._heard for test in self._wave for name in test.machines):
            for test in self._wave:
                self._take(join_sides(test, *(self._heard[name] for name in test.machines)))
            self._wave = []

    def _take(self, result: PairResult) -> None:
        self._results = replaced(self._results, result) if self._is_second_look else [*self._results, result]

    def _next_wave(self) -> bool:
        """False: there is nothing left to test."""
        if not self._planned:
            self._plan()
        if not self._planned:
            return False
        first = min(test.wave for test in self._planned)
        wave = [test for test in self._planned if test.wave == first]
        self._wave = wave[:1] if self._is_second_look else wave  # those of links may share a machine
        self._planned = [test for test in self._planned if test not in self._wave]
        self._order()
        return True

    def _plan(self) -> None:
        domains = self._paths.domains
        if self._is_second_look:
            return
        if self._rounds < _MOST_ROUNDS:
            self._planned = list(plan_second_round(self._results, domains))
            self._rounds += 1
        if not self._planned:
            self._is_second_look = True
            self._planned = blamed_tests(self._results, domains)

    def _order(self) -> None:
        self._waves += 1
        self._orders, self._heard = {}, {}
        program = find_program("pair")
        for test in self._wave:
            first, second = test.machines
            try:
                ends = (self._paths.address(first), self._paths.address(second))
                meeting = new_meeting(ends, self._generation, gpus_only=True)  # gloo goes the same way as TCP, and torch takes its time
            except BadInputError as error:
                self._heard |= {first: str(error), second: str(error)}
                continue
            for name, pair in zip(test.machines, meeting, strict=True):
                probe = {"id": "pair", "sha256": program.sha256, "pair": pair.options(), "limit_s": _LIMIT_S}
                self._orders[name] = {"operation": f"{self._name}/{self._waves}", "probes": [probe]}

    def _hear(self, machine: str, answer: Mapping[str, Any] | WireError) -> None:
        if isinstance(answer, WireError):
            why = str(answer)
        elif answer.get("state") == "done":
            self._heard[machine] = _side(answer)
            return
        else:
            why = str(answer.get("detail") or "its launcher refuses") if answer.get("state") == "refused" else ""
        if not why:
            self._troubled_s.pop(machine, None)
            return
        since_s = self._troubled_s.setdefault(machine, self._clock.monotonic_s())
        if self._clock.monotonic_s() - since_s > _PATIENCE_S:
            self._heard[machine] = why


def _side(answer: Mapping[str, Any]) -> Side:
    try:
        found = from_json(tuple[ProbeResult, ...], answer.get("results") or ())
    except WireError as error:
        return f"its results cannot be read: {error}"
    return found[0] if found else "no answer"
