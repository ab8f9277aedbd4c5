"""What a fault does to the job: to its culprit, and to the peers that wait for it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from minder.simulate.cluster.fault_plan import draw_fault
from minder.simulate.cluster.faults import FAULTS
from minder.simulate.cluster.fleet import FLEET, fleet_counts
from minder.simulate.cluster.recipe import JobRules, Recipe, load_recipe
from minder.simulate.cluster.shape import draw_shape
from minder.simulate.cluster.streams import Streams

SHARED = Path(os.environ.get("MINDER_SHARED", Path(__file__).resolve().parents[4] / "shared"))
STATISTICS = SHARED / "data/fleet_faults/fault_statistics.json"

STALLS = [kind for kind, fault in FAULTS.items() if fault.effect in ("stall", "crash", "silent") and fault.reach == 1]
SLOWS = [kind for kind, fault in FAULTS.items() if fault.effect == "slow"]


@pytest.mark.parametrize("kind", STALLS)
def test_peers_of_a_stall_spin_at_full_duty_with_little_power_and_traffic(kind: str, grid: Callable[..., Any]) -> None:
    found = grid(kind)
    assert found.change("gpu_duty_cycle_ratio", found.peers) > 0.97
    assert found.change("gpu_power_draw_watts", found.peers) < 0.65
    assert found.change("rdma_throughput_bytes_per_second", found.peers) < 0.4


@pytest.mark.parametrize("kind", SLOWS)
def test_a_slow_machine_slows_everybody_and_stops_nobody(kind: str, grid: Callable[..., Any]) -> None:
    found = grid(kind)
    work = found.change("gpu_tensor_activity_ratio", found.peers)
    assert 0.4 < work < 0.97


@pytest.mark.parametrize("kind", [kind for kind in FAULTS if FAULTS[kind].effect != "silent"])
def test_the_culprit_stands_out_in_some_metric(kind: str, grid: Callable[..., Any]) -> None:
    found = grid(kind)
    if FAULTS[kind].effect == "flapping":
        pytest.skip("seconds at a time, which medians do not see: the next test does")
    apart = {}
    for model in found.made.site.models:
        own, peers = found.change(model.name, found.culprit), found.change(model.name, found.peers)
        apart[model.name] = abs(np.log(max(own, 1e-4) / max(peers, 1e-4)))
    assert max(apart.values()) > 0.15, apart


def test_a_flapping_link_stalls_the_job_again_and_again(grid: Callable[..., Any]) -> None:
    found = grid("link_flapping")
    traffic_T = np.nanmedian(found.of("rdma_throughput_bytes_per_second")[:, found.peers], axis=1)
    usual = np.nanmedian(traffic_T[: found.onset])
    stalled_T = traffic_T[found.onset : 590] < 0.3 * usual
    assert np.count_nonzero(np.diff(stalled_T.astype(int)) == 1) >= 3
    assert 0.05 < stalled_T.mean() < 0.8


@pytest.mark.parametrize("kind", ["machine_unreachable", "kernel_panic"])
def test_a_dead_machine_is_silent_and_its_peers_are_not(kind: str, grid: Callable[..., Any]) -> None:
    found = grid(kind)
    power_TM = found.of("gpu_power_draw_watts")[:590]
    assert np.isnan(power_TM[found.onset + 5 :, found.culprit]).all()
    assert np.isfinite(power_TM[found.onset + 5 :, found.peers]).mean() > 0.7


def test_a_switch_takes_several_machines_and_the_truth_names_them_all(grid: Callable[..., Any]) -> None:
    found = grid("switch_down", job={"machines": (24, 24)})
    truth = found.made.truth
    assert len(truth.machines) > 1 and truth.machine == truth.machines[0]
    assert found.change("rdma_throughput_bytes_per_second", found.culprit) < 0.4


def test_weak_faults_are_weaker(grid: Callable[..., Any]) -> None:
    full = grid("pcie_downgrade")
    weak = grid("pcie_downgrade", faults={"severity": (0.3, 0.3)})
    assert full.culprit == weak.culprit
    surge = [found.change("pfc_tx_packets_per_second", found.culprit) for found in (full, weak)]
    assert surge[0] > 1.5 * surge[1] > 1.5


def test_a_job_does_nothing_before_its_fault(grid: Callable[..., Any]) -> None:
    """Until the onset the faulty recording is the healthy one."""
    faulty, healthy = grid("hang"), grid(None)
    power = "gpu_power_draw_watts"
    assert np.array_equal(faulty.of(power)[:295], healthy.of(power)[:295], equal_nan=True)


def test_the_mix_is_the_published_one() -> None:
    hardware = {"ecc_error": 38.9, "pcie_downgrade": 6.6, "nic_drop": 5.7, "gpu_card_drop": 2.0, "nvlink_error": 1.7, "optical_cable": 0.9}
    software = {"cuda_execution_error": 14.6, "gpu_execution_error": 7.7, "hdfs_error": 5.7, "machine_unreachable": 6.0}
    assert {kind: FAULTS[kind].share for kind in hardware | software} == hardware | software


def test_what_minder_does_not_list_is_as_often_as_byterobust_counted() -> None:
    """ByteRobust (SOSP'25) table 1: 55,365 symptoms in three months."""
    counted = {
        "slow_cpu": 6095, "out_of_memory": 5567, "hang": 5506, "disk_full": 2755, "link_flapping": 1599, "filesystem_mount": 1176,
        "slow_gpu": 442, "thermal_throttle": 442, "kernel_panic": 203,
    }  # fmt: skip
    assert {kind: FAULTS[kind].share for kind in counted} == {kind: round(100 * count / 55_365, 1) for kind, count in counted.items()}
    minder = {"ecc_error", "pcie_downgrade", "nic_drop", "gpu_card_drop", "nvlink_error", "optical_cable"}
    minder |= {"cuda_execution_error", "gpu_execution_error", "hdfs_error", "machine_unreachable"}
    assert set(FAULTS) - minder - set(counted) == {"switch_down"}  # whose share is ours


COUNTED = {
    "ecc_error": 61, "nic_drop": 59, "gpu_execution_error": 51, "pcie_downgrade": 26, "optical_cable": 11, "hang": 9, "gpu_card_drop": 6,
    "machine_unreachable": 5, "nvlink_error": 3, "kernel_panic": 3, "filesystem_mount": 3, "thermal_throttle": 2,
}  # fmt: skip


def test_the_fleets_mix_is_what_was_counted_on_400_servers() -> None:
    """InfiniteHBD's fault trace, fault_statistics.json: 584 faults, 298 of hardware, 24 of software, 262 others."""
    assert sum(count for count, _ in FLEET.values()) == 298 + 24 + 262
    per_class = {
        "GPU": 158,
        "Parameter Plane Cable": 40,
        "NIC": 30,
        "Power Supply": 26,
        "Fan": 33,
        "Unknown Error": 144,
        "Stress Test Failure": 97,
    }
    assert {name: sum(count for (group, _), (count, _) in FLEET.items() if group == name) for name in per_class} == per_class
    assert fleet_counts() == COUNTED and set(COUNTED) <= set(FAULTS)


@pytest.mark.skipif(not STATISTICS.exists(), reason="the real data lie beside the project, where they do")
def test_every_entry_of_the_real_trace_is_in_the_fleets_table() -> None:
    found: dict[tuple[str, str], int] = {}
    for level in json.loads(STATISTICS.read_text()).values():
        for group, entries in level.items():
            for entry, count in entries.items() if group != "LevelTotal" else ():
                if entry != "ClassTotal":
                    found[group, entry] = found.get((group, entry), 0) + count
    assert {key: count for key, (count, _) in FLEET.items()} == found


@pytest.mark.parametrize("name", ["fleet", "plain"])
def test_faults_are_drawn_as_often_as_the_mix_says(name: str) -> None:
    """Of 4,000 recordings each kind's number is within four standard deviations of what the mix expects."""
    rules = load_recipe(name).faults.model_copy(update={"healthy_share": 0.0})
    shape = draw_shape(JobRules(), np.random.default_rng(0))
    plans = [draw_fault(rules, shape, Streams(name, 5, index), 1200.0) for index in range(4000)]
    drawn = Counter(plan.kind for plan in plans if plan is not None)
    mix = COUNTED if name == "fleet" else {kind: fault.share for kind, fault in FAULTS.items() if not fault.held_out}
    assert set(drawn) == set(mix)
    for kind, weight in mix.items():
        share = weight / sum(mix.values())
        assert abs(drawn[kind] - 4000 * share) < 4.0 * np.sqrt(4000 * share * (1 - share)), kind


def test_a_kind_that_never_happens_in_the_mix_is_refused() -> None:
    with pytest.raises(ValidationError, match="link_flapping never happened in the mix"):
        Recipe.model_validate({"name": "x", "title": "x", "seed": 1, "faults": {"mix": "fleet", "kinds": ["hang", "link_flapping"]}})
    even = {"mix": "fleet", "even": True, "kinds": ["link_flapping"]}
    assert Recipe.model_validate({"name": "x", "title": "x", "seed": 1, "faults": even}).faults.kinds == ("link_flapping",)
