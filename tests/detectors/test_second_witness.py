"""What makes a page an eviction: a second witness that is one."""

from __future__ import annotations

import pytest
from small_job import at, healthy, watch


@pytest.mark.parametrize(("computes", "all_compute", "tier"), [(0.95, 1.0, "page"), (0.85, 1.0, "page"), (0.3, 0.5, "evict")])
def test_a_port_that_congests_is_evicted_only_where_the_job_is_slowed(computes: float, all_compute: float, tier: str) -> None:
    """A job that works as fast as ever loses nothing while a person looks."""
    values_TMK = healthy(150)
    values_TMK[70:, 2, at("ecn_packets_per_second")] *= 10.0
    values_TMK[75:, :, at("gpu_sm_activity_ratio")] *= all_compute
    values_TMK[75:, :, at("rdma_throughput_bytes_per_second")] *= all_compute
    values_TMK[75:, 2, at("gpu_sm_activity_ratio")] *= computes / all_compute
    assert [(verdict.machines, verdict.tier) for verdict in watch(values_TMK)[0]] == [(("m02",), tier)]
