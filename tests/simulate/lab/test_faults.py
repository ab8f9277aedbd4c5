"""Each fault does to one machine what it says, is undone where it can be, and leaves the other machine alone."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time

import pytest

from minder.model.errors import BadInputError, LabError, UnsupportedFaultError
from minder.simulate.lab.capabilities import Capabilities
from minder.simulate.lab.faults import FAULT_KINDS, Fault, check_fault, inject
from minder.simulate.lab.record import process_state

SEND = """
import socket, sys, time
link = socket.create_connection((sys.argv[1], 7001), timeout=10)
start_s, sent = time.monotonic(), 0
while time.monotonic() - start_s < 1.0:
    sent += link.send(bytes(16384))
link.shutdown(socket.SHUT_WR)
link.settimeout(30)
link.recv(1)
print(sent / (time.monotonic() - start_s))
"""
DRAIN = """
import socket, sys
server = socket.create_server((sys.argv[1], 7001))
while True:
    link, _ = server.accept()
    while link.recv(1 << 16): pass
    link.send(b"x")
    link.close()
"""
SPIN = """
import sys, time
while True:
    end_s, count = time.monotonic() + 0.5, 0
    while time.monotonic() < end_s:
        count += 1
    print(count, flush=True)
"""
TAKE_MEMORY = "import time\nkept = b'x' * (120 << 20)\nprint(len(kept), flush=True)\ntime.sleep(60)"
TRY = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 7001), timeout=1.5)
    print("through")
except OSError as error:
    print(type(error).__name__)
"""


def python(code, *arguments):
    return [sys.executable, "-I", "-S", "-c", code, *map(str, arguments)]


def bytes_per_s(source, target, tmp_path):
    log = tmp_path / f"rate-{time.monotonic_ns()}"
    assert source.spawn(python(SEND, target.data_address), log_path=log).wait(60) == 0, log.read_text()
    return float(log.read_text())


def attempt(source, target, tmp_path):
    log = tmp_path / f"try-{time.monotonic_ns()}"
    source.spawn(python(TRY, target.data_address), log_path=log).wait(20)
    return log.read_text().strip()


def listening(machine, wait_until):
    def answers():
        probe = machine.spawn(python("import socket, sys; socket.create_connection((sys.argv[1], 7001), 1)", machine.data_address))
        return probe.wait(5) == 0

    machine.spawn(python(DRAIN, machine.data_address))
    wait_until(answers)


def test_hang_stops_the_training_processes_with_their_children_and_undo_goes_on(process_lab, start_worker, wait_until):
    first, second = process_lab.machines
    pid = start_worker(first, "import os, time\nos.fork()\ntime.sleep(60)")
    spare = start_worker(first, rank=None, slot=1)
    other = start_worker(second)
    wait_until(lambda: len(first.pids()) == 3)
    record = inject(process_lab, "hang", 0)
    states = {process: process_state(process) for process in first.pids()}
    assert states.pop(spare) in ("R", "S")
    assert set(states.values()) == {"T"}
    assert pid in states
    assert process_state(other) in ("R", "S")
    assert record.machine == first.name
    record.undo()
    wait_until(lambda: {process_state(process) for process in first.pids()} == {"S"})


def test_crash_kills_one_worker_and_only_it(process_lab, start_worker, wait_until):
    machine = process_lab.machines[1]
    pid = start_worker(machine, rank=3)
    sibling = start_worker(machine, rank=4, slot=1)
    inject(process_lab, "crash", 1)
    wait_until(lambda: [child.poll() for child in machine.children if child.pid == pid] == [-9])
    assert machine.pids() == [sibling]


DIES_OF_IT = """
import os, time
while True:
    time.sleep(0.01)
    try:
        os.kill({victim}, 0)
    except ProcessLookupError:
        os._exit(1)
"""
MORTAL = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_DFL)\ntime.sleep(60)"  # whatever the tests' parent ignores
DEAF = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)"


