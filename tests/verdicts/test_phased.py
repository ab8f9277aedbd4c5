"""A declared phase quiets telemetry, for as long as such a phase may last and no longer."""

from __future__ import annotations

import pytest

from minder.diagnose.verdicts.telemetry import PhasedRule
from minder.model.evidence import Signal, Suspect
from minder.model.observation import Observation, RuleResult
from tests.fakes.followed import Followed


class Accuser:
    """Suspects m1 from a second on, for what began at onset_s."""

    name = "telemetry"

    def __init__(self, since_s: float, onset_s: float | None = None) -> None:
        self._since_s, self._onset_s = since_s, since_s if onset_s is None else onset_s

    def observe(self, observation: Observation) -> RuleResult:
        if observation.now_s < self._since_s:
            return RuleResult()
        return RuleResult((Suspect(observation.now_s, "telemetry", "machine", ("m1",), "unknown", 0.9, self._onset_s, "evict"),))


def phase(at_s: float, state: str, machine: str | None = None, name: str = "checkpoint") -> Signal:
    return Signal(at_s, "phase", machine, data={"phase": name, "state": state})


def test_a_deviation_that_is_clearly_older_than_the_phase_is_told_in_it() -> None:
    rule = Followed(lambda tracker: PhasedRule(Accuser(55.0, onset_s=20.0), tracker))
    assert rule.observe(Observation(54.0, signals=[phase(50.0, "begin")])).suspects == ()
    assert rule.observe(Observation(56.0)).suspects


def first_told(since_s: float, *signals: Signal, last_s: int = 600) -> float | None:
    """When a deviation that begins at since_s is first told, at 1 Hz."""
    rule = Followed(lambda tracker: PhasedRule(Accuser(since_s), tracker))
    for now_s in range(last_s):
        heard = [item for item in signals if now_s - 1 < item.time_s <= now_s]
        if rule.observe(Observation(float(now_s), signals=heard)).suspects:
            return float(now_s)
    return None


def test_without_a_phase_it_is_told_at_once() -> None:
    assert first_told(50.0) == 50.0


@pytest.mark.parametrize("machine", [None, "m0"])
def test_a_deviation_inside_a_phase_is_told_once_it_is_over(machine: str | None) -> None:
    assert first_told(55.0, phase(50.0, "begin", machine), phase(70.0, "end", machine)) == 85.0


def test_a_hang_inside_a_phase_of_unknown_length_is_found_within_minutes() -> None:
    assert first_told(55.0, phase(50.0, "begin")) == 171.0


def test_patience_grows_with_the_phases_that_were_seen_and_is_bounded() -> None:
    short = [phase(10.0, "begin"), phase(20.0, "end")]
    assert first_told(105.0, *short, phase(100.0, "begin")) == 161.0
    long = [phase(10.0, "begin"), phase(210.0, "end")]
    assert first_told(305.0, *long, phase(300.0, "begin")) == 541.0


def test_who_is_left_alone_in_a_phase_is_not_protected_by_it() -> None:
    machines = [f"m{index}" for index in range(4)]
    begins = [phase(50.0, "begin", machine) for machine in machines]
    ends = [phase(60.0, "end", machine) for machine in machines if machine != "m1"]
    assert first_told(55.0, *begins, *ends) == 60.0


def test_what_stood_before_the_phase_stands_in_it() -> None:
    rule = Followed(lambda tracker: PhasedRule(Accuser(40.0), tracker))
    told = [
        bool(rule.observe(Observation(float(now_s), signals=[phase(50.0, "begin")] if now_s == 50 else [])).suspects) for now_s in range(90)
    ]
    assert told == [now_s >= 40 for now_s in range(90)]


def test_a_phase_that_nobody_declares_quiet_changes_nothing() -> None:
    assert first_told(55.0, phase(50.0, "begin", name="profiling")) == 55.0
