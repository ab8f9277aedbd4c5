"""What makes a page an eviction: a second witness that is one."""

from __future__ import annotations

import pytest
from small_job import at, healthy, watch


@pytest.mark.parametrize(("computes", "tier"), [(0.95, "page"), (0.85, "evict")])
def test_a_port_that_congests_is_evicted_only_where_its_machine_plainly_does_less(computes: float, tier: str) -> None:
    """While nothing is slowed, a second witness that hardly differs is none."""
    values_TMK = healthy(150)
    values_TMK[70:, 2, at("ecn_packets_per_second")] *= 10.0
    values_TMK[75:, 2, at("gpu_sm_activity_ratio")] *= computes
    assert [(verdict.machines, verdict.tier) for verdict in watch(values_TMK)[0]] == [(("m02",), tier)]
