"""One verdict per episode, agreement and contradiction, victims in the shadow, recovery."""

from __future__ import annotations

from dataclasses import replace

from minder.types import JobView, Observation, RuleResult, Suspect, Verdict
from minder.verdicts.judge import Judge


class Scripted:
    """A rule that says at each tick what the test has written."""

    def __init__(self, name: str, script: dict[float, tuple[Suspect, ...]]) -> None:
        self.name = name
        self._script = script

    def observe(self, observation: Observation) -> RuleResult:
        found = tuple(replace(item, time_s=observation.now_s, source=self.name) for item in self._script.get(observation.now_s, ()))
        return RuleResult(found, frozenset({"flows"}) if found else frozenset())


def suspect(machine: str, **changes: object) -> Suspect:
    base = Suspect(0.0, "x", "machine", (machine,), "stall", 0.8, 5.0, "evict")
    return replace(base, **changes)  # type: ignore[arg-type]


def run(judge: Judge, seconds: range, job: JobView | None = None) -> list[Verdict]:
    return [verdict for t in seconds for verdict in judge.judge(Observation(float(t), job=job))[0]]


def always(machine: str, seconds: range, **changes: object) -> dict[float, tuple[Suspect, ...]]:
    return {float(t): (suspect(machine, **changes),) for t in seconds}


def test_an_episode_is_told_once_however_long_it_lasts() -> None:
    found = run(Judge([Scripted("a", always("m1", range(10, 200)))]), range(200))
    assert [(item.time_s, item.machines, item.tier) for item in found] == [(10.0, ("m1",), "evict")]


def test_rules_that_agree_are_surer_than_each() -> None:
    judge = Judge([Scripted("a", always("m1", range(10, 11))), Scripted("b", always("m1", range(10, 11), confidence=0.7))])
    found = run(judge, range(20))
    assert len(found) == 1
    assert found[0].sources == ("a", "b")
    assert abs(found[0].confidence - (1 - 0.2 * 0.3)) < 1e-9


def test_rules_that_contradict_only_page_and_say_so() -> None:
    judge = Judge([Scripted("a", always("m1", range(10, 12))), Scripted("b", always("m2", range(10, 12), confidence=0.75))])
    found = run(judge, range(20))
    assert [(item.machines, item.tier) for item in found] == [(("m1",), "page")]
    assert found[0].confidence < 0.8
    assert any("b names m2" in item.message for item in found[0].against)


def test_watch_opens_no_episode() -> None:
    assert run(Judge([Scripted("a", always("m1", range(10, 50), tier="watch"))]), range(60)) == []


def test_a_page_that_grows_into_an_evict_is_told_again() -> None:
    script = always("m1", range(10, 20), tier="page") | always("m1", range(20, 30))
    found = run(Judge([Scripted("a", script)]), range(40))
    assert [(item.time_s, item.tier) for item in found] == [(10.0, "page"), (20.0, "evict")]
    assert found[0].since_s == found[1].since_s


def test_victims_in_the_shadow_are_not_named_and_recovery_closes_the_episode() -> None:
    script = always("m1", range(10, 20)) | always("m2", range(20, 300))
    found = run(Judge([Scripted("a", script)], recovered_s=60.0, shadow_s=600.0), range(300))
    assert [(item.kind, item.machines) for item in found] == [("machine", ("m1",)), ("recovered", ("m1",))]


def test_the_same_machine_may_fall_ill_again_after_recovery() -> None:
    script = always("m1", range(10, 20)) | always("m1", range(200, 210))
    found = run(Judge([Scripted("a", script)], recovered_s=60.0), range(250))
    assert [item.kind for item in found] == ["machine", "recovered", "machine"]


def test_an_eviction_ends_the_shadow() -> None:
    judge = Judge([Scripted("a", always("m1", range(10, 20)) | always("m2", range(40, 50)))])
    job = JobView("j", 1, "running", ("m1", "m2"), (), (), {}, 0.0, 0.0)
    found = run(judge, range(30), job) + run(judge, range(30, 60), replace(job, machines=("m2", "m3"), generation=2))
    assert [item.machines for item in found] == [("m1",), ("m2",)]


def test_a_sure_explicit_sign_pierces_the_shadow_of_a_mere_page() -> None:
    script = always("m1", range(10, 30), tier="page")
    explicit = always("m2", range(60, 65), cause="explicit", confidence=0.95)
    found = run(Judge([Scripted("a", script), Scripted("b", explicit)]), range(80))
    assert [item.machines for item in found] == [("m1",), ("m2",)]


def test_a_sick_job_contradicts_nobody() -> None:
    job = {10.0: (Suspect(0.0, "x", "job", (), "stall", 0.9, 1.0, "page"),)}
    found = run(Judge([Scripted("a", always("m1", range(10, 12))), Scripted("b", job)]), range(20))
    assert ("machine", "evict") in [(item.kind, item.tier) for item in found]


def test_requests_of_all_rules_come_through() -> None:
    judge = Judge([Scripted("a", always("m1", range(10, 12)))])
    assert judge.judge(Observation(10.0))[1] == frozenset({"flows"})
    assert judge.judge(Observation(13.0))[1] == frozenset()
    assert [item.machines for item in judge.open_verdicts] == [("m1",)]
