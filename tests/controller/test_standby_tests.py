"""Standbys are tested while they wait: what failed is skipped until it passes, what is unknown is used last, and nothing is waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import pytest

from minder.act.controller.standbys.pool import Pool
from minder.act.controller.standbys.standby_tests import StandbyProbing, StandbyTests
from minder.act.controller.state import JobState
from minder.model.errors import NoAnswerError, WireError
from minder.model.pairs import NodeState, PairGraph, PairNode
from minder.model.probes import ProbeJudgement, ProbeResult
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.pairs import pairs_payload
from minder.record.incidents.probes import probes_payload
from minder.wire.codec import to_json

WANTED = StandbyProbing(("links", "gemm"), 3600.0)


class Inline:
    """Threads that do their work at once; `pending` keeps it undone."""

    pending = False

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if not self.pending:
            future.set_result(work(*arguments))
        return future

    def shutdown(self, **unused: Any) -> None: ...


class Site:
    """A job on m0 and m1 with standbys s0 and s1, whose launchers answer as `answers` says."""

    def __init__(self, world: Any, ledger: Ledger) -> None:
        self.world, self.ledger, self.clock = world, ledger, world.clock
        self.fleet = world.fleet
        self.orders: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}
        self.offers = ["probes beside"]
        self.fleet.probes = self.probes
        self.fleet.launcher_state = lambda machine: {"generation": 0, "offers": self.offers}
        self.state = JobState("llm", generation=1, phase="running", rank_machine={0: "m0", 1: "m1", 2: "m2", 3: "m3"})
        self.state.generation_start_s = self.clock.now_s()
        self.said: list[str] = []
        self.begin()

    def begin(self) -> None:
        """A new controller."""
        self.pool = Pool(self.state, self.ledger, self.fleet, self.clock, None, tested=True)
        self.tests = StandbyTests(self.state, self.ledger, self.fleet, self.clock, self.pool.proofs, WANTED)
        self.tests.on_say = self.pool.on_say = self.said.append
        self.threads = self.tests._threads = Inline()  # type: ignore[assignment]

    def probes(self, bodies: Any, part: str, wait_s: float) -> dict[str, Any]:
        assert part == "launcher", "an agent is not the job's"
        ((machine, body),) = bodies.items()
        self.orders.append((machine, dict(body)))
        answer = self.answers.get(machine, "pass")
        if answer == "running" or not isinstance(answer, str):
            return {machine: {"state": "running"} if answer == "running" else answer}
        state = {"pass": "measured", "fail": "failed", "unknown": "not_judged"}[answer]
        detail = "2 wrong products" if answer == "fail" else ""
        results = [ProbeResult("links", 1, "measured", "as it was"), ProbeResult("gemm", 1, state, detail)]  # type: ignore[arg-type]
        return {machine: {"state": "done", "results": to_json(tuple(results))}}

    def tick(self, seconds: float = 1.0, times: int = 1) -> None:
        for _ in range(times):
            self.clock.sleep(seconds)
            self.pool.tick()
            self.tests.tick(self.pool.waiting())

    def notes(self) -> list[str]:
        return [event.payload["text"] for event in self.ledger.events(kinds=[kinds.NOTE])]

    def write(self, machine: str, verdict: Any, why: str = "test") -> None:
        judged = [ProbeJudgement(machine, "gemm", verdict, "2 wrong products")]
        self.ledger.append(kinds.PROBES, probes_payload(machine, (ProbeResult("gemm", 1, "measured"),), judged, by="ann", why=why))


@pytest.fixture
def site(world: Any) -> Iterator[Site]:
    with world.ledger() as ledger:
        yield Site(world, ledger)


def test_none_is_called_ready_before_a_probe_has_proven_it_and_all_may_be_used(site: Site) -> None:
    site.answers["s1"] = "running"
    site.tick(20.0)
    assert site.pool.standbys() == site.pool.untested(site.pool.standbys()) == ["s0", "s1"]
    site.tick(20.0, 4)
    assert site.pool.standbys() == ["s0", "s1"] and site.pool.untested(["s0", "s1"]) == ["s1"]
    site.pool._tested = False
    assert site.pool.untested(site.pool.standbys()) == [], "where none is tested, one that waits is ready"


def test_each_standby_is_tested_once_the_job_has_settled_and_then_every_hour(site: Site) -> None:
    site.tick(20.0, 2)
    assert site.orders == [], "a job that loads would be measured"
    site.tick(20.0, 2)
    assert {machine for machine, _ in site.orders} == {"s0", "s1"} and all(body["beside"] for _, body in site.orders)
    assert [probe["id"] for probe in site.orders[0][1]["probes"]] == ["links", "gemm"] and len(
        site.orders[0][1]["probes"][0]["sha256"]
    ) == 64
    site.tick(600.0, 4)
    assert len(site.orders) == 2
    site.tick(600.0, 3)
    assert len(site.orders) == 4 and len({body["operation"] for _, body in site.orders}) == 4
    site.begin()
    site.tick(1.0, 3)
    assert len(site.orders) == 4, "another controller knows when they were tested"
    assert {event.payload["why"] for event in site.ledger.events(kinds=[kinds.PROBES])} == {"standby"}


def test_a_probe_that_was_not_measured_is_run_again_before_the_hour_and_ever_later(site: Site) -> None:
    """A busy machine, say: it is no news for the other probes, and puts off no round of all of them."""
    site.answers, asked = {"s0": "unknown"}, list[tuple[int, list[str]]]()
    for minute in range(63):
        site.tick(60.0)
        new = [body for machine, body in site.orders if machine == "s0"][len(asked) :]
        asked += [(minute, [probe["id"] for probe in body["probes"]]) for body in new]
    first, *again, whole = asked
    assert first[1] == whole[1] == ["links", "gemm"] and whole[0] - first[0] in (60, 61)
    assert len(again) >= 2 and all(names == ["gemm"] for _, names in again)
    waits = [after - before for (before, _), (after, _) in pairwise([first, *again])]
    assert all(late > early for early, late in pairwise(waits))


def test_one_whose_probe_fails_is_skipped_and_reported_until_that_probe_passes(site: Site) -> None:
    site.answers["s0"] = "fail"
    site.tick(70.0, 2)
    assert site.pool.standbys() == ["s1"] and site.pool.waiting() == ["s0", "s1"]
    assert site.pool.missing()["s0"] == "its probe failed, and has not passed since: gemm: 2 wrong products"
    assert site.notes() == ["standby s0 is skipped until the probe passes: gemm: 2 wrong products"]
    assert {machine: proof.state for machine, proof in site.pool.proven().items()} == {"s0": "failed", "s1": "passed"}
    site.answers["s0"] = "unknown"
    site.tick(3700.0, 2)
    assert site.pool.standbys() == ["s1"], "a probe that says nothing proves nothing"
    site.begin()
    site.tick()
    assert site.pool.standbys() == ["s1"], "another controller knows it too"
    site.answers["s0"] = "pass"
    site.tick(3700.0, 2)
    assert site.pool.standbys() == ["s0", "s1"] and site.notes()[-1] == "standby s0 passed its probes: it is used again"
    assert "s0" not in site.pool.missing() and len(site.notes()) == 2


@pytest.mark.parametrize(("word", "order"), [("faulty", ["s1"]), ("slow", ["s1", "s0"]), ("not_judged", ["s0", "s1"])])
def test_pair_tests_speak_of_a_standby_as_its_probes_do_until_they_find_it_good(site: Site, word: NodeState, order: list[str]) -> None:
    def write(state: NodeState) -> None:
        graph = PairGraph((PairNode("s0", state, "with m0 and m1"),), (), None)
        site.ledger.append(kinds.PAIRS, pairs_payload(graph, by="ann", why="diagnose"), job="llm")
        site.tick()

    write(word)
    assert site.pool.standbys() == order
    write("good")
    assert site.pool.standbys() == ["s0", "s1"]


def test_a_person_who_gives_a_machine_back_vouches_for_it(site: Site) -> None:
    site.write("s0", "fail")
    site.tick()
    assert site.pool.standbys() == ["s1"]
    site.ledger.append(kinds.UNBARRED, {"machine": "s0", "by": "ann"}, job="other")
    site.tick()
    assert site.pool.standbys() == ["s0", "s1"] and site.pool.proofs.of("s0").state == "unknown"


def test_proven_ones_go_first_then_unknown_ones_then_slow_ones(site: Site) -> None:
    site.write("s1", "pass")
    site.tick()
    assert site.pool.standbys() == ["s1", "s0"]
    site.write("s1", "slow")
    site.tick()
    assert site.pool.standbys() == ["s0", "s1"], "a slow one is still a standby"


def test_one_that_was_never_judged_is_used_where_no_other_is_and_that_is_reported(site: Site) -> None:
    site.tick()
    assert site.pool.standbys() == ["s0", "s1"]
    site.state.rank_machine = {0: "m0", 1: "m1", 2: "m2", 3: "s0"}
    site.tick(times=2)
    assert site.notes() == ["s0 took ranks although no probe of it has been judged yet: no proven standby was ready before it"] == site.said


def test_machines_that_a_job_begins_on_were_no_standbys(site: Site) -> None:
    machines, site.state.rank_machine = site.state.rank_machine, {}
    site.tick()
    site.state.rank_machine = machines
    site.tick(times=2)
    assert site.notes() == [] == site.said


def test_a_test_is_never_begun_beside_ranks_nor_while_the_job_recovers_and_one_that_was_ended_says_nothing(site: Site) -> None:
    site.state.phase = "recovering"
    site.tick(100.0, 2)
    assert site.orders == []
    site.state.phase = "running"
    site.answers = {"s0": "running", "s1": {"state": "refused", "detail": "the probes were ended before their time"}}
    site.tick(1.0, 3)
    site.state.rank_machine = {0: "m0", 1: "m1", 2: "m2", 3: "s0"}
    site.fleet.launchers["m3"].silent = True
    count = len(site.orders)
    site.tick(1.0, 5)
    assert len(site.orders) == count and site.ledger.events(kinds=[kinds.PROBES]) == []
    site.tick(300.0, 2)
    assert site.orders[-1][0] == "s1", "what came to nothing is tried again, not at once"


def test_nothing_waits_for_a_launcher(site: Site) -> None:
    site.threads.pending = True  # type: ignore[attr-defined]
    site.tick(70.0, 3)
    assert site.pool.standbys() == ["s0", "s1"] and len(site.tests._tests) == 2


@pytest.mark.parametrize(
    "answer", [NoAnswerError("silent"), WireError("HTTP 401 on /v1/probes"), {"state": "done", "results": [{"probe": 3}]}]
)
def test_a_launcher_that_does_not_answer_or_answers_nonsense_proves_nothing(site: Site, answer: Any) -> None:
    site.answers = {"s0": answer, "s1": answer}
    site.tick(70.0, 4)
    assert site.pool.standbys() == ["s0", "s1"] and site.ledger.events(kinds=[kinds.PROBES]) == [] and site.tests._tests == {}


def test_a_launcher_that_would_end_its_workers_is_not_asked(site: Site) -> None:
    site.offers = ["probes"]
    site.tick(70.0, 3)
    assert site.orders == [] and site.pool.standbys() == ["s0", "s1"]
