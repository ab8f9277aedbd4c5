"""What every family of generators promises (world.py). Families of other modules are held to it as soon as they are there."""

from __future__ import annotations

import numpy as np
import pytest

from minder.model.errors import ConfigError
from minder.model.metrics import find_metric
from minder.offline.worlds.window import peer_groups, recorded_truth, window_of
from minder.simulate.worlds.catalogue import TUNED_ON, family_names, group_of, load_family
from minder.simulate.worlds.world import NO_FAULT, World

SEED = 7  # has a fault in the families that are listed here


def small(family: str, **asked: object) -> World:
    return load_family(family).draw(SEED, machines=6, duration_s=700.0, **asked)  # type: ignore[arg-type]


QUICK = ("recipes", "foreign", "tally", "packets", "rollouts")
SLOW = ("classic", "barriers", "regimes", "kernels", "postmortems")


@pytest.fixture(params=[*QUICK, *(pytest.param(name, marks=pytest.mark.lab) for name in SLOW)])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_same_arguments_give_the_same_world(family: str) -> None:
    one, other = small(family), small(family)
    np.testing.assert_array_equal(one.values_NK, other.values_NK)
    np.testing.assert_array_equal(one.times_N, other.times_N)
    assert one.truth == other.truth


def test_the_twin_is_the_same_until_the_onset_and_has_no_culprit(family: str) -> None:
    fault = next(name for name in load_family(family).FAULTS if name in ("hang", "gpu_lost"))
    world, twin = small(family, fault=fault), small(family, fault=NO_FAULT)
    assert world.truth.culprits and world.truth.onset_s is not None
    assert not twin.truth.culprits and twin.truth.fault is None
    assert set(world.truth.culprits) <= set(world.machines)


def test_a_seed_s_own_world_and_its_twin_agree_before_the_onset(family: str) -> None:
    seed = next(seed for seed in range(1, 9) if load_family(family).draw(seed, machines=6).truth.onset_s is not None)
    world, twin = (load_family(family).draw(seed, machines=6, fault=fault) for fault in (None, NO_FAULT))
    one, other = window_of(world), window_of(twin)
    before = min(int(np.searchsorted(one.times_T, float(world.truth.onset_s or 0.0) - 20.0)), len(other.times_T))
    assert before > 5
    agree = np.isclose(one.values_TMK[:before], other.values_TMK[:before], equal_nan=True).mean()
    assert agree > 0.9, "random numbers of the fault move those of the world"


def test_values_are_in_the_units_of_the_catalogue(family: str) -> None:
    world = small(family)
    for k, name in enumerate(world.metrics):
        metric = find_metric(name)
        assert metric is not None, name
        values_N = world.values_NK[:, k]
        known_N = values_N[~np.isnan(values_N)]
        assert ((known_N >= metric.low) & (known_N <= metric.high)).mean() > 0.99, name


def test_machines_and_peers_are_named(family: str) -> None:
    world = small(family)
    assert set(peer_groups(world)) <= set(world.machines)
    truth = recorded_truth(world)
    assert truth.machine is None or truth.machine in world.machines


def test_every_module_is_a_family_of_a_group() -> None:
    for name in family_names():
        module = load_family(name)
        assert name == module.NAME
        assert module.FAULTS and module.CAUSES and module.NUISANCES
        assert all(text for table in (module.FAULTS, module.CAUSES, module.NUISANCES) for text in table.values())
    assert set(TUNED_ON) <= set(family_names())
    assert group_of("recipes") == group_of("classic") != group_of("barriers")


def test_a_family_that_there_is_not_is_one_line() -> None:
    with pytest.raises(ConfigError, match="no family"):
        load_family("of_another_planet")
