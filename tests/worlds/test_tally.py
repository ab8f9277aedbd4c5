"""The family tally: worlds are repeatable, a fault reaches nothing before its onset, and everything that it names can be drawn."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from minder.model.errors import ConfigError
from minder.model.metrics import find_metric
from minder.offline.worlds.shown import is_shown
from minder.offline.worlds.window import window_of
from minder.simulate.worlds.families import tally
from minder.simulate.worlds.families.tally.plan import CAUSE_MAKERS, NUISANCE_MAKERS, Roll
from minder.simulate.worlds.families.tally.site import build_site
from minder.simulate.worlds.world import NO_FAULT, World

pytestmark = pytest.mark.lab  # one family by itself, which changes rarely


def small(seed: int, fault: str | None = None) -> World:
    return tally.draw(seed, fault=fault, machines=8, duration_s=700.0)


@functools.cache
def healthy_twin() -> World:
    return small(5, NO_FAULT)


def rows_before(world: World, onset_s: float) -> np.ndarray:
    """Machine, device and values of the rows that were stamped before the onset, by clocks that are right."""
    off_M = np.array([world.clock_off_s.get(name, 0.0) for name in world.machines])
    early_N = world.times_N - off_M[world.machine_N] < onset_s
    return np.column_stack([world.times_N, world.machine_N, world.device_N, world.values_NK])[early_N]


def test_the_same_seed_gives_the_same_world() -> None:
    one, other = small(3), small(3)
    np.testing.assert_array_equal(one.values_NK, other.values_NK)
    np.testing.assert_array_equal(one.times_N, other.times_N)
    assert one.truth == other.truth and one.machines == other.machines and one.racks == other.racks


@pytest.mark.parametrize("fault", sorted(tally.FAULTS))
def test_every_fault_can_be_drawn_and_reaches_nothing_before_its_onset(fault: str) -> None:
    world, twin = small(5, fault), healthy_twin()
    truth = world.truth
    assert truth.fault == fault and truth.onset_s is not None and bool(truth.culprits) != bool(truth.group)
    assert twin.truth.fault is None and not twin.truth.culprits
    assert (truth.cause, truth.nuisances) == (twin.truth.cause, twin.truth.nuisances)
    np.testing.assert_array_equal(rows_before(world, truth.onset_s), rows_before(twin, truth.onset_s))


def test_every_cause_and_nuisance_can_be_made() -> None:
    site = build_site(1, 12, 900.0)
    for name, (_, make) in [*CAUSE_MAKERS.items(), *NUISANCE_MAKERS.items()]:
        acts = make(Roll(np.random.default_rng(1), site, (2,), 300.0))
        assert acts or name == "lagging_clock", name
        assert all(act.end_s > act.start_s for act in acts), name


def test_causes_and_nuisances_come_with_and_without_a_fault() -> None:
    truths = [tally.befall(seed, build_site(seed, 12, 900.0)).truth for seed in range(240)]
    faulty = [truth for truth in truths if truth.fault]
    healthy = [truth for truth in truths if not truth.fault]
    assert 0.5 < len(faulty) / len(truths) < 0.75
    for some in (faulty, healthy):
        assert 0.25 < np.mean([truth.cause is not None for truth in some]) < 0.6
        assert 0.5 < np.mean([len(truth.nuisances) > 0 for truth in some]) < 0.95
    assert len({truth.cause for truth in truths}) >= 11
    assert len({name for truth in truths for name in truth.nuisances}) >= 18
    assert len({truth.fault for truth in faulty}) >= 20


@pytest.mark.lab
def test_most_faults_are_shown() -> None:
    faulty = [seed for seed in range(60) if tally.befall(seed, build_site(seed, 4, 330.0)).truth.fault][:24]
    unseen = []
    for seed in faulty:
        world, twin = tally.draw(seed, machines=4, duration_s=330.0), tally.draw(seed, machines=4, duration_s=330.0, fault=NO_FAULT)
        truth = world.truth
        assert truth.onset_s is not None
        if not is_shown(window_of(world), window_of(twin), truth.culprits or truth.group, truth.onset_s, truth.end_s):
            unseen.append((seed, truth.fault))
    assert len(faulty) == 24 and len(unseen) <= 4, unseen


def test_values_lie_in_what_the_metric_can_be() -> None:
    for seed in range(10):
        world = tally.draw(seed, machines=5, duration_s=500.0)
        for k, name in enumerate(world.metrics):
            metric = find_metric(name)
            assert metric is not None
            known_N = world.values_NK[~np.isnan(world.values_NK[:, k]), k]
            assert ((known_N >= metric.low) & (known_N <= metric.high)).all(), name


def test_sizes_and_intervals_lie_in_their_ranges() -> None:
    sites = [build_site(seed, None, None) for seed in range(60)]
    assert all(4 <= site.machines <= 4000 and 900 <= site.duration_s <= 3600 for site in sites)
    assert all(0.3 <= site.step_s <= 60 and 1 <= site.scrape_s <= 30 for site in sites)
    assert 20 <= np.median([site.machines for site in sites]) <= 80
    assert {site.mode for site in sites} == {"data", "pipeline", "expert", "rollout"}


def test_a_fault_that_there_is_not_is_one_line() -> None:
    with pytest.raises(ConfigError, match="no fault"):
        tally.draw(1, fault="of_another_planet")
