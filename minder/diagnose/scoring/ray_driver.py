"""The process that talks to Ray, and the only place that imports it.

Its command: `python -m minder.diagnose.scoring.ray_driver HOST:PORT CPUS DESCRIPTOR`.

An actor per job: named after it, restarted by Ray wherever there is room, spread over the nodes. Orders are passed on as they are, and
answers back. It ends when the controller does, or when Ray ends it; the actors are its own and end with it.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
import threading
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any

from minder.diagnose.scoring.host import DetectorHost
from minder.wire.addresses import is_loopback

__all__ = ["main"]

_REACH_S = 5.0


class _Answers:
    """What goes back to the controller, from whatever thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def tell(self, head: dict[str, Any], body: bytes = b"") -> None:
        with self._lock:
            self._connection.send_bytes(json.dumps(head).encode() + b"\n" + body)


class _Jobs:
    """An actor for each job, made when it is first asked for, and again when Ray has given it up."""

    def __init__(self, ray: Any, cpus: float, answers: _Answers) -> None:
        self._ray, self._answers = ray, answers
        self._actors: dict[str, Any] = {}
        self._make = ray.remote(DetectorHost).options
        self._options = {"num_cpus": cpus, "max_restarts": -1, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}

    def pass_on(self, number: int, job: str, payload: bytes) -> None:
        if job not in self._actors:
            self._actors[job] = self._make(name=f"minder scoring {job}", **self._options).remote()
        asked = self._actors[job].advance.remote(payload)
        asked.future().add_done_callback(functools.partial(self._answer, number, job))

    def _answer(self, number: int, job: str, future: Future[bytes]) -> None:
        errors = self._ray.exceptions
        try:
            self._answers.tell({"number": number}, future.result())
        except errors.ActorDiedError as error:  # for good: it could not be made
            self._actors.pop(job, None)
            self._answers.tell({"number": number, "lost": _line("the actor cannot be had", error)})
        except errors.RayTaskError as error:
            self._answers.tell({"number": number, "lost": _line("the detector failed", error)})
        except errors.RayError as error:
            self._answers.tell({"number": number, "lost": _line("the actor is away", error)})


def _line(what: str, error: BaseException) -> str:
    last = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
    return f"{what}: {' '.join(last.split())[:300]}"


def _connect(address: str) -> Any:
    """The module `ray`, connected. Raises OSError if no server listens there."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), _REACH_S).close()  # Ray itself tries for minutes
    if is_loopback(host):
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # else Ray asks this machine's outward address, where no server listens
    import ray

    ray.init(address=address, log_to_driver=False, configure_logging=False)
    return ray


def main() -> None:
    """Pass orders on until the controller is gone."""
    address, cpus, descriptor = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    connection = Connection(descriptor)
    answers = _Answers(connection)
    sys.excepthook = lambda kind, error, trace: answers.tell({"lost": _line(f"no Ray at {address}", error)})
    jobs = _Jobs(ray := _connect(address), cpus, answers)
    try:
        while (order := connection.recv()) is not None:
            jobs.pass_on(*order)
    except (EOFError, OSError):  # the controller was killed
        pass
    ray.shutdown()


if __name__ == "__main__":
    main()
