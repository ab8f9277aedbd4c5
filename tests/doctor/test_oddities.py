"""What is odd in a site's newest values, and what it says to do."""

from __future__ import annotations

import pytest

from minder.doctor.oddities import oddities_of
from minder.doctor.series import Found


@pytest.mark.parametrize(
    ("name", "tool"),
    [("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", True), ("gpu_prof_tensor_active_percent", False)],
    ids=["NVIDIA's exporter", "another's"],
)
def test_a_field_that_reads_0_at_work_is_mended_by_the_tool_of_its_maker(name: str, tool: bool) -> None:
    machines = ("a", "b")
    placed = [(machine, Found("power", {}, 500.0, 0.0)) for machine in machines]
    placed += [(machine, Found(name, {}, 0.0, 0.0)) for machine in machines]
    (odd,) = oddities_of(placed, {"power": "gpu_power_draw_watts", name: "gpu_tensor_activity_ratio"})
    assert odd.seen == "gpu_tensor_activity_ratio: 0 on every machine, though they are at work"
    assert ("dcgmi" in odd.mend) is tool
