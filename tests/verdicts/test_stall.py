"""The job stands still: who holds it up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.flows import FlowFinding, fuse_findings
from minder.diagnose.verdicts.stall import StallRule
from minder.model.evidence import CaptureFinding, Evidence, Suspect
from minder.model.observation import RuleResult
from minder.model.telemetry import ConnectivityProbe
from minder.model.topology import Parallelism

Make = Callable[..., Any]


class Watch:
    """The rule with its progress; the job stepped twice a second until 20 s and stands since then."""

    def __init__(self, scene: Any) -> None:
        self.scene = scene
        self.tracker = JobTracker()
        self.rule = StallRule(self.tracker)
        for at_s in range(1, 21):
            scene.answer(at_s, 2 * at_s)
            assert self.look(at_s + 0.1) == RuleResult()

    program: tuple[CaptureFinding, ...] = ()  # what stacks say from now on

    def look(self, at_s: float, flows: Any = (), signals: Any = (), ticking: tuple[str, ...] | None = None, tries: Any = ()) -> RuleResult:
        """`ticking`: machines whose worker's own thread still runs (None: all)."""
        for machine in self.scene.machines if ticking is None else ticking:
            if machine in self.scene.views:
                self.scene.worker(machine, alive_time_s=self.scene.see(at_s).now_s - 0.3)
        observation = replace(self.scene.see(at_s, signals, flows), attempts=tries, statements=self.program)
        self.tracker.update(observation)
        return self.rule.observe(observation)

    def flows(self, at_s: float, change: Any) -> list[Any]:
        return [flow for index in range(4) for flow in self.scene.ring(at_s - 1.0 + index * 0.3, change)]


