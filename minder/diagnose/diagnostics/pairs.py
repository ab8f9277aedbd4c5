"""Pair tests in two rounds: which machine, or which link, fails or is slow where two machines exchange data (pure).

Round one tests disjoint pairs, all at once; of an odd number, three machines form three pairs, one after the other. Round two tests each
machine of a failed or slow pair with a machine that is proven good. What fails with two partners, one of them proven good, is the machine;
what fails with one partner only, while both pass with others, is the link between them. Published for Acme's clusters and DLRover; there a
test with two bad machines, or over a bad link, could name the wrong one, so here nothing is concluded without a machine proven good.

One limit stays: a healthy machine whose partner in round one was faulty is named if the link of its round two is dead as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

from minder.model.errors import BadInputError
from minder.model.pairs import EdgeState, NodeState, PairEdge, PairGraph, PairNode

__all__ = ["SLOW_RATIO", "PairResult", "PairTest", "judge_pairs", "plan_first_round", "plan_second_round"]

SLOW_RATIO = 2.0  # DLRover's: slow is over twice the median

Domains = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class PairTest:
    """Two machines that exchange data. wave: tests of one round and wave are disjoint and run at once, waves one after the other.
    shared: what both hang on, such as "switch:leaf-3"; "" if nothing is known to be."""

    machines: tuple[str, str]
    round: int
    wave: int = 0
    shared: str = ""


@dataclass(frozen=True, slots=True)
class PairResult:
    """What became of one test. passed: None where it could not be run, which says nothing of the two. seconds: for the fixed exchange in
    its slower direction; all tests that are compared move the same amount of data. forward_bytes_per_s: from the first machine to the
    second; backward_bytes_per_s: back."""

    test: PairTest
    passed: bool | None
    seconds: float | None = None
    bandwidth_bytes_per_s: float | None = None
    latency_s: float | None = None
    detail: str = ""
    forward_bytes_per_s: float | None = None
    backward_bytes_per_s: float | None = None

    def sends_slower(self, machine: str) -> bool | None:
        """Whether the test is slow in what the machine sends, and not in what it receives; None where both are alike, or unknown."""
        rates = (self.forward_bytes_per_s, self.backward_bytes_per_s)
        if None in rates:
            return None
        sent, received = rates if machine == self.test.machines[0] else rates[::-1]
        assert sent is not None and received is not None
        return None if SLOW_RATIO * min(sent, received) > max(sent, received) else sent < received


def plan_first_round(machines: Sequence[str], domains: Domains | None = None) -> tuple[PairTest, ...]:
    """Disjoint pairs, neighbours of one switch or rack first. Of an odd number, the last three are tested each with each, in three waves.
    Raises BadInputError for fewer than two machines, or one that stands twice.

    >>> [test.machines for test in plan_first_round(["a", "b", "c", "d"])]
    [('a', 'b'), ('c', 'd')]
    """
    if len(machines) < 2 or len(set(machines)) != len(machines):
        raise BadInputError(f"pair tests need two machines or more, each named once, not {', '.join(machines) or 'none'}")
    known = domains or {}
    order = _neighbours(machines, known)
    three = order[-3:] if len(order) % 2 else []
    rest = order[: len(order) - len(three)]
    pairs = [(pair, 0) for pair in zip(rest[::2], rest[1::2], strict=True)]
    pairs += [(pair, wave) for wave, pair in enumerate(itertools.combinations(three, 2))]
    return tuple(PairTest(pair, 1, wave, _shared(pair, known)) for pair, wave in pairs)


def plan_second_round(results: Sequence[PairResult], domains: Domains | None = None) -> tuple[PairTest, ...]:
    """Each machine that passed no test, with a machine that passed one and that it has not met; on its own switch if there is one. A good
    machine is in one test of a wave. Empty if all passed, or if no machine is proven good: then nothing can be concluded. Called with the
    results of two rounds, it plans a third for machines that are not judged yet, such as those of a test that could not be run."""
    known, sight = domains or {}, _Sight(results)
    tried = {frozenset(result.test.machines) for result in results}
    met = {frozenset(result.test.machines) for result in results if result.passed is not None}
    number = max((result.test.round for result in results), default=0) + 1
    planned: list[PairTest] = []
    for suspect in sight.machines:
        if _conclude(suspect, sight)[0] != "not_judged":
            continue
        partners = [good for good in sight.machines if good in sight.good and frozenset((suspect, good)) not in met]
        if partners:
            used = [test.machines[1] for test in planned]
            partner = min(
                partners, key=lambda good: (frozenset((suspect, good)) in tried, used.count(good), not _shared((suspect, good), known))
            )
            pair = (suspect, partner)
            planned.append(PairTest(pair, number, used.count(partner), _shared(pair, known)))
    return tuple(planned)


def judge_pairs(results: Sequence[PairResult], domains: Domains | None = None) -> PairGraph:
    """The graph of both rounds with a state and a reason for each machine and each test."""
    known, sight = domains or {}, _Sight(results)
    nodes = [_judge_machine(machine, sight, known) for machine in sight.machines]
    domain = _common_domain(nodes, known)
    if domain:
        nodes = [_acquit(node, domain) if node.state == "faulty" and domain in node.domains else node for node in nodes]
    return PairGraph(tuple(nodes), tuple(_edge(result, sight) for result in results), sight.median_s, domain)


class _Sight:
    """Results by machine. good: machines that passed a test at usual speed."""

    def __init__(self, results: Sequence[PairResult]) -> None:
        self.machines = tuple(dict.fromkeys(machine for result in results for machine in result.test.machines))
        self._of = {machine: [result for result in results if machine in result.test.machines] for machine in self.machines}
        best_s = [min(times) for machine in self.machines if (times := _times(self._of[machine]))]
        self.median_s = median_low(best_s) if best_s else None
        self.good = {machine for machine in self.machines if self.best(machine) == "passed"}

    def state(self, result: PairResult) -> EdgeState:
        if result.passed is None:
            return "not_judged"
        if not result.passed:
            return "failed"
        late = self.median_s is not None and result.seconds is not None and result.seconds > SLOW_RATIO * self.median_s
        return "slow" if late else "passed"

    def best(self, machine: str) -> EdgeState | None:
        """The best that became of a machine's tests; None if none of them says anything."""
        states = {self.state(result) for result in self._of[machine]}
        return next((state for state in ("passed", "slow", "failed") if state in states), None)

    def slow_way(self, machine: str) -> bool | None:
        """Of its slow tests: True where all are slow in what it sends, False in what it receives, None where they are not of one kind."""
        ways = {result.sends_slower(machine) for result in self._of[machine] if self.state(result) == "slow"}
        return ways.pop() if len(ways) == 1 else None

    def partners(self, machine: str) -> tuple[str, ...]:
        """The other machines of its tests that say something, each once."""
        said = [result.test.machines for result in self._of[machine] if result.passed is not None]
        return tuple(dict.fromkeys(other for pair in said for other in pair if other != machine))


