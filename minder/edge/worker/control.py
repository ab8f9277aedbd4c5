"""The worker's end of the control channel: one JSON object per line over a socket pair that the launcher gave us.

To the worker: assign{generation, env}, interrupt{generation, deadline_s}, step{step, loss, grad_norm}, end.
To the launcher: hello{pid}, waiting{generation_done}, running{generation, in_place}, exception{...}, nonfinite{...},
done{generation}. A daemon thread ticks the heartbeat page four times a second and reads. Sending never blocks a step: the
channel is non-blocking and a message that does not fit within a second is dropped.
"""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from minder.edge.worker import pulse

__all__ = ["Assignment", "Control", "connect"]

_TICK_S = 0.25
_SEND_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class Assignment:
    """A place in a generation: the environment that makes this process one of its ranks."""

    generation: int
    env: Mapping[str, str]


class Control:
    """Talks with the launcher. `on_interrupt(generation, deadline_s)` is called in the background thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._socket.setblocking(False)
        self._incoming = select.poll()
        self._incoming.register(connection, select.POLLIN)
        self._lock = threading.Lock()
        self._buffer = b""
        self._pid = os.getpid()
        self._assignments: queue.SimpleQueue[Assignment | None] = queue.SimpleQueue()
        self._on_interrupt: Callable[[int, float], None] | None = None
        self.pending: Assignment | None = None  # taken by the bootstrap, not yet used by minder.run
        self.stopped_generation = -1
        self.failures = 0
        os.register_at_fork(after_in_child=self._forget)

    def start(self) -> None:
        """Start the background thread and introduce this process."""
        threading.Thread(target=self._serve, name="minder-control", daemon=True).start()
        self.send("hello", pid=self._pid)

    def on_interrupt(self, callback: Callable[[int, float], None] | None) -> None:
        self._on_interrupt = callback

    def send(self, kind: str, **fields: Any) -> bool:
        """Send the launcher a message; False if it could not be sent (a fork, a full channel, no launcher)."""
        if os.getpid() != self._pid:
            return False
        line = json.dumps({"kind": kind, **fields}, default=str).encode() + b"\n"
        deadline_s = time.monotonic() + _SEND_PATIENCE_S
        with self._lock:
            while line and time.monotonic() < deadline_s:
                try:
                    line = line[self._socket.send(line) :]
                except BlockingIOError:
                    select.select([], [self._socket], [], 0.05)
                except OSError:
                    return False
        return not line

    def next_assignment(self, generation_done: int) -> Assignment | None:
        """Stand at the barrier until there is a place to take; None: this process is not needed any more."""
        if self.pending is not None and self.pending.generation > self.stopped_generation:
            taken, self.pending = self.pending, None
            return taken
        self.send("waiting", generation_done=generation_done)
        while True:
            found = self._assignments.get()
            if found is None or found.generation > self.stopped_generation:
                return found
            self.send("waiting", generation_done=generation_done)

    def _serve(self) -> None:
        while True:
            try:
                pulse.tick()
                if self._incoming.poll(1000 * _TICK_S) and not self._read():
                    _die_with_the_launcher()
            except Exception as error:  # noqa: BLE001 - the thread that brings the interrupt must outlive a bad message: counted and printed
                self.failures += 1
                print(f"minder: control channel: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                time.sleep(_TICK_S)

    def _read(self) -> bool:
        """False at the end of the channel."""
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._receive(json.loads(line))
        return bool(data)

    def _receive(self, message: Mapping[str, Any]) -> None:
        kind = message.get("kind")
        if kind == "assign":
            self._assignments.put(Assignment(int(message["generation"]), dict(message["env"])))
        elif kind == "interrupt":
            self.stopped_generation = max(self.stopped_generation, int(message["generation"]))
            if self._on_interrupt is not None:
                self._on_interrupt(int(message["generation"]), float(message.get("deadline_s", 5.0)))
        elif kind == "step":
            pulse.beat_from_log(int(message["step"]), message.get("loss"), message.get("grad_norm"))
        elif kind == "end":
            self._assignments.put(None)

    def _forget(self) -> None:
        self._socket.close()


_current: Control | None = None


def current() -> Control | None:
    """This process's channel, if the bootstrap opened one and we are no fork of it."""
    return _current if _current is not None and _current._pid == os.getpid() else None


def connect() -> Control | None:
    """Open the channel named by MINDER_CONTROL_FD; None without a launcher. The variable is removed: children have none."""
    global _current
    number = os.environ.pop("MINDER_CONTROL_FD", None)
    if number is None:
        return None
    connection = socket.socket(fileno=int(number))
    connection.set_inheritable(False)
    _current = Control(connection)
    return _current


def _die_with_the_launcher() -> None:
    """The channel ended: the launcher is gone. The whole process group goes, data loader workers included."""
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
