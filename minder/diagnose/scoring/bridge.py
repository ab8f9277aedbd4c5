"""The controller's end of the way to Ray: a process of its own that talks to the cluster (ray_driver.py), begun when first needed.

Ray ends the process that drives it when the cluster is lost, and sets signal handlers of its own. Neither may happen to a controller.
That process is begun again, ever more slowly, as long as it is asked.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from multiprocessing.connection import Connection, Pipe

from minder.model.errors import ScoringLostError

__all__ = ["Bridge"]

_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "HOME", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
_KEPT_BEGINNINGS = ("RAY_", "MINDER_TEST_")
_LEAST_WAIT_S, _MOST_WAIT_S = 1.0, 30.0
_MOST_BYTES = 1 << 28
_END_S = 5.0


class Bridge:
    """Link (remote.py) to the cluster at `address`. May be used by several threads; `close` ends the process."""

    def __init__(self, address: str, cpus: float) -> None:
        self._command = [sys.executable, "-m", "minder.diagnose.scoring.ray_driver", address, str(cpus)]
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._closed = False
        self._not_before_s, self._wait_s = 0.0, _LEAST_WAIT_S
        self._why = ""

    def send(self, job: str, payload: bytes) -> Future[bytes]:
        future: Future[bytes] = Future()
        with self._lock:
            child = self._child
            if child is not None and child.ended:
                self._why, self._child = child.why, None
                self._wait_s = _LEAST_WAIT_S if child.answered else min(2 * self._wait_s, _MOST_WAIT_S)
                self._not_before_s = time.monotonic() + self._wait_s
                child.end()
            if self._child is None:
                if self._closed or time.monotonic() < self._not_before_s:
                    future.set_exception(ScoringLostError(self._why or "it was ended"))
                    return future
                self._child = _Child(self._command)
            self._child.send(future, job, payload)
        return future

    @property
    def pid(self) -> int | None:
        """Of the process that talks to Ray."""
        return None if self._child is None else self._child.process.pid

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.end()


class _Child:
    """One such process, with a thread for each direction: a tick never waits for a full pipe."""

    def __init__(self, command: list[str]) -> None:
        self._near, far = Pipe()
        kept = (*_KEPT_VARIABLES, *(name for name in os.environ if name.startswith(_KEPT_BEGINNINGS)))
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        environment |= {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
        self.process = subprocess.Popen(
            [*command, str(far.fileno())], pass_fds=[far.fileno()], env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        far.close()
        self.ended, self.answered, self.why = False, False, "the process that talks to Ray ended"
        self._lock = threading.Lock()
        self._pending: dict[int, Future[bytes]] = {}
        self._number = 0
        self._orders: queue.SimpleQueue[tuple[int, str, bytes] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=work, name="minder-scoring", daemon=True) for work in (self._write, self._read)]
        for thread in self._threads:
            thread.start()

    def send(self, future: Future[bytes], job: str, payload: bytes) -> None:
        with self._lock:
            if self.ended:
                future.set_exception(ScoringLostError(self.why))
                return
            self._number += 1
            self._pending[self._number] = future
        self._orders.put((self._number, job, payload))

    def end(self) -> None:
        self._orders.put(None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0.0 if self.ended else _END_S)
        self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join(_END_S)

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # it ended: who reads knows
            while (order := self._orders.get()) is not None:
                self._near.send(order)
            self._near.send(None)

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._take(self._near)
        with self._lock:
            self.ended = True
            left, self._pending = list(self._pending.values()), {}
        for future in left:
            future.set_exception(ScoringLostError(self.why))

    def _take(self, connection: Connection) -> None:
        head, _, body = connection.recv_bytes(_MOST_BYTES).partition(b"\n")
        answer = json.loads(head)
        if "number" not in answer:
            self.why = str(answer["lost"])
            return
        with self._lock:
            future = self._pending.pop(int(answer["number"]), None)
        if future is None:
            return
        if "lost" in answer:
            future.set_exception(ScoringLostError(str(answer["lost"])))
        else:
            self.answered = True
            future.set_result(body)
