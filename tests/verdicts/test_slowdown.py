"""The job steps, but slowly: the slow machine is the one that does not wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.slowdown import SlowdownRule
from minder.model.evidence import Suspect
from minder.model.telemetry import Window

Make = Callable[..., Any]


class Watch:
    """One tick a second: four steps a second until `slow_from_s`, then one; busy ratios as given."""

    def __init__(self, scene: Any, every_s: int = 1) -> None:
        self.scene, self.every_s = scene, every_s
        self.heard: list[dict[str, float]] = []  # since the last scrape
        self.beside: dict[str, Callable[[str], float]] = {}  # further metrics, as they stand when they are scraped
        self.tracker = JobTracker()
        self.rule = SlowdownRule(self.tracker)
        self.step = 0.0
        self.at_s = 0

    def run(self, seconds: int, steps_per_s: float, busy: Callable[[str], float], **changes: Any) -> list[Suspect]:
        found: list[Suspect] = []
        for _ in range(seconds):
            self.at_s += 1
            self.step += steps_per_s
            self.scene.answer(self.at_s, int(self.step), **changes)
            self.heard.append({machine: busy(machine) for machine in self.scene.views})
            observation = replace(self.scene.see(self.at_s + 0.1), window=self.window() if self.at_s % self.every_s == 0 else None)
            self.tracker.update(observation)
            found += self.rule.observe(observation).suspects
        return found

    def window(self) -> Window:
        """What a scrape finds: means since the one before."""
        machines = tuple(self.scene.views)
        busy = [[float(np.mean([looks[machine] for looks in self.heard]))] for machine in machines]
        values_TMK = np.array([[row + [of(machine) for of in self.beside.values()] for row, machine in zip(busy, machines, strict=True)]])
        self.heard = []
        times_T = np.array([self.scene.see(self.at_s).now_s])
        return Window(times_T, machines, ("job_busy_ratio", *self.beside), values_TMK, np.ones((1, len(machines)), bool))


def even(machine: str) -> float:
    return 0.4


def busy_at(guilty: Mapping[str, float], others: float = 0.2) -> Callable[[str], float]:
    return lambda machine: guilty.get(machine, others)


def test_the_one_that_does_not_wait_is_named(scene: Any) -> None:
    watch = Watch(scene)
    assert watch.run(40, 4, even) == []
    (suspect,) = watch.run(30, 1, busy_at({"m2": 0.95}))
    assert (suspect.machines, suspect.cause, suspect.tier) == (("m2",), "slowdown", "evict")
    assert "instead of 0.25 s" in suspect.evidence[0].message
    assert suspect.evidence[1].observed == pytest.approx(0.95)


def test_a_slow_scrape_names_it_from_the_first_value_that_is_all_of_the_slowness(scene: Any) -> None:
    """The job is two scrapes old: one value is the mean of fifteen seconds, and the one that straddles the onset says nothing."""
    watch = Watch(scene, every_s=15)
    assert watch.run(37, 4, busy_at({}, others=0.02)) == []
    guilty = busy_at({"m2": 0.7}, others=0.01)
    assert watch.run(20, 0.5, guilty) == []
    (suspect,) = watch.run(15, 0.5, guilty)
    assert suspect.machines == ("m2",)
    assert suspect.evidence[1].observed == pytest.approx(0.7)


def processor_at(guilty: Mapping[str, tuple[float, float, float]]) -> dict[str, Callable[[str], float]]:
    """Use, quota and queue of these machines' processors; the others rest."""
    names = ("cpu_usage_ratio", "cpu_throttled_ratio", "job_run_delay_ratio")
    return {name: lambda machine, place=place: guilty.get(machine, (0.02, 0.0, 0.0))[place] for place, name in enumerate(names)}


