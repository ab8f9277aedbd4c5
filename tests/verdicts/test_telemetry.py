"""From scores to a suspect: leader, tier, confidence, hysteresis, and who is learned from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.ingest.windows import keep_machines, rows_of
from minder.model.evidence import Cause, Evidence, Scores, Suspect
from minder.model.job_mode import MODES, JobMode, Mode
from minder.model.observation import JobView, Observation
from minder.model.telemetry import Window

MACHINES = ("m0", "m1", "m2", "m3")


class Scripted:
    """A detector that scores as written: per row, machine to (score, metrics that say so)."""

    def __init__(
        self,
        script: list[Mapping[str, tuple[float, tuple[str, ...]]]],
        since_s: Mapping[str, float] | None = None,
        cause: Cause = "stall",
        slowed: bool | None = None,
    ) -> None:
        self._script = script
        self._slowed = slowed
        self._cause: Cause = cause
        self._row = 0
        self._since_s = dict(since_s or {})
        self.learned: list[frozenset[str]] = []
        self.seen: list[tuple[str, ...]] = []

    def score(self, window: Window) -> list[Scores]:
        said = self._script[self._row]
        self._row += 1
        self.seen.append(window.machines)
        score_M = np.array([said.get(name, (0.0, ()))[0] for name in window.machines])
        evidence = {name: tuple(Evidence("telemetry", name, metric=metric) for metric in metrics) for name, (_, metrics) in said.items()}
        since = {name: self._since_s.get(name, 1.0) for name in said}
        cause, time_s = dict.fromkeys(said, self._cause), float(window.times_T[0])
        return [Scores(time_s, window.machines, score_M, 10.0, evidence, since, cause, slowed=self._slowed)]

    def learn(self, window: Window, anomalous: frozenset[str]) -> None:
        self.learned.append(anomalous)

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None: ...


def window(rows: int) -> Window:
    shape = (rows, len(MACHINES), 1)
    return Window(np.arange(rows, dtype=float), MACHINES, ("gpu_power_draw_watts",), np.ones(shape), np.ones(shape[:2], dtype=bool))


BOTH = ("gpu_power_draw_watts", "gpu_sm_activity_ratio")


def last(script: list[Mapping[str, tuple[float, tuple[str, ...]]]], mode: JobMode | None = None, slowed: bool | None = None) -> Suspect:
    """What the rule says of the newest of these rows, a second apart."""
    rule = TelemetryRule(Scripted(script, slowed=slowed))
    (suspect,) = rule.observe(Observation(float(len(script)), window(len(script)), mode=mode)).suspects
    return suspect


def test_two_families_evict_one_family_pages() -> None:
    assert [last([{"m1": (12.0, metrics)}]).tier for metrics in (BOTH, BOTH[:1])] == ["evict", "page"]


def test_what_one_sample_adds_to_a_page_evicts_no_machine() -> None:
    one, both = {"m1": (12.0, BOTH[:1])}, {"m1": (12.0, BOTH)}
    assert [last([one] * 3 + [both] * rows).tier for rows in (1, 2)] == ["page", "evict"]
    assert last([one, both] * 4).tier == "page"
    assert last([{}, both]).tier == "evict"  # it is accused for both


@pytest.mark.parametrize(
    ("slowed", "likeliest", "tier"),
    [
        (False, None, "page"),
        (False, "stepping", "page"),
        (False, "slow", "evict"),
        (False, "stalled", "evict"),
        (True, None, "evict"),
        (True, "stepping", "evict"),
        (None, None, "evict"),
    ],
)
def test_a_training_that_works_as_fast_as_ever_costs_no_machine(slowed: bool | None, likeliest: Mode | None, tier: str) -> None:
    """slowed: what the detector says of it; None: this kind of detector does not say. The job's own mode speaks, too."""
    mode = JobMode({mode: (0.94 if mode == likeliest else 0.01) for mode in MODES}, 0.0) if likeliest else None
    suspect = last([{"m1": (12.0, BOTH)}], mode, slowed)
    assert (suspect.tier, any("as fast as ever" in item.message for item in suspect.against)) == (tier, tier == "page")


@pytest.mark.parametrize(
    ("metrics", "tier"),
    [
        (("ecn_packets_per_second", "cpu_usage_ratio"), "page"),
        (("rdma_xmit_wait_per_second", "cpu_usage_ratio", "tcp_throughput_bytes_per_second"), "page"),
        (("ecn_packets_per_second", "rdma_throughput_bytes_per_second"), "evict"),
        (("cpu_usage_ratio", "gpu_sm_activity_ratio"), "evict"),
    ],
)
def test_what_neighbours_bring_about_evicts_no_machine(metrics: tuple[str, ...], tier: str) -> None:
    """Another tenant's congestion and processes; the machine itself does what it did."""
    assert last([{"m1": (12.0, metrics)}]).tier == tier


def test_silence_beside_a_stall_pages_and_evicts_after_two_minutes() -> None:
    """An exporter that restarts may be silent for a minute, and all may pause in it."""
    silent = {"m1": (12.0, ())}
    rule = TelemetryRule(Scripted([silent] * 200, {"m1": 30.0}, "absence"))
    tiers = {n: rule.observe(Observation(float(n), row)).suspects[0].tier for n, row in enumerate(rows_of(window(200)))}
    assert [n for n, tier in tiers.items() if tier == "page"] == list(range(151))
    assert {tier for n, tier in tiers.items() if n > 150} == {"evict"}


