"""Machines are separate, keep what they start, and lose all of it when asked."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from minder.model.errors import LabError

DOUBLE_FORK = (
    "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(60)\n    os._exit(0)\ntime.sleep(60)"
)
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3); print('through')"


def python(code, *arguments):
    return [sys.executable, "-I", "-S", "-c", code, *map(str, arguments)]


def serve(address, port):
    return python("import socket, sys; s = socket.create_server((sys.argv[1], int(sys.argv[2])))\nwhile True: s.accept()", address, port)


def reaches(address, port):
    try:
        socket.create_connection((address, port), timeout=0.3).close()
    except OSError:
        return False
    return True


@pytest.mark.root
def test_the_controller_reaches_a_machine_over_management_and_not_over_data(lab, wait_until, tmp_path):
    machine = lab.machines[0]
    machine.spawn(serve("0.0.0.0", 7001))
    wait_until(lambda: reaches(machine.address, 7001))
    log = tmp_path / "route"
    root_route = os.popen(f"ip route get {machine.data_address}").read()
    assert "mdr" not in root_route
    # The machine's neighbour has a way to it over the data link.
    lab.machines[1].spawn(python(CONNECT, machine.data_address, 7001), log_path=log)
    wait_until(lambda: log.exists() and log.read_text() == "through\n")


@pytest.mark.root
def test_a_machine_cannot_leave_the_lab(lab, tmp_path):
    log = tmp_path / "routes"
    lab.machines[0].spawn(["ip", "route"], log_path=log).wait(5)
    assert "default" not in log.read_text()
    assert len(log.read_text().splitlines()) == 2


@pytest.mark.root
def test_what_a_machine_starts_is_in_its_cgroup_and_no_other(lab, wait_until):
    first, second = lab.machines
    child = first.spawn(python(DOUBLE_FORK))
    wait_until(lambda: len(first.cgroup.pids()) == 2)
    assert child.pid in first.pids()
    assert second.pids() == []
    assert f"/{first.cgroup.name}\n" in Path(f"/proc/{child.pid}/cgroup").read_text()


@pytest.mark.root
def test_kill_all_ends_double_forked_children_and_spares_the_neighbour(lab, wait_until):
    first, second = lab.machines
    child = first.spawn(python(DOUBLE_FORK))
    bystander = second.spawn(["sleep", "60"])
    wait_until(lambda: len(first.pids()) == 2)
    assert first.kill_all()
    assert first.pids() == []
    assert child.returncode == -9
    assert bystander.poll() is None


@pytest.mark.root
def test_destroy_leaves_nothing_of_one_machine(lab, traces):
    machine = lab.machines[1]
    machine.spawn(["sleep", "60"])
    machine.destroy()
    assert [name for name in traces(lab.run_id) if name.endswith("m1")] == []
    assert any(name.endswith("m0") for name in traces(lab.run_id))


def test_without_root_a_machine_has_an_address_of_its_own_and_loses_its_children_too(process_lab, wait_until):
    first, second, standby = process_lab.all_machines
    assert len({machine.address for machine in process_lab.all_machines}) == 3
    assert process_lab.standbys == [standby]
    first.spawn(serve(first.address, 7001))
    wait_until(lambda: reaches(first.address, 7001))
    assert not reaches(second.address, 7001)
    first.spawn(python(DOUBLE_FORK))
    bystander = second.spawn(["sleep", "60"])
    wait_until(lambda: len(first.pids()) == 3)
    assert first.kill_all()
    assert first.pids() == []
    assert bystander.poll() is None


def test_a_process_knows_which_interface_the_job_uses(process_lab, tmp_path):
    log = tmp_path / "environment"
    process_lab.machines[0].spawn(["env"], {"EXTRA": "given"}, log).wait(5)
    lines = log.read_text().splitlines()
    assert "GLOO_SOCKET_IFNAME=lo" in lines
    assert "EXTRA=given" in lines


def test_a_program_that_does_not_exist_is_named(process_lab):
    with pytest.raises(LabError, match="no-such-program"):
        process_lab.machines[0].spawn(["no-such-program"])
