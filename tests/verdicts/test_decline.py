"""A machine whose tensor work declines, or that runs hot while work declines, is a reason to look, and no reason to evict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.fail_slow import DeclineRule, VotesRule
from minder.diagnose.verdicts.judge import Judge
from minder.model.evidence import Suspect
from minder.model.telemetry import Window

Values = Mapping[str, float]
TENSOR, HEAT, CLOCK = "gpu_tensor_activity_ratio", "gpu_temperature_celsius", "gpu_clock_hertz"
USUAL = {TENSOR: 0.5, HEAT: 60.0, CLOCK: 1.9e9}


class Watch:
    """A second at a time: four steps a second, and what each machine's GPUs show."""

    def __init__(self, scene: Any) -> None:
        self.scene, self.tracker = scene, JobTracker()
        self.rule = DeclineRule(self.tracker)
        self.judge = Judge([self.rule, VotesRule(self.tracker, None, self.rule)])
        self.at_s, self.step = 0, 0.0

    def run(self, seconds: int, odd: Values | None = None, steps_per_s: float = 4.0, all_of: Values | None = None) -> list[Suspect]:
        """odd: what m1 shows instead of the usual; all_of: what every machine shows. Returns m1's suspicions; `asked`: what was wanted."""
        found: list[Suspect] = []
        self.asked: set[str] = set()
        for _ in range(seconds):
            self.at_s += 1
            self.step += steps_per_s
            self.scene.answer(self.at_s, int(self.step))
            seen = self.tracker.update(replace(self.scene.see(self.at_s + 0.1), window=self.window(odd or {}, all_of or {})))
            verdicts, requests = self.judge.judge(seen)
            assert verdicts == [], "a reason to look is no verdict"
            self.asked |= set(requests)
            found += [item for item in self.judge._recent.values() if item.source == "decline" and item.time_s == seen.now_s]
        return found

    def window(self, odd: Values, all_of: Values) -> Window:
        machines, usual = tuple(self.scene.views), {**USUAL, **all_of}
        rows = [[{**usual, **(odd if name == "m1" else {})}[metric] for metric in USUAL] for name in machines]
        times_T = np.array([self.scene.see(self.at_s).now_s])
        return Window(times_T, machines, tuple(USUAL), np.array([rows]), np.ones((1, len(machines)), bool))


@pytest.fixture
def watch(scene: Any) -> Watch:
    made = Watch(scene)
    assert made.run(80) == [] and made.asked == set() and made.rule.alarm == ""
    return made


@pytest.mark.parametrize(
    ("odd", "steps_per_s", "says"),
    [
        ({TENSOR: 0.3}, 3.0, "tensor work fell to 60%"),
        ({TENSOR: 0.42, HEAT: 85.0}, 3.0, "at 85 instead of 60 degrees"),
        ({HEAT: 85.0, CLOCK: 1.4e9}, 4.0, "clock at 74% of before, at 85 instead of 60 degrees"),
        ({HEAT: 85.0}, 3.0, "steps take 1.33 times as long"),
    ],
)
def test_a_decline_of_one_machine_asks_for_stacks_and_connections(watch: Watch, odd: Values, steps_per_s: float, says: str) -> None:
    found = watch.run(75, odd, steps_per_s)
    assert {item.machines for item in found} == {("m1",)} and {(item.tier, item.alone) for item in found} == {("page", "watch")}
    assert watch.asked == {"flows", "round"}
    assert says in found[-1].evidence[0].message and watch.rule.alarm.startswith("decline: m1: ")


@pytest.mark.parametrize(
    ("odd", "steps_per_s", "all_of"),
    [
        ({TENSOR: 0.3}, 4.0, {}),  # steps keep their pace: its exporter
        ({TENSOR: 0.0}, 3.0, {}),  # no data
        ({TENSOR: 0.44}, 3.0, {}),  # little, and not hot
        ({}, 3.0, {TENSOR: 0.3}),  # all of them
        ({HEAT: 85.0}, 4.0, {}),  # hot, and nothing slows down
        ({}, 3.0, {HEAT: 85.0, CLOCK: 1.4e9}),  # a warm day
    ],
)
def test_what_is_no_decline_of_one_machine_opens_nothing(watch: Watch, odd: Values, steps_per_s: float, all_of: Values) -> None:
    assert watch.run(70, odd, steps_per_s, all_of) == [] and watch.asked == set()


def test_it_ends_when_the_machine_works_as_before(watch: Watch) -> None:
    assert watch.run(60, {TENSOR: 0.3}, 3.0) != []
    watch.run(40)
    assert watch.rule.alarm == "" and watch.rule.since_s is None


def test_a_short_dip_is_none(watch: Watch, scene: Callable[..., Any]) -> None:
    assert watch.run(15, {TENSOR: 0.3}, 3.0) == [] and watch.run(60) == []