def test_a_job_of_long_steps_learns_them_and_is_left_alone(scene: Any) -> None:
    tracker = JobTracker()
    rule, asked = StallRule(tracker), []
    for at_s in range(1, 301):
        scene.answer(at_s // 10 * 10, at_s // 10 + 1)
        if rule.observe(tracker.update(scene.see(at_s + 0.1))).requests:
            asked.append(at_s)
    assert tracker.steps.typical_s == pytest.approx(10.0)
    assert asked and max(asked) < 100, "only before it was known how long a step takes"


def test_it_asks_for_the_connections_before_it_names_anybody(scene: Any) -> None:
    watch = Watch(scene)
    result = watch.look(24.0, ticking=("m0", "m1", "m3"))
    assert result.suspects == () and result.requests == {"flows"}


def test_unread_bytes_name_the_machine(scene: Any) -> None:
    watch = Watch(scene)
    watch.look(24.0)
    result = watch.look(25.0, watch.flows(25.0, lambda one, two: {"receive_queue_bytes": 4000} if one == "m1" else {}))
    (suspect,) = result.suspects
    assert (suspect.machines, suspect.tier, suspect.cause) == (("m1",), "evict", "stall")
    assert suspect.since_s == pytest.approx(scene.see(20.0).now_s)
    assert any("unread" in item.message for item in suspect.evidence)
    told = [item.message for item in suspect.evidence if item.source == "flows"]
    assert any(line.startswith("m0 to m1: the receiver does not read (") and "unread 4,000;" in line for line in told)


def test_the_frozen_one_is_named_without_any_connection_at_all(scene: Any) -> None:
    watch = Watch(scene)
    for at_s in (24.0, 25.0):
        assert watch.look(at_s, ticking=("m0", "m1", "m3")).suspects == ()
    (suspect,) = watch.look(27.5, ticking=("m0", "m1", "m3")).suspects
    assert suspect.machines == ("m2",)


def test_the_silent_one_alone_is_not_sure_at_once(scene: Any) -> None:
    watch = Watch(scene)

    def change(at_s: float) -> Any:
        return lambda one, two: {"last_send_age_s": at_s - 20.0 + (0.8 if one == "m3" else 0.0)}

    assert watch.look(25.0, watch.flows(25.0, change(25.0))).suspects == ()
    (suspect,) = watch.look(31.0, watch.flows(31.0, change(31.0))).suspects
    assert (suspect.machines, suspect.tier) == (("m3",), "evict")


def test_who_is_silent_because_its_program_is_sick_is_not_evicted_and_unread_bytes_still_tell(scene: Any) -> None:
    watch = Watch(scene)
    sick = Suspect(scene.see(24.0).now_s, "stacks", "job", (), "stall", 0.6, scene.see(20.0).now_s)

    def silent(one: str, two: str) -> dict[str, float]:
        return {"last_send_age_s": 11.8 if one == "m3" else 11.0}

    watch.look(24.0)
    watch.program = (CaptureFinding(scene.see(24.0).now_s, "stacks", (sick,)),)
    assert watch.look(28.0).suspects == ()
    watch.program = ()
    assert watch.look(31.0, watch.flows(31.0, silent)).suspects == ()
    result = watch.look(40.0, watch.flows(40.0, lambda one, two: {"receive_queue_bytes": 4000} if one == "m1" else {}))
    assert [item.machines for item in result.suspects] == [("m1",)]


# Live: what connections name waits for one capture


def accuse(scene: Any, at_s: float, *machines: str, source: str = "look", kind: str = "machine") -> tuple[CaptureFinding, ...]:
    now_s = scene.see(at_s).now_s
    told = tuple(Evidence("stacks", name, "outside any collective: sleeping") for name in machines)
    suspect = Suspect(now_s, "stacks", kind, machines, "stall", 0.8, now_s, "evict", told)  # type: ignore[arg-type]
    return (CaptureFinding(now_s, source, (suspect,) if machines or kind == "job" else ()),)  # type: ignore[arg-type]


def silent_and_behind(watch: Watch) -> Callable[[float], RuleResult]:
    """m3 has sent nothing since its peers did, and is steps behind: 0.80 by what connections and steps say."""
    watch.rule = StallRule(watch.tracker, wait_for_captures_s=8.0)
    watch.scene.worker("m3", step=37)
    watch.tracker.steps.by_machine["m3"] = 37.0

    def look(at_s: float) -> RuleResult:
        return watch.look(at_s, watch.flows(at_s, lambda one, two: {"last_send_age_s": at_s - 20.0 + (0.8 if one == "m3" else 0.0)}))

    return look


def test_connections_name_at_once_and_the_eviction_waits_eight_seconds_for_stacks(scene: Any) -> None:
    look = silent_and_behind(Watch(scene))
    look(24.0)
    result = look(25.0)
    assert [(item.machines, item.tier) for item in result.suspects] == [(("m3",), "watch")]
    assert {"stacks", "flows"} <= result.requests
    assert {item.tier for at_s in range(26, 32) for item in look(float(at_s)).suspects} == {"watch"}
    assert [(item.machines, item.tier) for item in look(33.5).suspects] == [(("m3",), "evict")], "without an answer connections decide"


@pytest.mark.parametrize(("machines", "kind", "expected"), [
    (("m3",), "machine", [(("m3",), "evict")]), (("m1",), "machine", [(("m3",), "page")]), ((), "job", []),
])  # fmt: skip
def test_what_one_capture_shows_decides(scene: Any, machines: tuple[str, ...], kind: str, expected: Any) -> None:
    watch = Watch(scene)
    look = silent_and_behind(watch)
    look(24.0), look(25.0)
    watch.program = accuse(scene, 26.0, *machines, kind=kind)
    assert [(item.machines, item.tier) for item in look(26.0).suspects] == expected
    watch.program = ()
    assert kind != "job" or all(look(float(at_s)).suspects == () for at_s in range(27, 60)), "a rank in a collective of another group"


def test_a_capture_that_names_none_asks_for_a_second_look_and_then_for_a_person(scene: Any) -> None:
    watch = Watch(scene)
    look = silent_and_behind(watch)
    look(24.0), look(25.0)
    watch.program = accuse(scene, 26.0)
    assert [item.tier for item in look(26.0).suspects] == ["watch"]
    watch.program = accuse(scene, 30.0, source="stacks")
    assert [(item.machines, item.tier) for item in look(30.0).suspects] == [(("m3",), "page")]


def test_a_process_that_does_not_run_is_evicted_although_it_stands_where_its_peers_stand(scene: Any) -> None:
    """Stopped inside the collective, and the kernel's word for it is hidden."""
    watch = Watch(scene)
    watch.rule = StallRule(watch.tracker, wait_for_captures_s=8.0)
    unread = lambda one, two: {"receive_queue_bytes": 4000} if one == "m1" else {}  # noqa: E731
    running = ("m0", "m2", "m3")
    watch.look(24.0, ticking=running)
    assert [item.tier for item in watch.look(25.0, watch.flows(25.0, unread), ticking=running).suspects] == ["watch"]
    watch.program = accuse(scene, 26.0, source="stacks")
    assert [(i.machines, i.tier) for i in watch.look(26.0, watch.flows(26.0, unread), ticking=running).suspects] == [(("m1",), "evict")]


def test_a_dead_path_is_no_programs_doing_and_waits_for_no_capture(scene: Any) -> None:
    watch = Watch(scene)
    watch.rule = StallRule(watch.tracker, wait_for_captures_s=8.0)
    again = {"unacked_segments": 70, "backoff": 4, "send_queue_bytes": 88_000}
    watch.look(24.0)
    result = watch.look(25.0, watch.flows(25.0, lambda one, two: again if "m2" in (one, two) else {}))
    assert [(item.machines, item.tier) for item in result.suspects] == [(("m2",), "evict")]


def test_nobody_is_named_where_all_look_alike_and_a_person_is_told_after_a_minute(scene: Any) -> None:
    watch = Watch(scene)
    told = []
    for at_s in range(21, 90):
        told += [
            (at_s, item) for item in watch.look(at_s, watch.flows(at_s, lambda one, two, n=at_s: {"last_send_age_s": n - 20.0})).suspects
        ]
    at_s, suspect = told[0]
    assert all(item.since_s == suspect.since_s for _, item in told)
    assert (suspect.kind, suspect.machines, suspect.tier) == ("job", (), "page")
    assert at_s >= 80


def test_two_that_look_equally_guilty_are_not_evicted(scene: Any) -> None:
    watch = Watch(scene)
    both = lambda one, two: {"receive_queue_bytes": 4000} if one in ("m1", "m2") else {}  # noqa: E731
    assert watch.look(25.0, watch.flows(25.0, both)).suspects == ()
    assert watch.look(40.0, watch.flows(40.0, both)).suspects == ()


def test_of_one_dead_connections_two_ends_the_one_that_reaches_nobody_is_named(scene: Any) -> None:
    """Seen: the dead machine only waits, so that a single connection sends again and nothing passive tells its ends apart."""
    watch = Watch(scene)
    again = {"unacked_segments": 70, "backoff": 4, "send_queue_bytes": 88_000}
    change = lambda one, two: again if (one, two) == ("m1", "m2") else {}  # noqa: E731
    flows = watch.flows(25.0, change)
    result = watch.look(25.0, flows)
    assert result.suspects == () and result.requests == {"flows", "reach"}
    host = {flow.machine: flow.local.rsplit(":", 1)[0] for flow in flows}
    tries = [
        ConnectivityProbe(one, 25.0, host[one], host[two], "m2" not in (one, two), 0.001) for one in host for two in host if one != two
    ]
    (suspect,) = watch.look(26.0, watch.flows(26.0, change), tries=tries).suspects
    assert (suspect.machines, suspect.tier) == (("m2",), "evict")
    assert any("reaches" in item.message for item in suspect.evidence)
    assert [item.machine for item in suspect.against] == ["m1"]


def test_half_of_the_job_frozen_names_nobody(scene: Any) -> None:
    watch = Watch(scene)
    assert watch.look(28.0, ticking=("m0",)).suspects == ()


def test_of_two_machines_the_frozen_one_is_named(make_scene: Make) -> None:
    scene = make_scene(count=2)
    watch = Watch(scene)
    (suspect,) = watch.look(28.0, ticking=("m0",)).suspects
    assert suspect.machines == ("m1",)


def test_a_frozen_process_outside_the_job_distracts_nobody(scene: Any) -> None:
    """An evicted machine whose stopped worker could not be ended is still in the fleet."""
    watch = Watch(scene)
    scene.count = 3
    (suspect,) = watch.look(28.0, ticking=("m0", "m1")).suspects
    assert suspect.machines == ("m2",)


def test_a_gone_machine_is_left_to_the_absence_rule(scene: Any) -> None:
    watch = Watch(scene)
    scene.silence("m0", 6.0, 6.0)
    flows = watch.flows(26.0, lambda one, two: {"receive_queue_bytes": 4000} if one == "m1" else {})
    assert watch.look(26.0, flows, ticking=("m1", "m2", "m3")).suspects == ()


@pytest.mark.parametrize("phase", ["checkpoint", "evaluation"])
def test_a_declared_pause_is_no_stall(scene: Any, phase: str) -> None:
    watch = Watch(scene)
    scene.answer(20.0, 40, phase=phase)
    for at_s in range(21, 120):
        assert watch.look(at_s, ticking=()) == RuleResult()


def test_a_stall_is_the_same_as_long_as_it_lasts_and_the_next_is_another(scene: Any) -> None:
    watch = Watch(scene)
    change = lambda one, two: {"receive_queue_bytes": 4000} if one == "m1" else {}  # noqa: E731
    (first,) = watch.look(25.0, watch.flows(25.0, change)).suspects
    (again,) = watch.look(26.0, watch.flows(26.0, change)).suspects
    assert (again.machines, again.since_s, again.time_s) == (first.machines, first.since_s, first.time_s + 1.0)
    scene.answer(27.0, 60)
    assert watch.look(27.2) == RuleResult()
    assert watch.look(32.0, watch.flows(32.0, change)).suspects


def test_independent_findings_add_up_and_never_reach_certainty() -> None:
    def finding(machine: str, weight: float) -> FlowFinding:
        return FlowFinding(machine, "unread", weight, "", 0.0, 0.0)

    ranked = fuse_findings([finding("a", 0.5), finding("b", 0.6), finding("a", 0.5)])
    assert ranked == [("a", pytest.approx(0.75)), ("b", pytest.approx(0.6))]
    assert fuse_findings([finding("a", 0.9)] * 9)[0][1] <= 0.99


@pytest.mark.parametrize(("alone", "told_s"), [(None, 80.0), ("watch", 320.0)])
def test_a_stall_is_told_after_a_minute_and_one_for_a_checkpoint_after_five(scene: Any, alone: Any, told_s: float) -> None:
    watch = Watch(scene)
    saves = Suspect(scene.see(24.0).now_s, "stacks", "job", (), "stall", 0.5, scene.see(20.0).now_s, alone=alone)
    watch.program = (CaptureFinding(scene.see(24.0).now_s, "stacks", (saves,)),)
    looks = {float(at_s): watch.look(float(at_s)).suspects for at_s in range(24, 340)}
    (first,) = [at_s for at_s, found in looks.items() if found][:1]
    assert told_s < first < told_s + 3.0
    assert [(item.kind, item.tier) for item in looks[first]] == [("job", "page")]


# Several machines at once


def held(scene: Any, parallelism: Parallelism | None, ticking: tuple[str, ...], late: float = 0.0) -> Suspect:
    """Two machines' processes stop running at 20 s, the second `late` seconds after the first."""
    watch = Watch(scene)
    watch.rule = StallRule(watch.tracker, parallelism=parallelism)
    found: tuple[Suspect, ...] = ()
    for tenth in range(235, 300):
        at_s = tenth / 10
        own = tuple(scene.machines) if at_s < 22 else ticking
        if late and at_s < 22.0 + late:
            own = (*own, "m3")
        found = found or watch.look(at_s, ticking=own).suspects
    (suspect,) = found
    return suspect


@pytest.mark.parametrize("late", [0.0, 2.6])
def test_two_machines_of_one_pipeline_are_evicted_as_their_group(scene: Any, late: float) -> None:
    suspect = held(scene, Parallelism(pipeline=2, data=2), ("m0", "m2"), late)
    assert (suspect.kind, set(suspect.machines), suspect.tier) == ("group", {"m1", "m3"}, "evict")
    assert any("share pp:1" in item.message for item in suspect.evidence)


@pytest.mark.parametrize("parallelism", [None, Parallelism(data=4)])
def test_two_machines_that_share_no_small_group_are_a_page(scene: Any, parallelism: Parallelism | None) -> None:
    suspect = held(scene, parallelism, ("m0", "m2"))
    assert (suspect.kind, set(suspect.machines), suspect.tier) == ("group", {"m1", "m3"}, "page")
