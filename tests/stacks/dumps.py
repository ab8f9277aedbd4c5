"""Writes stacks as py-spy (text, JSON), faulthandler and gdb write them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Frames = Sequence[tuple[str, str, int]]
Threads = Sequence[Frames]

_INSTALL = re.compile(r"^.*/(?:site-packages|lib/python3\.\d+)/|^/workspace/(?:Megatron-LM/)?")


def spy_text(threads: Threads, pid: int) -> bytes:
    lines = [f"Process {pid}: /opt/venv/bin/python -u train.py --lr 1e-4", "Python v3.11.9 (/usr/bin/python3.11)", ""]
    for index, frames in enumerate(threads):
        name = ': "MainThread"' if index == 0 else ""
        lines.append(f"Thread {pid + index} (idle){name}")
        lines += [f"    {function} ({_INSTALL.sub('', file)}:{line})" for function, file, line in frames]
    return "\n".join(lines).encode()


def spy_json(threads: Threads, pid: int) -> bytes:
    def frame(function: str, file: str, line: int) -> dict[str, Any]:
        return {"name": function, "filename": file, "module": None, "short_filename": _INSTALL.sub("", file), "line": line, "locals": None}

    found = [
        {
            "pid": pid,
            "thread_id": 140435696188288 + index,
            "thread_name": "MainThread" if index == 0 else None,
            "os_thread_id": pid + index,
            "active": False,
            "owns_gil": False,
            "frames": [frame(*place) for place in frames],
            "process_info": None,
        }
        for index, frames in enumerate(threads)
    ]
    return json.dumps(found, indent=2).encode()


def faulthandler_text(threads: Threads, pid: int) -> bytes:
    """Newest thread first, the main thread last, "Current" where the signal met it."""
    lines: list[str] = []
    for index, frames in reversed(list(enumerate(threads))):
        lines.append(f"{'Thread' if index else 'Current thread'} 0x{0x7F0A0000 + pid + index:016x} (most recent call first):")
        lines += [f'  File "{file}", line {line} in {function}' for function, file, line in frames]
        lines.append("")
    return "\n".join(lines).encode()


def gdb_text(threads: Threads, pid: int) -> bytes:
    """With CPython's pretty printers, which name the Python frame that an interpreter call runs."""
    lines = ["[New LWP 1]", "[Thread debugging using libthread_db enabled]", ""]
    for index, frames in reversed(list(enumerate(threads))):
        lines.append(f'Thread {index + 1} (Thread 0x7f{pid + index:010x} (LWP {pid + index}) "python"):')
        lines.append("#0  0x00007fb9bb4f1e53 in __futex_abstimed_wait_common64 (private=0, cancel=true) at ./nptl/futex-internal.c:57")
        for level, (function, file, line) in enumerate(frames, 1):
            inner = f"f=Frame 0x7f{pid + level:08x}, for file {file}, line {line}, in {function} (self=<optimized out>)"
            lines.append(f"#{level}  0x00007fb9bb6fd9c3 in _PyEval_EvalFrameDefault ({inner}) at Python/ceval.c:4769")
        lines.append(f"#{len(frames) + 1} 0x00007fb9bb44524a in __libc_start_call_main (main=main@entry=0x55e5) at ../sysdeps/x.h:58")
        lines.append("")
    return "\n".join([*lines, f"[Inferior 1 (process {pid}) detached]"]).encode()


FORMATS: dict[str, Callable[[Threads, int], bytes]] = {
    "py-spy text": spy_text,
    "py-spy json": spy_json,
    "faulthandler": faulthandler_text,
    "gdb": gdb_text,
}


class Job:
    """A folder of dumps: machines x ranks, everybody in `usual` unless told otherwise."""

    def __init__(self, folder: Path, machines: int, ranks: int = 1, dump: str = "py-spy text") -> None:
        self.folder, self.ranks = folder, ranks
        self.machines = [f"node-{index:04d}" for index in range(machines)]
        self._write = FORMATS[dump]
        self._states: dict[str, str] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def stand(self, frames: Frames | Threads, machines: Sequence[int] | None = None, ranks: Sequence[int] | None = None) -> Job:
        """Put processes at a place: some machines (all), some of their local ranks (all)."""
        threads = frames if frames and isinstance(frames[0], list) else [frames]
        for machine in range(len(self.machines)) if machines is None else machines:
            for local in range(self.ranks) if ranks is None else ranks:
                pid = 4000 + 100 * machine + local
                self.file(machine, local).write_bytes(self._write(threads, pid))  # type: ignore[arg-type]
        return self

    def file(self, machine: int, local: int = 0) -> Path:
        return self.folder / f"{self.machines[machine]}_pid{4000 + 100 * machine + local}.txt"

    def state(self, letter: str, machines: Sequence[int]) -> Job:
        for machine in machines:
            for local in range(self.ranks):
                self._states[self.file(machine, local).name] = letter
        rows = []
        for path in sorted(self.folder.glob("*_pid*")):
            machine, pid = path.stem.split("_pid")
            rows.append({"file": path.name, "machine": machine, "pid": int(pid), "rank": None, "state": self._states.get(path.name, "S")})
        (self.folder / "processes.json").write_text(json.dumps(rows))
        return self

    def topology(self, tensor: int = 1, pipeline: int = 1, order: str = "tp-dp-pp") -> Job:
        data = len(self.machines) * self.ranks // tensor // pipeline
        names = json.dumps(self.machines)
        (self.folder / "job.toml").write_text(
            f'name = "job"\nmachines = {names}\ngpus_per_machine = {self.ranks}\n\n[parallelism]\n'
            f'tensor = {tensor}\npipeline = {pipeline}\ndata = {data}\nrank_order = "{order}"\n'
        )
        return self
