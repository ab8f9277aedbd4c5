"""The family fluid: same seed, same world; a fault moves its culprit and nothing before its onset; values that a site could have."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from minder.model.errors import ConfigError
from minder.model.metrics import find_metric
from minder.simulate.worlds.families import fluid
from minder.simulate.worlds.families.fluid.causes import draw_calendar, draw_cause
from minder.simulate.worlds.families.fluid.nuisances import draw_nuisances
from minder.simulate.worlds.families.fluid.site import draw_site
from minder.simulate.worlds.world import NO_FAULT, World

pytestmark = pytest.mark.lab  # one family by itself, which changes rarely

SEED = 463  # its site exports what every kind of fault needs


@functools.cache
def world(fault: str | None = None, seed: int = SEED) -> World:
    return fluid.draw(seed, fault=fault, machines=8, duration_s=420)


def rows(drawn: World, until_s: float = np.inf) -> np.ndarray:
    """All rows before until_s, of which machine clocks say nothing."""
    off = np.array([drawn.clock_off_s.get(name, 0.0) for name in drawn.machines])[drawn.machine_N]
    table = np.column_stack([drawn.times_N - off, drawn.machine_N, drawn.device_N, drawn.values_NK])
    table = table[table[:, 0] < until_s]
    return table[np.lexsort(table.T[:3])]


def moved(drawn: World, twin: World) -> np.ndarray:
    """(machines, metrics) mean change against the twin after the onset, relative to the metric's size; infinity where rows are missing."""
    onset, end = drawn.truth.onset_s or 0.0, drawn.truth.end_s or np.inf
    far = np.zeros((len(drawn.machines), len(drawn.metrics)))
    for machine in range(far.shape[0]):
        here, there = (
            each.values_NK[(each.machine_N == machine) & (each.times_N >= onset) & (each.times_N < end)] for each in (drawn, twin)
        )
        if here.shape != there.shape:
            far[machine] = np.inf
            continue
        size = np.nanmean(np.abs(np.concatenate([here, there])), axis=0)
        far[machine] = np.nan_to_num(np.nanmean(here - there, axis=0) / np.maximum(size, 1e-9))
    return far


@pytest.mark.filterwarnings("ignore:Mean of empty slice:RuntimeWarning")  # a metric that this exporter's rows do not carry
@pytest.mark.parametrize(
    "fault", [fault if place % 4 == 0 else pytest.param(fault, marks=pytest.mark.release) for place, fault in enumerate(fluid.FAULTS)]
)
def test_a_fault_moves_its_culprits_and_nothing_before_its_onset(fault: str) -> None:
    drawn, twin = world(fault), world(NO_FAULT)
    truth = drawn.truth
    hit = {*truth.culprits, *truth.group}
    assert truth.fault == fault and hit and hit <= set(drawn.machines) and not (truth.culprits and truth.group)
    assert truth.onset_s is not None and twin.truth.fault is None
    before = truth.onset_s - 2
    np.testing.assert_array_equal(rows(drawn, before), rows(twin, before))
    far, is_hit = moved(drawn, twin), np.array([name in hit for name in drawn.machines])
    odd = np.abs(far - np.median(far[~is_hit], axis=0)).max(axis=1)  # against how the others moved: they all wait
    assert odd[is_hit].min() > 0.03
    assert odd[is_hit].max() > np.median(odd[~is_hit])


def test_the_same_seed_gives_the_same_world() -> None:
    first, again = world(), fluid.draw(SEED, machines=8, duration_s=420)
    assert first.truth == again.truth and first.metrics == again.metrics and first.clock_off_s == again.clock_off_s
    np.testing.assert_array_equal(first.values_NK, again.values_NK)
    np.testing.assert_array_equal(first.times_N, again.times_N)


@pytest.mark.parametrize("seed", (SEED, 7))
def test_values_are_possible_and_rows_belong_to_machines(seed: int) -> None:
    drawn = world(None, seed)
    assert len(drawn.machines) == 8 and drawn.values_NK.shape == (drawn.times_N.size, len(drawn.metrics))
    assert drawn.machine_N.min() >= 0 and drawn.machine_N.max() < 8
    assert drawn.device_N.min() >= -1 and drawn.device_N.max() < max(len(drawn.devices), 1)
    assert np.isfinite(drawn.times_N).all() and 0.3 <= drawn.step_s <= 60 and 1 <= drawn.interval_s <= 30
    assert max(map(abs, drawn.clock_off_s.values()), default=0.0) <= 120
    for name, value_N in zip(drawn.metrics, drawn.values_NK.T, strict=True):
        metric = find_metric(name)
        assert metric is not None and not metric.spoken
        known_N = value_N[np.isfinite(value_N)]
        assert known_N.min(initial=metric.low) >= metric.low and known_N.max(initial=metric.low) <= metric.high, name


def test_seeds_spread_over_causes_nuisances_and_sizes() -> None:
    """The plan of a world alone, without integrating it."""
    causes, nuisances, sizes, healthy = set(), set(), [], 0
    for seed in range(300):
        site = draw_site(seed, None, None)
        sizes.append(site.machines)
        assert 900 <= site.duration_s <= 2400
        small = draw_site(seed, 8, 420)
        calendar, cause = draw_calendar(small), draw_cause(small, chance=1.0, terminal=True)
        causes.add(cause.name)
        nuisances |= set(draw_nuisances(small, calendar, cause).names)
        healthy += not fluid.is_faulty(seed)
    assert causes == set(fluid.CAUSES) and nuisances == set(fluid.NUISANCES)
    assert min(sizes) < 8 and max(sizes) > 1000 and max(sizes) <= 4000 and np.median(sizes) < 64
    assert 70 <= healthy <= 130


@pytest.mark.parametrize("asked", [{"fault": "gremlins"}, {"machines": 3}, {"duration_s": 10.0}])
def test_what_it_cannot_draw_is_refused(asked: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="fluid: "):
        fluid.draw(1, **asked)  # type: ignore[arg-type]
