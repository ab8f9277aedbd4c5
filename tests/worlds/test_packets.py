"""The family `packets`: what it promises of its worlds, their sizes and their faults."""

from __future__ import annotations

import numpy as np
import pytest

from minder.model.metrics import find_metric
from minder.offline.worlds.shown import is_shown
from minder.offline.worlds.window import window_of
from minder.simulate.worlds.families import packets
from minder.simulate.worlds.world import NO_FAULT, World

pytestmark = pytest.mark.lab  # one family by itself, which changes rarely


def world_of(seed: int, fault: str | None = None, machines: int = 6) -> World:
    return packets.draw(seed, fault=fault, machines=machines, duration_s=700.0)


def test_a_seed_gives_one_world() -> None:
    one, other = world_of(5), world_of(5)
    np.testing.assert_array_equal(one.values_NK, other.values_NK)
    np.testing.assert_array_equal(one.times_N, other.times_N)
    assert one.truth == other.truth


@pytest.mark.parametrize("fault", packets.FAULTS)
def test_a_fault_changes_nothing_before_it_begins(fault: str) -> None:
    seed = 3 + list(packets.FAULTS).index(fault)
    faulty, twin = world_of(seed, fault), world_of(seed, NO_FAULT)
    assert faulty.truth.fault == fault and faulty.truth.onset_s is not None
    assert bool(faulty.truth.culprits) != bool(faulty.truth.group)
    assert not twin.truth.culprits and not twin.truth.group and twin.truth.fault is None and not twin.truth.grey
    assert faulty.truth.cause == twin.truth.cause and faulty.truth.nuisances == twin.truth.nuisances
    off_N, off_of_twin_N = (
        np.array([world.clock_off_s.get(name, 0.0) for name in world.machines])[world.machine_N] for world in (faulty, twin)
    )
    early_N = faulty.times_N - off_N < faulty.truth.onset_s
    early_in_twin_N = twin.times_N - off_of_twin_N < faulty.truth.onset_s
    np.testing.assert_array_equal(faulty.values_NK[early_N], twin.values_NK[early_in_twin_N])
    np.testing.assert_array_equal(faulty.machine_N[early_N], twin.machine_N[early_in_twin_N])


def test_every_cause_and_every_nuisance_comes_with_and_without_a_fault() -> None:
    job = packets._Job(0, 12, 1200.0)
    drawn = [packets._plan(job, packets._Knobs(1200.0, 12), seed, 300.0, np.arange(4)) for seed in range(150)]
    assert {cause for cause, _, _ in drawn} == {None, *packets.CAUSES}
    assert {name for _, _, names in drawn for name in names} == set(packets.NUISANCES)


@pytest.mark.lab  # seconds of computing
def test_most_faults_show() -> None:
    hidden = seen = 0
    seed = 200
    while seen < 24:
        world = world_of(seed, machines=8)
        if world.truth.fault is not None and world.truth.onset_s is not None:
            seen += 1
            culprits = world.truth.culprits or world.truth.group
            shown = is_shown(window_of(world), window_of(world_of(seed, NO_FAULT, 8)), culprits, world.truth.onset_s, world.truth.end_s)
            hidden += not shown
        seed += 1
    assert hidden <= 24 / 5
    assert 24 <= seed - 200 <= 60  # about 62 % of the seeds have a fault


def test_values_are_what_a_metric_can_be() -> None:
    for seed in range(8):
        world = world_of(seed)
        assert np.isfinite(world.times_N).all() and set(np.unique(world.device_N)) <= set(range(-1, len(world.devices)))
        for name, value_N in zip(world.metrics, world.values_NK.T, strict=True):
            metric, known_N = find_metric(name), value_N[np.isfinite(value_N)]
            assert metric is not None and len(known_N), name
            assert known_N.min() >= metric.low and known_N.max() <= metric.high, name


def test_sizes_steps_and_scrapes_are_in_range() -> None:
    jobs = [packets._Job(seed, None, None) for seed in range(400)]
    counts = [job.count for job in jobs]
    assert min(counts) >= 4 and max(counts) <= 4000 and 25 <= np.median(counts) <= 60
    for job in jobs:
        assert 0.3 <= job.step_s <= 60 and 1 <= job.scrape_s <= 30 and 900 <= job.duration_s <= 3600
        rows_by_machine = job.duration_s / job.scrape_s * job.count
        assert rows_by_machine <= 4 * packets._CELLS
    assert {job.kind for job in jobs} == {"data", "tensor", "pipeline", "expert"}


def test_collectives_share_a_port_evenly_and_leave_no_port_overfull() -> None:
    job = packets._Job(1, 8, 900.0)
    flows = packets._Flows(job, np.zeros(8, dtype=int), False, np.random.default_rng(0))
    ports = 3 * 8 + 2 * (int(job.leaf_M.max()) + 1) * packets._SPINES
    capacity_P = np.full(ports, 10.0)
    capacity_P[3] = 4.0  # one machine sends at 4: the ring as a whole does
    assert flows.shares(capacity_P).tolist() == [4.0]
    sends_M, takes_M = flows.pressure(np.array([10.0]), capacity_P)
    assert sends_M[3] == 2.5 and takes_M[flows.target_L[flows.source_L == 3][0]] == 1.0