def _times(results: Iterable[PairResult]) -> list[float]:
    return [result.seconds for result in results if result.passed and result.seconds is not None]


def _judge_machine(machine: str, sight: _Sight, domains: Domains) -> PairNode:
    state, reason = _conclude(machine, sight)
    return PairNode(machine, state, reason, tuple(f"{kind}:{name}" for kind, name in domains.get(machine, {}).items()))


def _conclude(machine: str, sight: _Sight) -> tuple[NodeState, str]:
    best, partners = sight.best(machine), sight.partners(machine)
    proven = [partner for partner in partners if partner in sight.good]
    names = " and ".join(partners)
    if best is None:
        return "not_judged", "none of its tests could be run"
    if best == "passed":
        return "good", f"it passed a test with {' or '.join(partners)}"
    how = "failed" if best == "failed" else "was slow or failed"
    if not sight.good:
        return "not_judged", f"it {how} with {names}: no machine is proven good"
    if len(partners) < 2 or not proven:
        return "not_judged", f"it {how} with {names} only: a second test with a machine proven good is needed"
    if best == "failed":
        return "faulty", f"it failed with {names}; {proven[0]} is proven good"
    way = {True: "in what it sends, ", False: "in what it receives, ", None: ""}[sight.slow_way(machine)]
    return "slow", f"{way}it took over {SLOW_RATIO:g} times the median of {sight.median_s:.3g} s with {names}; {proven[0]} is proven good"


def _common_domain(nodes: Sequence[PairNode], domains: Domains) -> str:
    """A switch or rack with two faulty machines or more and no good one, while machines elsewhere are good."""
    faulty = [node for node in nodes if node.state == "faulty"]
    for domain in dict.fromkeys(domain for node in faulty for domain in node.domains):
        inside = [node for node in nodes if domain in node.domains]
        if len(inside) > 1 and all(node.state == "faulty" for node in inside) and len(inside) < len(nodes):
            return domain
    return ""


def _acquit(node: PairNode, domain: str) -> PairNode:
    reason = f"{node.reason}; but all tested machines of {domain} fail: look at that first"
    return PairNode(node.machine, "not_judged", reason, node.domains)


def _edge(result: PairResult, sight: _Sight) -> PairEdge:
    state, test = sight.state(result), result.test
    blamed = state in ("failed", "slow") and all(machine in sight.good for machine in test.machines)
    detail = result.detail
    if state == "slow" and (slower := result.sends_slower(test.machines[0])) is not None:
        detail = f"slow from {' to '.join(test.machines if slower else test.machines[::-1])} only" + (f"; {detail}" if detail else "")
    rates = (result.bandwidth_bytes_per_s, result.latency_s, test.shared, detail, blamed)
    ways = (result.forward_bytes_per_s, result.backward_bytes_per_s)
    return PairEdge(test.machines, test.round, state, result.seconds, *rates, *ways)


def _neighbours(machines: Sequence[str], domains: Domains) -> list[str]:
    """In the given order, those of one switch (else rack, else any other domain) together."""
    first: dict[tuple[str, ...], int] = {}
    for index, machine in enumerate(machines):
        first.setdefault(_place(machine, domains), index)
    return sorted(machines, key=lambda machine: first[_place(machine, domains)])


def _place(machine: str, domains: Domains) -> tuple[str, ...]:
    known = domains.get(machine, {})
    kinds = sorted(known, key=lambda kind: ({"rack": 0, "switch": 1}.get(kind, 2), kind))
    return tuple(f"{kind}:{known[kind]}" for kind in kinds)


def _shared(pair: tuple[str, ...], domains: Domains) -> str:
    """The nearest thing that both hang on: the switch before the rack."""
    one, two = (domains.get(machine, {}) for machine in pair)
    kinds = sorted(one, key=lambda kind: ({"switch": 0, "rack": 1}.get(kind, 2), kind))
    return next((f"{kind}:{one[kind]}" for kind in kinds if two.get(kind) == one[kind]), "")
