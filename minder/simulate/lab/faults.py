"""Real faults for one machine of the lab, and only that one.

hang           SIGSTOP of the machine's training processes
crash          SIGKILL of one training process, once: unknown, so the job is restarted in place
crash-sticky   the machine kills whatever process of the job it gets, one that waits for a rank too, until it gets none
xid            the kernel reports an uncorrectable error of the machine's GPU (Xid 48), and its training process dies
crash-cascade  the same, and every peer dies of it within two seconds, so the job must run with in-place restart off (cascade.py)
slow-cpu       a CPU quota on the machine's cgroup, a fraction of what the machine uses at that moment; a spare that is being
               prepared at low priority does not count: once it is ready, a quota that it had raised would slow nothing
slow-link      token buckets on the data link, both directions, a fraction of what the machine sends at that moment: a fixed rate that
               holds up steps of a quarter of a second holds up none of a busy host's, which take longer than the data need
dead-link      the data link drops everything, silently, both directions
oom            a memory hog under a limit just above present use: the kernel kills the training process within its own limit
machine-lost   both links cut, then everything on the machine killed, agent and launcher too
agent-lost     SIGKILL of the agent
disk-full      a file system without room over the folder in which the machine's probes write; no process of the job is touched
slow-disk      the same folder, on a disk that is slow to write, to read and to sync (slow_disk.py, by FUSE)
slow-store     the job's checkpoint folder, which all machines share, slow in the same way: no machine's fault
exception, nan raised and computed by the training script itself; none: nothing happens
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from minder.edge.exporters.procfs import read_stat
from minder.model.errors import BadInputError, LabError, UnsupportedFaultError
from minder.simulate.lab import hog
from minder.simulate.lab.capabilities import Capabilities
from minder.simulate.lab.cascade import Cascade
from minder.simulate.lab.cgroup import Cgroup
from minder.simulate.lab.disk_faults import FUSE, fill, slow_down
from minder.simulate.lab.machine import KERNEL_LOG, LabMachine
from minder.simulate.lab.network import LabNetwork
from minder.simulate.lab.processes import LAB_VARIABLE, OWNER_VARIABLE, read_mark
from minder.simulate.lab.record import process_state, start_ticks
from minder.simulate.lab.workers import job_processes, process_tree, training_workers

__all__ = ["FAULT_KINDS", "Fault", "InjectionRecord", "check_fault", "inject"]

SCRIPT_KINDS = ("exception", "nan")  # the training script does these, which its environment asks for
_NEEDS: Mapping[str, str] = {"slow-cpu": "cpu-quota", "oom": "memory-limit", "slow-link": "slow-link", "dead-link": "dead-link"}
_HOG_DEADLINE_S = 20.0
_LINK_LOOK_S = 2.0
_IDLE_BIT = 500_000  # no link is made slower than this: connections would break, which is another fault
_STICKY_S, _STICKY_IDLE_S = 2.0, 12.0
_GONE = ("Z", "X", "")  # process states (proc(5)); "" has no entry any more


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and how bad it is.

    cpu_slowdown: the machine gets its present CPU use divided by this, so its part of every step takes at least so many times as long.
    link_rate_bit: what is left of the data link at most, in bit/s. link_slowdown: the link gets what the machine sends at present divided
    by this, if that is less. oom_margin_bytes: how far above present use the memory limit is set.
    disk_bytes_per_s: what the slow disk or store reads and writes. fsync_s: how long each sync takes there. store: the slow store's folder;
    not given: where the job saves to by the environment that its workers were started with.
    """

    kind: str
    cpu_slowdown: float = 3.0
    link_rate_bit: int = 10_000_000
    link_slowdown: float = 3.0
    oom_margin_bytes: int = 48 << 20
    disk_bytes_per_s: float = 10e6
    fsync_s: float = 0.05
    store: Path | None = None


@dataclass(frozen=True, slots=True)
class InjectionRecord:
    """What was done to whom and when (unix seconds, the moment before it took effect). `undo` heals what can be healed."""

    kind: str
    machine: str
    time_s: float
    detail: str
    undo: Callable[[], None]


class LabUnderTest(Protocol):
    """What the injector needs of a lab."""

    @property
    def mode(self) -> str: ...
    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def all_machines(self) -> list[LabMachine]: ...


