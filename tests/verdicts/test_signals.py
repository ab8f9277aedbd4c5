"""Explicit signals: who is named, who is only watched, and who is forgiven."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.signals import LinkLimits, SignalRule
from minder.edge.signals.xid import load_xid_rules
from minder.model.evidence import Evidence, Signal, Suspect
from minder.model.observation import JobView, Observation, RuleResult
from tests.fakes.followed import Followed


def run(signals: list[Signal], until_s: float = 200.0) -> list[Suspect]:
    """All distinct findings of worth (tier page or evict) while one observation a second is made."""
    rule = Followed(lambda tracker: SignalRule(load_xid_rules(), tracker))
    found: dict[tuple[str, ...], Suspect] = {}
    for t in range(int(until_s)):
        fresh = tuple(item for item in signals if t - 1 < item.time_s <= t)
        for item in rule.observe(Observation(float(t), signals=fresh)).suspects:
            if item.tier != "watch":
                found.setdefault((*item.machines, item.cause), item)
    return list(found.values())


def signal(time_s: float, kind: Any, machine: str, message: str = "", **data: Any) -> Signal:
    return Signal(time_s, kind, machine, message, data=data)


@pytest.mark.parametrize("code", [48, 79, 119])
def test_a_dead_gpu_is_evicted_at_once(code: int) -> None:
    found = run([signal(10, "xid", "m1", "gone", code=code)], 12)
    assert [(item.machines, item.tier, item.cause) for item in found] == [(("m1",), "evict", "explicit")]


@pytest.mark.parametrize("code", [13, 31, 43, 45, 63, 68, 94, 154])
def test_application_and_contained_xids_accuse_nobody(code: int) -> None:
    assert run([signal(10, "xid", "m1", code=code)]) == []


def test_contained_xids_are_told_to_other_rules() -> None:
    rule = Followed(lambda tracker: SignalRule(load_xid_rules(), tracker))
    result = rule.observe(Observation(10.0, signals=[signal(10, "xid", "m1", code=94)]))
    assert [(item.tier, item.machines) for item in result.suspects] == [("watch", ("m1",))]


def test_an_xid_is_read_from_the_kernel_log() -> None:
    found = run([signal(10, "kernel", "m1", "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.")])
    assert [item.machines for item in found] == [("m1",)]


def flaps(*times_s: float, machine: str = "m1", port: str = "mlx5_0") -> list[Signal]:
    ends = ((0.0, "down"), (4.0, "up"))
    return [Signal(t + dt, "link", machine, device=port, data={"state": state}) for t in times_s for dt, state in ends]


def test_one_link_flap_that_heals_accuses_nobody() -> None:
    assert run(flaps(10)) == []
    assert run([*flaps(10), *flaps(11, port="ens1f0np0"), *flaps(12, port="mlx5_1")]) == []  # one event, told by three


def test_two_flaps_within_five_minutes_page_and_farther_apart_do_not() -> None:
    found = run(flaps(10, 150))
    assert [(item.machines, item.tier, item.cause) for item in found] == [(("m1",), "page", "explicit")]
    assert run(flaps(10, 350), 500) == []


def test_flaps_of_several_machines_at_once_are_the_switch() -> None:
    assert run([item for number in range(4) for item in flaps(10 + number, 100 + number, machine=f"m{number}")]) == []


def test_how_many_flaps_page_is_configured() -> None:
    rule = Followed(lambda tracker: SignalRule(load_xid_rules(), tracker, links=LinkLimits(flaps=0)))
    heard = [
        item
        for t in range(200)
        for item in rule.observe(Observation(float(t), signals=[s for s in flaps(10, 60, 90) if s.time_s == t])).suspects
    ]
    assert heard == []


def test_a_link_that_stays_down_pages() -> None:
    found = run([signal(10, "link", "m1", state="down")])
    assert [(item.machines, item.tier) for item in found] == [(("m1",), "page")]
    assert found[0].time_s - 10 < 60


def test_links_down_on_several_machines_are_the_switch() -> None:
    found = run([signal(10, "link", "m1", state="down"), signal(11, "link", "m2", state="down")])
    assert [(item.kind, item.machines, item.tier) for item in found] == [("job", (), "page")]


def test_only_the_clearly_first_deadly_exit_accuses() -> None:
    first = signal(10.0, "exit", "m2", code=None, signal=9)
    echoes = [signal(12.0 + i, "exit", f"m{i + 3}", code=None, signal=6) for i in range(3)]
    assert [item.machines for item in run([first, *echoes])] == [("m2",)]
    tied = [signal(10.0, "exit", "m2", signal=9), signal(10.2, "exit", "m3", signal=9)]
    assert run(tied) == []


@pytest.mark.parametrize("code", [137, -9, 135, -7])
def test_a_shells_or_a_launchers_code_for_a_signal_is_that_signal(code: int) -> None:
    first = signal(10.0, "exit", "m2", code=code, signal=None)
    echoes = [signal(12.0 + i, "exit", f"m{i + 3}", code=1, signal=None) for i in range(3)]
    assert [item.machines for item in run([first, *echoes])] == [("m2",)]


@pytest.mark.parametrize(
    ("code", "number"), [(0, None), (1, None), (None, 15), (None, 6), (143, None), (-15, None), (134, None), (129, None), (130, None)]
)
def test_ordinary_ends_terminations_and_watchdog_aborts_accuse_nobody(code: int | None, number: int | None) -> None:
    assert run([signal(10 + 2 * i, "exit", f"m{i}", code=code, signal=number) for i in range(4)]) == []


def test_exits_in_a_restart_accuse_nobody() -> None:
    begin = Signal(9.0, "phase", data={"phase": "restart", "state": "begin"})
    assert run([begin, signal(10, "exit", "m1", signal=9), signal(13, "exit", "m2", signal=9)]) == []


def test_one_machines_gradient_accuses_it_everybodys_accuses_nobody() -> None:
    found = run([signal(10, "nonfinite", "m1", step=5, what="gradient")])
    assert [(item.machines, item.cause, item.tier) for item in found] == [(("m1",), "numeric", "evict")]
    assert run([signal(10, "nonfinite", f"m{i}", step=5) for i in range(4)]) == []


def test_a_live_job_hears_only_of_its_own_machines_and_of_this_generation() -> None:
    job = JobView("j", 2, "running", ("m1", "m2"), (), (), {0: "m1", 1: "m2"}, quiet_until_s=0.0, generation_start_s=5.0)
    rule = Followed(lambda tracker: SignalRule(load_xid_rules(), tracker, workers=False))
    heard = [
        signal(4, "xid", "m1", code=79),
        signal(10, "xid", "s0", code=79),
        signal(10, "exit", "m1", signal=9),
        signal(10, "xid", "m2", code=79),
    ]
    result = rule.observe(Observation(10.0, signals=heard, job=job))
    assert [(item.machines, item.tier) for item in result.suspects] == [(("m2",), "evict")]


def test_a_machine_that_left_the_job_is_not_accused_again_of_what_took_it_out() -> None:
    """Neither while it is out, nor once it was returned and has a place again."""
    job = JobView("j", 2, "running", ("m1", "m2"), (), (), {0: "m1", 1: "m2"}, quiet_until_s=0.0, generation_start_s=5.0)
    without = replace(job, generation=3, machines=("m1", "s0"), generation_start_s=12.0)
    rule = Followed(lambda tracker: SignalRule(load_xid_rules(), tracker, workers=False))
    assert rule.observe(Observation(10.0, signals=[signal(10, "xid", "m2", code=79)], job=job)).suspects
    assert rule.observe(Observation(13.0, job=without)).suspects == ()
    assert rule.observe(Observation(15.0, job=replace(job, generation=4, generation_start_s=14.0))).suspects == ()


def test_a_kill_that_a_restart_answered_hides_no_later_fault_of_the_same_minute() -> None:
    """The job was started again and steps; 45 s after the kill a machine is cut off from its peers, and the rule for stalls names it."""
    job = JobView("j", 1, "running", ("m1", "m2", "m3"), (), (), {0: "m1", 1: "m2"}, quiet_until_s=0.0, generation_start_s=0.0)
    tracker = JobTracker()
    judge = Judge([SignalRule(load_xid_rules(), tracker, workers=False), Stalls()])
    kill = [signal(10, "kernel", "m1", "Memory cgroup out of memory: Killed process 7", what="oom"), signal(10, "exit", "m1", signal=9)]
    before, _ = judge.judge(tracker.update(Observation(10.5, signals=kill, job=job)))
    assert [(item.kind, item.tier, item.sources) for item in before] == [("job", "page", ("signals",))]
    again = replace(job, generation=2, generation_start_s=12.0)
    later = [signal(12.5, "kernel", "m2", what="gpu", sign="init_failed")]
    after, _ = judge.judge(tracker.update(Observation(13.0, signals=later, job=again)))
    assert [(item.machines, item.tier, item.sources) for item in after] == [(("m2",), "page", ("notices",))]  # the dead rank was of before
    named, _ = judge.judge(tracker.update(Observation(60.0, job=again)))
    assert [(item.machines, item.tier, item.sources) for item in named] == [(("m3",), "evict", ("stall",))]


class Stalls:
    """Names m3 from the sixtieth second on, as the rule for stalls does."""

    name = "stall"

    def observe(self, observation: Observation) -> RuleResult:
        evidence = (Evidence("flows", "m3", "cut off"),)
        suspect = Suspect(observation.now_s, self.name, "machine", ("m3",), "stall", 0.9, 55.0, "evict", evidence)
        return RuleResult((suspect,) if observation.now_s >= 60.0 else ())


def test_a_page_that_no_stop_came_with_is_a_notice_also_once_the_job_stands() -> None:
    """The job steps on for minutes after a signal that calls a person; then it stops, for whatever reason."""
    rule = Followed(lambda tracker: SignalRule(load_xid_rules(), tracker, workers=False))
    job = JobView("j", 1, "running", ("m1", "m2"), (), (), {0: "m1", 1: "m2"}, quiet_until_s=0.0, generation_start_s=0.0)
    said: dict[float, str] = {}
    for t in range(1, 280):
        steps = [signal(t, "step", name, step=min(t, 150)) for name in job.machines if t <= 150]
        lost = [signal(60, "kernel", "m1", what="gpu", sign="init_failed")] if t == 60 else []
        said |= {float(t): item.source for item in rule.observe(Observation(float(t), signals=[*steps, *lost], job=job)).suspects}
    assert rule.tracker.halt.since_s == 150.0
    assert set(said.values()) == {"notices"}


def test_an_xid_that_the_catalogues_dispute_does_not_evict_alone() -> None:
    assert run([signal(10, "xid", "m1", code=109), signal(20, "xid", "m2", code=136)]) == []
