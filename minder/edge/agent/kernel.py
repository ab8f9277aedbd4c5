"""Follows the kernel log from the moment the agent starts; lines that mean something become signals."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

from minder.edge.signals.kernel_log import KernelLine, parse_kernel_line, parse_kmsg_record
from minder.model.evidence import Signal

__all__ = ["KernelFollower", "read_kernel_tail"]

_RECORD_BYTES = 16384  # the kernel refuses to read a record in pieces
_TAIL_LINES = 50


class KernelFollower:
    """Reads the device from its end on, on the event loop. Where it may not be read, nothing is reported.

    `belongs` decides whether a line is this machine's: the kernel log of machines that share a host is one.
    """

    def __init__(self, machine: str, publish: Callable[[list[Signal]], None], belongs: Callable[[Signal], bool], device: Path) -> None:
        self._machine = machine
        self._publish = publish
        self._belongs = belongs
        self._device = device
        self._handle: int | None = None

    @property
    def reading(self) -> bool:
        return self._handle is not None

    def start(self) -> None:
        try:
            handle = os.open(self._device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        try:
            os.lseek(handle, 0, os.SEEK_END)
            self.follow(handle)
        except OSError:
            os.close(handle)

    def follow(self, handle: int) -> None:
        """Read an open, non-blocking log from where it stands; it is ours to close from now on."""
        asyncio.get_running_loop().add_reader(handle, self._drain)
        self._handle = handle

    def stop(self) -> None:
        if self._handle is not None:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None

    def _drain(self) -> None:
        assert self._handle is not None
        signals: list[Signal] = []
        for line in _read_records(self._handle):
            signal = parse_kernel_line(line.message, line.time_s, self._machine)
            if signal is not None and self._belongs(signal):
                signals.append(signal)
        self._publish(signals)


def read_kernel_tail(device: Path, lines: int = _TAIL_LINES) -> list[str]:
    """The last lines of the kernel log, oldest first; none where it may not be read."""
    try:
        handle = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return [f"[{line.since_boot_s:.6f}] {line.message}" for line in _read_records(handle)[-lines:]]
    finally:
        os.close(handle)


def _read_records(handle: int) -> list[KernelLine]:
    found: list[KernelLine] = []
    boot_s = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    while True:
        try:
            record = os.read(handle, _RECORD_BYTES)
        except BrokenPipeError:  # the ring went over what we had not read yet: go on with what is there
            continue
        except OSError:
            return found
        if not record:
            return found
        line = parse_kmsg_record(record.decode(errors="replace"), boot_s)
        if line is not None:
            found.append(line)