def check_fault(kind: str, mode: str, capabilities: Capabilities) -> None:
    """Can this fault be injected in a lab of this mode here? Raises BadInputError (unknown) or UnsupportedFaultError (with the reason)."""
    if kind not in FAULT_KINDS:
        raise BadInputError(f"unknown fault {kind}; known: {', '.join(FAULT_KINDS)}")
    if kind == "xid" and not os.access(KERNEL_LOG, os.R_OK | os.W_OK):
        raise UnsupportedFaultError(f"fault xid cannot be injected here: it needs to read and write {KERNEL_LOG} (root)")
    if kind == "disk-full" and os.geteuid():
        raise UnsupportedFaultError("fault disk-full cannot be injected here: it mounts a file system (root)")
    if kind in ("slow-disk", "slow-store") and not os.access(FUSE, os.R_OK | os.W_OK):
        why = "is missing" if not FUSE.exists() else "cannot be opened (root)"
        raise UnsupportedFaultError(f"fault {kind} cannot be injected here: {FUSE} {why}")
    feature = _NEEDS.get(kind)
    if feature is None:
        return
    if mode == "processes":
        why = capabilities.refused.get("namespaces") or capabilities.refused.get("cgroups") or "process mode was asked for"
        raise UnsupportedFaultError(f"fault {kind} needs machines made of network namespaces and cgroups, these are process groups: {why}")
    if not capabilities.can(feature):
        raise UnsupportedFaultError(f"fault {kind} cannot be injected here: {capabilities.refused[feature]}")


def inject(lab: LabUnderTest, fault: Fault | str, machine_index: int) -> InjectionRecord:
    """Do it now, to machine `machine_index` of the lab (standbys count on after the machines).

    Returns when the fault is in effect. Raises UnsupportedFaultError before anything is touched, LabError if there is nothing to hurt.
    """
    fault = Fault(fault) if isinstance(fault, str) else fault
    check_fault(fault.kind, lab.mode, lab.capabilities)
    if not 0 <= machine_index < len(lab.all_machines):
        raise BadInputError(f"machine index {machine_index} is outside the lab's 0 to {len(lab.all_machines) - 1}")
    machine = lab.all_machines[machine_index]
    if fault.kind == "slow-disk":
        return _slow_disk(machine, fault, lab.all_machines)
    if fault.kind == "crash-cascade":
        return _crash_cascade(machine, lab.all_machines)
    return _INJECTORS[fault.kind](machine, fault)


def _none(machine: LabMachine, fault: Fault) -> InjectionRecord:
    detail = "the training script does it" if fault.kind in SCRIPT_KINDS else "nothing"
    return InjectionRecord(fault.kind, machine.name, time.time(), detail, _nothing)


def _hang(machine: LabMachine, fault: Fault) -> InjectionRecord:
    pids = [pid for worker in training_workers(machine) for pid in process_tree(machine, worker.pid)]
    started = {pid: start_ticks(pid) for pid in pids}
    now_s = time.time()
    for pid in pids:
        _send(pid, signal.SIGSTOP)
    _wait_until(lambda: all(process_state(pid) in ("T", "t", *_GONE) for pid in pids))

    def undo() -> None:
        for pid, ticks in started.items():
            if ticks is not None and start_ticks(pid) == ticks:
                _send(pid, signal.SIGCONT)

    return InjectionRecord(fault.kind, machine.name, now_s, f"stopped processes {pids}", undo)


def _crash(machine: LabMachine, fault: Fault) -> InjectionRecord:
    victim = training_workers(machine)[0]
    now_s = time.time()
    _send(victim.pid, signal.SIGKILL)
    return InjectionRecord(fault.kind, machine.name, now_s, f"killed rank {victim.rank}, pid {victim.pid}", _nothing)


def _crash_sticky(machine: LabMachine, fault: Fault) -> InjectionRecord:
    """The first kill at once; the others by a thread that ends with `undo` and with the lab."""
    first, healed = _crash(machine, fault), threading.Event()

    def kill_again() -> None:
        seen: dict[tuple[int, bool], float] = {}
        while not healed.wait(0.1):
            now_s = time.monotonic()
            alive = [(pid, rank is None) for pid, rank in job_processes(machine)]
            seen = {place: seen.get(place, now_s) for place in alive}
            for (pid, idle), since_s in seen.items():
                if now_s - since_s > (_STICKY_IDLE_S if idle else _STICKY_S):
                    _send(pid, signal.SIGKILL)

    threading.Thread(target=kill_again, name="lab-crash-sticky", daemon=True).start()
    both_waits = f"{first.detail}; later ones {_STICKY_S:.0f} s after they began to train, or {_STICKY_IDLE_S:.0f} s of waiting"
    return replace(first, detail=both_waits, undo=healed.set)


def _xid(machine: LabMachine, fault: Fault) -> InjectionRecord:
    """The line goes through the host's own kernel log; the process that it names shows the agents whose it is."""
    victim = training_workers(machine)[0]
    line = (
        f"NVRM: Xid (PCI:0000:3b:00): 48, pid={victim.pid}, name=python, An uncorrectable double bit error (DBE) has been detected on GPU"
    )
    now_s = time.time()
    KERNEL_LOG.write_text(f"<3>{line}\n")
    _send(victim.pid, signal.SIGKILL)
    return InjectionRecord(fault.kind, machine.name, now_s, f"{line}; killed rank {victim.rank}", _nothing)


