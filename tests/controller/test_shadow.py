"""What looks on: a challenger's would-be verdicts and drift reach the ledger, suspect nobody, and cannot stop the tick."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minder.act.controller.reporting.shadow import Shadow, ShadowRule, watch_drift
from minder.config import DetectorConfig
from minder.diagnose.detectors.drift import DriftConfig, DriftMonitor
from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.judge import Judge
from minder.model.errors import LedgerError
from minder.model.evidence import Scores
from minder.model.observation import Observation, RuleResult
from minder.model.telemetry import Window
from minder.record.incidents import kinds
from minder.record.registry.folder import Model, write_model

MACHINES = ("m0", "m1", "m2", "m3")


class Accuser:
    """A detector that accuses m2 at every row."""

    def score(self, window: Window) -> list[Scores]:
        score_M = np.array([0.0, 0.0, 9.0, 0.0])
        return [Scores(float(time_s), MACHINES, score_M, 1.0) for time_s in window.times_T]

    def learn(self, window: Window, anomalous: frozenset[str]) -> None: ...

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None: ...


def observation(time_s: float, watts: float = 500.0) -> Observation:
    window = Window(np.array([time_s]), MACHINES, ("gpu_power_draw_watts",), np.full((1, 4, 1), watts), np.ones((1, 4), dtype=bool))
    return Observation(time_s, window)


def test_a_challenger_is_recorded_once_per_episode_and_decides_nothing() -> None:
    events: list[tuple[str, Mapping[str, Any]]] = []
    beside = ShadowRule("shadow", lambda kind, payload: events.append((kind, payload)), Shadow("models:/x/2", Accuser(), JobTracker()))
    assert [beside.observe(observation(float(time_s))) for time_s in range(5)] == [RuleResult()] * 5
    ((kind, payload),) = events
    assert (kind, payload["detector"], payload["verdict"]["machines"]) == (kinds.SHADOW, "models:/x/2", ["m2"])


def test_drift_is_recorded() -> None:
    events: list[tuple[str, Mapping[str, Any]]] = []
    monitor = DriftMonitor({"gpu_power_draw_watts": (300.0, 600.0)}, DriftConfig(pace_s=10.0, hold_s=20.0))
    beside = ShadowRule("drift", lambda kind, payload: events.append((kind, payload)), watch_drift(monitor))
    for time_s in range(120):
        beside.observe(observation(float(time_s), 900.0))
    ((kind, payload),) = events
    assert (kind, payload["metric"], payload["median"]) == (kinds.DRIFT, "gpu_power_draw_watts", 900.0)


def test_what_fails_beside_fails_for_itself(paper: Callable[..., Any]) -> None:
    """A broken challenger and a broken watch of drift: each is counted, and has its traceback in the ledger once."""

    def broken(words: str) -> Callable[[Observation], list[tuple[str, dict[str, Any]]]]:
        def part(seen: Observation) -> list[tuple[str, dict[str, Any]]]:
            raise ZeroDivisionError(words)

        return part

    world = paper()
    judge = world.app.controller._stages.judge
    judge.rules = (*(ShadowRule(name, world.app.ledger.append, broken(f"bad {name}")) for name in ("shadow", "drift")), *judge.rules)
    world.tick(3)
    assert {"rule:shadow", "rule:drift"} <= set(world.degraded())
    for name in ("shadow", "drift"):
        (event,) = [event for event in world.told(kinds.DEGRADED) if event.payload["what"] == f"rule:{name}"]
        assert f"bad {name}" in event.payload["detail"] and "in part" in event.payload["traceback"]


def test_a_ledger_that_fails_stops_the_challenger_alone() -> None:
    def refuse(kind: str, payload: Mapping[str, Any]) -> None:
        raise LedgerError("full disk")

    judge = Judge([ShadowRule("shadow", refuse, Shadow("x", Accuser(), JobTracker()))])
    assert judge.judge(observation(0.0)) == ([], frozenset())
    assert [(failure.rule, failure.error) for failure in judge.failures] == [("shadow", "LedgerError: full disk")]


@pytest.mark.lab
def test_a_challenger_looks_on_at_a_live_job_whose_champion_says_nothing(paper: Callable[..., Any], tmp_path: Path) -> None:
    """Nothing but the ledger hears of it, and neither model is read again when the clock is set."""
    for name, patience_s in (("deaf", 1e9), ("challenger", 90.0)):
        write_model(Model("default", {"patience_s": patience_s}, {"cpu_usage_ratio": (0.0, 1.0)}), tmp_path / name)
    world = paper(detector=DetectorConfig(model=str(tmp_path / "deaf"), shadow=str(tmp_path / "challenger")))
    for name in ("deaf", "challenger"):
        shutil.rmtree(tmp_path / name)
    world.clock.set_forward(20.0)
    world.tick(120)
    world.hit("m1", "slow")
    world.tick(120)
    (event,) = world.told(kinds.SHADOW)
    assert (event.payload["detector"], event.payload["verdict"]["machines"]) == (str(tmp_path / "challenger"), ["m1"])
    assert not world.told(kinds.INTENT), "a challenger evicts nobody"
