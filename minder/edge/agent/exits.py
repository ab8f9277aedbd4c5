"""Training processes that minder did not start, and when they went. Their exit status belongs to their parent: it is known
only if we look while the process is still a zombie, which mostly succeeds, but must not be relied on.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minder.edge.agent.error_file import read_error_file
from minder.edge.exporters.jobs import JobProcess
from minder.edge.exporters.procfs import read_bytes, read_stat
from minder.model.evidence import Signal

__all__ = ["ExitWatch"]

_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class _Followed:
    process: JobProcess
    started_ticks: int
    owner: int


class ExitWatch:
    """`publish` gets one signal of kind exit per process that vanished: {vanished: true}, and code or signal if they were seen, and type
    and error of the exception that it left in torchrun's error file.

    The kernel gives the moment (pidfd), not the next sample: the first exit is decided on it.
    """

    def __init__(self, machine: str, publish: Callable[[list[Signal]], None]) -> None:
        self._machine = machine
        self._publish = publish
        self._epoll = select.epoll()
        self._handles: dict[int, int] = {}  # pid to pidfd
        self._followed: dict[int, _Followed] = {}  # pidfd to process
        self._gone: set[int] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="minder-exits", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(2 * _LOOK_S)
        with self._lock:
            for handle in self._followed:
                os.close(handle)
            self._followed, self._handles = {}, {}
            self._epoll.close()

    def follow(self, processes: Iterable[JobProcess]) -> None:
        """The processes that are there now. Those of a launcher are its own to tell of."""
        for process in processes:
            if process.slot is not None or process.pid in self._handles:
                continue
            stat = read_stat(process.pid)
            if stat is None or stat.state in "ZX":
                self._gone.add(process.pid)  # reported already, or ended before we came; not reaped yet
                continue
            try:
                handle, owner = os.pidfd_open(process.pid), Path(f"/proc/{process.pid}").stat().st_uid
            except OSError:
                continue
            with self._lock:
                if self._stop.is_set():
                    os.close(handle)
                    return
                self._handles[process.pid] = handle
                self._followed[handle] = _Followed(process, stat.start_ticks, owner)
                self._gone.discard(process.pid)
                self._epoll.register(handle, select.EPOLLIN)

    def is_gone(self, pid: int) -> bool:
        """Whether it ended, though its number may still be there (a zombie)."""
        return pid in self._gone

    def _run(self) -> None:
        while not self._stop.is_set():
            for handle, _ in self._epoll.poll(_LOOK_S):
                self._report(handle, time.time())

    def _report(self, handle: int, now_s: float) -> None:
        with self._lock:
            followed = self._followed.pop(handle, None)
            if followed is None:
                return
            process = followed.process
            data: dict[str, Any] = {"vanished": True, **_read_status(process.pid, followed.started_ticks)}
            self._epoll.unregister(handle)
            os.close(handle)
            del self._handles[process.pid]
            self._gone.add(process.pid)
        who = f"rank {process.rank}" if process.rank is not None else f"process {process.pid}"
        how = f"by signal {data['signal']}" if data.get("signal") else f"with {data['code']}" if "code" in data else "with unknown status"
        message = f"{who} ended {how}"
        raised = read_error_file(process.error_file, followed.owner) if process.error_file else None
        if raised is not None and data.get("code") != 0:
            data |= {"type": raised[0], "error": raised[1][:2000]}
            message = f"{message}: {raised[0]}: {raised[1]}"[:300]
        self._publish([Signal(now_s, "exit", self._machine, message, process.rank, None, process.pid, process.generation, data)])


def _read_status(pid: int, ticks: int) -> dict[str, Any]:
    """Code or signal of a zombie, out of the last field but one of /proc/PID/stat; nothing if it is reaped or not ours to see."""
    try:
        mine = os.geteuid() in (0, Path(f"/proc/{pid}").stat().st_uid)
    except OSError:
        return {}
    content = read_bytes(f"/proc/{pid}/stat", 2048) if mine else None
    if not content:
        return {}
    fields = content[content.rfind(b")") + 2 :].split()
    if len(fields) < 50 or fields[0] not in (b"Z", b"X") or int(fields[19]) != ticks:
        return {}
    status = int(fields[49])
    number = status & 0x7F
    return {"code": None, "signal": number} if number else {"code": status >> 8 & 0xFF, "signal": None}
