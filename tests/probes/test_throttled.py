"""A machine whose processor is throttled is slow beside its own past: a real cgroup quota, real probes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from minder.diagnose.diagnostics.judgement import judge
from minder.edge.probes.contract import Program, find_program
from minder.edge.probes.runner import run_probe
from minder.model.probes import ProbeResult

CPU = Path("/sys/fs/cgroup/cpu") if Path("/sys/fs/cgroup/cpu").exists() else Path("/sys/fs/cgroup")


@pytest.fixture
def quota() -> Iterator[Path]:
    """A cgroup with a twentieth of one processor; the probe moves itself into it."""
    group = CPU / "minder-probe-test"
    group.mkdir()
    if (group / "cpu.cfs_quota_us").exists():
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text("5000")
    elif (group / "cpu.max").exists():
        (group / "cpu.max").write_text("5000 100000")
    else:
        group.rmdir()
        pytest.skip("no cgroup here has a processor quota")
    yield group
    group.rmdir()


def measured(program: Program) -> ProbeResult:
    found = asyncio.run(run_probe(program, {"seconds": 1.0, "block_bytes": 1 << 22}))
    assert found.state == "measured", found.detail
    return found


@pytest.mark.root
def test_a_throttled_processor_is_slow_beside_the_machines_past(quota: Path, tmp_path: Path) -> None:
    program = find_program("memory")
    free = measured(program)
    before = [replace(free, started_s=free.started_s - age_s) for age_s in (30.0, 20.0, 10.0)]
    throttled = tmp_path / "memory.py"
    enter = f"import os\nopen({str(quota / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
    throttled.write_text(f"{enter}import sys\nos.execv(sys.executable, [sys.executable, '-P', {str(program.path)!r}, *sys.argv[1:]])\n")
    now = measured(Program(program.probe, throttled))
    found = judge({"m0": now}, {"m0": before})["m0"]
    assert found.verdict == "slow" and "memory_copy" in found.reason, found