def _crash_cascade(machine: LabMachine, everybody: list[LabMachine]) -> InjectionRecord:
    victim = training_workers(machine)[0]
    watch = Cascade(everybody, victim)
    crash = _crash(machine, Fault("crash-cascade"))
    return replace(crash, detail=f"{crash.detail}; {watch.follow()}")


def _cpu_s(machine: LabMachine) -> dict[int, float]:
    """CPU seconds so far of the machine's processes, by pid, without those of lowered priority."""
    niceness = {}
    for pid in machine.pids():
        with contextlib.suppress(ProcessLookupError):
            niceness[pid] = os.getpriority(os.PRIO_PROCESS, pid)
    stats = [read_stat(pid) for pid, value in niceness.items() if value == min(niceness.values())]
    return {stat.pid: stat.cpu_s for stat in stats if stat is not None}


def _slow_cpu(machine: LabMachine, fault: Fault) -> InjectionRecord:
    cgroup, window_s = _cgroup(machine), 1.0
    before = _cpu_s(machine)
    time.sleep(window_s)
    after = _cpu_s(machine)
    use_cores = sum(after[pid] - before.get(pid, 0.0) for pid in after) / window_s
    quota_cores = max(0.01, use_cores / fault.cpu_slowdown)
    now_s = time.time()
    cgroup.set_cpu_quota(quota_cores)
    detail = f"CPU quota {quota_cores:.3f} cores, use was {use_cores:.3f}"
    return InjectionRecord(fault.kind, machine.name, now_s, detail, lambda: cgroup.set_cpu_quota(None))


def _slow_link(machine: LabMachine, fault: Fault) -> InjectionRecord:
    network, label = _network(machine), machine.place.label
    before = _sent_bytes(machine)
    time.sleep(_LINK_LOOK_S)
    use_bit = 8.0 * (_sent_bytes(machine) - before) / _LINK_LOOK_S
    rate_bit = fault.link_rate_bit if use_bit < _IDLE_BIT else min(fault.link_rate_bit, max(_IDLE_BIT, int(use_bit / fault.link_slowdown)))
    now_s = time.time()
    network.slow_data_link(label, rate_bit)
    detail = f"data link limited to {rate_bit} bit/s, use was {use_bit:.0f}"
    return InjectionRecord(fault.kind, machine.name, now_s, detail, lambda: network.restore_data_link(label))


def _sent_bytes(machine: LabMachine) -> int:
    """What the machine has sent over its data link so far: any of its processes sees its counters; 0 where it has none."""
    for pid in machine.pids():
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/net/dev").read_text(encoding="utf-8").splitlines()
            counted = (line.split(":")[1].split() for line in lines if line.strip().startswith(f"{machine.place.data_interface}:"))
            if (found := next(counted, None)) is not None:
                return int(found[8])  # proc(5): eight columns of what came, then bytes sent
    return 0


def _dead_link(machine: LabMachine, fault: Fault) -> InjectionRecord:
    network, label = _network(machine), machine.place.label
    now_s = time.time()
    network.drop_data_link(label)
    return InjectionRecord(fault.kind, machine.name, now_s, "data link drops everything", lambda: network.undrop_data_link(label))


def _oom(machine: LabMachine, fault: Fault) -> InjectionRecord:
    cgroup, victim = _cgroup(machine), training_workers(machine)[0]
    # With 1000 a process counts as if it held the whole limit besides its own memory: no other weighs more.
    Path(f"/proc/{victim.pid}/oom_score_adj").write_text("1000", encoding="utf-8")
    limit_bytes, kills_before = cgroup.memory_bytes() + fault.oom_margin_bytes, cgroup.oom_kills()
    now_s = time.time()
    cgroup.set_memory_limit(limit_bytes)
    arguments = [str(cgroup.oom_kills_file()), str(limit_bytes + fault.oom_margin_bytes)]
    eater = machine.spawn([sys.executable, "-I", "-S", hog.__file__, *arguments])
    with contextlib.suppress(subprocess.TimeoutExpired):
        eater.wait(timeout=_HOG_DEADLINE_S)
    eater.kill()
    eater.wait()
    _wait_until(lambda: process_state(victim.pid) in _GONE)
    if cgroup.oom_kills() == kills_before or process_state(victim.pid) not in _GONE:
        cgroup.set_memory_limit(None)
        raise LabError(f"{machine.name}: the kernel did not kill process {victim.pid} under a memory limit of {limit_bytes} bytes")
    detail = f"the kernel killed rank {victim.rank}, pid {victim.pid}, under a memory limit of {limit_bytes} bytes"
    return InjectionRecord(fault.kind, machine.name, now_s, detail, lambda: cgroup.set_memory_limit(None))


