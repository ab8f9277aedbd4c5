"""Figures of a validation: by hand where they can be counted by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from minder.offline.evaluation.intervals import poisson_lower
from minder.offline.evaluation.scoring import Judged
from minder.offline.training.learned import recording as recordings
from minder.offline.training.learned.calibrate import fit_calibration
from minder.offline.training.learned.measure import as_drawn, earned, lines, measure_gain, reliability_slope, shown_only
from minder.offline.training.learned.recording import REDRAWN, Recording
from minder.offline.training.learned.trial import WAYS, Outcome
from minder.offline.training.learned.validate import Row, has_concept


def recording(family: str, seed: int, fault: str | None = "hang", **changed: object) -> Recording:
    known: dict[str, object] = {
        "family": family, "seed": seed, "machines": ("a", "b", "c"), "interval_s": 5.0, "time_B": np.zeros(0), "dt_B": np.zeros(0),
        "first_B": np.zeros(1, dtype=int), "machine_R": np.zeros(0, dtype=int), "features_RF": np.zeros((0, 1)), "said": (),
        "culprits": ("a",) if fault else (), "group": False, "fault": fault, "onset_s": 100.0 if fault else None, "grey": False,
        "cause": None, "nuisances": (), "shown": fault is not None, "duration_s": 1000.0,
    }  # fmt: skip
    return Recording(**{**known, **changed})  # type: ignore[arg-type]


def outcome(name: str, delay_s: float = math.nan, p: float = math.nan, false: int = 0) -> Outcome:
    fault = "hang" if name != "quiet" else None
    return Outcome(Judged("r", fault, name), delay_s, false, 43_200.0, p, name == "found")


def row(family: str, seed: int, old: Outcome, new: Outcome, fault: str | None = "hang", **changed: object) -> Row:
    return Row(recording(family, seed, fault, **changed), dict(zip(WAYS, (old, old, new), strict=True)))


FOUND, MISSED, QUIET = outcome("found", 60.0, 0.99), outcome("missed", 420.0), outcome("quiet")


def test_a_miss_counts_as_seven_minutes_and_a_false_accusation_by_the_day() -> None:
    wrong = outcome("wrong", 420.0, 0.9, false=1)
    pool = {
        line.way: line for line in lines([row("queue", 1, FOUND, FOUND), row("queue", 2, FOUND, MISSED), row("queue", 3, FOUND, wrong)])
    }["pool"]
    assert (pool.delay_s, pool.recall, pool.precision) == (300.0, pytest.approx(1 / 3), 0.5)
    assert pool.false_count == 1 and pool.healthy_days == pytest.approx(1.5)
    assert pool.false_low < pool.false_per_day < pool.false_high


def test_the_exact_bounds_of_a_rate() -> None:
    assert poisson_lower(0, 0.975) == 0.0
    assert poisson_lower(10, 0.975) == pytest.approx(4.795, abs=1e-3)


def test_a_gain_is_paired_and_its_interval_spans_families() -> None:
    rows = [row(family, seed, MISSED if seed % 2 else FOUND, FOUND) for family in ("queue", "fluid", "trace") for seed in range(20)]
    gain = measure_gain(rows, resamples=200)
    assert gain.f1.value == pytest.approx(1.0 - 2 / 3) and 0.0 < gain.f1.low < gain.f1.value < gain.f1.high
    assert gain.delay_s.value == pytest.approx(-180.0)
    same = measure_gain([row("queue", seed, FOUND, FOUND) for seed in range(9)], resamples=50)
    assert same.f1.value == same.f1.low == same.f1.high == 0.0


def test_nothing_is_earned_without_unseen_families_or_by_being_as_good() -> None:
    tuned = [row("recipes", seed, FOUND, FOUND) for seed in range(8)]
    verdict = earned(tuned, np.full(8, 0.99), np.ones(8, dtype=bool), 100)
    assert not verdict.earned and any("no family that the default detector was not tuned on" in line for line in verdict.why)
    equal = earned([*tuned, *(row("queue", seed, FOUND, FOUND) for seed in range(8))], np.full(400, 0.99), np.ones(400, dtype=bool), 100)
    assert not equal.earned and any(line.startswith("NOT met") and "above 0" in line for line in equal.why)


def test_it_is_earned_where_every_condition_holds() -> None:
    better = [row(family, seed, MISSED if seed % 2 else FOUND, FOUND) for family in ("queue", "fluid") for seed in range(40)]
    rng = np.random.default_rng(3)
    said_N = rng.uniform(0.4, 0.99, 2000)
    right_N = rng.random(2000) < said_N
    verdict = earned([*better, *(row("recipes", seed, FOUND, FOUND) for seed in range(8))], said_N, right_N, 100)
    assert verdict.earned, verdict.why


def accusations(level: float, sure: bool, right: float, count: int = 60) -> np.ndarray:
    """Snapshots of so many accusations by the default detector, as `trial.snapshots` gives them."""
    return np.array([[level, 1.0, sure, 0.0, i < right * count, 1.0] for i in range(count)])


def test_calibration_follows_what_was_right() -> None:
    calibration = fit_calibration([accusations(3.0, True, 0.9), accusations(-1.0, False, 0.4)], prior=0.6)
    assert calibration.share(3.0, False, True, sure=True) == pytest.approx(0.9, abs=0.05)
    assert calibration.share(-1.0, False, True) == pytest.approx(0.4, abs=0.06)
    assert calibration.prior == 0.6
    untaught = fit_calibration([accusations(3.0, True, 0.0, count=5)], prior=0.5)
    assert untaught.level > 0.0, "five accusations teach nothing"


def test_the_slope_shows_whether_what_is_said_differs_too_much() -> None:
    rng = np.random.default_rng(1)
    share_N = rng.uniform(0.05, 0.95, 4000)
    right_N = rng.random(4000) < share_N
    assert reliability_slope(share_N, right_N) == pytest.approx(1.0, abs=0.1)
    odds_N = share_N / (1.0 - share_N)
    assert reliability_slope(odds_N**3 / (1.0 + odds_N**3), right_N) == pytest.approx(1.0 / 3.0, abs=0.05)
    assert math.isnan(reliability_slope(share_N, np.ones(4000, dtype=bool)))


def test_what_no_metric_shows_is_scored_as_drawn_and_as_redrawn() -> None:
    hidden, again = row("queue", 2, FOUND, MISSED, shown=False), row("queue", 2 + REDRAWN, FOUND, FOUND)
    rows = [row("queue", 1, FOUND, FOUND), hidden, again, row("queue", 3, QUIET, QUIET, fault=None)]
    assert [item.recording.seed for item in shown_only(rows)] == [1, 2 + REDRAWN, 3]
    assert [item.recording.seed for item in as_drawn(rows)] == [1, 2, 3]


def test_a_hidden_world_is_redrawn_once_and_the_first_that_shows_its_fault_stands_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def drawn(family: str, seed: int, cache: Path) -> Recording:
        return recording(family, seed, "hang" if seed != 1 + REDRAWN else None, shown=seed not in (1, 1 + REDRAWN))

    monkeypatch.setattr(recordings, "read_recording", drawn)
    assert [item.seed for item in recordings.made({"queue": range(3)}, tmp_path)] == [0, 1, 1 + 2 * REDRAWN, 2]


def test_a_nuisance_is_known_by_its_concept_in_every_family() -> None:
    assert has_concept(recording("foreign", 1, nuisances=("congest",)), "congestion")
    assert has_concept(recording("recipes", 1, cause="congestion"), "congestion")
    assert not has_concept(recording("recipes", 1, nuisances=("drift",)), "congestion")
