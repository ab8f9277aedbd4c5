"""A generation that does not come to its first step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.start import StartRule
from minder.model.evidence import CaptureFinding, Evidence, Suspect
from minder.model.observation import JobView, Observation
from minder.model.telemetry import ConnectivityProbe, Window

Make = Callable[..., Any]


def job(generation: int, machines: tuple[str, ...], phase: str = "starting", started_s: float = 0.0) -> JobView:
    return JobView("llm", generation, phase, machines, (), (), dict(enumerate(machines)), 0.0, started_s)  # type: ignore[arg-type]


def suspects(rule: StartRule, now_s: float, view: JobView, against: str = "") -> Any:
    """against: whom stacks name at that moment."""
    accused = Suspect(now_s, "stacks", "machine", (against,), "stall", 0.8, now_s, "evict", (Evidence("stacks", against, "sleeping"),))
    said = (CaptureFinding(now_s, "stacks", (accused,), True),) if against else ()
    return rule.observe(Observation(now_s, job=view, statements=said)).suspects


def begun(took_s: float = 3.0) -> StartRule:
    """The rule after a first generation that took so long to its first step."""
    rule = StartRule(JobTracker())
    assert suspects(rule, 0.0, job(1, ("a", "b", "c"))) == ()
    assert suspects(rule, took_s, job(1, ("a", "b", "c"), "running")) == ()
    return rule


def test_a_job_whose_start_takes_minutes_is_given_as_many_again_and_more() -> None:
    second = job(2, ("a", "s", "c"), started_s=1000.0)
    rule = begun(took_s=100.0)
    assert suspects(rule, 1290.0, second) == ()
    assert suspects(rule, 1301.0, second, against="s")[0].machines == ("s",)


def test_without_having_seen_a_start_the_first_limit_holds() -> None:
    rule = StartRule(JobTracker())
    suspects(rule, 0.0, job(1, ("a", "b", "c"), "running"))
    second = job(2, ("a", "s", "c"), started_s=1000.0)
    assert suspects(rule, 1170.0, second) == ()
    assert suspects(rule, 1181.0, second, against="s")[0].machines == ("s",)


def test_the_only_new_machine_is_the_suspect_where_stacks_name_it_too() -> None:
    rule = begun()
    second = job(2, ("a", "s", "c"), started_s=100.0)
    assert suspects(rule, 110.0, second) == ()
    assert rule.observe(Observation(126.0, job=second)).requests == {"stacks", "dumps", "flows", "reach"}
    (suspect,) = suspects(rule, 128.0, second, against="s")
    assert (suspect.kind, suspect.machines, suspect.tier) == ("machine", ("s",), "evict")
    assert suspects(rule, 140.0, second) == ()


@pytest.mark.parametrize("against", ["", "a"])
def test_to_be_new_is_no_evidence(against: str) -> None:
    """A deadlock of the program comes again after the swap, whoever stands in for whom."""
    rule = begun()
    second = job(2, ("a", "s", "c"), started_s=100.0)
    assert suspects(rule, 126.0, second, against) == ()
    (suspect,) = suspects(rule, 147.0, second)
    assert (suspect.kind, suspect.machines, suspect.tier) == ("job", (), "page")
    assert "s is its only new machine" in suspect.evidence[0].message


def test_where_the_start_failed_before_with_other_machines_no_machine_is_named() -> None:
    rule = begun()
    suspects(rule, 101.0, job(2, ("a", "s", "c"), started_s=100.0))
    third = job(3, ("a", "t", "c"), started_s=200.0)
    assert suspects(rule, 201.0, third) == ()
    (suspect,) = suspects(rule, 226.0, third, against="t")
    assert (suspect.kind, suspect.tier) == ("job", "page")


def test_a_job_that_is_at_work_on_its_start_is_given_half_an_hour() -> None:
    """A 10-minute compile, a tokeniser before step 1: something is read or written all the time."""
    rule = StartRule(tracker := JobTracker())
    view = job(1, ("a", "b", "c"))
    told = []
    for now_s in range(0, 2000, 5):
        shape = (1, 3, 1)
        window = Window(
            np.array([float(now_s)]), view.machines, ("job_io_bytes_per_second",), np.full(shape, 1e6), np.ones(shape[:2], bool)
        )
        observation = Observation(float(now_s), window, job=view)
        tracker.update(observation)
        told += [(now_s, item) for item in rule.observe(observation).suspects]
    ((at_s, suspect),) = told
    assert at_s >= 1800 and (suspect.kind, suspect.tier) == ("job", "page")


def test_two_new_machines_or_none_are_paged_without_a_name() -> None:
    for machines in (("s0", "s1", "c"), ("a", "b", "c")):
        rule = begun()
        (suspect,) = suspects(rule, 126.0, job(2, machines, started_s=100.0))
        assert (suspect.kind, suspect.machines, suspect.tier) == ("job", (), "page")


def test_the_first_generation_has_time_to_compile_and_accuses_nobody() -> None:
    rule = StartRule(JobTracker())
    assert suspects(rule, 100.0, job(1, ("a", "b", "c"))) == ()
    (suspect,) = suspects(rule, 181.0, job(1, ("a", "b", "c")))
    assert (suspect.kind, suspect.tier) == ("job", "page")


class Restart:
    """Generation 2 began at 100 s with m3 as its only new machine; `at(second, running)` is what the rule says."""

    def __init__(self, scene: Any, new: bool = True) -> None:
        self.scene, self.rule = scene, StartRule(JobTracker())
        scene.count = 3 if new else 4
        for scene.phase in ("starting", "running"):
            self.rule.observe(scene.see(0.0))
        scene.count, scene.generation, scene.phase, scene.started_s = 4, 2, "starting", scene.started_s + 100.0

    def at(self, second: float, running: tuple[str, ...]) -> Any:
        self.scene.answer(second)
        for machine in set(self.scene.machines) - set(running):
            self.scene.worker(machine, state="starting", generation=1)
        return self.rule.observe(self.scene.see(second)).suspects


def test_while_a_survivor_still_starts_its_worker_everybody_waits_for_that_one(scene: Any) -> None:
    """Seen: two good standbys evicted, because the survivors' workers took half a minute on a crowded host."""
    restart = Restart(scene)
    assert restart.at(126.0, ("m0", "m3")) == ()
    assert restart.at(140.0, ("m0", "m1", "m2", "m3")) == ()
    assert restart.at(160.0, ("m0", "m1", "m2", "m3")) == ()
    assert restart.at(166.0, ("m0", "m1", "m2", "m3")) == ()
    (suspect,) = restart.at(187.0, ("m0", "m1", "m2", "m3"))
    assert (suspect.kind, suspect.tier) == ("job", "page")


