"""The files that each cgroup version wants, on a pretended hierarchy: a machine has only one version to try on."""

from __future__ import annotations

import pytest

from minder.model.errors import LabError
from minder.simulate.lab.cgroup import Cgroup, CgroupLayout


@pytest.fixture
def v2(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    (tmp_path / "cgroup.subtree_control").write_text("")
    cgroup = Cgroup("mdr0001m0", CgroupLayout({}, tmp_path, frozenset({"cpu", "memory"})))
    cgroup.create()
    return cgroup, tmp_path / "mdr0001m0"


@pytest.fixture
def v1(tmp_path):
    roots = {name: tmp_path / name for name in ("cpu", "cpuacct", "memory")}
    for root in roots.values():
        root.mkdir()
    cgroup = Cgroup("mdr0001m0", CgroupLayout(roots, None))
    cgroup.create()
    return cgroup, tmp_path


def test_version_2_writes_one_file_per_limit(v2):
    cgroup, folder = v2
    cgroup.set_cpu_quota(0.25)
    assert (folder / "cpu.max").read_text() == "25000 100000"
    cgroup.set_cpu_quota(None)
    assert (folder / "cpu.max").read_text() == "max 100000"
    cgroup.set_memory_limit(1000)
    assert [(folder / name).read_text() for name in ("memory.max", "memory.swap.max")] == ["1000", "0"]


def test_version_2_reads_its_own_counters(v2):
    cgroup, folder = v2
    (folder / "memory.current").write_text("4096\n")
    (folder / "memory.events").write_text("low 0\noom 2\noom_kill 1\n")
    assert (cgroup.memory_bytes(), cgroup.oom_kills()) == (4096, 1)


def test_version_1_writes_to_the_controllers_folders(v1):
    cgroup, root = v1
    cgroup.set_cpu_quota(0.001)  # less than the kernel's least quota
    assert (root / "cpu/mdr0001m0/cpu.cfs_quota_us").read_text() == "1000"
    cgroup.set_cpu_quota(None)
    assert (root / "cpu/mdr0001m0/cpu.cfs_quota_us").read_text() == "-1"


def test_version_1_counts_swap_in_where_the_kernel_does(v1):
    cgroup, root = v1
    folder = root / "memory/mdr0001m0"
    for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
        (folder / name).write_text("-1")
    cgroup.set_memory_limit(1000)
    assert {path.read_text() for path in folder.glob("*limit_in_bytes")} == {"1000"}


def test_a_missing_controller_is_named(tmp_path):
    cgroup = Cgroup("mdr0001m0", CgroupLayout({"memory": tmp_path}, None))
    with pytest.raises(LabError, match="no controller"):
        cgroup.set_cpu_quota(0.5)


def test_a_process_joins_every_hierarchy(v1):
    cgroup, root = v1
    assert cgroup.member_files() == [root / name / "mdr0001m0/cgroup.procs" for name in ("cpu", "cpuacct", "memory")]
