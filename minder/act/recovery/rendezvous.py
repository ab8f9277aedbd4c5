"""The controller's side of the rendezvous: finds or starts the store host, and asks it for one store per generation.

Standard library only. Where the host listens follows from `state_dir`, so a restarted controller finds the running one;
`rendezvous.pid` names the process, `rendezvous.log` holds what it said.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from minder.model.children import end_with_parent
from minder.model.errors import MissingExtraError, RecoveryError
from minder.model.private import make_private, open_private, write_private

__all__ = ["RendezvousHost"]

_LONGEST_SOCKET_PATH = 100  # the kernel's limit is 108 bytes
_START_DEADLINE_S = 60.0
_ANSWER_DEADLINE_S = 35.0


class RendezvousHost:
    """A running store host. Use `ensure`; every method may raise RecoveryError (one line, with the log's path)."""

    def __init__(self, state_dir: str | os.PathLike[str], address: str, ports: tuple[int, int] = (0, 0)) -> None:
        self.state_dir = Path(state_dir)
        self.address = address
        self.ports = ports
        self.control = _control_path(self.state_dir)
        self._started: subprocess.Popen[bytes] | None = None
        self._ends_with_us = False

    @classmethod
    def ensure(
        cls, state_dir: str | os.PathLike[str], address: str, ports: tuple[int, int] = (0, 0), *, ends_with_us: bool = False
    ) -> RendezvousHost:
        """Find the running host of `state_dir`, or start one that listens on `address` only. ends_with_us: with the thread that calls."""
        host = cls(state_dir, address, ports)
        host._ends_with_us = ends_with_us
        host._ensure()
        return host

    def open(self, generation: int) -> tuple[str, int]:
        """The store of a generation: (address, port), the same when asked again. Starts the host again if it died
        (the stores of older generations are then gone, and this generation's is a new, empty one)."""
        self._ensure()
        return self.address, int(self._ask(f"open {generation}"))

    def close_before(self, generation: int) -> None:
        """Close the stores of all older generations: a late worker of theirs finds no store."""
        self._ask(f"close-before {generation}")

    def close(self, generation: int) -> None:
        """Close one generation's store."""
        self._ask(f"close {generation}")

    def generations(self) -> tuple[int, ...]:
        """The generations whose store is open; empty when the host does not run."""
        answer = self._ping()
        words = answer.split() if answer else []
        return tuple(int(word) for word in words[2].split(",")) if len(words) > 2 else ()

    def pid(self) -> int | None:
        """The host's process id, or None when it does not answer."""
        answer = self._ping()
        return int(answer.split()[0]) if answer else None

    def stop(self) -> None:
        """End the host and every store. Does nothing when it does not run."""
        with self._locked():
            self._stop()

    def _ensure(self) -> None:
        with self._locked():
            answer = self._ping()
            if answer is not None:
                _, address, *generations = answer.split()
                if address == self.address:
                    return
                if generations:
                    raise RecoveryError(
                        f"the rendezvous host of {self.state_dir} serves {address} and holds open stores, not {self.address}: "
                        "end that job first, or give the address that it was started with"
                    )
            self._stop()
            self._start()

    def _start(self) -> None:
        MissingExtraError.demand("torch", "torch")
        first, last = self.ports
        command = [sys.executable, "-m", "minder.act.recovery.store_host", "--address", self.address]
        command += ["--control", str(self.control), "--ports", f"{first}-{last}"]
        log = self.state_dir / "rendezvous.log"
        with open_private(log, "ab") as output:
            self._started = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/", env=_environment(),
                preexec_fn=partial(end_with_parent, signal.SIGTERM) if self._ends_with_us else None,
            )  # fmt: skip
        write_private(self.state_dir / "rendezvous.pid", f"{self._started.pid}\n")
        deadline_s = time.monotonic() + _START_DEADLINE_S
        while self._ping() is None:
            status = self._started.poll()
            if status is not None:
                raise RecoveryError(f"the rendezvous host ended at once with status {status}: see {log}")
            if time.monotonic() > deadline_s:
                self._stop()
                raise RecoveryError(f"the rendezvous host did not answer within {_START_DEADLINE_S:.0f} s: see {log}")
            time.sleep(0.02)

    def _stop(self) -> None:
        pid = self._recorded_pid()
        if self._ping() is not None:
            self._ask("quit")
        deadline_s = time.monotonic() + 3.0
        while pid is not None and self._runs(pid):
            if time.monotonic() > deadline_s:
                os.kill(pid, signal.SIGKILL)
                deadline_s += 3.0
            time.sleep(0.01)
        (self.state_dir / "rendezvous.pid").unlink(missing_ok=True)
        self.control.unlink(missing_ok=True)

    def _recorded_pid(self) -> int | None:
        """The pid from the pid file, if that process is a store host of this very socket (pids are used again)."""
        try:
            pid = int((self.state_dir / "rendezvous.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if self._runs(pid) else None

    def _runs(self, pid: int) -> bool:
        if self._started is not None and self._started.pid == pid:
            return self._started.poll() is None
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return b"minder.act.recovery.store_host" in words and os.fsencode(self.control) in words

    def _ping(self) -> str | None:
        try:
            return self._ask("ping")
        except RecoveryError:
            return None

    def _ask(self, request: str) -> str:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(_ANSWER_DEADLINE_S)
                connection.connect(str(self.control))
                connection.sendall(request.encode() + b"\n")
                answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode().strip()
        except OSError as error:
            raise RecoveryError(
                f"the rendezvous host at {self.control} does not answer ({error.strerror or error}): "
                f"see {self.state_dir / 'rendezvous.log'}"
            ) from error
        if answer != "ok" and not answer.startswith("ok "):
            raise RecoveryError(f"the rendezvous host refused {request!r}: {answer.removeprefix('error ') or 'no answer'}")
        return answer[3:]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        make_private(self.state_dir)
        with open_private(self.state_dir / "rendezvous.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two controllers at once must not start two hosts
            yield


def _environment() -> dict[str, str]:
    """The host runs in /: let it find the package where this process found it."""
    package_root = str(Path(__file__).resolve().parents[3])
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{package_root}{os.pathsep}{known}" if known else package_root, "OMP_NUM_THREADS": "1"}


def _control_path(state_dir: Path) -> Path:
    """`rendezvous.sock` beside the state, or, where that path is too long for a socket, a private folder for temporary files."""
    path = state_dir.resolve() / "rendezvous.sock"
    if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
        return path
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"minder-{os.getuid()}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise RecoveryError(f"{folder} belongs to another user: remove it, or use a state folder with a shorter path")
    return folder / "rendezvous.sock"
