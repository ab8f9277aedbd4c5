"""The family of timelines: what it can draw, what its twins share, and that values are such as exporters give."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from minder.model.metrics import find_metric
from minder.offline.worlds.shown import is_shown
from minder.offline.worlds.window import window_of
from minder.simulate.worlds.families.kernels import CAUSES, FAULTS, NUISANCES, draw
from minder.simulate.worlds.world import NO_FAULT, World

pytestmark = pytest.mark.lab  # one family by itself, which changes rarely


def small(seed: int, fault: str | None = None) -> World:
    return draw(seed, fault=fault, machines=8, duration_s=600.0)


def faulty(fault: str) -> tuple[World, World]:
    """A world with this fault and its twin, without what may hide the fault: an exporter that is silent or frozen for other reasons."""
    worlds = (small(seed, fault) for seed in range(60))
    world = next(world for world in worlds if not world.truth.cause and not world.truth.nuisances and not world.devices)
    return world, small(world.seed, NO_FAULT)


def test_the_same_seed_gives_the_same_world() -> None:
    for seed in (1, 2):
        one, other = small(seed), small(seed)
        assert one.truth == other.truth and one.machines == other.machines
        np.testing.assert_array_equal(one.values_NK, other.values_NK)
        np.testing.assert_array_equal(one.times_N, other.times_N)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_differs_from_its_twin_and_only_after_the_onset(fault: str) -> None:
    for seed in (3,):
        world, twin = small(seed, fault), small(seed, NO_FAULT)
        assert world.truth.fault == fault and twin.truth.fault is None
        assert world.truth.onset_s is not None and np.isfinite(world.truth.onset_s)
        assert (world.truth.cause, world.truth.nuisances, world.clock_off_s) == (twin.truth.cause, twin.truth.nuisances, twin.clock_off_s)
        off_s = max([0.0, *(-off_s for off_s in world.clock_off_s.values())])
        early, usual = (drawn.times_N < world.truth.onset_s - off_s for drawn in (world, twin))
        np.testing.assert_array_equal(world.values_NK[early], twin.values_NK[usual])
        assert world.values_NK.shape != twin.values_NK.shape or not np.array_equal(world.values_NK, twin.values_NK, equal_nan=True)
        assert set(world.truth.culprits + world.truth.group) < set(world.machines)


def test_every_cause_and_nuisance_can_be_drawn() -> None:
    truths = [draw(seed, machines=4, duration_s=200.0).truth for seed in range(110)]
    assert {truth.cause for truth in truths} == {None, *CAUSES}
    assert {name for truth in truths for name in truth.nuisances} == set(NUISANCES)
    assert len(FAULTS) >= 16 and len(NUISANCES) >= 12
    assert 0.5 < np.mean([truth.fault is not None for truth in truths]) < 0.75


@pytest.mark.lab  # seconds of computing
def test_faults_can_be_seen() -> None:
    shown: list[bool] = []
    for seed in range(60):
        world = draw(seed, machines=12, duration_s=700.0)
        if world.truth.onset_s is not None:
            twin, named = draw(seed, fault=NO_FAULT, machines=12, duration_s=700.0), world.truth.culprits or world.truth.group
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # machines of which nothing was heard
                shown.append(is_shown(window_of(world), window_of(twin), named, world.truth.onset_s, world.truth.end_s))
        if len(shown) == 24:
            break
    assert len(shown) == 24 and np.mean(shown) >= 0.8


def test_values_lie_in_what_the_metric_can_be() -> None:
    for seed in range(30, 38):
        world = small(seed)
        for k, name in enumerate(world.metrics):
            metric, values_N = find_metric(name), world.values_NK[:, k]
            known_N = values_N[np.isfinite(values_N)]
            assert metric is not None and ((known_N >= metric.low) & (known_N <= metric.high)).all(), (seed, name)


def test_sizes_are_in_their_ranges() -> None:
    worlds = [draw(seed, duration_s=900.0) for seed in range(7)]
    assert all(4 <= len(world.machines) <= 4000 for world in worlds)
    assert all(1.0 <= world.interval_s <= 30.0 and 0.3 <= world.step_s <= 60.0 for world in worlds)


def test_all_wait_for_a_slow_clock_and_spin_at_little_power() -> None:
    world, twin = faulty("two_clocks")
    after, before = (drawn.times_N > (world.truth.onset_s or 0.0) + 60 for drawn in (world, twin))
    power = world.metrics.index("gpu_power_draw_watts")
    peers_N = ~np.isin(world.machine_N, [world.machines.index(name) for name in world.truth.culprits])
    assert np.nanmean(world.values_NK[after & peers_N, power]) < 0.97 * np.nanmean(twin.values_NK[before, power])


def test_a_hang_leaves_the_peers_spinning() -> None:
    world, twin = faulty("dead_process")
    duty, power = world.metrics.index("gpu_duty_cycle_ratio"), world.metrics.index("gpu_power_draw_watts")
    culprit = world.machine_N == world.machines.index(world.truth.culprits[0])
    onset_s, end_s = world.truth.onset_s or 0.0, world.truth.end_s or np.inf
    hung = (world.times_N > onset_s + 60) & (world.times_N < end_s)
    assert np.nanmedian(world.values_NK[hung & ~culprit, duty]) > 0.9 and np.nanmedian(world.values_NK[hung & culprit, duty]) < 0.1
    assert np.nanmedian(world.values_NK[hung & ~culprit, power]) < 0.6 * np.nanmedian(twin.values_NK[twin.times_N < onset_s, power])
