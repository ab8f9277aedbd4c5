"""The family rollouts: every kind can be drawn, nothing differs before a fault, waits propagate, and most faults can be seen."""

from __future__ import annotations

import numpy as np
import pytest

from minder.model.errors import ConfigError
from minder.model.metrics import find_metric
from minder.offline.worlds.shown import is_shown
from minder.offline.worlds.window import window_of
from minder.simulate.worlds.families.rollouts import CAUSES, FAULTS, NUISANCES, draw
from minder.simulate.worlds.world import NO_FAULT, Truth, World

pytestmark = pytest.mark.lab  # one family by itself, which changes rarely


def small(seed: int, fault: str) -> World:
    return draw(seed, fault=fault, machines=12, duration_s=900.0)


def samples(world: World, before_s: float) -> np.ndarray:
    """Machine, device, time and values of what was scraped before a time, with clocks put right, machine by machine."""
    off_M = np.array([world.clock_off_s.get(name, 0.0) for name in world.machines])
    times_N = world.times_N - off_M[world.machine_N]
    rows_NK = np.column_stack([world.machine_N, world.device_N, times_N, world.values_NK])[times_N < before_s]
    return np.asarray(rows_NK[np.lexsort((rows_NK[:, 2], rows_NK[:, 1], rows_NK[:, 0]))])


def level(world: World, metric: str, machines: list[str], first_s: float, last_s: float) -> float:
    """The mean of a metric over machines, from and until so many seconds after the onset."""
    window, onset_s = window_of(world), float(world.truth.onset_s or 0.0)
    rows = slice(*(int(n) for n in np.searchsorted(window.times_T, [onset_s + first_s, onset_s + last_s])))
    return float(np.nanmean(window.values_TMK[rows][:, [window.machines.index(m) for m in machines], window.metrics.index(metric)]))


def test_the_same_seed_gives_the_same_world_and_another_another() -> None:
    one, same, other = draw(3), draw(3), draw(4)
    assert np.array_equal(one.values_NK, same.values_NK, equal_nan=True)
    assert (one.machines, one.truth) == (same.machines, same.truth) and one.machines != other.machines


@pytest.mark.parametrize("seed", [11, 12])  # of other kinds of job
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_can_be_drawn_and_nothing_differs_before_it(fault: str, seed: int) -> None:
    world, twin = small(seed, fault), small(seed, NO_FAULT)
    truth = world.truth
    assert truth.fault == fault and truth.onset_s is not None and bool(truth.culprits) != bool(truth.group)
    assert set(truth.culprits + truth.group) <= set(world.machines) and twin.truth == Truth(cause=truth.cause, nuisances=truth.nuisances)
    np.testing.assert_allclose(samples(world, truth.onset_s - 1), samples(twin, truth.onset_s - 1), rtol=1e-12)
    assert len(world.times_N) != len(twin.times_N) or not np.array_equal(world.values_NK, twin.values_NK, equal_nan=True)


@pytest.mark.lab  # seconds of computing
def test_causes_and_nuisances_can_all_be_drawn_and_are_as_frequent_with_a_fault_as_without() -> None:
    truths = [draw(seed, machines=6, duration_s=300.0).truth for seed in range(400)]
    assert {truth.cause for truth in truths} == {None, *CAUSES}
    assert {name for truth in truths for name in truth.nuisances} == set(NUISANCES)
    faulty = [truth for truth in truths if truth.fault]
    assert 0.54 < len(faulty) / len(truths) < 0.7 and 0.4 < np.mean([truth.grey for truth in faulty]) < 0.62
    for kind in ([bool(truth.group) for truth in faulty], [len(truth.culprits) == 2 for truth in faulty]):
        assert 0.06 < np.mean(kind) < 0.2
    for part in (faulty, [truth for truth in truths if not truth.fault]):
        assert 0.37 < np.mean([truth.cause is not None for truth in part]) < 0.53
        assert 1.3 < np.mean([len(truth.nuisances) for truth in part]) < 1.7


@pytest.mark.lab  # seconds of computing
def test_at_most_a_fifth_of_the_faults_cannot_be_seen() -> None:
    shown = []
    for seed in range(1000, 1040):
        world, twin = (draw(seed, machines=8 + seed % 9, duration_s=1200.0, fault=fault) for fault in (None, NO_FAULT))
        if (truth := world.truth).onset_s is not None:
            shown.append(is_shown(window_of(world), window_of(twin), truth.culprits or truth.group, truth.onset_s, truth.end_s))
    assert len(shown) > 18 and np.mean(shown) >= 0.8


@pytest.mark.lab  # seconds of computing
def test_values_and_numbers_lie_in_their_ranges() -> None:
    worlds = [draw(seed) for seed in range(2000, 2016)]
    for world in worlds:
        assert 4 <= len(world.machines) <= 4001 and 0.3 <= world.step_s <= 60 and 1 <= world.interval_s <= 30
        assert 800 <= np.ptp(world.times_N) <= 3600 + 300 and len(world.times_N) <= 130_000
        for k, metric in enumerate(find_metric(name) for name in world.metrics):
            assert metric is not None
            known_N = world.values_NK[:, k][~np.isnan(world.values_NK[:, k])]
            assert ((known_N >= metric.low) & (known_N <= metric.high)).all(), metric.name
    assert 10 < np.median([len(world.machines) for world in worlds]) < 200


def test_all_wait_for_a_worker_that_stands_and_for_slow_clocks() -> None:
    names = ("gpu_duty_cycle_ratio", "gpu_power_draw_watts")
    seed = next(seed for seed in range(99) if not (w := small(seed, NO_FAULT)).truth.cause and not w.roles and set(names) <= set(w.metrics))
    for fault, less in (("disk_full", 0.8), ("slow_pair", 0.99)):
        world = small(seed, fault)
        others = [name for name in world.machines if name not in world.truth.culprits]
        assert level(world, "gpu_power_draw_watts", others, 60, 180) < less * level(world, "gpu_power_draw_watts", others, -150, -5)
        assert level(world, "gpu_duty_cycle_ratio", others, 60, 180) > 0.8  # they spin


def test_a_fault_that_there_is_not_is_one_line() -> None:
    with pytest.raises(ConfigError, match="no fault"):
        draw(1, fault="of_another_planet")