@pytest.mark.parametrize(
    ("peer", "status", "told"),
    [
        (DIES_OF_IT, 1, "its only peer died of it within"),
        (MORTAL, -15, "1 of them by SIGTERM"),
        (DEAF, -9, "1 of them"),
    ],
)
def test_in_a_cascade_the_peers_of_the_job_die_too_and_nobody_else(process_lab, start_worker, wait_until, peer, status, told):
    """Of the first death, or by what an engine sends to the peers of a dead rank."""
    first, second, standby = process_lab.machines + process_lab.standbys
    victim = start_worker(first)
    died = start_worker(second, peer.format(victim=victim), rank=1)
    spare, waiting = start_worker(second, rank=None, slot=1), start_worker(standby, rank=None)
    threading.Thread(target=lambda: [child.wait() for child in first.children], daemon=True).start()  # as its launcher does
    record = inject(process_lab, "crash-cascade", 0)
    assert next(child for child in second.children if child.pid == died).wait(5) == status
    assert told in record.detail and "killed rank 0" in record.detail
    assert (first.pids(), second.pids(), standby.pids()) == ([], [spare], [waiting])


def test_a_stale_pid_in_the_launchers_list_hurts_nobody(process_lab, start_worker):
    bystander = process_lab.machines[1].spawn(["sleep", "60"])
    start_worker(process_lab.machines[0])
    path = process_lab.machines[0].run_dir / "jobs" / "job.json"
    path.write_text(path.read_text().replace(str(process_lab.machines[0].children[0].pid), str(bystander.pid)))
    with pytest.raises(LabError, match="runs no training process"):
        inject(process_lab, "crash", 0)
    assert bystander.poll() is None


@pytest.mark.parametrize("kind", ["hang", "crash", "agent-lost"])
def test_a_machine_with_nothing_to_hurt_says_so(process_lab, kind):
    with pytest.raises(LabError, match="runs no"):
        inject(process_lab, kind, 2)


def test_agent_lost_kills_the_agent_and_leaves_the_job(process_lab, start_worker):
    machine = process_lab.machines[0]
    worker = start_worker(machine)
    machine.agent = machine.spawn(["sleep", "60"])
    inject(process_lab, "agent-lost", 0)
    assert machine.agent.returncode == -9
    assert machine.pids() == [worker]


def test_a_lost_machine_has_nothing_alive_without_root_too(process_lab, start_worker):
    first, second = process_lab.machines
    start_worker(first)
    other = start_worker(second)
    inject(process_lab, "machine-lost", 0)
    assert first.pids() == []
    assert second.pids() == [other]


@pytest.mark.parametrize("kind", ["none", "exception", "nan"])
def test_what_the_script_does_itself_touches_nothing(process_lab, start_worker, kind):
    pid = start_worker(process_lab.machines[0])
    assert inject(process_lab, kind, 0).kind == kind
    assert process_state(pid) in ("R", "S")


@pytest.mark.parametrize("kind", ["dead-link", "slow-link", "slow-cpu", "oom"])
def test_process_mode_refuses_what_it_cannot_do(process_lab, kind):
    with pytest.raises(UnsupportedFaultError, match="process mode was asked for") as caught:
        inject(process_lab, kind, 0)
    assert caught.value.exit_code == 2


def test_the_refusal_gives_the_machines_own_reason():
    refused = Capabilities(refused={"cpu-quota": "no controller cpu"})
    with pytest.raises(UnsupportedFaultError, match="no controller cpu"):
        check_fault("slow-cpu", "namespaces", refused)
    with pytest.raises(UnsupportedFaultError, match="Operation not permitted"):
        check_fault("oom", "processes", Capabilities(refused={"namespaces": "Operation not permitted"}))
    for kind in set(FAULT_KINDS) - {"xid"}:  # which needs the kernel's log, whatever the lab can do
        check_fault(kind, "namespaces", Capabilities())


def test_unknown_faults_and_machines_are_refused(process_lab):
    with pytest.raises(BadInputError, match="unknown fault fire"):
        inject(process_lab, "fire", 0)
    with pytest.raises(BadInputError, match="0 to 2"):
        inject(process_lab, "none", 3)


@pytest.mark.root
def test_slow_link_is_slow_both_ways_and_only_for_its_machine(lab, wait_until, tmp_path):
    first, second = lab.machines
    listening(first, wait_until)
    listening(second, wait_until)
    limit = 2_000_000  # bit/s, so 250 kB/s
    before = bytes_per_s(first, second, tmp_path)
    record = inject(lab, Fault("slow-link", link_rate_bit=limit), 0)
    out, into = bytes_per_s(first, second, tmp_path), bytes_per_s(second, first, tmp_path)
    assert before > 10 * limit / 8
    assert out < 1.5 * limit / 8
    assert into < 1.5 * limit / 8
    record.undo()
    assert bytes_per_s(first, second, tmp_path) > 10 * limit / 8


