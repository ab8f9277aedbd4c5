"""A machine that is a cgroup: fake trees of both hierarchies, and a real one that the kernel throttles."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from minder.edge.exporters.cgroup import Cgroup, parse_pressure
from minder.edge.exporters.host import CgroupExporter
from minder.model.errors import ConfigError

ROOT = Path("/sys/fs/cgroup")


def _write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_the_first_hierarchy(tmp_path: Path) -> None:
    _write(tmp_path / "cpuacct" / "m1", cpuacct__usage="2500000000\n")
    _write(tmp_path / "cpu" / "m1", cpu__cfs_quota_us="50000\n", cpu__cfs_period_us="100000\n", cpu__stat="nr_periods 10\nnr_throttled 4\n")
    _write(tmp_path / "memory" / "m1", memory__usage_in_bytes="3000\n", memory__limit_in_bytes="9223372036854771712\n")
    _write(
        tmp_path / "memory" / "m1", memory__stat="cache 900\ntotal_inactive_file 1000\n", memory__oom_control="under_oom 0\noom_kill 3\n"
    )
    use = Cgroup("/m1", tmp_path).read()
    assert (use.cpu_s, use.quota_cores, use.periods, use.throttled_periods) == (2.5, 0.5, 10, 4)
    assert (use.memory_bytes, use.memory_limit_bytes, use.oom_kills) == (2000, None, 3)


@pytest.mark.parametrize("mount", ["", "unified"])
def test_the_second_hierarchy(tmp_path: Path, mount: str) -> None:
    folder = tmp_path / mount / "m1"
    _write(folder, cpu__stat="usage_usec 1500000\nnr_periods 5\nnr_throttled 0\n", cpu__max="200000 100000\n", memory__current="3000\n")
    _write(folder, memory__max="6000\n", memory__stat="inactive_file 0\n", memory__events="oom 1\noom_kill 1\n")
    _write(folder, cpu__pressure="some avg10=0.00 avg60=0.00 avg300=0.00 total=2000000\n")
    cgroup = Cgroup("m1", tmp_path)
    use = cgroup.read()
    assert (use.cpu_s, use.quota_cores, use.periods, use.throttled_periods) == (1.5, 2.0, 5, 0)
    assert (use.memory_bytes, use.memory_limit_bytes, use.oom_kills) == (3000, 6000, 1)
    assert dict(cgroup.pressure()) == {"cpu": 2.0}


def test_what_no_controller_tells_is_absent(tmp_path: Path) -> None:
    (tmp_path / "unified" / "m1").mkdir(parents=True)
    exporter = CgroupExporter(Cgroup("m1", tmp_path))
    exporter.read(1.0)
    reading = exporter.read(2.0)
    assert set(reading.gauges) <= {("disk_usage_ratio", None)}
    assert reading.counters == {}


def test_a_cgroup_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="no-such-cgroup"):
        Cgroup("no-such-cgroup")


def test_ratios_are_of_the_machine_not_of_the_host(tmp_path: Path) -> None:
    def fill(usage_ns: int, periods: int, throttled: int) -> None:
        _write(tmp_path / "cpuacct" / "m1", cpuacct__usage=f"{usage_ns}\n")
        _write(tmp_path / "cpu" / "m1", cpu__cfs_quota_us="50000\n", cpu__cfs_period_us="100000\n")
        _write(tmp_path / "cpu" / "m1", cpu__stat=f"nr_periods {periods}\nnr_throttled {throttled}\n")
        _write(tmp_path / "memory" / "m1", memory__usage_in_bytes="250\n", memory__limit_in_bytes="1000\n")

    fill(10**9, 10, 4)
    exporter = CgroupExporter(Cgroup("m1", tmp_path))
    assert ("cpu_usage_ratio", None) not in exporter.read(100.0).gauges  # one look is no rate
    fill(10**9 + 400_000_000, 20, 9)
    gauges = exporter.read(101.0).gauges
    assert gauges["cpu_usage_ratio", None] == pytest.approx(0.8)  # 0.4 s of a quota of 0.5 s a second
    assert gauges["cpu_throttled_ratio", None] == pytest.approx(0.5)
    assert gauges["memory_usage_ratio", None] == pytest.approx(0.25)


def test_pressure_without_a_total_is_no_data() -> None:
    assert parse_pressure("full avg10=0.00 total=5\n") is None


@pytest.fixture
def real_cgroup() -> Iterator[str]:
    if os.geteuid() != 0 or not (ROOT / "cpu" / "cpu.cfs_quota_us").exists():
        pytest.skip("needs root and a first-hierarchy cpu controller")
    name = f"minder-test-{uuid.uuid4().hex[:8]}"
    folders = [ROOT / part / name for part in ("cpu", "cpuacct", "memory")]
    for folder in folders:
        folder.mkdir()
    yield name
    for folder in folders:
        for _ in range(50):
            try:
                folder.rmdir()
                break
            except OSError:
                time.sleep(0.1)


@pytest.mark.root
def test_a_real_throttled_cgroup(real_cgroup: str) -> None:
    (ROOT / "cpu" / real_cgroup / "cpu.cfs_period_us").write_text("100000")
    (ROOT / "cpu" / real_cgroup / "cpu.cfs_quota_us").write_text("4000")
    # A share that a process gets on the busiest host too. Memory is charged where it lives when it takes it: it waits until it has moved.
    spin = "input(); held = bytearray(8 << 20)\nwhile True: pass"
    spinner = subprocess.Popen([sys.executable, "-c", spin], stdin=subprocess.PIPE)
    try:
        for part in ("cpu", "cpuacct", "memory"):
            (ROOT / part / real_cgroup / "cgroup.procs").write_text(str(spinner.pid))
        assert spinner.stdin is not None
        spinner.stdin.write(b"\n")
        spinner.stdin.close()
        cgroup = Cgroup(real_cgroup)
        assert cgroup.processes_file() is not None
        exporter = CgroupExporter(cgroup)
        exporter.read(time.time())
        time.sleep(1.5)
        gauges = exporter.read(time.time()).gauges
    finally:
        spinner.kill()
        spinner.wait()
    assert gauges["cpu_throttled_ratio", None] > 0.5
    assert gauges["cpu_usage_ratio", None] > 0.5
    assert 0 < gauges["memory_usage_ratio", None] < 0.1
