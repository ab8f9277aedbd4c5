"""The kernel log, followed on the event loop; a pipe stands in for the device, which the kernel alone may write with authority."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from minder.edge.agent.kernel import KernelFollower, read_kernel_tail
from minder.edge.agent.options import AgentOptions
from minder.edge.agent.service import Service
from minder.model.evidence import Signal


def test_new_lines_of_interest_become_signals(tmp_path: Path) -> None:
    published: list[Signal] = []
    reader, writer = os.pipe()

    async def follow() -> None:
        follower = KernelFollower("m1", published.extend, lambda signal: signal.data.get("code") != 13, tmp_path / "none")
        follower.follow(reader)
        for record in (
            b"6,1,5,-;usb 1-2: hello\n",
            b"3,2,9,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU\n",
            b"3,3,9,-;NVRM: Xid (PCI:0000:3b:00): 13, x\n",
        ):
            os.write(writer, record)
            await asyncio.sleep(0.05)
        follower.stop()

    os.set_blocking(reader, False)
    asyncio.run(follow())
    os.close(writer)
    assert [(item.kind, item.data["code"], item.machine) for item in published] == [("xid", 79, "m1")]


def test_a_log_that_may_not_be_read_is_no_error(tmp_path: Path) -> None:
    async def start(device: Path) -> bool:
        follower = KernelFollower("m1", lambda signals: None, lambda signal: True, device)
        follower.start()
        return follower.reading

    for device in (tmp_path / "none", Path(os.devnull)):
        assert asyncio.run(start(device)) is False
        assert read_kernel_tail(device) == []


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="/dev/kmsg cannot be read here")
def test_the_tail_of_the_real_log() -> None:
    lines = read_kernel_tail(Path("/dev/kmsg"))
    assert 0 < len(lines) <= 50
    assert all(line.startswith("[") for line in lines)


def _oom(cgroup: str | None, pid: int = 5) -> Signal:
    return Signal(1.0, "kernel", "m1", "oom", pid=pid, data={"what": "oom", "pid": pid, "cgroup": cgroup})


def test_on_a_shared_host_an_oom_kill_is_told_by_its_own_machine_only(tmp_path: Path) -> None:
    (tmp_path / "cpu" / "m1").mkdir(parents=True)
    machine = Service(AgentOptions(machine="m1", run_dir=tmp_path, cgroup="m1", cgroup_root=tmp_path, gpu="off"))
    assert machine.belongs(_oom("/m1")) and machine.belongs(_oom("/m1/workers"))
    assert not machine.belongs(_oom("/m10")) and not machine.belongs(_oom(None))
    assert machine.belongs(Signal(1.0, "xid", "m1", data={"code": 79}))
    assert not machine.belongs(Signal(1.0, "link", "m1", device="veth3", data={"state": "down"}))
    host = Service(AgentOptions(machine="m1", run_dir=tmp_path, gpu="off"))
    assert host.belongs(_oom("/m10"))
    assert not host.belongs(_oom(None))  # the second line of the same kill
    assert host.belongs(_oom(None, pid=6))
