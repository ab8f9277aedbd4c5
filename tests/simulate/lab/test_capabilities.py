"""What works is found out by trying, and nothing is left of the trial."""

from __future__ import annotations

import shutil

import pytest

from minder.model.errors import LabError
from minder.simulate.lab import capabilities, network
from minder.simulate.lab.capabilities import FEATURES, find_capabilities
from minder.simulate.lab.cgroup import find_layout


def test_the_trial_leaves_nothing_behind(monkeypatch, traces):
    monkeypatch.setattr(capabilities.secrets, "token_hex", lambda count: "fa12")
    found = find_capabilities()
    assert traces("fa12") == []
    assert set(found.refused) <= set(FEATURES)
    assert all(found.refused.values())


def test_a_missing_tool_is_a_reason(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda command, path=None: None)
    refused = find_capabilities().refused
    assert "not installed" in refused["namespaces"]
    assert refused["dead-link"] == refused["namespaces"]


def test_without_nft_only_the_dead_link_goes(monkeypatch, is_root):
    if not is_root:
        pytest.skip("needs root")
    everything = find_capabilities().refused
    original = network.find_program

    def without_nft(name):
        if name == "nft":
            raise LabError("the command nft is not installed")
        return original(name)

    monkeypatch.setattr(network, "find_program", without_nft)
    refused = find_capabilities().refused
    assert set(refused) - set(everything) <= {"dead-link"}, refused
    assert "nft" in refused["dead-link"] or "dead-link" in everything


MOUNTS = {
    "v2": "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n",
    "v1": "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n",
    "hybrid": "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n",
    "none": "tmpfs /tmp tmpfs rw 0 0\n",
}


@pytest.mark.parametrize("kind", MOUNTS)
def test_the_layout_comes_from_the_mount_table(tmp_path, kind):
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS[kind])
    assert find_layout(mounts).kind == kind


def test_controllers_mounted_together_are_one_folder(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS["v1"])
    folders = find_layout(mounts).folders("x")
    assert [str(folder) for folder in folders] == ["/sys/fs/cgroup/cpu,cpuacct/x", "/sys/fs/cgroup/memory/x"]
