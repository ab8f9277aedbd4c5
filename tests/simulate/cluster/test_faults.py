"""What a fault does to the job: to its culprit, and to the peers that wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minder.simulate.cluster.faults import FAULTS

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
