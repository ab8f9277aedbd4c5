"""What NCCL completes on this machine, as the NCCL Inspector's plugin writes it: one file per process, `<host>-pid<PID>.log`, a JSON
object per line (minder.edge.signals.nccl_inspector). Counted here, reported as metrics.

A thread of its own reads: a folder on a file server that hangs must stop neither the samples nor the answers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import threading
from collections.abc import Collection
from pathlib import Path

from minder.edge.agent.tail import Tail
from minder.edge.exporters.reading import Reading
from minder.edge.signals.nccl_inspector import InspectorRecord, read_inspector

__all__ = ["InspectorFolder"]

_LOOK_S = 0.5
_LOOK_BYTES, _LEAST_BYTES = 1 << 20, 16 << 10  # of all files in one look, some 3,000 records; of one. Sequence numbers count the rest
_MOST_FILES = 64
_MOST_NAMES = 10_000  # of the folder, in one look
_MOST_SERIES = 4096  # communicators times operations times processes
_MOST_GROWTH = 100_000  # operations between two records: more is no count
_NAME = re.compile(r"^(?P<host>.+)-pid(?P<pid>\d+)\.log$")
_log = logging.getLogger("minder.agent")


class InspectorFolder:
    """`read` gives totals over this machine's processes: nccl_operations, and nccl_bytes of their messages.

    A file is this machine's if it is named for one of `names`, or for a training process here (`follow`). What was written before the
    first look is not counted. Records that the plugin leaves out between two dumps are counted by their sequence numbers, with the
    size of the one that it wrote. What cannot be read is logged once, and is no data.
    """

    def __init__(self, folder: Path, names: Collection[str] = ()) -> None:
        host = socket.gethostname()
        self._folder = folder
        self._names = {host, host.partition(".")[0], *names}
        self._pids: frozenset[int] = frozenset()
        self._tails: dict[str, Tail] = {}
        self._sequences: dict[tuple[str, str, str], int] = {}  # (file, communicator, operation) to the newest number
        self._totals: tuple[int, int] | None = None  # operations, bytes; None: no file of ours was ever read
        self._known: dict[str, None] = {}  # names of files that were read
        self._scanned = False  # the folder could be listed once, or was not there: what comes into being after that is new
        self._looked = False  # and the files that it held then have been opened
        self._logged: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="minder-nccl", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def follow(self, pids: Collection[int]) -> None:
        """The training processes of this machine now."""
        self._pids = frozenset(pids)

    def read(self) -> Reading:
        reading, totals = Reading(), self._totals
        if totals is not None:
            reading.counter("nccl_operations", totals[0])
            reading.counter("nccl_bytes", totals[1])
        return reading

    def poll(self) -> None:
        """One look at the folder and at what was appended to its files. Not thread-safe: by the thread, or instead of it."""
        wanted = self._ours()
        for name in self._tails.keys() - wanted:
            self._tails.pop(name).close()
        for name in sorted(wanted):
            self._read_file(self._tail(name), max(_LEAST_BYTES, _LOOK_BYTES // len(wanted)))
        self._looked = self._scanned

    def _tail(self, name: str) -> Tail:
        """A file that came into being since the last look is read from its beginning; one that was read before, from where it ends."""
        if name not in self._tails:
            self._tails[name] = Tail(self._folder / name, _LOOK_BYTES, from_start=self._looked and name not in self._known)
            self._known[name] = None
            if len(self._known) > _MOST_NAMES:
                del self._known[next(iter(self._known))]
        return self._tails[name]

    def _read_file(self, tail: Tail, most_bytes: int) -> None:
        tail.chunk_bytes = most_bytes
        log = read_inspector(tail.lines())
        if tail.problem:
            self._warn(f"{tail.path} cannot be read: {tail.problem}")
            return
        if log.skipped:
            self._warn(f"{tail.path}: lines that are no record of the NCCL Inspector are left out")
        operations, size = self._totals or (0, 0)
        for record in log.records:
            count = self._count(tail.path.name, record)
            operations, size = operations + count, size + count * record.size_bytes
        self._totals = operations, size

    def _ours(self) -> set[str]:
        """Names of this machine's files, the newest of them where there are too many."""
        found: list[tuple[float, str]] = []
        others = False
        try:
            with os.scandir(self._folder) as entries:
                for _, entry in zip(range(_MOST_NAMES), entries, strict=False):
                    named = _NAME.match(entry.name)
                    others = others or named is not None
                    if named is not None and (named["host"] in self._names or int(named["pid"]) in self._pids):
                        with contextlib.suppress(FileNotFoundError):  # it went while we looked
                            found.append((entry.stat().st_mtime, entry.name))
        except OSError as error:
            self._warn(f"{self._folder} cannot be read: {error.strerror}")
            self._scanned = self._scanned or isinstance(error, FileNotFoundError)
            return set(self._tails)
        self._scanned = True
        if others and not found:
            self._warn(f"{self._folder}: no file is named for {' or '.join(sorted(self._names))} or for a training process here")
        if len(found) > _MOST_FILES:
            self._warn(f"{self._folder} holds more than {_MOST_FILES} files of this machine: the newest are read, clear it between jobs")
        return {name for _, name in sorted(found)[-_MOST_FILES:]}

    def _count(self, file: str, record: InspectorRecord) -> int:
        """Operations of this kind since the last record of it. The numbers begin anew with each communicator."""
        key = (file, record.communicator, record.operation)
        before = self._sequences.pop(key, None)  # and in again: the order is that of use
        self._sequences[key] = record.sequence
        if len(self._sequences) > _MOST_SERIES:
            del self._sequences[next(iter(self._sequences))]
        if before is None or record.sequence < before or record.sequence - before > _MOST_GROWTH:
            return 1
        return record.sequence - before

    def _warn(self, text: str) -> None:
        """Once, and not for ever new texts."""
        if text not in self._logged and len(self._logged) < 20:
            self._logged.add(text)
            _log.warning("NCCL Inspector: %s", text)

    def _run(self) -> None:
        self.poll()
        while not self._stop.wait(_LOOK_S):
            self.poll()
        for tail in self._tails.values():
            tail.close()
