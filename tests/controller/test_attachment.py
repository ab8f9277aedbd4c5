"""What a watch says of its sight: one line when it attaches, one per change, one per outage, and who went first at the end."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from minder.act.controller.reading.attachment import Attachment
from minder.app.build import build
from minder.config import JobConfig, MachineConfig
from minder.model.clock import FakeClock
from minder.model.evidence import Signal
from minder.model.observation import JobView, MachineView, Observation, WorkerView
from minder.model.telemetry import Sample
from minder.record.incidents import Ledger, kinds

MACHINES = ("m0", "m1", "m2")
VALUES = {"gpu_power_draw_watts": 300.0, "cpu_usage_ratio": 0.5}


@dataclass
class Play:
    """A job of three machines, looked at once a second; a test changes what it shows."""

    interval_s: int = 1
    speak: set[str] = field(default_factory=lambda: set(MACHINES))
    values: dict[str, float] = field(default_factory=lambda: dict(VALUES))
    ranks: int = 3
    step: int | None = 5
    phase: str = "running"
    trouble: str = ""
    late_s: float = 0.0
    causes: dict[str, str] = field(default_factory=dict)
    has_agents: bool = True

    def __post_init__(self) -> None:
        self.attachment = Attachment("llm", self.interval_s, "the machines' agents", away_s=20.0, has_agents=self.has_agents)
        self.now = 0

    def run(self, seconds: int, *signals: Signal) -> list[str]:
        said: list[str] = []
        for _ in range(seconds):
            said += self._look(*signals)
            self.now += 1
        return said

    def _look(self, *signals: Signal) -> list[str]:
        due = self.now % self.interval_s == 0 and not self.trouble
        samples = [Sample(self.now - self.late_s, machine, self.values) for machine in sorted(self.speak) if due]
        workers = [WorkerView(0, 10 + rank, rank, "running", 1, self.step) for rank in range(self.ranks)]
        fleet = {machine: MachineView(machine, 0.1, None, tuple(workers[place : place + 1])) for place, machine in enumerate(MACHINES)}
        job = JobView("llm", 1, self.phase, MACHINES, (), (), dict(enumerate(MACHINES)), 0.0, 0.0)  # type: ignore[arg-type]
        observation = Observation(float(self.now), job=job, fleet=fleet, signals=signals)
        step = -math.inf if self.step is None else float(self.step)
        return self.attachment.look(float(self.now), observation, samples, step, self.trouble, self.causes)


def exit_of(rank: int, time_s: float, **data: int) -> Signal:
    return Signal(time_s, "exit", MACHINES[rank], "", rank, None, 10 + rank, 1, data)


def test_one_line_says_what_is_seen_and_nothing_more_is_said() -> None:
    (said,) = Play().run(600)
    for phrase in ("llm", "3 machines", "3 ranks", "2 metrics (gpu 1, host 1)", "every 1 s", "the machines' agents", "steps from"):
        assert phrase in said


@pytest.mark.parametrize(("has_agents", "waits"), [(True, True), (False, False)], ids=["agents", "telemetry alone"])
def test_ranks_are_waited_for_only_where_an_agent_may_report_them(has_agents: bool, waits: bool) -> None:
    play = Play(interval_s=15, ranks=0, step=None, has_agents=has_agents)
    assert (play.run(40) == []) is waits
    play = Play(interval_s=15, ranks=0, step=None, has_agents=has_agents, speak={"m0", "m2"})
    assert play.run(40) == []  # a machine is waited for in any case


def test_a_machine_missing_at_the_start_is_named_once() -> None:
    play = Play(speak={"m0", "m2"}, step=None)
    (said,) = play.run(120)
    assert "telemetry of 2 of 3 machines (none of m1)" in said and "no step read yet" in said
    play.speak.add("m1")
    assert play.run(5) == ["samples of m1 come again"]


def test_a_machine_without_a_sample_for_three_intervals_is_named_with_the_cause() -> None:
    play = Play(interval_s=15, causes={"m1": "http://m1:9401/metrics: refused"})
    play.run(120)
    play.speak.remove("m1")
    assert play.run(45 - 14) == []
    (said,) = play.run(60)
    assert "no sample of m1" in said and "refused" in said and "accuses no machine" in said
    play.speak.add("m1")
    assert play.run(60) == ["samples of m1 come again"]


def test_late_stamps_are_late_and_not_absent() -> None:
    assert len(Play(late_s=70.0).run(300)) == 1


def test_a_machine_that_joins_is_said_once_where_all_were_the_jobs() -> None:
    play = Play()
    play.run(60)
    play.speak |= {"new1", "new2"}
    (said,) = play.run(120)
    assert "new1, new2 give samples too" in said and "job.toml does not name them" in said
    play.speak -= {"m2", "new1"}
    (said,) = play.run(60)
    assert "no sample of m2" in said and "new1" not in said
    play.speak |= {"m2", "new1"}
    assert play.run(60) == ["samples of m2 come again"]


def test_of_a_whole_cluster_other_machines_come_and_go_without_a_word() -> None:
    play = Play(speak={*MACHINES, "other1"})
    assert len(play.run(60)) == 1
    play.speak |= {"other2"}
    assert play.run(120) == []


def test_everybody_silent_is_the_monitoring() -> None:
    play = Play()
    play.run(60)
    play.speak.clear()
    (said,) = play.run(60)
    assert "no machine has a sample" in said and "monitoring" in said


def test_telemetry_that_cannot_be_read_is_said_once_and_so_is_its_end() -> None:
    play = Play()
    play.run(60)
    play.trouble = "no label machine"
    (said,) = play.run(500)
    assert "cannot be read" in said and "no label machine" in said
    play.trouble = ""
    (said,) = play.run(60)
    assert "read again" in said


def test_a_machine_that_was_silent_before_an_outage_is_so_after_it_until_a_sample_comes() -> None:
    play = Play()
    play.run(60)
    play.speak.remove("m1")
    assert "no sample of m1" in play.run(60)[0]
    play.trouble = "no answer"
    play.run(60)
    play.trouble = ""
    (said,) = play.run(60)
    assert "read again" in said
    play.speak.add("m1")
    assert play.run(5) == ["samples of m1 come again"]


def test_calls_that_fail_now_and_then_do_not_fill_the_terminal() -> None:
    play, said = Play(), list[str]()
    play.run(60)
    for _ in range(50):
        play.trouble = "timed out"
        said += play.run(2)
        play.trouble = ""
        said += play.run(2)
    assert len(said) == 1 and "timed out" in said[0]


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"ranks": 2}, "2 ranks (before: 3)"),
        ({"values": {**VALUES, "gpu_clock_hertz": 1e9}}, "new metrics: gpu_clock_hertz"),
        ({"values": {"cpu_usage_ratio": 0.5}}, "no more of: gpu_power_draw_watts"),
    ],
)
def test_a_change_is_one_line(change: dict[str, object], phrase: str) -> None:
    play = Play()
    play.run(60)
    for name, value in change.items():
        setattr(play, name, value)
    (said,) = play.run(200)
    assert phrase in said


def test_steps_that_begin_are_a_change() -> None:
    play = Play(step=None)
    play.run(60)
    play.step = 1
    (said,) = play.run(60)
    assert "steps from its ranks' heartbeats" in said


def test_the_end_says_which_rank_went_first() -> None:
    play = Play()
    play.run(60)
    play.phase, play.ranks = "recovering", 0
    said = play.run(1, exit_of(0, 102.0, code=1), exit_of(1, 100.0, code=9), exit_of(2, 102.1, code=1)) + play.run(30)
    assert len(said) == 1 and play.attachment.over
    assert "the job llm is over" in said[0] and "rank 1 on m1 went first, with 9" in said[0] and "2.0 s before rank 0" in said[0]
    play.phase, play.ranks = "running", 3
    play.run(1)
    assert not play.attachment.over


@pytest.mark.parametrize(
    ("exits", "phrase"),
    [
        ((), "was not seen"),
        ((exit_of(0, 100.0, code=0), exit_of(1, 100.2, code=0)), "all 2 ranks ended within 1 s"),
        ((exit_of(0, 100.0, code=0), exit_of(1, 100.2, signal=9)), "rank 1 on m1 by signal 9"),
        ((exit_of(0, 100.0), exit_of(1, 100.2), exit_of(2, 130.0)), "2 ranks went first"),
    ],
)
def test_the_end_claims_no_more_than_was_seen(exits: tuple[Signal, ...], phrase: str) -> None:
    play = Play()
    play.run(60)
    play.phase, play.ranks = "recovering", 0
    said = play.run(1, *exits) + play.run(30)
    assert phrase in said[-1]


def test_a_controller_that_is_built_says_it_and_writes_it_down(tmp_path: Path) -> None:
    clock = FakeClock()
    config = JobConfig(name="x", machines=(MachineConfig(name="m0", agent="http://127.0.0.1:9"),), state_dir=str(tmp_path))
    app = build(config, clock=clock, ledger=Ledger(tmp_path / "ledger.db"))
    said: list[str] = []
    try:
        app.controller.on_say = said.append
        for _ in range(4):
            app.controller.step(clock.now_s())
            clock.sleep(10.0)
        (line,) = [text for text in said if text.startswith("attached to x")]
        assert "none of m0" in line and "no telemetry yet from the machines' agents" in line
        (note,) = [event.payload for event in app.ledger.events(kinds=[kinds.NOTE]) if event.payload.get("attached")]
        assert note == {"text": line, "attached": {"machines": ["m0"], "standbys": [], "gpus": 1}}
    finally:
        app.close()