@pytest.mark.root
def test_slow_link_leaves_a_fraction_of_what_the_machine_sends(lab, wait_until, tmp_path):
    """Where the host is busy a job sends little, and a limit that is above that would slow nothing."""
    first, second = lab.machines
    listening(first, wait_until)
    listening(second, wait_until)
    paced = """
import socket, sys, time
link = socket.create_connection((sys.argv[1], 7001), timeout=10)
while True:
    link.send(bytes(10_000))
    print("sent", flush=True)
    time.sleep(0.02)
"""
    log = tmp_path / "paced"
    first.spawn(python(paced, second.data_address), log_path=log)
    wait_until(lambda: log.exists() and log.read_text().count("sent") > 20)
    record = inject(lab, Fault("slow-link", link_rate_bit=1_000_000_000), 0)
    words = record.detail.split()
    rate_bit, use_bit = int(words[4]), int(words[-1])
    assert use_bit > 1_500_000 and rate_bit == pytest.approx(use_bit / 3, abs=1), record.detail
    assert bytes_per_s(second, first, tmp_path) < 1.5 * rate_bit / 8
    record.undo()


@pytest.mark.root
def test_dead_link_is_silent_and_management_goes_on(lab, wait_until, tmp_path):
    first, second = lab.machines
    listening(first, wait_until)
    first.spawn(["sleep", "60"])
    assert attempt(second, first, tmp_path) == "through"
    record = inject(lab, "dead-link", 0)
    # A reset would be ConnectionRefusedError: nobody answers at all, in neither direction.
    assert attempt(second, first, tmp_path) == "TimeoutError"
    assert attempt(first, second, tmp_path) == "TimeoutError"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((first.address, 9), timeout=2)
    record.undo()
    assert attempt(second, first, tmp_path) == "through"


@pytest.mark.root
def test_dead_link_breaks_no_open_connection_but_lets_nothing_through(lab, wait_until, tmp_path):
    first, second = lab.machines
    log = tmp_path / "echo"
    echo = "import socket, sys\nlink, _ = socket.create_server((sys.argv[1], 7002)).accept()\nwhile data := link.recv(9): link.send(data)"
    talk = """
import socket, sys, time
link = socket.create_connection((sys.argv[1], 7002), timeout=5)
link.settimeout(1)
while True:
    try:
        link.send(b"x")
        print("answer" if link.recv(9) else "closed", flush=True)
        time.sleep(0.05)
    except TimeoutError:
        print("silence", flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
        break
"""
    first.spawn(python(echo, first.data_address))
    wait_until(lambda: f"{first.data_address}:7002" in os.popen(f"ip netns exec {lab.network.namespace('m0')} ss -tln").read())
    second.spawn(python(talk, first.data_address), log_path=log)
    wait_until(lambda: log.exists() and "answer" in log.read_text())
    record = inject(lab, "dead-link", 0)
    wait_until(lambda: log.read_text().count("silence") >= 2)
    assert set(log.read_text().split()) == {"answer", "silence"}
    record.undo()
    wait_until(lambda: log.read_text().split()[-1] == "answer")


