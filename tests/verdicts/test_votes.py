"""Fail-slow voting: when rounds are asked for and how often, what their vote may lead to, and that nobody is named without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.captures import CapturesRule
from minder.diagnose.verdicts.fail_slow import VotesRule
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.stall import StallRule
from minder.model.evidence import CaptureFinding, Evidence, Suspect, Verdict
from minder.model.observation import Observation, RuleResult
from minder.model.topology import Parallelism

USUAL, SLOW = 4.0, 0.5  # steps a second
Flags = Sequence[str]


def flags(observation: Observation, flagged: Flags, **changes: Any) -> CaptureFinding:
    """One round that would evict these, or nobody."""
    at_s = observation.now_s
    evidence = tuple(Evidence("stacks", name, "outside any collective: in count_tokens (train.py)") for name in flagged)
    kind = "machine" if len(flagged) == 1 else "group"
    own = replace(Suspect(at_s, "stacks", kind, tuple(flagged), "stall", 0.75, at_s, "evict", evidence), **changes)  # type: ignore[arg-type]
    return CaptureFinding(at_s, "round", (own,) if flagged else ())


@dataclass
class Live:
    """A job of `scene`, second by second, whose agents answer every request of a round a second later with the next of `rounds`."""

    scene: Any
    rounds: list[Flags] = field(default_factory=list)
    parallelism: Parallelism | None = None
    others: list[Any] = field(default_factory=list)
    changes: dict[str, Any] = field(default_factory=dict)  # of every round's suspect
    asked: list[float] = field(default_factory=list)
    seen: list[Observation] = field(default_factory=list)
    at_s: float = 0.0
    step: float = 0.0
    heard: int = 0
    due: bool = False

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A controller that has just started."""
        self.tracker = JobTracker()
        self.judge = Judge([*self.others, VotesRule(self.tracker, self.parallelism)])

    def run(self, seconds: int, steps_per_s: float, **changes: Any) -> list[Verdict]:
        found: list[Verdict] = []
        for _ in range(seconds):
            self.at_s += 1.0
            self.step += steps_per_s
            if int(self.step) > int(self.step - steps_per_s) or changes:
                self.scene.answer(self.at_s, int(self.step), **changes)
            observation = self.scene.see(self.at_s)
            if self.due and self.heard < len(self.rounds):
                said = flags(observation, self.rounds[self.heard], **self.changes)
                observation, self.heard = replace(observation, statements=(said,)), self.heard + 1
            self.seen.append(observation)
            self.tracker.update(observation)
            verdicts, requests = self.judge.judge(observation)
            self.due = "round" in requests
            self.asked += [self.at_s] if self.due else []
            found += [item for item in verdicts if item.kind != "recovered"]
        return found


def slow(scene: Any, *rounds: Flags, seconds: int = 90, **more: Any) -> tuple[Live, list[Verdict]]:
    live = Live(scene, list(rounds), **more)
    assert live.run(60, USUAL) == []
    return live, live.run(seconds, SLOW)


M2: Flags = ("m2",)


def test_a_slow_job_is_looked_at_five_times_ten_seconds_apart_and_whom_the_rounds_agree_on_is_a_page(scene: Any) -> None:
    live, (verdict,) = slow(scene, M2, M2, (), M2, M2)
    assert (verdict.kind, verdict.machines, verdict.tier, verdict.cause) == ("machine", ("m2",), "page", "slowdown")
    assert verdict.sources == ("stacks",) and verdict.confidence == pytest.approx(0.82)
    steps, said = (item.message for item in verdict.evidence)
    assert steps == "a step takes 2.00 s instead of 0.25 s"
    assert said == "flagged in 4 of 5 rounds, 10 s apart; each time in the same place: outside any collective: in count_tokens (train.py)"
    assert len(live.asked) == 5 and {later - sooner for sooner, later in zip(live.asked, live.asked[1:], strict=False)} == {10.0}
    assert live.asked[0] >= 60 + 15, "quicker rules speak first"


@pytest.mark.parametrize(
    "rounds",
    [
        (M2, ("m1",), M2, ("m3",), ("m0",)),
        (M2, M2, (), (), ()),
        ((), (), (), (), ()),
        (M2, ("m1",), M2, ("m1",), M2),
        (("m0", "m1"), ("m0", "m1"), ("m0", "m1"), ("m0", "m1"), ("m0", "m1")),
    ],
    ids=["no majority", "too few", "everybody alike", "three against two", "no group that they share"],
)
def test_rounds_that_do_not_agree_name_nobody(scene: Any, rounds: tuple[Flags, ...]) -> None:
    live, verdicts = slow(scene, *rounds)
    assert verdicts == [] and live.heard == 5


