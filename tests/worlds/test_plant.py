"""The family plant: worlds read off the physics of heat, clocks, lanes and links."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest

from minder.model.metrics import find_metric
from minder.offline.worlds.shown import is_shown
from minder.offline.worlds.window import window_of
from minder.simulate.worlds.families import plant
from minder.simulate.worlds.families.plant.background import apply_background, choose_background
from minder.simulate.worlds.families.plant.changes import Changes
from minder.simulate.worlds.families.plant.faults import GROUPED, choose_fault
from minder.simulate.worlds.families.plant.site import draw_site
from minder.simulate.worlds.world import NO_FAULT, World

pytestmark = pytest.mark.lab  # one family by itself, which changes rarely


@functools.cache
def small(seed: int, fault: str | None = None, duration_s: float = 240.0) -> World:
    return plant.draw(seed, fault=fault, machines=6 + seed % 7, duration_s=duration_s)


def test_the_same_seed_gives_the_same_world() -> None:
    one, other = plant.draw(7, machines=8, duration_s=240.0), plant.draw(7, machines=8, duration_s=240.0)
    assert one.truth == other.truth and one.metrics == other.metrics
    np.testing.assert_array_equal(one.times_N, other.times_N)
    np.testing.assert_array_equal(one.values_NK, other.values_NK)


@pytest.mark.parametrize("fault", plant.FAULTS)
def test_every_fault_can_be_drawn_and_nothing_differs_before_it(fault: str) -> None:
    seed = 40 + list(plant.FAULTS).index(fault) % 5  # few twins serve all
    world, twin = small(seed, fault), small(seed, NO_FAULT)
    truth = world.truth
    assert truth.fault == fault and truth.onset_s is not None and truth.end_s is not None and truth.onset_s < truth.end_s
    assert bool(truth.group) == (fault in GROUPED) and not (truth.group and truth.culprits)
    assert twin.truth.fault is None and twin.truth.nuisances == truth.nuisances and twin.truth.cause == truth.cause
    assert world.metrics == twin.metrics and world.machines == twin.machines
    rows = []
    for each in (world, twin):
        off_M = np.array([each.clock_off_s.get(name, 0.0) for name in each.machines])
        before_N = each.times_N - off_M[each.machine_N] < truth.onset_s
        rows.append(np.column_stack([each.times_N, each.machine_N, each.device_N, each.values_NK])[before_N])
    np.testing.assert_array_equal(rows[0], rows[1])


def test_faults_change_the_plant_and_are_as_frequent_as_said() -> None:
    drawn = []
    for seed in range(300):
        site = draw_site(seed, None, None)
        drawn.append(choose_fault(site, seed, None, choose_background(site, seed)))
    faults = [fault for fault in drawn if fault is not None]
    assert 0.55 < len(faults) / len(drawn) < 0.69
    assert 0.4 < np.mean([fault.grey for fault in faults]) < 0.7
    assert 0.04 < np.mean([fault.grouped for fault in faults]) < 0.17
    assert {fault.name for fault in faults} == set(plant.FAULTS)


def test_sites_lie_in_their_ranges_and_every_cause_and_nuisance_is_drawn() -> None:
    many, causes, nuisances = [], set(), set()
    for seed in range(200):
        site = draw_site(seed, None, None)
        many.append(len(site.names))
        assert 1.0 <= site.scrape_s <= 30.0 and 0.3 <= site.step_s <= 60.0 and 900.0 <= site.duration_s <= 3600.0
        background = choose_background(site, seed)
        causes.add(background.cause)
        nuisances |= {name for name, _ in background.nuisances}
        if len(site.names) < 12:
            off_s = apply_background(site, Changes(site), background, seed)
            assert all(abs(seconds) <= 120.0 for seconds in off_s.values())
    assert min(many) >= 4 and max(many) <= 4000 and 25 < np.median(many) < 60
    assert causes == {None, *plant.CAUSES} and nuisances == set(plant.NUISANCES)


def test_values_are_what_a_metric_can_be() -> None:
    for seed in range(70, 82):
        world = small(seed)
        for k, name in enumerate(world.metrics):
            metric, value_N = find_metric(name), world.values_NK[:, k]
            assert metric is not None, name
            known_N = value_N[~np.isnan(value_N)]
            assert np.all((known_N >= metric.low) & (known_N <= metric.high)), (seed, name)


@pytest.mark.lab
def test_most_faults_are_shown() -> None:
    shown = []
    for seed in range(200, 240):
        if len(shown) == 24:
            break
        world = small(seed, None, 400.0)
        truth = world.truth
        if truth.onset_s is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # metrics that none of the machines has
                windows = window_of(world), window_of(small(seed, NO_FAULT, 400.0))
                shown.append(is_shown(*windows, truth.culprits or truth.group, truth.onset_s, truth.end_s))
    assert len(shown) >= 20 and np.mean(shown) >= 0.8, shown


def test_a_machine_that_throttles_slows_the_others() -> None:
    """A synchronous job: the others' power falls as they wait."""
    for seed in range(300, 320):
        world, twin = (plant.draw(seed, fault=fault, machines=8, duration_s=400.0) for fault in ("power_brake", NO_FAULT))
        if (
            world.truth.cause is None
            and not world.roles
            and world.truth.onset_s is not None
            and "first_writer" not in world.truth.nuisances
        ):
            break
    culprit = world.machines.index(world.truth.culprits[0])
    k = world.metrics.index("gpu_power_draw_watts")
    after_N = (world.times_N > (world.truth.onset_s or 0.0) + 60.0) & (world.times_N < (world.truth.end_s or 0.0))
    others_N = after_N & (world.machine_N != culprit)
    assert np.nanmean(world.values_NK[others_N, k]) < 0.95 * np.nanmean(twin.values_NK[others_N, k])


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="no fault"):
        plant.draw(1, fault="gremlins")
