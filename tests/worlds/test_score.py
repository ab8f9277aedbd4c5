"""Worlds as a statistical score (minder/simulate/worlds/families/score): what its draws promise."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from minder.model.metrics import find_metric
from minder.offline.worlds.shown import is_shown
from minder.offline.worlds.window import window_of
from minder.simulate.worlds.families import score
from minder.simulate.worlds.families.score.events import draw_causes, draw_nuisances
from minder.simulate.worlds.families.score.job import draw_job
from minder.simulate.worlds.world import NO_FAULT, World

pytestmark = pytest.mark.lab  # one family by itself, which changes rarely


def by_cell(world: World, until_s: float) -> dict[tuple[int, int, float], bytes]:
    """Values by machine, device and time, up to a time in UTC seconds."""
    keys = zip(world.machine_N.tolist(), world.device_N.tolist(), world.times_N.tolist(), strict=True)
    return {key: row.tobytes() for key, row in zip(keys, world.values_NK, strict=True) if key[2] < until_s}


def test_the_same_seed_gives_the_same_world() -> None:
    one, other = score.draw(3, machines=12), score.draw(3, machines=12)
    np.testing.assert_array_equal(one.values_NK, other.values_NK)
    np.testing.assert_array_equal(one.times_N, other.times_N)
    assert one.truth == other.truth
    assert not np.array_equal(one.values_NK[:50], score.draw(4, machines=12).values_NK[:50])


@functools.cache
def healthy_twin() -> World:
    return score.draw(11, fault=NO_FAULT, machines=9, duration_s=900.0)


@pytest.mark.parametrize("fault", sorted(score.FAULTS))
def test_a_fault_reaches_nothing_before_its_onset(fault: str) -> None:
    world, twin = score.draw(11, fault=fault, machines=9, duration_s=900.0), healthy_twin()
    assert world.truth.fault == fault and world.truth.onset_s is not None
    assert set(world.truth.culprits + world.truth.group) <= set(world.machines)
    assert bool(world.truth.group) != bool(world.truth.culprits)
    assert twin.truth.fault is None and twin.truth.nuisances == world.truth.nuisances
    until_s = world.truth.onset_s - max([120.0 * bool(world.clock_off_s), *map(abs, world.clock_off_s.values())])
    assert by_cell(world, until_s) == by_cell(twin, until_s)
    assert by_cell(world, np.inf) != by_cell(twin, np.inf)


def test_every_cause_and_nuisance_is_drawn_whether_or_not_there_is_a_fault() -> None:
    job = draw_job(1, 8, 900.0)
    causes = [draw_causes(seed, job) for seed in range(600)]
    nuisances = [draw_nuisances(seed, job) for seed in range(300)]
    assert {event.name for events in causes for event in events} == set(score.CAUSES)
    assert {event.name for events in nuisances for event in events} == set(score.NUISANCES)
    assert 0.35 < np.mean([bool(events) for events in causes]) < 0.55
    truths = [score.draw(seed, machines=4, duration_s=310.0).truth for seed in range(40)]
    assert 0.4 < np.mean([truth.fault is not None for truth in truths]) < 0.8
    for faulty in (True, False):
        mine = [truth for truth in truths if (truth.fault is not None) == faulty]
        assert any(truth.cause for truth in mine) and any(truth.nuisances for truth in mine)


@pytest.mark.lab
def test_most_faults_are_shown_by_the_telemetry() -> None:
    shown = []
    for seed in range(150):
        world = score.draw(seed, machines=7, duration_s=800.0)
        truth = world.truth
        if truth.onset_s is not None and len(world.times_N) < 4000:  # long ones take long to align
            twin = score.draw(seed, fault=NO_FAULT, machines=7, duration_s=800.0)
            shown.append(is_shown(window_of(world), window_of(twin), truth.culprits or truth.group, truth.onset_s, truth.end_s))
        if len(shown) == 24:
            break
    assert len(shown) == 24
    assert np.mean(shown) >= 0.8


@pytest.mark.parametrize("seed", range(8))
def test_values_and_sizes_lie_in_their_ranges(seed: int) -> None:
    world = score.draw(seed)
    assert 4 <= len(world.machines) <= 4000 and len(set(world.machines)) == len(world.machines)
    assert 1.0 <= world.interval_s <= 30.0 and 0.3 <= world.step_s <= 60.0
    assert 800 < np.ptp(world.times_N) < 3900
    assert not np.isnan(world.values_NK).all(axis=1).any()
    for k, name in enumerate(world.metrics):
        metric = find_metric(name)
        assert metric is not None
        known_N = world.values_NK[:, k][~np.isnan(world.values_NK[:, k])]
        assert ((known_N >= metric.low) & (known_N <= metric.high)).all(), name


def test_devices_stages_and_roles_exist_in_some_worlds() -> None:
    worlds = [score.draw(seed, machines=8, duration_s=400.0) for seed in range(30)]
    with_devices = [world for world in worlds if world.devices]
    assert with_devices and any(world.stages for world in worlds) and any(world.roles for world in worlds)
    world = with_devices[0]
    power_N = world.values_NK[:, world.metrics.index("gpu_power_draw_watts")]
    assert np.isnan(power_N[world.device_N < 0]).all() and not np.isnan(power_N[world.device_N >= 0]).all()


def test_a_hang_leaves_the_others_spinning_at_little_power() -> None:
    world, twin = (score.draw(5, fault=name, machines=10, duration_s=900.0) for name in ("hang", NO_FAULT))
    place, onset_s = world.machines.index(world.truth.culprits[0]), world.truth.onset_s or 0.0
    power = world.metrics.index("gpu_power_draw_watts")
    after_N = (world.times_N > onset_s + 40) & (world.times_N < (world.truth.end_s or np.inf))
    peers_N = after_N & (world.machine_N != place)
    before = np.nanmedian(twin.values_NK[twin.times_N > onset_s, power])
    culprit, peers = (np.nanmedian(world.values_NK[rows, power]) for rows in (after_N & ~peers_N, peers_N))
    assert culprit < peers < before