def test_three_rounds_name_somebody_where_the_others_name_nobody(scene: Any) -> None:
    (verdict,) = slow(scene, M2, (), M2, (), M2)[1]
    assert (verdict.machines, verdict.tier, verdict.confidence) == (("m2",), "page", pytest.approx(0.74))


def test_four_rounds_against_one_name_somebody_and_tell_of_the_fifth(scene: Any) -> None:
    (verdict,) = slow(scene, M2, ("m1",), M2, M2, M2)[1]
    assert [item.message for item in verdict.against] == ["flagged in 1 of 5 rounds"] and verdict.against[0].machine == "m1"


def test_members_of_one_pipeline_are_told_as_their_group(make_scene: Any) -> None:
    pair: Flags = ("m1", "m3")
    _, (verdict,) = slow(make_scene(count=4), pair, pair, (), pair, pair, parallelism=Parallelism(pipeline=2, data=2))
    assert (verdict.kind, verdict.machines, verdict.tier) == ("group", ("m1", "m3"), "page")
    assert [item.machine for item in verdict.evidence] == [None, "m1", "m3"]


@pytest.mark.parametrize("changes", [{"kind": "job", "machines": (), "tier": "watch"}, {"tier": "watch"}], ids=["program", "no eviction"])
def test_what_is_the_programs_own_doing_or_evicts_nobody_flags_nobody(scene: Any, changes: dict[str, Any]) -> None:
    """A wait for data in every round, say: a capture by itself evicts nobody for it."""
    assert slow(scene, M2, M2, M2, M2, M2, changes=changes)[1] == []


class Second:
    """Another rule that names somebody from a second on."""

    name = "telemetry"

    def __init__(self, machine: str, from_s: float) -> None:
        self._machine, self._from_s = machine, from_s

    def observe(self, observation: Observation) -> RuleResult:
        at_s = observation.now_s
        told = Suspect(at_s, "telemetry", "machine", (self._machine,), "slowdown", 0.7, at_s, "page")
        return RuleResult((told,) if at_s >= self._from_s else ())


@pytest.mark.parametrize(("machine", "tiers"), [("m2", ["page", "evict"]), ("m1", ["page"])])
def test_telemetry_that_names_the_same_makes_it_an_eviction_and_another_does_not(scene: Any, machine: str, tiers: list[str]) -> None:
    start_s = scene.see(0.0).now_s
    verdicts = slow(scene, M2, M2, M2, M2, M2, seconds=140, others=[Second(machine, start_s + 150)])[1]
    assert [item.tier for item in verdicts] == tiers
    assert {item.machines for item in verdicts} == {("m2",)}


def test_a_job_at_its_usual_pace_is_not_looked_at(scene: Any) -> None:
    live = Live(scene, [M2] * 5)
    assert live.run(300, USUAL) == [] and live.asked == []


def test_a_burst_is_not_looked_at(scene: Any) -> None:
    live, verdicts = slow(scene, M2, seconds=15)
    assert (live.run(60, USUAL), verdicts, live.asked) == ([], [], [])


def test_rounds_end_with_the_slowness_and_half_a_vote_names_nobody(scene: Any) -> None:
    live, verdicts = slow(scene, *[M2] * 5, seconds=60)
    before = len(live.asked)
    assert 1 < before < 5
    assert live.run(60, USUAL) == verdicts == []
    assert len(live.asked) <= before + 1, "its own pace shows within seconds"


def test_a_vote_that_was_cut_short_is_begun_anew_after_a_minute(scene: Any) -> None:
    live, _ = slow(scene, M2, (), (), (), (), (), *[M2] * 9, seconds=50)
    assert 0 < len(live.asked) < 5 and live.run(60, USUAL) == []
    live.heard = 6
    (verdict,) = live.run(90, SLOW)
    assert "in 5 of 5" in verdict.evidence[1].message