def test_a_standby_whose_worker_never_runs_is_named_as_soon(scene: Any) -> None:
    restart = Restart(scene)
    assert restart.at(102.0, ("m0", "m1", "m2")) == ()
    (suspect,) = restart.at(128.0, ("m0", "m1", "m2"))
    assert (suspect.machines, suspect.tier) == (("m3",), "evict")


def test_a_standby_whose_launcher_began_again_is_not_ill(scene: Any) -> None:
    """Its workers stand at the barrier and know nothing of the generation; the rule for unmanned machines starts the job again."""
    restart = Restart(scene)
    said = []
    for second in range(102, 170):
        scene.answer(float(second))
        scene.worker("m3", state="waiting", rank=None, generation=-1)
        said += restart.rule.observe(scene.see(float(second))).suspects
    assert [item.machines for item in said] == [()]


@pytest.mark.parametrize("new", [True, False])
def test_a_survivor_whose_worker_never_runs_is_paged_by_name(scene: Any, new: bool) -> None:
    restart = Restart(scene, new)
    assert restart.at(270.0, ("m0", "m2", "m3")) == ()
    (suspect,) = restart.at(281.0, ("m0", "m2", "m3"))
    assert (suspect.kind, suspect.machines, suspect.tier) == ("job", (), "page")
    assert "no worker of it runs on m1" in suspect.evidence[0].message


def test_a_generation_that_stepped_is_never_accused(scene: Any) -> None:
    tracker = JobTracker()
    rule = StartRule(tracker)
    scene.phase = "starting"
    scene.answer(10.0, 3)
    tracker.update(scene.see(10.5))
    assert rule.observe(scene.see(500.0)).suspects == ()


def attempt(machine: str, peer: str, reached: bool) -> ConnectivityProbe:
    hosts = {"a": "10.0.0.1", "s": "10.0.0.2", "c": "10.0.0.3"}
    return ConnectivityProbe(machine, 127.0, hosts[machine], hosts[peer], reached, 1.5)


@pytest.mark.parametrize(
    ("tries", "machines"),
    [
        ([("s", "a", False), ("c", "a", True), ("a", "c", True)], ("s",)),
        ([("s", "a", False), ("c", "a", False), ("a", "c", False)], ()),  # a firewall, or a: not the new machine alone
        ([("s", "a", False), ("c", "s", True), ("a", "c", True)], ()),  # one path, not the machine
        ([("s", "a", False), ("a", "s", False)], ()),  # which end is dead is not known
    ],
)
def test_the_only_new_machine_that_reaches_none_of_its_peers_is_the_suspect(tries: list[Any], machines: tuple[str, ...]) -> None:
    rule = begun()
    second = job(2, ("a", "s", "c"), started_s=100.0)
    assert suspects(rule, 110.0, second) == () == suspects(rule, 126.0, second)
    found = rule.observe(Observation(128.0, job=second, attempts=[attempt(*item) for item in tries])).suspects
    found += rule.observe(Observation(150.0, job=second)).suspects
    assert [item.machines for item in found] == [machines]


HOSTS = {"a": "10.0.0.1", "b": "10.0.0.4", "s": "10.0.0.2", "t": "10.0.0.5", "c": "10.0.0.3"}


