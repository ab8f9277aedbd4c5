"""The family of worlds with the shapes of measured telemetry: its statistics, its twins, and that every kind in it shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from minder.model.metrics import find_metric
from minder.simulate.worlds.families import measured
from minder.simulate.worlds.families.measured.profiles import load_quantiles
from minder.simulate.worlds.families.measured.sketch import OF_GPU, Happening, Sketch, sketch
from minder.simulate.worlds.world import NO_FAULT, Family, World

pytestmark = pytest.mark.lab  # one family by itself, which changes rarely

FAMILY: Family = measured  # checked by mypy: the module is a family
_HOST = ("cpu_usage_ratio", "disk_usage_ratio", "memory_usage_ratio", "rdma_throughput_bytes_per_second", "rdma_xmit_wait_per_second")
ALL_METRICS = tuple(sorted({*OF_GPU, *_HOST, "link_downs_total", "link_errors_per_second", "tcp_throughput_bytes_per_second"}))


def plain(fault: str = NO_FAULT, **change: object) -> Sketch:
    """A small and quick world that exports everything, with nothing in it but what is asked for."""
    made = sketch(4, fault=fault, machines=12, duration_s=900.0)
    quiet = {"metrics": ALL_METRICS, "cards": 1, "interval_s": 10.0, "kind": "ddp", "site": "h100", "cause": None, "exchanged": None}
    return replace(made, **(quiet | {"nuisances": (), "others": 0, "stages": 1} | change))  # type: ignore[arg-type]


def cells(world: World, names: tuple[str, ...], since: float = -np.inf, before: float = np.inf) -> np.ndarray:
    """Times and values of these machines between two true times, in order."""
    off_M = np.array([world.clock_off_s.get(name, 0.0) for name in world.machines])
    true_N = np.round(world.times_N - off_M[world.machine_N], 2)
    keep_N = np.isin(np.array(world.machines)[world.machine_N], names) & (true_N >= since) & (true_N < before)
    order = np.lexsort((world.device_N[keep_N], world.machine_N[keep_N], true_N[keep_N]))
    return np.column_stack([true_N[keep_N], world.values_NK[keep_N]])[order]


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=1e-9, equal_nan=True))


def metric(world: World, name: str) -> np.ndarray:
    """(machines, scrapes) of a metric, without the scrapes of which a row is lost or in which the job writes a checkpoint."""
    table_MT = np.full((len(world.machines), int(1 + np.ptp(world.times_N) / world.interval_s)), np.nan)
    for machine in range(len(world.machines)):
        times_N, values_N = (of_N[world.machine_N == machine] for of_N in (world.times_N, world.values_NK[:, world.metrics.index(name)]))
        table_MT[machine, np.rint((times_N - times_N[0]) / world.interval_s).astype(int)] = values_N
    table_MT = table_MT[:, ~np.isnan(table_MT).any(axis=0)]
    return table_MT[:, (table_MT > 0.8 * np.median(table_MT, axis=1, keepdims=True)).all(axis=0)]


def assert_within_the_catalogue(world: World) -> None:
    for k, name in enumerate(world.metrics):
        known, shown = find_metric(name), world.values_NK[:, k][~np.isnan(world.values_NK[:, k])]
        assert known is not None
        assert not len(shown) or (known.low <= shown.min() and shown.max() <= known.high), name


@pytest.fixture(scope="module")
def healthy() -> World:
    return measured.build(plain())


@pytest.mark.parametrize("seed", [1, 2, 31])
def test_the_same_seed_gives_the_same_world_bit_for_bit(seed: int) -> None:
    first, second = (measured.draw(seed, machines=9, duration_s=300.0) for _ in range(2))
    assert first.truth == second.truth
    for name in ("times_N", "machine_N", "device_N", "values_NK"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()
    assert first.values_NK.shape == (len(first.times_N), len(first.metrics))
    assert_within_the_catalogue(first)


@pytest.mark.parametrize("fault", measured.FAULTS)
def test_a_fault_shows_on_its_culprit_and_changes_nothing_before_its_onset(fault: str, healthy: World) -> None:
    world = measured.build(plain(fault))
    truth = world.truth
    assert truth.onset_s is not None
    assert (truth.fault, bool(truth.group)) == (fault, fault.startswith("group"))
    assert len(truth.culprits) == (0 if truth.group else 2 if fault == "two_slow" else 1)
    assert same(cells(world, world.machines, before=truth.onset_s - 0.1), cells(healthy, healthy.machines, before=truth.onset_s - 0.1))
    blamed = truth.culprits or truth.group
    assert not same(cells(world, blamed, since=truth.onset_s), cells(healthy, blamed, since=truth.onset_s))
    assert (truth.onset_s - world.times_N.min() < 200) == (fault in ("early_stall", "slow_from_start"))
    assert_within_the_catalogue(world)


@pytest.mark.parametrize("nuisance", [name for name in measured.NUISANCES if name not in ("unlike_roles", "clock_off")])
def test_a_nuisance_shows_and_leaves_all_machines_healthy(nuisance: str, healthy: World) -> None:
    it = Happening(nuisance, (0,) if nuisance == "rank0_writes" else (3,), 300.0, 600.0, 0.7)
    world = measured.build(plain(nuisances=(it,)))
    assert (world.truth.culprits, world.truth.nuisances) == ((), (nuisance,))
    mine = (world.machines[it.who[0]],)
    assert not same(cells(world, mine), cells(healthy, mine))
    assert_within_the_catalogue(world)


def test_a_wrong_clock_moves_the_times_of_one_machine_only(healthy: World) -> None:
    world = measured.build(plain(nuisances=(Happening("clock_off", (3,), 0.0, np.inf, 0.7),)))
    ((name, off_s),) = world.clock_off_s.items()
    assert 15 <= abs(off_s) <= 120
    here_N, there_N = world.machine_N == world.machines.index(name), healthy.machine_N == healthy.machines.index(name)
    assert np.allclose(np.sort(world.times_N[here_N]) - np.sort(healthy.times_N[there_N]), off_s, atol=0.01)
    assert same(cells(world, world.machines), cells(healthy, healthy.machines))


@pytest.mark.parametrize("cause", measured.CAUSES)
def test_a_cause_hits_the_machines_alike(cause: str, healthy: World) -> None:
    world = measured.build(plain(cause=Happening(cause, tuple(range(12)), 400.0, 700.0, 0.6)))
    assert (world.truth.cause, world.truth.culprits) == (cause, ())
    assert all(not same(cells(world, (name,)), cells(healthy, (name,))) for name in world.machines)


def test_a_machine_that_a_restart_replaces_hands_over_to_a_standby() -> None:
    restart = Happening("restart", tuple(range(12)), 400.0, 500.0, 0.5)
    world = measured.build(plain(cause=restart, exchanged=5))
    old_N, new_N = (world.times_N[world.machine_N == k] for k in (5, 12))
    assert world.machines[12] == "n-standby"
    assert old_N.max() < new_N.min()


def test_statistics_are_those_that_were_measured() -> None:
    """Peers' power moves together in data parallel training and hardly between machines that serve; temperature differs by slot."""
    power = metric(measured.build(plain(others=6, interval_s=1.0, duration_s=1800.0)), "gpu_power_draw_watts")
    train, serve = (np.median(np.corrcoef(part_MT)[np.triu_indices(6, 1)]) for part_MT in (power[:6], power[6:]))
    assert train > 0.8
    assert serve < 0.35
    slots = measured.build(plain(cards=8))
    degrees = slots.values_NK[:, slots.metrics.index("gpu_temperature_celsius")]
    mean_by_slot = [np.nanmean(degrees[slots.device_N == card]) for card in range(8)]
    assert 6 < max(mean_by_slot) - min(mean_by_slot) < 14


