"""The family postmortems: every script can be played, a fault changes nothing before it, the others wait, and most faults can be seen."""

from __future__ import annotations

import numpy as np
import pytest

from minder.model.errors import ConfigError
from minder.model.metrics import find_metric
from minder.offline.worlds.shown import is_shown
from minder.offline.worlds.window import window_of
from minder.simulate.worlds.families import postmortems
from minder.simulate.worlds.families.postmortems import CAUSES, FAULTS, NUISANCES, draw
from minder.simulate.worlds.world import NO_FAULT, World

pytestmark = pytest.mark.lab  # one family by itself, which changes rarely


def small(seed: int, fault: str) -> World:
    return draw(seed, fault=fault, machines=12, duration_s=900.0)


def samples(world: World, before_s: float) -> np.ndarray:
    """Machine, device, time and values of what was scraped before a time, with clocks put right."""
    off_M = np.array([world.clock_off_s.get(name, 0.0) for name in world.machines])
    times_N = world.times_N - off_M[world.machine_N]
    rows_NK: np.ndarray = np.column_stack([world.machine_N, world.device_N, times_N, world.values_NK])
    return np.asarray(rows_NK[times_N < before_s])


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_can_be_drawn_and_nothing_differs_before_it(fault: str) -> None:
    world, twin = small(11, fault), small(11, NO_FAULT)
    truth = world.truth
    assert truth.fault == fault and truth.onset_s is not None and bool(truth.culprits) != bool(truth.group)
    assert set(truth.culprits + truth.group) <= set(world.machines)
    assert (twin.truth.fault, twin.truth.culprits, twin.truth.group, twin.truth.onset_s) == (None, (), (), None)
    assert (twin.truth.cause, twin.truth.nuisances) == (truth.cause, truth.nuisances)
    np.testing.assert_allclose(samples(world, truth.onset_s - 1), samples(twin, truth.onset_s - 1), rtol=1e-12)
    assert len(samples(world, np.inf)) != len(samples(twin, np.inf)) or not np.array_equal(world.values_NK, twin.values_NK, equal_nan=True)


@pytest.mark.lab  # seconds of computing
def test_causes_and_nuisances_can_all_be_drawn_and_are_as_frequent_with_a_fault_as_without() -> None:
    truths = [draw(seed, machines=6, duration_s=300.0).truth for seed in range(300)]
    assert {truth.cause for truth in truths} == {None, *CAUSES}
    assert {name for truth in truths for name in truth.nuisances} == set(NUISANCES)
    faulty = [truth for truth in truths if truth.fault]
    assert 0.55 < len(faulty) / len(truths) < 0.7
    assert 0.4 < np.mean([truth.grey for truth in faulty]) < 0.62
    assert 0.07 < np.mean([bool(truth.group) for truth in faulty]) < 0.18
    assert 0.07 < np.mean([len(truth.culprits) == 2 for truth in faulty]) < 0.18
    for kind in (faulty, [truth for truth in truths if not truth.fault]):
        assert 0.35 < np.mean([truth.cause is not None for truth in kind]) < 0.6
        assert 1.25 < np.mean([len(truth.nuisances) for truth in kind]) < 1.7


@pytest.mark.lab  # seconds of computing
def test_at_most_a_fifth_of_the_faults_cannot_be_seen() -> None:
    shown: list[bool] = []
    for seed in range(1000, 1060):
        world = draw(seed, machines=8 + seed % 9, duration_s=1200.0)
        truth = world.truth
        if truth.onset_s is not None and len(shown) < 24:
            twin = draw(seed, machines=8 + seed % 9, duration_s=1200.0, fault=NO_FAULT)
            shown.append(is_shown(window_of(world), window_of(twin), truth.culprits or truth.group, truth.onset_s, truth.end_s))
    assert len(shown) == 24
    assert np.mean(shown) >= 0.8


@pytest.mark.lab  # seconds of computing
def test_values_and_numbers_lie_in_their_ranges() -> None:
    worlds = [draw(seed) for seed in range(2000, 2016)]
    for world in worlds:
        assert 4 <= len(world.machines) <= 4000
        assert 0.3 <= world.step_s <= 60 and 1 <= world.interval_s <= 30
        assert 800 <= np.ptp(world.times_N) <= 3600 + 300
        assert len(world.times_N) <= 130_000
        for k, name in enumerate(world.metrics):
            metric = find_metric(name)
            assert metric is not None
            known_N = world.values_NK[:, k][~np.isnan(world.values_NK[:, k])]
            assert ((known_N >= metric.low) & (known_N <= metric.high)).all(), name
    assert 10 < np.median([len(world.machines) for world in worlds]) < 200


def test_the_others_spin_while_one_machine_hangs() -> None:
    world, twin = small(3, "crashed_pair"), small(3, NO_FAULT)
    one, other = window_of(world), window_of(twin)
    after = slice(int(np.searchsorted(one.times_T, (world.truth.onset_s or 0.0) + 60)), None)
    others = [m for m, name in enumerate(one.machines) if name not in world.truth.culprits]
    busy, power = (world.metrics.index(name) for name in ("gpu_duty_cycle_ratio", "gpu_power_draw_watts"))
    now, before = (np.nanmedian(window.values_TMK[after][:, others], axis=(0, 1)) for window in (one, other))
    assert now[busy] > 0.9 and now[power] < 0.8 * before[power]


def test_a_fault_that_there_is_not_is_one_line() -> None:
    with pytest.raises(ConfigError, match="no fault"):
        postmortems.draw(1, fault="of_another_planet")