def test_a_processor_whose_quota_runs_out_confirms_a_process_that_sleeps_between_its_turns(scene: Any) -> None:
    """Seen in a lab at slow scrapes: out of its quota a process is seen to be busy for half of a step only, too little to explain the
    steps, and the machine was named after 85 s."""
    watch = Watch(scene, every_s=15)
    watch.beside = processor_at({})
    assert watch.run(61, 4, busy_at({}, others=0.1)) == []
    watch.beside = processor_at({"m2": (0.95, 1.0, 0.5)})
    (suspect,) = watch.run(45, 0.5, busy_at({"m2": 0.3}, others=0.02))
    assert suspect.machines == ("m2",)
    assert {item.metric for item in suspect.evidence} >= {"cpu_usage_ratio", "cpu_throttled_ratio", "job_run_delay_ratio"}


def test_a_neighbour_that_uses_up_a_quota_while_all_are_slow_names_nobody(scene: Any) -> None:
    """What neither makes the training's process busy nor lets it wait for a processor is not what the steps wait for."""
    watch = Watch(scene)
    watch.beside = processor_at({})
    assert watch.run(40, 4, busy_at({}, others=0.1)) == []
    watch.beside = processor_at({"m2": (0.95, 1.0, 0.02)})
    assert watch.run(60, 0.5, busy_at({}, others=0.1)) == []


@pytest.mark.parametrize(
    "busy",
    [busy_at({}), busy_at({}, others=0.9), busy_at({"m0": 0.9, "m1": 0.88}), busy_at({"m3": 0.0}, others=0.4)],
    ids=["all wait", "all busy", "two alike", "one waits more"],
)
def test_nobody_is_named_where_all_are_slow_together(scene: Any, busy: Callable[[str], float]) -> None:
    watch = Watch(scene)
    watch.run(40, 4, even)
    assert watch.run(60, 1, busy) == []


def test_a_fast_job_accuses_nobody_however_its_machines_differ(scene: Any) -> None:
    watch = Watch(scene)
    watch.run(40, 4, even)
    assert watch.run(60, 4, busy_at({"m1": 0.99}, others=0.1)) == []


def test_one_machine_that_is_faster_than_the_rest_makes_nobody_slow(scene: Any) -> None:
    watch = Watch(scene)
    lucky = busy_at({"m0": 0.1}, others=0.5)
    watch.run(40, 4, lucky)
    assert watch.run(40, 1, lucky) == []


def test_a_short_burst_is_forgiven(scene: Any) -> None:
    watch = Watch(scene)
    watch.run(40, 4, even)
    assert watch.run(4, 1, busy_at({"m2": 0.95})) == []
    assert watch.run(40, 4, even) == []


def test_a_few_quick_steps_between_slow_ones_do_not_begin_it_anew(scene: Any) -> None:
    watch = Watch(scene)
    watch.run(40, 4, even)
    guilty = busy_at({"m2": 0.95})
    assert watch.run(5, 1, guilty) + watch.run(3, 4, guilty) == []
    (suspect,) = watch.run(6, 1, guilty)
    assert suspect.machines == ("m2",)


def test_slow_steps_do_not_become_the_usual_ones_while_nobody_can_be_named(scene: Any) -> None:
    watch = Watch(scene)
    watch.run(40, 4, even)
    assert watch.run(200, 1, busy_at({})) == []
    (suspect,) = watch.run(60, 1, busy_at({"m2": 0.95}))
    assert suspect.machines == ("m2",) and "instead of 0.25 s" in suspect.evidence[0].message


def test_a_new_pace_is_the_usual_one_in_the_end(scene: Any) -> None:
    watch = Watch(scene)
    watch.run(40, 4, even)
    watch.run(900, 1, busy_at({}))
    assert watch.run(60, 1, busy_at({"m2": 0.95})) == []


def test_a_declared_pause_is_not_slowness(scene: Any) -> None:
    watch = Watch(scene)
    watch.run(40, 4, even)
    assert watch.run(40, 0.2, busy_at({"m2": 0.95}), phase="evaluation") == []


def test_of_two_machines_none_can_be_called_the_slow_one_by_comparison(make_scene: Make) -> None:
    watch = Watch(make_scene(count=2))
    watch.run(40, 4, even)
    assert watch.run(40, 1, busy_at({"m1": 0.95})) == []


