"""The process that holds the rendezvous stores: one TCPStore per generation, on a socket bound to one address.

It runs in a session of its own, so that it outlives the controller: workers of a running generation keep their store while
the controller is killed and started again. It answers one line per connection on a unix socket:

    open <generation>          -> "ok <port>"   (the same port when asked again)
    close <generation>         -> "ok"          (also "close-before <generation>": all that are older)
    ping                       -> "ok <pid> <address> <open generations, comma separated>"
    quit                       -> "ok", then the process ends

It ends by itself when it was idle for `--idle-minutes`: the controller that asked last is gone, no other process is connected to one of
its stores (their launchers are gone, and their workers with them), and no request comes. Where the kernel does not list connections (no
/proc), an open store counts as used.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import socket
import struct
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

_ESTABLISHED = "01"
_LOOK_EVERY_S = 5.0


class StoreHost:
    """Stores by generation. `first_port`, `last_port`: 0, 0 lets the kernel choose."""

    def __init__(self, address: str, ports: tuple[int, int] = (0, 0)) -> None:
        self.address = address
        self._ports = ports
        self._stores: dict[int, tuple[int, Any]] = {}
        self._asker: int | None = None  # pidfd of the controller: its number may be used again, this is not

    def answer(self, line: str) -> str:
        """One request, one answer; "error <why>" for a request that cannot be served."""
        words = line.split()
        try:
            match words:
                case ["ping"]:
                    return f"ok {os.getpid()} {self.address} {','.join(map(str, sorted(self._stores)))}".rstrip()
                case ["open", generation]:
                    return f"ok {self._open(int(generation))}"
                case ["close", generation]:
                    self._stores.pop(int(generation), None)
                    return "ok"
                case ["close-before", generation]:
                    for old in [known for known in self._stores if known < int(generation)]:
                        del self._stores[old]
                    return "ok"
                case ["quit"]:
                    return "ok"
        except (OSError, RuntimeError, ValueError) as error:
            return f"error {' '.join(str(error).split())}"
        return f"error unknown request {line!r}"

    def note_asker(self, connection: socket.socket) -> None:
        """The process that asks is the controller, as long as it lives."""
        pid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        with contextlib.suppress(OSError):  # gone already: the process that asked before it counts
            before, self._asker = self._asker, os.pidfd_open(pid)
            if before is not None:
                os.close(before)

    def in_use(self) -> bool:
        """Whether the controller lives, or any process besides this one is connected to a store."""
        if self._asker is not None and not select.select([self._asker], [], [], 0)[0]:
            return True
        counts = _established_by_port()
        if counts is None:
            return bool(self._stores)
        return any(counts[port] > 1 for port, _ in self._stores.values())  # one is our own client

    def _open(self, generation: int) -> int:
        if generation not in self._stores:
            from torch.distributed import TCPStore

            with _listen(self.address, self._ports) as listener:
                port = int(listener.getsockname()[1])
                store = TCPStore(
                    self.address,
                    port,
                    is_master=True,
                    wait_for_workers=False,
                    timeout=timedelta(seconds=30),
                    master_listen_fd=os.dup(listener.fileno()),  # the store closes its own copy
                )
            self._stores[generation] = (port, store)
        return self._stores[generation][0]


def _listen(address: str, ports: tuple[int, int]) -> socket.socket:
    family, kind, protocol, _, target = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
    failure = OSError(f"no port to listen on at {address}")
    for port in range(ports[0], ports[1] + 1):
        listener = socket.socket(family, kind, protocol)
        try:
            listener.bind((target[0], port, *target[2:]))
            listener.listen(2048)
            return listener
        except OSError as error:
            listener.close()
            failure = OSError(f"cannot listen on {address} port {port}: {error.strerror}")
    raise failure


def _established_by_port() -> Counter[int] | None:
    counts: Counter[int] = Counter()
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except FileNotFoundError:
            if table.endswith("tcp"):
                return None
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _ESTABLISHED:
                counts[int(fields[1].rsplit(":", 1)[1], 16)] += 1
    return counts


def serve(host: StoreHost, control: socket.socket, idle_s: float) -> None:
    """Answer until asked to quit, or idle for `idle_s` with no store in use."""
    control.settimeout(min(_LOOK_EVERY_S, idle_s))
    heard_s = time.monotonic()
    while True:
        try:
            connection, _ = control.accept()
        except TimeoutError:
            if host.in_use():
                heard_s = time.monotonic()  # idle begins when the last one has gone: a controller that crashed may come back
            elif time.monotonic() - heard_s >= idle_s:
                return
            continue
        heard_s = time.monotonic()
        with connection:
            host.note_asker(connection)
            line = _read_line(connection)
            if line is None:
                continue
            answer = host.answer(line)
            with contextlib.suppress(OSError):  # the asker died; what it asked for is done and found again by asking again
                connection.sendall(answer.encode() + b"\n")
        if line == "quit":
            return


def _read_line(connection: socket.socket) -> str | None:
    connection.settimeout(2.0)  # one bad client must not stop the others
    data = b""
    try:
        while not data.endswith(b"\n") and len(data) < 1024:
            more = connection.recv(1024)
            if not more:
                break
            data += more
    except OSError:
        return None
    return data.decode(errors="replace").strip() or None


def main() -> None:
    parser = argparse.ArgumentParser(description="Hold one rendezvous store per generation.")
    parser.add_argument("--address", required=True, help="the one address to listen on")
    parser.add_argument("--control", required=True, help="path of the unix socket")
    parser.add_argument("--ports", default="0-0", help="range of ports, e.g. 29500-29599; 0-0: any free one")
    parser.add_argument("--idle-minutes", type=float, default=5.0)
    options = parser.parse_args()
    first, last = (int(word) for word in options.ports.split("-"))
    import torch.distributed  # noqa: F401  before the socket exists: who can connect gets a quick answer

    path = Path(options.control)
    path.unlink(missing_ok=True)
    os.umask(0o077)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
        control.bind(str(path))
        control.listen(16)
        try:
            serve(StoreHost(options.address, (first, last)), control, options.idle_minutes * 60)
        finally:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