def met(machines: tuple[str, ...], dead: str, at_s: float, told: bool) -> list[ConnectivityProbe]:
    """As gloo's ranks meet: all connect to the lowest address first, which only listens, and go on to the next when it answers. told: the
    controller has named all addresses, as from its second look on."""
    first, *rest = sorted(machines, key=lambda name: HOSTS[name])
    tries = [(one, two) for k, one in enumerate(rest) for two in ([first] if dead == first else [first, *rest[:k]])]
    tries = [(one, two) for one in machines for two in machines if one != two] if told else tries
    return [
        ConnectivityProbe(first, at_s, HOSTS[first], HOSTS[first], True, 0.0),
        *(ConnectivityProbe(one, at_s, HOSTS[one], HOSTS[two], dead not in (one, two), 1.5) for one, two in tries),
    ]


@pytest.mark.parametrize("dead", ["a", "c", "s"])
@pytest.mark.parametrize("machines", [("a", "s", "c"), ("s", "t", "a", "c"), ("a", "b", "c", "s")])
def test_a_machine_that_is_cut_off_before_the_first_step_is_named_whether_it_is_new_or_not(machines: tuple[str, ...], dead: str) -> None:
    """Found by bench/chaos.py: two new machines, and a link that died in the recovery. The job stood for 325 s and no rule looked."""
    rule = begun()
    generation = job(2, machines, started_s=100.0)
    assert rule.observe(Observation(101.0, job=generation)).requests == frozenset(), "a start is given some time"
    assert rule.observe(Observation(110.5, job=generation)).requests == {"flows", "reach"}
    said = []
    for at_s in (112.0, 115.0, 118.0):
        result = rule.observe(Observation(at_s, job=generation, attempts=met(machines, dead, at_s - 1.0, told=at_s > 112.0)))
        said.append([(item.machines, item.tier, item.cause) for item in result.suspects])
        assert said[-1] or result.requests == {"flows", "reach"}, "what was not reached is looked at again at once"
    assert said[0] == [] and said[2] == [((dead,), "evict", "stall")], "two looks agree, and it is said while it lasts"
    assert rule.observe(Observation(119.0, job=generation)).suspects


def test_where_the_whole_network_is_dead_before_the_first_step_no_machine_is_named() -> None:
    rule, machines = begun(), ("a", "b", "c")
    generation = job(2, machines, started_s=100.0)
    suspects(rule, 101.0, generation)
    for at_s in range(112, 150, 3):
        tries = [replace(item, reached=item.local == item.remote) for item in met(machines, "", at_s - 1.0, told=True)]
        said = rule.observe(Observation(float(at_s), job=generation, attempts=tries)).suspects
        assert [item for item in said if item.machines] == []


def test_a_network_that_comes_back_between_two_looks_costs_no_machine() -> None:
    rule, machines = begun(), ("a", "b", "c")
    generation = job(2, machines, started_s=100.0)
    suspects(rule, 101.0, generation)
    for at_s, dead in ((112.0, "b"), (115.0, ""), (117.0, "c"), (120.0, ""), (123.0, "b")):
        assert rule.observe(Observation(at_s, job=generation, attempts=met(machines, dead, at_s - 1.0, told=True))).suspects == ()


def test_while_all_reach_one_another_a_long_start_is_looked_at_ever_more_seldom() -> None:
    rule, machines = begun(took_s=300.0), ("a", "b", "c")
    generation = job(2, machines, started_s=1000.0)
    asked = []
    attempts: list[ConnectivityProbe] = []
    for now_s in range(1000, 1600):
        result = rule.observe(Observation(float(now_s), job=generation, attempts=attempts))
        assert result.suspects == ()
        attempts = met(machines, "", float(now_s), told=True) if result.requests else []
        asked += [now_s] if result.requests else []
    assert asked[0] == 1010 and len(asked) < 15


def stopped(scene: Any, rule: StartRule, second: float, machine: str, unread: bool) -> Any:
    """All run generation 2 from 100 s on, but the process of one machine is stopped at once."""
    scene.answer(second)
    scene.worker(machine, alive_time_s=scene.started_s)
    queue = {"receive_queue_bytes": 300 if unread else 0}
    flows = [flow for at_s in (second - 1.0, second) for flow in scene.ring(at_s, lambda one, two: queue if one == machine else {})]
    return rule.observe(scene.see(second, flows=flows)).suspects


@pytest.mark.parametrize("unread", [True, False])
def test_a_survivor_that_is_stopped_before_the_first_step_is_named_with_a_second_witness(scene: Any, unread: bool) -> None:
    restart = Restart(scene, new=False)
    said = [(second, item) for second in range(102, 140) for item in stopped(scene, restart.rule, float(second), "m1", unread)]
    named = {(item.machines, item.tier) for _, item in said}
    assert named == ({(("m1",), "evict")} if unread else {((), "page")})
    assert min(second for second, _ in said) >= 125, "a long compilation is given as long as any start"