def test_one_slowness_is_told_once_and_a_later_one_again(scene: Any) -> None:
    watch = Watch(scene)
    watch.run(40, 4, even)
    assert len(watch.run(60, 1, busy_at({"m2": 0.95}))) == 1
    watch.run(40, 4, even)
    assert [suspect.machines for suspect in watch.run(30, 1, busy_at({"m0": 0.95}))] == [("m0",)]


def restart(watch: Watch) -> None:
    watch.scene.generation, watch.scene.started_s = watch.scene.generation + 1, watch.scene.started_s + watch.at_s
    watch.step = 0.0


def test_a_standby_that_has_just_begun_to_train_is_not_compared_with_its_idle_past(scene: Any) -> None:
    """Only its own busy share rose since the minute before; the slowness that follows is everybody's."""
    watch = Watch(scene)
    scene.count = 3
    watch.run(40, 4, busy_at({"m3": 0.0}, others=0.4))
    scene.count = 4
    restart(watch)
    assert watch.run(12, 4, even) == []
    assert watch.run(40, 1, even) == []


def test_what_a_machine_did_while_the_job_restarted_is_no_past(scene: Any) -> None:
    """It slept while its peers loaded: beside that, its usual share looks like a rise."""
    watch = Watch(scene)
    usual = busy_at({"m0": 0.5}, others=0.2)
    watch.run(40, 4, usual)
    restart(watch)
    watch.run(4, 0, busy_at({"m0": 0.0}, others=1.0))
    watch.run(3, 4, usual)
    assert watch.run(40, 1.5, usual) == []


def test_a_machine_that_stayed_keeps_its_past_from_before_a_restart(scene: Any) -> None:
    watch = Watch(scene)
    watch.run(40, 4, even)
    restart(watch)
    watch.run(14, 4, even)
    (suspect,) = watch.run(30, 1, busy_at({"m1": 0.95}))
    assert suspect.machines == ("m1",)


def test_a_job_that_was_started_again_is_judged_once_its_pace_has_settled(scene: Any) -> None:
    """Found by bench/chaos.py: 23 s after a restart, on a busy host, a healthy machine was named with a confidence of 0.75."""
    watch = Watch(scene)
    watch.run(40, 4, even)
    restart(watch)
    assert watch.run(45, 1.5, busy_at({"m1": 0.9})) == [], "spare processes load beside it"
    assert watch.run(60, 4, even) == []
    (suspect,) = watch.run(30, 1, busy_at({"m2": 0.95}))
    assert suspect.machines == ("m2",) and "instead of 0.25 s" in suspect.evidence[0].message


def test_a_machine_that_is_slow_from_a_restart_on_is_named_when_the_time_to_settle_is_over(scene: Any) -> None:
    """By what it did before the restart: the slow steps since then are neither usual nor its past."""
    watch = Watch(scene)
    watch.run(40, 4, even)
    restart(watch)
    assert watch.run(55, 1, busy_at({"m1": 0.95})) == []
    (suspect,) = watch.run(30, 1, busy_at({"m1": 0.95}))
    assert suspect.machines == ("m1",) and "instead of 0.25 s" in suspect.evidence[0].message


def test_being_a_little_busier_than_the_rest_does_not_explain_steps_that_take_four_times_as_long(scene: Any) -> None:
    watch = Watch(scene)
    watch.run(40, 4, busy_at({}, others=0.2))
    assert watch.run(60, 1, busy_at({"m0": 0.4}, others=0.2)) == []


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(guilty=st.integers(0, 5), level=st.floats(0.7, 1.0), others=st.floats(0.05, 0.3))
def test_whoever_it_is_is_found(make_scene: Make, guilty: int, level: float, others: float) -> None:
    watch = Watch(make_scene(count=6))
    watch.run(30, 4, even)
    (suspect,) = watch.run(30, 1, busy_at({f"m{guilty}": level}, others))
    assert suspect.machines == (f"m{guilty}",)
