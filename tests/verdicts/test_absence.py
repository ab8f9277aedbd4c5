"""A silent machine: accused only with a second witness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.absence import AbsenceRule
from minder.model.evidence import Suspect
from minder.model.observation import MachineView

Make = Callable[..., Any]


class Watch:
    """The rule with its progress, one tick a second; the job stepped twice a second until 20 s."""

    def __init__(self, scene: Any, *, stepped: bool = True) -> None:
        self.scene = scene
        self.tracker = JobTracker()
        self.rule = AbsenceRule(self.tracker)
        for at_s in range(1, 21 if stepped else 1):
            scene.answer(at_s, 2 * at_s)
            self.look(at_s + 0.1)

    def look(self, at_s: float, signals: Any = ()) -> tuple[Suspect, ...]:
        observation = self.scene.see(at_s, signals)
        self.tracker.update(observation)
        return self.rule.observe(observation).suspects


def test_silent_while_its_peers_stand_still_is_gone(scene: Any) -> None:
    watch = Watch(scene)
    scene.silence("m2", 5.0, 6.0)
    (suspect,) = watch.look(26.0)
    assert (suspect.kind, suspect.machines, suspect.cause, suspect.tier) == ("machine", ("m2",), "absence", "evict")
    assert "stood still" in suspect.evidence[0].message
    assert [found.machines for found in watch.look(27.0)] == [("m2",)]  # for as long as it is silent
    scene.silence("m2", 0.2, 0.2)
    assert watch.look(28.0) == ()


@pytest.mark.parametrize("steps", [1, 2])
def test_gone_within_the_first_steps_of_a_generation(scene: Any, steps: int) -> None:
    """Too few steps to know a stall by; half a minute in which the machine is silent and no rank steps is enough."""
    watch = Watch(scene, stepped=False)
    for step in range(1, steps + 1):
        scene.answer(step, step)
        watch.look(step + 0.1)
    scene.silence("m2", 20.0, 20.0)
    assert watch.look(22.0) == ()
    scene.silence("m2", 40.0, 40.0)
    (suspect,) = watch.look(42.0)
    assert (suspect.machines, suspect.tier) == (("m2",), "evict") and "made no step for" in suspect.evidence[0].message


def test_silent_after_a_peers_connection_broke_is_gone_at_once(scene: Any) -> None:
    watch = Watch(scene)
    scene.silence("m2", 5.0, 5.0)
    (suspect,) = watch.look(21.0, [scene.reset("m0", 20.8)])
    assert suspect.machines == ("m2",)


def test_peers_that_step_acquit_it(scene: Any) -> None:
    watch = Watch(scene)
    for at_s in range(21, 60):
        scene.answer(at_s, 2 * at_s)
        scene.silence("m2", at_s - 20.0, at_s - 20.0)
        assert watch.look(at_s + 0.1) == ()


@pytest.mark.parametrize(("agent_s", "launcher_s"), [(30.0, 0.2), (0.2, 30.0)], ids=["agent lost", "launcher silent"])
def test_one_of_its_two_processes_that_answers_acquits_it(scene: Any, agent_s: float, launcher_s: float) -> None:
    watch = Watch(scene)
    scene.silence("m2", agent_s, launcher_s)
    assert watch.look(30.0, [scene.reset("m0", 29.0)]) == ()


def test_everybody_silent_is_the_monitoring(scene: Any) -> None:
    watch = Watch(scene)
    for machine in scene.machines:
        scene.silence(machine)
    assert watch.look(40.0) == ()


def test_a_site_without_power_is_nobodys_fault_whoever_was_asked_last(scene: Any) -> None:
    """All died at once; each had been asked at another moment of the last second."""
    watch = Watch(scene)
    for tenths in range(1, 200):
        for index, machine in enumerate(scene.machines):
            age_s = tenths / 10 + index / len(scene.machines)
            scene.silence(machine, age_s, age_s)
        last_words = [scene.reset("m3", 20.05)] if tenths == 1 else []  # of who died a moment after its peers
        assert watch.look(20.0 + tenths / 10, last_words) == ()


def dark(watch: Watch, first_s: int, last_s: int, back: dict[str, int]) -> list[tuple[int, tuple[str, ...]]]:
    """Who is named when. All went dark at 20 s; `back`: when each answers again."""
    found = []
    for at_s in range(first_s, last_s):
        for machine in watch.scene.machines:
            age_s = 0.2 if at_s >= back.get(machine, last_s) else at_s - 20.0
            watch.scene.silence(machine, age_s, age_s)
        found += [(at_s, suspect.machines) for suspect in watch.look(float(at_s))]
    return found


def test_machines_of_a_site_that_has_power_again_come_back_one_by_one(scene: Any) -> None:
    back = {machine: 27 + 10 * index for index, machine in enumerate(scene.machines)}
    assert dark(Watch(scene), 21, 120, back) == []


def test_one_that_does_not_come_back_is_gone(scene: Any) -> None:
    back = {machine: 27 for machine in scene.machines if machine != "m2"}
    found = dark(Watch(scene), 21, 150, back)
    assert {machines for _, machines in found} == {("m2",)} and 80 < found[0][0] < 95


def test_after_an_outage_of_the_monitoring_a_machine_that_falls_silent_then_is_gone_as_ever(scene: Any) -> None:
    watch = Watch(scene)
    assert dark(watch, 21, 27, {}) == []
    for machine in scene.machines:
        scene.silence(machine, 0.2, 0.2)
    assert watch.look(27.0) == ()
    scene.silence("m1", 4.0, 4.0)
    (suspect,) = watch.look(32.0)
    assert suspect.machines == ("m1",)


def test_most_of_the_job_silent_names_nobody(scene: Any) -> None:
    watch = Watch(scene)
    for machine in ("m0", "m1", "m2"):
        scene.silence(machine)
    assert watch.look(40.0) == ()


def test_two_of_five_are_a_group(make_scene: Make) -> None:
    scene = make_scene(count=5)
    watch = Watch(scene)
    scene.silence("m1")
    scene.silence("m4")
    (suspect,) = watch.look(40.0)
    assert (suspect.kind, set(suspect.machines)) == ("group", {"m1", "m4"})


def test_of_two_machines_one_can_be_gone(make_scene: Make) -> None:
    scene = make_scene(count=2)
    watch = Watch(scene)
    scene.silence("m1")
    (suspect,) = watch.look(40.0)
    assert suspect.machines == ("m1",)


def test_a_machine_lost_while_no_controller_ran_is_found_by_the_next_one(scene: Any) -> None:
    """A restarted controller has never heard of it: that is silence too."""
    watch = Watch(scene, stepped=False)
    scene.answer(20.0, 40)
    scene.worker("m0", state="interrupted")
    scene.views["m2"] = MachineView("m2", None, None)
    echoes = [scene.reset("m0", 20.5), scene.reset("m1", 20.5)]
    assert watch.look(60.0, echoes) == ()
    (suspect,) = watch.look(64.0)
    assert suspect.machines == ("m2",)


def test_a_job_that_is_only_watched_accuses_nobody_for_having_no_launchers(scene: Any) -> None:
    watch = Watch(scene)
    for machine in scene.machines:
        scene.silence(machine, 0.2, None)
    scene.silence("m1", 50.0, None)
    assert watch.look(40.0, [scene.reset("m0", 39.0)]) == ()


def test_the_generation_cannot_start_without_it(make_scene: Make) -> None:
    scene = make_scene(phase="starting")
    watch = Watch(scene, stepped=False)
    scene.silence("m3")
    assert watch.look(5.0) == ()
    (suspect,) = watch.look(15.0)
    assert suspect.machines == ("m3",)


def test_during_a_checkpoint_a_blip_acquits_and_a_long_silence_does_not(scene: Any) -> None:
    watch = Watch(scene)
    scene.answer(20.0, 40, phase="checkpoint")
    for at_s in range(21, 40):
        scene.silence("m1", at_s - 20.0, at_s - 20.0)
        assert watch.look(at_s) == ()
    scene.silence("m1", 40.0, 40.0)
    (suspect,) = watch.look(60.0)
    assert suspect.machines == ("m1",) and "checkpoint" in suspect.evidence[0].message


def test_nobody_is_named_while_the_job_recovers_and_an_old_echo_is_forgotten(scene: Any) -> None:
    watch = Watch(scene)
    scene.phase = "recovering"
    scene.silence("m2")
    assert watch.look(21.0, [scene.reset("m0", 20.9)]) == ()
    scene.phase, scene.generation, scene.started_s = "running", 2, scene.started_s + 30
    for at_s in range(31, 50):
        scene.answer(at_s, 2 * at_s)
        scene.silence("m2")
        assert watch.look(at_s, [scene.reset("m0", at_s, generation=1)]) == ()


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(silent=st.sets(st.integers(0, 5)), agents=st.sets(st.integers(0, 5)))
def test_only_the_wholly_silent_are_ever_named_and_never_more_than_half(make_scene: Make, silent: set[int], agents: set[int]) -> None:
    scene = make_scene(count=6)
    watch = Watch(scene)
    for index in silent:
        scene.silence(f"m{index}")
    for index in agents - silent:
        scene.silence(f"m{index}", 30.0, 0.2)
    named = {machine for suspect in watch.look(40.0) for machine in suspect.machines}
    assert named == ({f"m{index}" for index in silent} if 0 < len(silent) <= 3 else set())


class Watched:
    """A job without launchers of ours, one tick a second; it stepped twice a second until 20 s."""

    def __init__(self, scene: Any) -> None:
        self.scene, self.tracker = scene, JobTracker()
        self.rule = AbsenceRule(self.tracker)
        self.since: dict[str, float] = {}

    def run(self, first: int, last: int, *, steps: bool) -> list[tuple[str, ...]]:
        """The named machines of these seconds. A machine in `since` has been silent from then on."""
        found = []
        for at_s in range(first, last):
            if steps:
                self.scene.answer(at_s, 2 * at_s)
            for machine in self.scene.machines:
                self.scene.silence(machine, max(0.2, at_s - self.since.get(machine, at_s)), None)
            observation = self.scene.see(at_s + 0.1)
            self.tracker.update(observation)
            found += [suspect.machines for suspect in self.rule.observe(observation).suspects]
        return list(dict.fromkeys(found))


def test_of_a_watched_job_an_agent_that_fell_silent_as_the_job_stopped_is_paged(scene: Any) -> None:
    watch = Watched(scene)
    assert watch.run(1, 21, steps=True) == []
    watch.since = {"m2": 20.0}
    assert watch.run(21, 33, steps=False) == []  # an agent may be restarted in that time
    assert watch.run(33, 60, steps=False) == [("m2",)]


def test_of_a_watched_job_an_agent_lost_before_is_acquitted_by_the_steps_since(scene: Any) -> None:
    watch = Watched(scene)
    watch.since = {"m2": 10.0}
    assert watch.run(1, 40, steps=True) == []
    assert watch.run(40, 120, steps=False) == []  # now another machine hangs


def test_a_launched_machine_cut_off_from_us_is_acquitted_for_good_by_the_steps_since(scene: Any) -> None:
    watch = Watch(scene)
    for at_s in range(21, 60):
        scene.answer(at_s, 2 * at_s)
        scene.silence("m2", at_s - 20.0, at_s - 20.0)
        assert watch.look(at_s + 0.1) == ()
    for at_s in range(60, 80):
        scene.silence("m2", at_s - 20.0, at_s - 20.0)
        assert watch.look(at_s + 0.1) == ()