@pytest.mark.root
def test_on_a_dead_link_the_cut_off_machine_probes_in_vain_and_reaches_nobody(lab, wait_until, tmp_path):
    """What stays in its own send queue is told by the probes: nothing of it is ever in flight."""
    first, second = lab.machines
    log = tmp_path / "seen"
    echo = "import socket, sys\nlink, _ = socket.create_server((sys.argv[1], 7003)).accept()\nwhile data := link.recv(9): link.send(data)"
    look = """
import asyncio, json, os, socket, sys, threading, time
from minder.edge.agent.reach import try_peers
from minder.edge.exporters.flows import FlowExporter
from minder.edge.exporters.jobs import JobProcess
link = socket.create_connection((sys.argv[1], 7003), timeout=5)
def talk():
    while link.send(b"x"):
        link.recv(9)
        time.sleep(0.02)
link.settimeout(None)
threading.Thread(target=talk, daemon=True).start()
me = [JobProcess(os.getpid(), "j", 0)]
while True:
    tries = asyncio.run(try_peers("m0", me, time.monotonic() + 5))
    (flow,) = FlowExporter("m0").flows(me, time.time())
    unanswered = flow.unacked_segments + flow.unanswered_probes
    print(json.dumps({"reached": [item.reached for item in tries], "unanswered": unanswered}), flush=True)
    time.sleep(0.1)
"""
    second.spawn(python(echo, second.data_address))
    wait_until(lambda: f"{second.data_address}:7003" in os.popen(f"ip netns exec {lab.network.namespace('m1')} ss -tln").read())
    first.spawn([sys.executable, "-c", look, second.data_address], log_path=log)

    def last():
        lines = log.read_text().splitlines() if log.exists() else []
        return json.loads(lines[-1]) if lines else {}

    wait_until(lambda: last().get("reached") == [True])
    record = inject(lab, "dead-link", 0)
    wait_until(lambda: last()["reached"] == [False] and last()["unanswered"] >= 2)
    record.undo()
    wait_until(lambda: last() == {"reached": [True], "unanswered": 0})


@pytest.mark.root
def test_slow_cpu_slows_a_busy_loop_and_not_the_neighbours(lab, wait_until, tmp_path):
    logs = [tmp_path / "loop-0", tmp_path / "loop-1"]

    def rate(index):
        seen = len(logs[index].read_text().split())
        wait_until(lambda: len(logs[index].read_text().split()) >= seen + 3)
        return int(logs[index].read_text().split()[-1])

    for machine, log in zip(lab.machines, logs, strict=True):
        machine.spawn(python(SPIN), log_path=log)
    wait_until(lambda: all(log.read_text() for log in logs))
    record = inject(lab, Fault("slow-cpu", cpu_slowdown=8.0), 0)
    assert rate(0) < rate(1) / 3
    record.undo()
    assert "quota" in record.detail
    assert rate(0) > rate(1) / 3


@pytest.mark.root
def test_slow_cpu_does_not_count_what_runs_at_low_priority(lab, wait_until, tmp_path):
    """A spare that imports its libraries would raise the quota to more than the training itself ever uses."""
    log = tmp_path / "loop"
    worker = lab.machines[0].spawn(python("import time\nwhile True: sum(range(20000)); time.sleep(0.01)"))
    lab.machines[0].spawn(["nice", "-n", "10", *python(SPIN)], log_path=log)
    wait_until(lambda: log.exists() and log.read_text())
    record = inject(lab, Fault("slow-cpu", cpu_slowdown=3.0), 0)
    quota_cores = float(record.detail.split()[2])
    assert quota_cores < 0.2, record.detail
    assert worker.poll() is None
    record.undo()


@pytest.mark.root
def test_oom_kills_the_worker_and_not_the_hog_nor_the_rest(lab, start_worker, wait_until):
    first, second = lab.machines
    bystander = first.spawn(["sleep", "60"])
    neighbour = start_worker(second, TAKE_MEMORY)
    pid = start_worker(first, TAKE_MEMORY)
    wait_until(lambda: first.cgroup.memory_bytes() > 120 << 20)
    record = inject(lab, "oom", 0)
    victim = next(child for child in first.children if child.pid == pid)
    assert victim.wait(5) == -9
    assert first.cgroup.oom_kills() >= 1
    assert str(pid) in record.detail
    assert bystander.poll() is None
    assert first.pids() == [bystander.pid]
    assert neighbour in second.pids()
    record.undo()


@pytest.mark.root
def test_a_lost_machine_is_silent_and_empty(lab, start_worker, wait_until, tmp_path):
    first, second = lab.machines
    listening(first, wait_until)
    worker, other = start_worker(first), start_worker(second)
    record = inject(lab, "machine-lost", 0)
    assert first.pids() == []
    assert worker not in first.pids()
    assert second.pids() == [other]
    # No refusal: a machine that is away cannot even say no.
    assert attempt(second, first, tmp_path) == "TimeoutError"
    with pytest.raises((TimeoutError, OSError)) as caught:
        socket.create_connection((first.address, 9), timeout=0.5)
    assert not isinstance(caught.value, ConnectionRefusedError)
    record.undo()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((first.address, 9), timeout=5)