def test_the_next_vote_waits_ten_minutes_and_counts_no_round_of_the_last(scene: Any) -> None:
    live, verdicts = slow(scene, M2, M2, (), (), (), M2, M2, M2, M2, M2, seconds=120)
    assert verdicts == [] and len(live.asked) == 5
    assert live.run(240, USUAL) == []
    assert live.run(100, SLOW) == [] and len(live.asked) == 5
    assert live.run(240, USUAL) == []
    (verdict,) = live.run(260, SLOW)
    assert len(live.asked) == 10 and live.asked[5] - live.asked[4] >= 600
    assert "in 5 of 5" in verdict.evidence[1].message


def test_agents_that_never_answer_are_asked_for_two_minutes_at_most(scene: Any) -> None:
    live, verdicts = slow(scene, seconds=280)
    assert verdicts == [] and 10 <= len(live.asked) <= 13


@pytest.mark.parametrize("phase", ["checkpoint", "evaluation", "compile"])
def test_nothing_is_asked_for_in_a_declared_phase(scene: Any, phase: str) -> None:
    live = Live(scene, [M2] * 5)
    live.run(60, USUAL)
    assert live.run(120, SLOW, phase=phase) == [] and live.asked == []


def test_a_checkpoint_in_the_middle_is_left_out(scene: Any) -> None:
    live, verdicts = slow(scene, *[M2] * 5, seconds=50)
    before = len(live.asked)
    assert verdicts == [] and 0 < before < 5
    live.due = False
    assert live.run(25, 0.0, phase="checkpoint") == [] and len(live.asked) == before
    (verdict,) = live.run(60, SLOW, phase=None)
    assert len(live.asked) == 5 and "in 5 of 5" in verdict.evidence[1].message


def test_the_quiet_time_after_a_start_is_not_looked_at(scene: Any) -> None:
    live = Live(scene, [M2] * 5)
    live.run(60, USUAL)
    see: Callable[..., Observation] = scene.see
    scene.see = lambda *told, **more: (seen := see(*told, **more)) and replace(seen, job=replace(seen.job, quiet_until_s=1e12))
    assert live.run(120, SLOW) == [] and live.asked == []


def test_a_job_that_stops_is_no_slow_one_any_more(scene: Any) -> None:
    live, _ = slow(scene, *[M2] * 5, seconds=50)
    before = len(live.asked)
    assert live.run(60, 0.0) == [] and len(live.asked) <= before + 1


def test_a_restart_of_the_job_begins_anew(scene: Any) -> None:
    live, _ = slow(scene, *[M2] * 5, seconds=50)
    scene.generation, live.step, live.due = 2, 0.0, False
    assert live.run(60, USUAL) == []


def test_who_left_the_job_is_not_named_any_more(scene: Any) -> None:
    live, verdicts = slow(scene, *[M2] * 5, seconds=90)
    assert len(verdicts) == 1
    rule = live.judge.rules[-1]
    job = replace(scene.job, machines=("m0", "m1", "m3"))
    live.step += 1
    live.scene.answer(live.at_s + 1, int(live.step))
    assert rule.observe(replace(scene.see(live.at_s + 1), job=job)).suspects == ()


def test_a_controller_that_dies_in_the_middle_leaves_half_a_vote_that_names_nobody(scene: Any) -> None:
    live, _ = slow(scene, *[M2] * 5, seconds=60)
    asked = len(live.asked)
    assert 2 <= asked < 5
    live.begin()
    live.due = True  # an answer to the former controller's request
    assert live.run(20, SLOW) == []
    assert live.run(40, USUAL) == []


def test_what_was_seen_retells_the_vote(scene: Any) -> None:
    """As a replay of the recording does: the same observations, and nobody to ask."""
    live, told = slow(scene, M2, M2, (), M2, M2)
    tracker = JobTracker()
    judge, again = Judge([VotesRule(tracker)]), []
    for observation in live.seen:
        tracker.update(observation)
        again += judge.judge(observation)[0]
    assert again == told and len(again) == 1


def test_other_rules_take_a_round_for_no_capture_of_a_job_that_stands(scene: Any) -> None:
    tracker = JobTracker()
    judge = Judge([StallRule(tracker), CapturesRule(tracker, asks=True)])
    found: list[Verdict] = []
    asked: list[float] = []
    for at_s in range(60):
        if at_s < 20:
            scene.answer(at_s, 4 * at_s)
        observation = scene.see(float(at_s))
        observation = replace(observation, statements=(flags(observation, M2),))
        tracker.update(observation)
        verdicts, requests = judge.judge(observation)
        found += verdicts
        asked += [at_s] if "stacks" in requests else []
    assert not any("stacks" in item.sources for item in found)
    assert asked, "no round answers what a stall asks for"
