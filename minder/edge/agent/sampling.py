"""The sampling loop: reads every exporter once an interval, in a thread of its own, and keeps the last reading."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil

from minder.edge.agent.exits import ExitWatch
from minder.edge.agent.exposition import hide
from minder.edge.agent.joblogs import JobLogs
from minder.edge.agent.limit import bound
from minder.edge.agent.memory import MemoryHistory
from minder.edge.agent.nccl import InspectorFolder
from minder.edge.agent.options import AgentOptions
from minder.edge.agent.processes import describe_processes
from minder.edge.agent.ring import SignalRing
from minder.edge.agent.spikes import SpikeReader
from minder.edge.exporters.cgroup import Cgroup
from minder.edge.exporters.flows import FlowExporter
from minder.edge.exporters.gpu import GpuExporter
from minder.edge.exporters.heartbeat import HeartbeatExporter
from minder.edge.exporters.host import CgroupExporter, HostExporter, TreeExporter
from minder.edge.exporters.infiniband import InfinibandExporter
from minder.edge.exporters.job import JobExporter
from minder.edge.exporters.jobs import JobProcess, JobTable
from minder.edge.exporters.network import NetworkExporter
from minder.edge.exporters.nic import NicExporter
from minder.edge.exporters.procfs import read_tree
from minder.edge.exporters.reading import Reading

__all__ = ["Sampler"]

_LOOK_S = 0.1
_FRESH_INTERVALS = 3.0
_log = logging.getLogger("minder.agent")


class Sampler:
    """`latest` is what /metrics serves; `processes` the job's processes at the last sample.

    An exporter that fails is counted (minder_agent_errors_total), logged once per message, and its metrics are absent.
    """

    def __init__(self, options: AgentOptions, ring: SignalRing) -> None:
        self.processes: list[JobProcess] = []
        self._options = options
        self._ring = ring
        self._cgroup = cgroup = Cgroup(options.cgroup, options.cgroup_root) if options.cgroup else None
        self.table = JobTable(options.run_dir, options.pids, options.finds_jobs, cgroup.processes_file() if cgroup else None)
        self._exits = ExitWatch(options.machine, ring.append)
        self.logs = JobLogs(options.logs, options.step_pattern)
        self._nccl = InspectorFolder(options.nccl_inspector, (options.machine,)) if options.nccl_inspector is not None else None
        self._seen: frozenset[int] | None = None
        self._had_any = False  # also while nothing of the job is left: a scheduler may take a while to start it again
        self._job = JobExporter(options.logs, options.run_dir / "dumps")
        self.memory = MemoryHistory(options.cgroup)
        self._flows = FlowExporter(options.machine)
        self._heartbeat = HeartbeatExporter(options.machine)
        self._spikes = SpikeReader(options.machine)
        self._gpu = GpuExporter(options.machine, options.gpu)
        self._independent: dict[str, Callable[[float], Reading]] = {
            "host": self._machine(cgroup),
            "network": NetworkExporter(options.machine, options.interfaces).read,
            "infiniband": InfinibandExporter(options.infiniband_root, options.machine).read,
            "nic": NicExporter(options.interfaces).read,
            "gpu": self._gpu.read,
        }
        if self._nccl is not None:
            self._independent["nccl"] = lambda now_s, nccl=self._nccl: nccl.read()  # type: ignore[misc]
        self._latest: tuple[float, Reading] | None = None
        self._scraped_s = -math.inf
        self._errors = 0
        self._logged: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="minder-sampler", daemon=True)

    @property
    def gpu_names(self) -> Mapping[str, str]:
        """PCI address ("0000:9b:00") to device name ("gpu3")."""
        return self._gpu.pci_names

    def describe(self) -> list[dict[str, Any]] | None:
        """The training processes with their newest steps (see describe_processes); None before the first sample."""
        if self._seen is None:
            return None
        alive = [process for process in self.processes if not self._exits.is_gone(process.pid)]
        return describe_processes(alive, self.logs.steps, bool(self._gpu.pci_names))

    def start(self) -> None:
        self.logs.start()
        if self._nccl is not None:
            self._nccl.start()
        self._exits.start()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(2.0)
        self.logs.stop()
        if self._nccl is not None:
            self._nccl.stop()
        self._exits.stop()
        self._gpu.close()

    def latest(self) -> Reading | None:
        """The last reading, or None if it is older than three intervals: stale values are no data."""
        if self._latest is None or time.monotonic() - self._latest[0] > _FRESH_INTERVALS * self._options.interval_s:
            return None
        return self._latest[1]

    def age_s(self) -> float | None:
        """Since the last reading, however old; None before the first."""
        return None if self._latest is None else time.monotonic() - self._latest[0]

    def scraped(self) -> None:
        """The last reading was taken: averages start anew."""
        self._scraped_s = time.time()

    def sample(self) -> Reading:
        """One reading of everything."""
        started_s, reading = time.perf_counter(), Reading()
        now_s = time.time()
        since_s = max(self._scraped_s, now_s - 60.0)
        self._guarded("registry", reading, lambda: self._read_registry(now_s))
        ranks = [process for process in self.processes if process.rank is not None or process.slot is None]
        self._guarded("job", reading, lambda: self._job.read(ranks, now_s, since_s))
        self._guarded("flows", reading, lambda: self._flows.read(ranks, now_s))
        self._guarded("heartbeat", reading, lambda: self._heartbeat.read(ranks, now_s, since_s))
        self._guarded("spikes", reading, lambda: self._spikes.read(ranks, self.logs.steps))
        self._guarded("logs", reading, self.logs.read)
        for name, read in self._independent.items():
            self._guarded(name, reading, lambda read=read: read(now_s))  # type: ignore[misc]
        self.memory.note(now_s, reading.gauges.get(("job_memory_bytes", None)), self._used_bytes(reading), self._job.tree)
        reading.counter("agent_errors", self._errors)
        reading.gauge("agent_sample_seconds", time.perf_counter() - started_s)
        return reading

    def _machine(self, cgroup: Cgroup | None) -> Callable[[float], Reading]:
        if cgroup is not None:
            return CgroupExporter(cgroup).read
        if self._options.processes_of is not None:
            return TreeExporter(self._tree).read
        return HostExporter().read

    def _used_bytes(self, reading: Reading) -> float | None:
        """What the machine's processes use: of its own limit where it is a cgroup, else of the host's memory. Without files in memory
        (/dev/shm), which stay when no process has them open: the job may have written them."""
        share = reading.gauges.get(("memory_usage_ratio", None))
        if share is None:
            return None
        if self._cgroup is not None:
            limit_bytes = self._cgroup.memory_limit_bytes() or psutil.virtual_memory().total
            return share * limit_bytes - self._cgroup.shared_bytes()
        memory = psutil.virtual_memory()
        return float(share * memory.total - (memory.shared if self._options.processes_of is None else 0))

    def _tree(self) -> list[int]:
        root = self._options.processes_of
        roots = list(self.table.launchers) if root == "registry" else [int(root)] if root is not None else []
        return read_tree(roots + [process.pid for process in self.processes])

    def _read_registry(self, now_s: float) -> Reading:
        reading = Reading()
        self._take(self.table.read(now_s), now_s)
        # not `job`: Prometheus keeps that label for its scrape job, and would rename ours
        reading.info = [("job_info", {"training_job": job}) for job in sorted({process.job for process in self.processes})]
        return reading

    def _take(self, processes: list[JobProcess], now_s: float) -> None:
        """Steps that a log had before a process of the job was started again are none of the new one's."""
        pids = frozenset(process.pid for process in processes if process.slot is None)
        if self._had_any and pids - (self._seen or frozenset()):
            self.logs.forget()
        self._had_any = self._had_any or bool(pids)
        self._exits.follow(processes)
        self.logs.follow(processes, now_s)
        if self._nccl is not None:
            self._nccl.follow([process.pid for process in processes])
        self.processes, self._seen = processes, pids

    def _guarded(self, name: str, reading: Reading, read: Callable[[], Reading]) -> None:
        try:
            reading.merge(read())
        except Exception as error:  # noqa: BLE001 - one broken source must not silence the others; counted and logged
            self._errors += 1
            text = f"{name} exporter: {type(error).__name__}: {error}"
            if text not in self._logged and len(self._logged) < 100:
                self._logged.add(text)
                _log.warning("%s (its metrics are absent)", text)

    def _run(self) -> None:
        due_s = time.monotonic()
        look_s = due_s
        while not self._stop.wait(max(0.0, min(due_s, look_s) - time.monotonic())):
            now_s = time.monotonic()
            if now_s >= look_s:
                self._job.look(time.time())
                look_s = max(look_s + _LOOK_S, now_s)
            if now_s >= due_s:
                reading = self.sample()
                self._ring.append(reading.signals)
                self._latest = (time.monotonic(), bound(hide(reading, self._options.hidden)))
                due_s = max(due_s + self._options.interval_s, now_s)