@pytest.mark.parametrize("site", ["kalos", "seren"])
def test_levels_of_an_a100_site_lie_in_its_marginals(site: str) -> None:
    quantiles = load_quantiles(site)
    world = measured.build(plain(site=site, kind="accumulation"))
    power = metric(world, "gpu_power_draw_watts")
    assert quantiles.value("gpu_power_draw_watts", 0.5) < np.median(power) < quantiles.value("gpu_power_draw_watts", 0.999) * 1.05
    assert all(np.all(np.diff(values_Q) >= 0) for values_Q in quantiles.values.values())


def test_sizes_shares_and_kinds_of_what_seeds_choose() -> None:
    made = [sketch(seed) for seed in range(400)]
    faults = Counter(one.fault.name if one.fault else None for one in made)
    assert (min(one.count for one in made), max(one.count for one in made) <= 4000) == (4, True)
    assert np.median([one.count for one in made]) < 64
    assert max(one.count for one in made) > 500
    assert 0.25 < faults[None] / 400 < 0.42
    assert set(faults) == {None, *measured.FAULTS}
    assert {one.cause.name for one in made if one.cause} == set(measured.CAUSES)
    assert {it.name for one in made for it in one.nuisances} == set(measured.NUISANCES)
    assert 0.5 < sum(one.cause is not None for one in made if one.fault is None) / faults[None] < 0.8
    assert 0.25 < sum(one.fault.grey for one in made if one.fault) / (400 - faults[None]) < 0.45
    assert {one.kind for one in made} == {"ddp", "accumulation", "fsdp", "expert"}


def test_an_unknown_fault_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(ValueError, match="no 'flood' in this family; it has busy_processor"):
        measured.draw(1, fault="flood")
