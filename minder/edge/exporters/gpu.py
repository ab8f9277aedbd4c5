"""The machine's GPUs, read by a child process with a deadline: NVML never returns from some calls on a lost GPU."""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from minder.edge.exporters.reading import Reading
from minder.model.evidence import Signal

__all__ = ["GpuExporter", "has_driver"]

_DRIVER_FILES = ("/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg")
_START_S = 20.0  # NVML may take long to start while a driver loads
_DEADLINE_S = 5.0
_FRESH_S = 3.0
_PATIENCE_S = 0.05  # how long a sample waits for the answer before it goes on with the last one
_RETRY_S, _LONGEST_RETRY_S, _ABSENT_RETRY_S = 30.0, 600.0, 3600.0
_log = logging.getLogger("minder.agent")


def has_driver() -> bool:
    """Whether this machine has an NVIDIA driver."""
    return any(map(os.path.exists, _DRIVER_FILES))


class GpuExporter:
    """mode: auto (only where a driver is there), on, off. A child that misses its deadline is killed and tried again later.

    A GPU keeps its name (gpu0, gpu1, ...) by its uuid for as long as the agent lives, even if NVML's order changes.
    """

    def __init__(self, machine: str, mode: str = "auto", deadline_s: float = _DEADLINE_S, command: list[str] | None = None) -> None:
        self._machine = machine
        self._enabled = mode == "on" or (mode == "auto" and has_driver())
        self._deadline_s = deadline_s
        self._command = command or [sys.executable, "-m", "minder.edge.exporters.gpu_child"]
        self._child: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._asked_s: float | None = None
        self._allowed_s = _START_S
        self._retry_s = _RETRY_S
        self._start_at_s = float("-inf")
        self._names: dict[str, str] = {}
        self._pci: dict[str, str] = {}
        self._last: tuple[float, list[Mapping[str, Any]]] | None = None
        self._lost: set[str] = set()

    @property
    def pci_names(self) -> Mapping[str, str]:
        """PCI address as the kernel log writes it ("0000:9b:00") to gpu0, gpu1, ..."""
        return {pci: self._names[uuid] for uuid, pci in self._pci.items() if pci}

    def read(self, now_s: float) -> Reading:
        reading = Reading()
        if not self._enabled:
            return reading
        if self._child is None and now_s >= self._start_at_s:
            self._start(now_s)
        if self._child is not None:
            self._ask(now_s)
            self._listen(now_s, reading)
        if self._last is not None and now_s - self._last[0] <= _FRESH_S:
            self._export(reading, self._last[1], now_s)
        return reading

    def close(self) -> None:
        if self._child is not None:
            self._end(self._child)
            self._child = None

    def _start(self, now_s: float) -> None:
        try:
            self._child = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except OSError as error:
            self._later(now_s, _ABSENT_RETRY_S, f"GPU reader did not start: {error.strerror}")
            return
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)
        self._pending, self._asked_s, self._allowed_s = b"", now_s, max(_START_S, self._deadline_s)

    def _ask(self, now_s: float) -> None:
        """At most one question is open."""
        assert self._child is not None and self._child.stdin is not None
        if self._asked_s is None:
            try:
                self._child.stdin.write(b"\n")
                self._child.stdin.flush()
            except OSError:
                return  # it has ended: _listen sees that
            self._asked_s, self._allowed_s = now_s, self._deadline_s

    def _listen(self, now_s: float, reading: Reading) -> None:
        assert self._child is not None and self._child.stdout is not None
        handle = self._child.stdout.fileno()
        select.select([handle], [], [], _PATIENCE_S)
        ended = False
        while True:
            try:
                block = os.read(handle, 65536)
            except BlockingIOError:
                break
            if not block:
                ended = True
                break
            self._pending += block
        *lines, self._pending = self._pending.split(b"\n")
        for line in lines:
            self._accept(json.loads(line), now_s)
        if ended and self._child is not None:
            self._later(now_s, self._retry_s, "the GPU reader ended by itself")
        elif self._asked_s is not None and now_s - self._asked_s > self._allowed_s:
            message = f"NVML did not answer within {self._allowed_s:.0f} s: a GPU may be lost"
            reading.signals.append(Signal(now_s, "kernel", self._machine, message, data={"what": "nvml_timeout"}))
            self._later(now_s, self._retry_s, message)

    def _accept(self, message: Mapping[str, Any], now_s: float) -> None:
        self._asked_s = None
        if "absent" in message:
            self._later(now_s, _ABSENT_RETRY_S, f"no GPU metrics: {message['absent']}")
        elif "ready" in message:
            for item in message["ready"]:
                self._names.setdefault(item["uuid"], f"gpu{len(self._names)}")
                self._pci[item["uuid"]] = _short_pci(item.get("pci", ""))
        else:
            self._retry_s = _RETRY_S
            self._last = (now_s, message["devices"])

    def _later(self, now_s: float, retry_s: float, why: str) -> None:
        """Give the child up and try again after a while that doubles."""
        _log.warning("%s; trying again in %.0f s", why, retry_s)
        self.close()
        self._asked_s = None
        self._start_at_s = now_s + retry_s
        self._retry_s = min(_LONGEST_RETRY_S, max(_RETRY_S, 2 * self._retry_s))

    def _export(self, reading: Reading, devices: list[Mapping[str, Any]], now_s: float) -> None:
        for item in devices:
            device = self._names.get(item["uuid"])
            if device is None:
                continue
            for name, value in item["values"].items():
                reading.gauge(name, value, device)
            for name, value in item["counters"].items():
                reading.counter(name, value, device)
            reading.info.append(("gpu_info", {"device": device, "uuid": item["uuid"], "pci": self._pci.get(item["uuid"], "")}))
            self._note_lost(reading, device, bool(item["lost"]), now_s)

    def _note_lost(self, reading: Reading, device: str, lost: bool, now_s: float) -> None:
        if lost and device not in self._lost:
            message = f"NVML says that {device} is lost"
            reading.signals.append(Signal(now_s, "kernel", self._machine, message, device=device, data={"what": "gpu_lost"}))
        (self._lost.add if lost else self._lost.discard)(device)

    @staticmethod
    def _end(child: subprocess.Popen[bytes]) -> None:
        """A child inside a hung driver call cannot be ended, only left alone: never wait for it long."""
        child.kill()
        try:
            child.wait(0.2)
        except subprocess.TimeoutExpired:
            _log.warning("the GPU reader (pid %d) hangs in the driver and cannot be ended", child.pid)
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass


def _short_pci(bus: str) -> str:
    """NVML's "00000000:9B:00.0" as the kernel log's "0000:9b:00"."""
    address = bus.lower().rpartition(".")[0] or bus.lower()
    domain, _, rest = address.partition(":")
    return f"{domain[-4:]}:{rest}" if rest else address
