"""A rank's side of its cache: small questions over the Unix socket. Records themselves are files, which both sides map."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from minder.edge.cache.members import Member
from minder.edge.cache.record import RecordName
from minder.model.errors import CheckpointError

__all__ = ["SOCKET_VARIABLE", "CacheClient"]

SOCKET_VARIABLE = "MINDER_CACHE_SOCKET"
_RETURNS_S = 10.0  # a cache that died is started again within this


class CacheClient:
    """Every call connects anew, so that a cache that was started again is simply found. Raises CheckpointError in one line."""

    def __init__(self, path: str | os.PathLike[str] | None = None, patience_s: float = _RETURNS_S, timeout_s: float = _RETURNS_S) -> None:
        """patience_s: so long a cache that is not there is asked again. timeout_s: for one answer."""
        given = path or os.environ.get(SOCKET_VARIABLE)
        if not given:
            raise CheckpointError(
                'Checkpointer("memory") finds no cache on this machine: start `minder launch` with --cache-bytes, or `minder cache`, and '
                f"set {SOCKET_VARIABLE}"
            )
        self.path = Path(given)
        self._patience_s, self._timeout_s = patience_s, timeout_s

    @property
    def folder(self) -> Path:
        """Where records lie."""
        return self.path.parent

    def hello(self, flush_dir: str = "", wait_s: float = 0.0) -> dict[str, Any]:
        """wait_s: so long what is on its way to a disk may take to arrive, before the answer."""
        found: dict[str, Any] = self._ask("hello", wait_s, flush_dir=flush_dir, wait_s=wait_s)
        return found

    def join(self, member: Member, peers: Mapping[str, str] | None = None) -> None:
        """peers: each machine of the generation, and its cache's address; one rank of a machine is enough to say it."""
        self._ask("join", member=asdict(member), **({"peers": dict(peers)} if peers else {}))

    def ask_left(self, urls: Collection[str], wait_s: float) -> list[dict[str, Any]]:
        """What caches of machines that have left the job hold, of those that answer within wait_s."""
        found: list[dict[str, Any]] = self._ask("left", wait_s, urls=sorted(urls), wait_s=wait_s)
        return found

    def make_room(self, rank: int, body_bytes: int, in_flight: Collection[int] = ()) -> bool:
        """in_flight: steps that are being saved, whose outcome the rank does not know yet."""
        return bool(self._ask("room", rank=rank, body_bytes=body_bytes, in_flight=sorted(in_flight)))

    def keep(self, name: RecordName, wait_s: float) -> str:
        """ "" when the record has a backup; else why not."""
        return str(self._ask("keep", wait_s, name=str(name), wait_s=wait_s))

    def commit(self, step: int, generation: int) -> None:
        self._ask("commit", step=step, generation=generation)

    def fetch(
        self,
        name: RecordName,
        url: str,
        wait_s: float,
        bodies: Sequence[tuple[str, RecordName]] = (),
        tokens: Mapping[str, str] | None = None,
    ) -> Path:
        """Have a peer's record pulled into our folder, and checked; the folder. bodies: addresses and records of equal bodies, where the
        body is to come from, if not from there. tokens: address to token, of those that are not the job's any more."""
        equal = [{"url": at, "name": str(alike)} for at, alike in bodies]
        return Path(self._ask("fetch", wait_s, name=str(name), url=url, bodies=equal, **({"tokens": dict(tokens)} if tokens else {})))

    def leave(self, rank: int, generation: int) -> None:
        self._ask("leave", rank=rank, generation=generation)

    def _ask(self, verb: str, longer_s: float = 0.0, /, **fields: Any) -> Any:
        end_s = time.monotonic() + self._patience_s
        request = json.dumps({"verb": verb, **fields}).encode() + b"\n"
        while True:
            try:
                answer = json.loads(self._exchange(request, longer_s + self._timeout_s))
                break
            except (OSError, ValueError) as error:  # gone, or it died before the end of its answer; every question may be asked twice
                if time.monotonic() >= end_s:
                    raise CheckpointError(f"the checkpoint cache at {self.path} does not answer: {error}") from error
                time.sleep(0.1)
        if "error" in answer:
            raise CheckpointError(str(answer["error"]))
        return answer["result"]

    def _exchange(self, request: bytes, timeout_s: float) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(self.path))
            connection.sendall(request)
            with connection.makefile("rb") as lines:
                return lines.readline()
