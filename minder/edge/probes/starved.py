"""For how long a process could have run and had no processor, by the kernel's account: what a busy machine takes from a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ["starved_s", "thread_starved_s"]

_NS = 1e9


def starved_s(pid: int, proc: Path = Path("/proc")) -> float:
    """Seconds since its begin, of the thread that waited longest among those of the process and of what it started that still lives: two
    that wait at the same time wait once. A quota of its cgroup counts too. 0.0 where the kernel keeps no account, or none of it lives."""
    return max((_waited_s(task) for process in _family(pid, proc) for task in _entries(proc / str(process) / "task")), default=0.0)


def thread_starved_s(proc: Path = Path("/proc")) -> float:
    """The same of the calling thread alone."""
    return _waited_s(proc / "thread-self")


def _family(pid: int, proc: Path) -> Iterator[int]:
    """The process, its children, theirs, and so on."""
    yield pid
    for task in _entries(proc / str(pid) / "task"):
        for child in _words(task / "children"):
            yield from _family(int(child), proc)


def _waited_s(task: Path) -> float:
    """schedstat: nanoseconds on a processor, nanoseconds in the queue for one, turns."""
    words = _words(task / "schedstat")
    return int(words[1]) / _NS if len(words) > 1 else 0.0


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