def _machine_lost(machine: LabMachine, fault: Fault) -> InjectionRecord:
    network, label = machine.network, machine.place.label
    now_s = time.time()
    if network is not None:
        network.cut(label)  # first, or the kernel would say goodbye (FIN, RST) for the processes that die
    if not machine.kill_all():
        raise LabError(f"{machine.name}: processes {machine.pids()} did not die of SIGKILL")
    detail = "links cut, everything killed" if network else "everything killed (peers see resets: process mode has no links to cut)"
    return InjectionRecord(fault.kind, machine.name, now_s, detail, _nothing if network is None else lambda: network.join(label))


def _agent_lost(machine: LabMachine, fault: Fault) -> InjectionRecord:
    agent = machine.agent
    if agent is None or agent.poll() is not None:
        raise LabError(f"{machine.name} runs no agent")
    now_s = time.time()
    agent.kill()
    agent.wait()
    return InjectionRecord(fault.kind, machine.name, now_s, f"killed the agent, pid {agent.pid}", _nothing)


def _disk_full(machine: LabMachine, fault: Fault) -> InjectionRecord:
    now_s = time.time()
    undo = fill(machine.scratch, f"mdr{machine.place.run_id}")
    return InjectionRecord(fault.kind, machine.name, now_s, f"no room in {machine.scratch}", undo)


def _slow_disk(machine: LabMachine, fault: Fault, everybody: list[LabMachine]) -> InjectionRecord:
    """The others get a file system of the same kind at full speed: a probe compares like with like."""
    fast = replace(fault, disk_bytes_per_s=1e12, fsync_s=0.0)
    others = [_slow_folder(item, fast, item.scratch) for item in everybody if item is not machine]
    record = _slow_folder(machine, fault, machine.scratch)

    def undo() -> None:
        for item in (record, *others):
            item.undo()

    return replace(record, undo=undo)


def _slow_store(machine: LabMachine, fault: Fault) -> InjectionRecord:
    marks = (read_mark(worker.pid, "MINDER_CHECKPOINT_DIR") for worker in training_workers(machine))
    folder = fault.store or next((Path(found) for found in marks if found), None)
    if folder is None:
        raise LabError(f"{machine.name}: its job keeps no checkpoints in a folder")
    return _slow_folder(machine, fault, folder)


def _slow_folder(machine: LabMachine, fault: Fault, folder: Path) -> InjectionRecord:
    """By a process of the lab, but of no machine: the disk outlives the machine's processes, and takes none of their processor."""
    mark = {name: value for name, value in machine.environment.items() if name in (LAB_VARIABLE, OWNER_VARIABLE)}
    now_s = time.time()
    undo = slow_down(folder, f"mdr{machine.place.run_id}", fault.disk_bytes_per_s, fault.fsync_s, mark)
    detail = f"{folder}: {fault.disk_bytes_per_s:.0f} B/s, {fault.fsync_s:g} s a sync"
    return InjectionRecord(fault.kind, machine.name, now_s, detail, undo)


def _nothing() -> None:
    return


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _wait_until(condition: Callable[[], bool], deadline_s: float = 2.0) -> None:
    """A signal takes effect when the process next leaves the kernel; one that waits for a disk may take a while."""
    end_s = time.monotonic() + deadline_s
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.001)


def _cgroup(machine: LabMachine) -> Cgroup:
    if machine.cgroup is None:
        raise UnsupportedFaultError(f"{machine.name} has no cgroup of its own")
    return machine.cgroup


def _network(machine: LabMachine) -> LabNetwork:
    if machine.network is None:
        raise UnsupportedFaultError(f"{machine.name} has no network of its own")
    return machine.network


_INJECTORS: Mapping[str, Callable[[LabMachine, Fault], InjectionRecord]] = {
    "hang": _hang,
    "crash": _crash,
    "crash-cascade": _crash,  # and then its peers
    "crash-sticky": _crash_sticky,
    "xid": _xid,
    "exception": _none,
    "slow-cpu": _slow_cpu,
    "slow-link": _slow_link,
    "dead-link": _dead_link,
    "oom": _oom,
    "nan": _none,
    "machine-lost": _machine_lost,
    "agent-lost": _agent_lost,
    "disk-full": _disk_full,
    "slow-disk": _none,  # with the disks of all others
    "slow-store": _slow_store,
    "none": _none,
}
FAULT_KINDS = tuple(_INJECTORS)