def test_a_suspect_grows_surer_while_it_stands_and_starts_anew_when_it_comes_back() -> None:
    odd, calm = {"m1": (12.0, BOTH)}, {"m1": (1.0, BOTH)}
    script = [odd] * 200 + [calm] + [odd]
    rule = TelemetryRule(Scripted(script))
    sure = {t: found[0].confidence for t, row in enumerate(rows_of(window(202))) if (found := rule.observe(Observation(0.0, row)).suspects)}
    assert sure[0] < sure[60] < sure[199]
    assert sure[201] == sure[0]


def test_below_the_threshold_nobody_is_suspected() -> None:
    assert TelemetryRule(Scripted([{"m1": (9.0, BOTH)}])).observe(Observation(0.0, window(1))).suspects == ()


def test_the_first_to_turn_odd_is_the_culprit_not_the_oddest() -> None:
    detector = Scripted([{"m1": (12.0, BOTH), "m2": (30.0, BOTH)}], {"m1": 1.0, "m2": 9.0})
    assert [item.machines for item in TelemetryRule(detector).observe(Observation(0.0, window(1))).suspects] == [("m1",)]


def test_machines_hit_at_the_same_moment_are_told_as_doubt() -> None:
    detector = Scripted([{"m1": (20.0, BOTH), "m2": (19.0, BOTH)}])
    found = TelemetryRule(detector).observe(Observation(0.0, window(1))).suspects
    assert [item.machines for item in found] == [("m1",)]
    assert [item.machine for item in found[0].against] == ["m2"]


def test_an_accused_machine_stays_accused_until_its_score_has_all_but_gone() -> None:
    script = [{"m1": (12.0, BOTH)}, {"m1": (5.0, BOTH)}, {"m1": (2.0, BOTH)}, {"m1": (5.0, BOTH)}]
    rule = TelemetryRule(Scripted(script))
    said = [len(rule.observe(Observation(float(t), row)).suspects) for t, row in enumerate(rows_of(window(4)))]
    assert said == [1, 1, 0, 0]


def test_the_detector_does_not_learn_from_the_accused() -> None:
    detector = Scripted([{}, {"m1": (12.0, BOTH)}])
    TelemetryRule(detector).observe(Observation(0.0, window(2)))
    assert detector.learned == [frozenset(), frozenset({"m1"})]


def test_only_the_jobs_own_machines_are_compared() -> None:
    detector = Scripted([{}])
    job = JobView("j", 1, "running", ("m0", "m2"), ("m3",), (), {}, 0.0, 0.0)
    TelemetryRule(detector).observe(Observation(0.0, window(1), job=job))
    assert detector.seen == [("m0", "m2")]
    whole = window(1)
    assert keep_machines(whole, MACHINES) is whole


def test_nothing_is_seen_to_end_while_nobodys_telemetry_comes() -> None:
    """A monitoring outage is not a recovery; when samples come again and say that all is well, it is one."""
    rule = TelemetryRule(Scripted([{"m1": (12.0, BOTH)}] + [{}] * 400))
    judge = Judge([rule], recovered_s=180.0)
    said = judge.judge(Observation(0.0, window(1)))[0]
    silent = [verdict for now_s in range(1, 1000) for verdict in judge.judge(Observation(float(now_s)))[0]]
    gaps = replace(window(1), present_TM=np.zeros((1, len(MACHINES)), dtype=bool))
    silent += [verdict for now_s in range(1000, 1100) for verdict in judge.judge(Observation(float(now_s), gaps))[0]]
    back = [verdict for now_s in range(1100, 1400) for verdict in judge.judge(Observation(float(now_s), window(1)))[0]]
    assert [verdict.kind for verdict in said] == ["machine"] and silent == []
    assert [(verdict.kind, verdict.machines) for verdict in back] == [("recovered", ("m1",))]


@pytest.mark.parametrize("every_s", [1, 15, 30])
def test_between_two_scrapes_is_no_outage(every_s: int) -> None:
    judge = Judge([TelemetryRule(Scripted([{"m1": (12.0, BOTH)}] + [{}] * 400))], recovered_s=180.0)
    seen = [Observation(float(now_s), window(1) if now_s % every_s == 0 else None) for now_s in range(300)]
    assert [verdict.kind for item in seen for verdict in judge.judge(item)[0]] == ["machine", "recovered"]


@pytest.mark.parametrize(("cause", "tier"), [("slowdown", None), ("stall", "page")])
def test_of_two_machines_telemetry_alone_evicts_neither_and_a_slow_job_names_nobody(cause: Cause, tier: str | None) -> None:
    """Whichever differs, the other does as much. A second witness of the same machine decides."""
    said = {"m1": (30.0, ("gpu_power_draw_watts", "rdma_throughput_bytes_per_second"))}

    def verdicts(machines: tuple[str, ...]) -> list[str]:
        judge = Judge([TelemetryRule(Scripted([said] * 5, cause=cause))])
        rows = rows_of(keep_machines(window(5), machines))
        return [item.tier for row in rows for item in judge.judge(Observation(float(row.times_T[0]), row))[0]]

    assert verdicts(("m0", "m1")) == ([tier] if tier else [])
    assert verdicts(MACHINES) == ["evict"]
