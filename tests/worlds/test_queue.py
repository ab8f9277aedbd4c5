"""The family of worlds from a queueing model: reproducible, with a twin without the fault, and every kind in it shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from minder.model.metrics import find_metric
from minder.simulate.worlds.families import queue
from minder.simulate.worlds.families.queue.layout import GPU_METRICS, HOST_METRICS
from minder.simulate.worlds.world import NO_FAULT, Family, World

pytestmark = pytest.mark.lab  # one family by itself, which changes rarely

ALL_METRICS = tuple(sorted(GPU_METRICS | HOST_METRICS))
FAMILY: Family = queue  # checked by mypy: the module is a family


def plan(seed: int, fault: str = NO_FAULT, nuisance: str | None = None, cause: str | None = None) -> queue.Plan:
    """A small and quick world that exports everything, with nothing in it but what is asked for."""
    made = queue.plan(seed, fault=fault, machines=12, duration_s=900.0)
    shape = {"gpus": 1, "step_s": 5.0, "interval_s": 10.0, "windows_s": (1.0, 10.0, 10.0), "metrics": ALL_METRICS, "loss": 0.0}
    shape |= {"two_exporters": False, "rollout_M": np.zeros(12, dtype=bool), "jitter": 0.01, "evaluation_every_s": np.inf}
    with_nuisance = {"nuisances": (nuisance,) if nuisance else (), "on": (3,) if nuisance != "rank0_writes" else (0,)}
    if nuisance is None:
        with_nuisance["on"] = ()
    return replace(made, layout=replace(made.layout, **shape), cause=cause, cause_at_s=300.0, exchanged=None, **with_nuisance)


def rows_of(world: World, machines: tuple[str, ...], before: float = np.inf, since: float = -np.inf) -> tuple[np.ndarray, np.ndarray]:
    """Times and values of these machines' rows in a span of true time."""
    off_M = np.array([world.clock_off_s.get(name, 0.0) for name in world.machines])
    times_N = world.times_N - off_M[world.machine_N]
    here_N = np.isin(world.machine_N, [world.machines.index(name) for name in machines]) & (times_N < before) & (times_N >= since)
    order = np.lexsort((world.device_N[here_N], times_N[here_N]))
    return times_N[here_N][order], world.values_NK[here_N][order]


