"""Raw reads of /proc: a few microseconds each, because an agent makes thousands of them a minute."""

# ruff: noqa: PTH110, PTH115, PTH208
# (os functions on plain strings: pathlib costs several times as much, and this is the agent's hot path)

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = [
    "PAGE_BYTES",
    "TICKS_PER_S",
    "ProcessStat",
    "is_alive",
    "list_pids",
    "read_bytes",
    "read_environment",
    "read_stat",
    "read_text",
    "read_tree",
    "socket_inodes",
    "start_ticks",
]

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """/proc/PID/stat. state: R running, S sleeping, D uninterruptible, T stopped, t traced, Z zombie, X dead."""

    pid: int
    name: str
    state: str
    parent: int
    cpu_s: float
    threads: int
    start_ticks: int
    rss_bytes: int


def read_bytes(path: str, limit: int = 65536) -> bytes | None:
    """A small file's content, or None if it is not there or not ours to read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(handle, limit)
    except OSError:
        return None
    finally:
        os.close(handle)


def read_text(path: str, limit: int = 65536) -> str | None:
    content = read_bytes(path, limit)
    return None if content is None else content.decode(errors="replace")


def read_stat(pid: int) -> ProcessStat | None:
    """One process, all its threads together; None once it is gone."""
    content = read_bytes(f"/proc/{pid}/stat", 1024)
    if not content:
        return None
    opened, closed = content.find(b"("), content.rfind(b")")
    fields = content[closed + 2 :].split()
    if len(fields) < 22:
        return None
    cpu_s = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    name = content[opened + 1 : closed].decode(errors="replace")
    rss_bytes = int(fields[21]) * PAGE_BYTES
    return ProcessStat(pid, name, chr(fields[0][0]), int(fields[1]), cpu_s, int(fields[17]), int(fields[19]), rss_bytes)


def start_ticks(pid: int) -> int | None:
    """When the process began; with the pid it names a process for good, since pids are used again."""
    stat = read_stat(pid)
    return None if stat is None else stat.start_ticks


def list_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def is_alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def socket_inodes(pid: int) -> list[int]:
    """The sockets that a process holds; none if it is gone or not ours to look at."""
    inodes: list[int] = []
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return inodes
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.append(int(target[8:-1]))
    return inodes


def read_environment(pid: int) -> dict[str, str] | None:
    """The environment that the process started with. Only a few names of it ever leave this machine."""
    content = read_bytes(f"/proc/{pid}/environ", 131072)
    if content is None:
        return None
    pairs = (item.partition(b"=") for item in content.split(b"\0") if b"=" in item)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def read_tree(roots: list[int]) -> list[int]:
    """The processes and all their descendants, roots first. A child of any thread counts."""
    found: dict[int, None] = dict.fromkeys(roots)
    waiting = list(roots)
    while waiting:
        for child in _children(waiting.pop()):
            if child not in found:
                found[child] = None
                waiting.append(child)
    return list(found)


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    children: list[int] = []
    for task in tasks:
        content = read_bytes(f"/proc/{pid}/task/{task}/children")
        if content:
            children.extend(int(child) for child in content.split())
    return children
