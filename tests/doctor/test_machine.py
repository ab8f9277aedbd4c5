"""What an agent needs of its machine: the kernel's files as other machines have them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minder.doctor.machine import MachineRoots, look_at_machine, look_at_space


@pytest.fixture
def roots(tmp_path: Path) -> MachineRoots:
    for folder in ("proc/self", "proc/sys/kernel/yama", "sys/fs/cgroup", "dev"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("Name:\tminder\nCapEff:\t0000000000000000\n")
    (tmp_path / "dev/kmsg").write_text("")
    return MachineRoots(tmp_path / "proc", tmp_path / "sys", tmp_path / "dev")


def look(roots: MachineRoots, check: str) -> tuple[str, str, str]:
    from minder.doctor import machine

    (found,) = [item for item in (machine._ptrace(roots), machine._kernel_log(roots), machine._cgroups(roots)) if item.check == check]
    return found.status, found.seen, found.mend


@pytest.mark.parametrize(
    ("scope", "capability", "status"),
    [(None, 0, "note"), ("0", 0, "note"), ("1", 0, "missing"), ("2", 0, "missing"), ("1", 1 << 19, "ok"), ("3", 1 << 19, "missing")],
)
def test_who_may_read_stacks(roots: MachineRoots, scope: str | None, capability: int, status: str) -> None:
    if scope is not None:
        (roots.proc / "sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")
    (roots.proc / "self/status").write_text(f"CapEff:\t{capability:016x}\n")
    found = look(roots, "ptrace")
    assert found[0] == status and (status == "ok" or found[2])


def test_both_layouts_of_cgroups_and_none(roots: MachineRoots) -> None:
    assert look(roots, "cgroups")[0] == "note"
    (roots.sys / "fs/cgroup/cpu").mkdir()
    assert look(roots, "cgroups")[:2] == ("ok", "version 1: cpu")
    (roots.sys / "fs/cgroup/cgroup.controllers").write_text("cpu memory\n")
    assert look(roots, "cgroups")[:2] == ("ok", "version 2: cpu memory")


def test_a_kernel_log_that_is_not_there_is_no_kernel_log_that_is_quiet(roots: MachineRoots) -> None:
    assert look(roots, "kernel log")[0] == "ok"
    (roots.dev / "kmsg").unlink()
    assert look(roots, "kernel log")[0] == "note"


def test_this_machine_is_looked_at_whatever_it_has(tmp_path: Path) -> None:
    found = look_at_machine(tmp_path)
    assert [item.check for item in found] == ["py-spy", "ptrace", "kernel log", "cgroups", "NVML", "run folder"]
    assert all(item.mend for item in found if item.status == "missing")


def test_space_is_asked_of_the_folder_that_will_be_made(tmp_path: Path) -> None:
    assert look_at_space("state", tmp_path / "not/yet", 1).status == "ok"
    found = look_at_space("checkpoints", tmp_path / "not/yet", 2**60)
    assert found.status == "missing" and "free at least" in found.mend


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_has_no_space(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "cannot be written" in look_at_space("state", tmp_path / "x", 1).seen
