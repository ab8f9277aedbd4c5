"""The job's processes as /proc sees them: states, CPU, memory, threads, and how their main threads spend their time.

A training process whose peers wait for it is busy (or stopped); one that waits for a peer sleeps. Ten looks a second at
the main threads' states tell the two apart without anything inside the process.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from minder.edge.exporters.growth import Growth
from minder.edge.exporters.jobs import JobProcess
from minder.edge.exporters.procfs import ProcessStat, read_bytes, read_stat, read_tree
from minder.edge.exporters.reading import Reading

__all__ = ["JobExporter"]

_TREE_EVERY_S = 5.0
_LOOKS_KEPT = 600  # a minute of looks: the longest scrape interval that is averaged in full


class JobExporter:
    """`look` ten times a second, `read` once a sample. Only ranks count; a standby's process waits and says nothing.

    job_run_delay_ratio is the main threads' time in the run queue (schedstat): the sum over all threads would cost one
    read per thread, hundreds per process with torch.
    """

    def __init__(self, logs: Sequence[Path] = (), dumps: Path | None = None) -> None:
        """logs: files in which the job's processes write, besides those that their launcher names. dumps: where minder's own thread in
        each rank writes, whatever the rank does: that is none of the job's work."""
        self._logs, self._dumps = tuple(logs), dumps
        self._dumped: dict[str, int] = {}  # each dump's file to when it was written
        self._own_bytes = 0
        self._io, self._log = Growth(), Growth()
        self._handles: dict[int, int] = {}  # pid to its open /proc/PID/task/PID/stat
        self._looks: deque[tuple[float, int, int]] = deque(maxlen=_LOOKS_KEPT)  # time, busy, seen
        self.tree: list[int] = []  # the processes and all below them, as last read
        self._tree_read_s = float("-inf")
        self._tree_of: tuple[int, ...] = ()
        self._cpu: tuple[float, dict[int, float]] | None = None
        self._delay: tuple[float, dict[int, float]] | None = None

    def watch(self, processes: Sequence[JobProcess]) -> None:
        """Say which processes to look at from now on."""
        wanted = {process.pid for process in processes}
        for pid in self._handles.keys() - wanted:
            os.close(self._handles.pop(pid))
        for pid in wanted - self._handles.keys():
            try:
                self._handles[pid] = os.open(f"/proc/{pid}/task/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue

    def look(self, now_s: float) -> None:
        """One glance at each main thread: is it running, or waiting for a disk?"""
        busy = seen = 0
        for handle in self._handles.values():
            try:
                content = os.pread(handle, 128, 0)
            except OSError:
                continue
            at = content.rfind(b")") + 2
            seen += 1
            busy += content[at : at + 1] in (b"R", b"D")
        if seen:
            self._looks.append((now_s, busy, seen))

    def read(self, processes: Sequence[JobProcess], now_s: float, since_s: float) -> Reading:
        """since_s: the last scrape; job_busy_ratio is averaged from there, over at least one second."""
        reading = Reading()
        self.watch(processes)
        stats = self._stats(tuple(sorted(process.pid for process in processes)), now_s)
        if not stats:
            self._cpu = self._delay = None
            return reading
        reading.gauge("processes_stopped", sum(stat.state in "Tt" for stat in stats))
        reading.gauge("job_processes", len(stats))
        reading.gauge("job_memory_bytes", sum(stat.rss_bytes for stat in stats))
        reading.gauge("job_threads", sum(stat.threads for stat in stats))
        self._activity(reading, stats, processes)
        self._busy(reading, min(since_s, now_s - 1.0))
        self._cpu = _rate(reading, "job_cpu_ratio", {stat.pid: stat.cpu_s for stat in stats}, now_s, self._cpu)
        self._delay = _rate(reading, "job_run_delay_ratio", self._run_delays(), now_s, self._delay)
        return reading

    def _activity(self, reading: Reading, stats: Sequence[ProcessStat], processes: Sequence[JobProcess]) -> None:
        """What shows that the job gets on although no step is read: bytes read and written, and new lines in its logs."""
        totals = _io_bytes(stats)
        if totals:
            self._note_dumps(processes)
            reading.counter("job_io_bytes", max(0, self._io.add(totals) - self._own_bytes))
        sizes = _file_sizes([*(process.log for process in processes if process.log is not None), *self._logs])
        if sizes:
            reading.counter("job_log_bytes", self._log.add(sizes))

    def _note_dumps(self, processes: Sequence[JobProcess]) -> None:
        before, self._dumped = self._dumped, {}
        for path in [f"{self._dumps}/pid-{process.pid}" for process in processes] if self._dumps is not None else ():
            try:
                found = os.stat(path)  # noqa: PTH116 - the agent's hot path
            except OSError:
                continue
            self._dumped[path] = found.st_mtime_ns
            self._own_bytes += found.st_size if before.get(path, found.st_mtime_ns) != found.st_mtime_ns else 0

    def _stats(self, pids: tuple[int, ...], now_s: float) -> list[ProcessStat]:
        if pids != self._tree_of or now_s - self._tree_read_s >= _TREE_EVERY_S:
            self.tree, self._tree_of, self._tree_read_s = read_tree(list(pids)), pids, now_s
        return [stat for stat in map(read_stat, self.tree) if stat is not None and stat.state not in "ZX"]

    def _busy(self, reading: Reading, since_s: float) -> None:
        looks = [(busy, seen) for time_s, busy, seen in self._looks if time_s >= since_s]
        if looks:
            reading.gauge("job_busy_ratio", sum(busy for busy, _ in looks) / sum(seen for _, seen in looks))

    def _run_delays(self) -> dict[int, float]:
        delays: dict[int, float] = {}
        for pid in self._handles:
            content = read_bytes(f"/proc/{pid}/schedstat", 128)
            if content:
                delays[pid] = int(content.split()[1]) / 1e9
        return delays


def _rate(
    reading: Reading, name: str, totals: dict[int, float], now_s: float, before: tuple[float, dict[int, float]] | None
) -> tuple[float, dict[int, float]]:
    """Seconds per second over the processes that were there at both looks; returns the state for the next call."""
    if before is not None and now_s > before[0]:
        both = totals.keys() & before[1].keys()
        if both:
            reading.gauge(name, sum(max(0.0, totals[pid] - before[1][pid]) for pid in both) / (now_s - before[0]))
    return now_s, totals


def _io_bytes(stats: Sequence[ProcessStat]) -> dict[str, int]:
    """Bytes that each process has read and written by system calls (proc(5), /proc/PID/io): files, page cache and pipes included.
    Processes that may not be looked at are left out."""
    found: dict[str, int] = {}
    for stat in stats:
        fields = (read_bytes(f"/proc/{stat.pid}/io", 512) or b"").split()
        if len(fields) >= 4 and fields[0] == b"rchar:" and fields[2] == b"wchar:":
            found[f"{stat.pid}:{stat.start_ticks}"] = int(fields[1]) + int(fields[3])
    return found


def _file_sizes(paths: Iterable[str | Path]) -> dict[str, int]:
    """Bytes of each file that is there."""
    found: dict[str, int] = {}
    for path in {str(path) for path in paths}:
        try:
            found[path] = os.stat(path).st_size  # noqa: PTH116 - the agent's hot path
        except OSError:
            continue
    return found