def differ(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> bool:
    return one[1].shape != other[1].shape or not np.allclose(one[1], other[1], rtol=1e-7, equal_nan=True)


def assert_within_the_catalogue(world: World) -> None:
    for k, name in enumerate(world.metrics):
        metric, shown = find_metric(name), world.values_NK[:, k][~np.isnan(world.values_NK[:, k])]
        assert metric is not None
        assert not len(shown) or (metric.low <= shown.min() and shown.max() <= metric.high), name


@pytest.fixture(scope="module")
def healthy() -> World:
    return queue.build(plan(3))


@pytest.mark.parametrize("seed", [1, 2, 17])
def test_the_same_seed_gives_the_same_world_bit_for_bit(seed: int) -> None:
    first, second = (queue.draw(seed, machines=9, duration_s=300.0) for _ in range(2))
    assert first.truth == second.truth
    for name in ("times_N", "machine_N", "device_N", "values_NK"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()
    assert first.values_NK.shape == (len(first.times_N), len(first.metrics))
    assert queue.draw(seed + 1, machines=9, duration_s=300.0).values_NK.tobytes() != first.values_NK.tobytes()
    assert_within_the_catalogue(first)


@pytest.mark.parametrize("fault", queue.FAULTS)
def test_a_fault_shows_on_its_culprit_and_changes_nothing_before_its_onset(fault: str, healthy: World) -> None:
    world = queue.build(plan(3, fault))
    truth = world.truth
    blamed = truth.culprits or truth.group
    assert truth.fault == fault
    assert truth.onset_s is not None
    assert (len(truth.culprits), len(truth.group) >= 2) == {"two_slow": (2, False)}.get(
        fault, (0, True) if "group" in fault else (1, False)
    )
    assert not differ(rows_of(world, world.machines, truth.onset_s - 0.01), rows_of(healthy, world.machines, truth.onset_s - 0.01))
    assert differ(rows_of(world, blamed, since=truth.onset_s), rows_of(healthy, blamed, since=truth.onset_s))
    assert (truth.onset_s - world.times_N.min() < 200) == (fault in ("early_stall", "slow_from_start"))
    assert_within_the_catalogue(world)


@pytest.mark.parametrize("nuisance", [name for name in queue.NUISANCES if name != "unlike_roles"])
def test_a_nuisance_shows_and_leaves_all_machines_healthy(nuisance: str, healthy: World) -> None:
    world = queue.build(plan(3, nuisance=nuisance))
    assert world.truth.culprits == ()
    assert world.truth.nuisances == (nuisance,)
    shown = differ(rows_of(world, world.machines), rows_of(healthy, world.machines))
    assert shown or (nuisance == "clock_off" and 15 <= abs(next(iter(world.clock_off_s.values()))) <= 120)
    assert_within_the_catalogue(world)


@pytest.mark.parametrize("cause", queue.CAUSES)
def test_a_cause_hits_the_machines_alike(cause: str, healthy: World) -> None:
    world = queue.build(plan(3, cause=cause))
    assert (world.truth.cause, world.truth.culprits) == (cause, ())
    hit = [differ(rows_of(world, (name,)), rows_of(healthy, (name,))) for name in world.machines]
    assert all(hit)


def test_while_one_machine_hangs_its_peers_spin_in_the_collective() -> None:
    world = queue.build(plan(3, "stall"))
    power, onset = world.metrics.index("gpu_power_draw_watts"), world.truth.onset_s or 0.0
    late = (onset + 60.0, onset + 200.0)
    hung = rows_of(world, world.truth.culprits, late[1], late[0])[1][:, power].mean()
    peers = tuple(name for name in world.machines if name not in world.truth.culprits)
    waiting, before = rows_of(world, peers, late[1], late[0])[1][:, power].mean(), rows_of(world, peers, onset)[1][:, power].mean()
    assert hung < waiting < before


def test_a_slow_port_carries_no_more_than_its_peers() -> None:
    """The same bytes take it longer: its average over whole steps is theirs."""
    world = queue.build(plan(3, "slow_network"))
    rdma, onset = world.metrics.index("rdma_throughput_bytes_per_second"), world.truth.onset_s or 0.0
    peers = tuple(name for name in world.machines if name not in world.truth.culprits)
    slow, usual = (rows_of(world, names, since=onset + 30.0)[1][:, rdma].mean() for names in (world.truth.culprits, peers))
    assert slow < 1.1 * usual


def test_roles_and_devices_are_told_apart() -> None:
    made = plan(3)
    mixed = queue.build(replace(made, layout=replace(made.layout, rollout_M=np.arange(12) >= 8, gpus=2)))
    assert set(mixed.roles.values()) == {"trainer", "rollout"}
    assert mixed.devices == ("gpu0", "gpu1")
    assert set(mixed.device_N) == {-1, 0, 1}
    tensor = mixed.values_NK[:, mixed.metrics.index("gpu_tensor_activity_ratio")]
    assert np.nanmean(tensor[mixed.machine_N >= 8]) < 0.6 * np.nanmean(tensor[mixed.machine_N < 8])
    assert np.isnan(tensor[mixed.device_N == -1]).all()


def test_sizes_shares_and_kinds_of_what_seeds_choose() -> None:
    plans = [queue.plan(seed) for seed in range(400)]
    counts = [len(made.layout.machines) for made in plans]
    faults, causes = Counter(made.fault for made in plans), Counter(made.cause for made in plans)
    assert min(counts) >= 4
    assert 500 < max(counts) <= 4000
    assert np.median(counts) < 64
    assert 0.25 < faults[None] / 400 < 0.42
    assert set(faults) == {None, *queue.FAULTS}
    assert set(causes) == {None, *queue.CAUSES}
    assert 0.5 < sum(made.cause is not None for made in plans if made.fault is None) / faults[None] < 0.8
    assert {name for made in plans for name in made.nuisances} == set(queue.NUISANCES)
    assert all(0.3 <= made.layout.step_s <= 60 and 1 <= made.layout.interval_s <= 30 for made in plans)
    assert all(900 <= made.layout.duration_s <= 2400 for made in plans)


def test_a_large_job_has_as_many_machines_as_asked_for() -> None:
    world = queue.draw(5, machines=1000, duration_s=120.0)
    assert len(set(world.machine_N)) == 1000


def test_an_unknown_fault_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(ValueError, match="'flood' is none of busy_processor"):
        queue.draw(1, fault="flood")
