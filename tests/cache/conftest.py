"""Real caches on loopback, in this process: their HTTP, their sockets, their files."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.edge.cache.cache import Cache
from minder.edge.cache.client import CacheClient
from minder.edge.cache.members import Member
from minder.edge.cache.record import Record, RecordName, checksums, draft_path, write_head
from minder.edge.cache.serve import CacheServer
from minder.edge.cache.settings import CacheSettings
from minder.edge.listening import PatientLoop

TOKEN = "the-job-s-own"


class Running:
    """One cache that answers. `stop` ends it as a signal does: its records stay."""

    def __init__(self, settings: CacheSettings) -> None:
        self.settings = settings
        self.server = CacheServer(settings)
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(10.0)

    @property
    def cache(self) -> Cache:
        return self.server.cache

    @property
    def client(self) -> CacheClient:
        return CacheClient(self.settings.socket_path, patience_s=0.3)

    def stop(self) -> None:
        self.server.stop()
        self._thread.join(10.0)

    def again(self) -> Running:
        """Another process would begin here: the same folder, nothing in its head."""
        self.stop()
        return Running(self.settings)

    def join(self, rank: int, world_size: int, backup: Running | None = None, generation: int = 1, **fields: Any) -> None:
        url = "" if backup is None else backup.cache.url
        self.client.join(Member(rank, generation, world_size, url, TOKEN, **fields))

    def write(self, name: RecordName, body: bytes, world_size: int = 2, values: bytes = b"values") -> Record:
        """What a rank does before it says `keep`."""
        return self.write_into(self.settings.folder, name, body, world_size, values)

    @staticmethod
    def write_into(folder: Path, name: RecordName, body: bytes, world_size: int = 2, values: bytes = b"values") -> Record:
        draft_path(folder, name).write_bytes(body)
        record = Record(name, world_size, len(body), "layout", checksums(memoryview(body)), values)
        draft_path(folder, name).replace(folder / f"{name}.body")
        write_head(folder, record)
        return record

    def body(self, name: RecordName) -> bytes:
        return (self.settings.folder / f"{name}.body").read_bytes()

    @property
    def held(self) -> set[RecordName]:
        return {name for item in self.client.hello()["records"] if (name := RecordName.parse(item["name"])) is not None}

    def _run(self, ready: threading.Event) -> None:
        with asyncio.Runner(loop_factory=PatientLoop) as runner:
            runner.run(self.server.run(on_ready=ready.set))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """start("m0"): a cache of machine m0."""
    made: list[Running] = []

    def begin(machine: str, **changes: Any) -> Running:
        folder = tmp_path / machine
        folder.mkdir(mode=0o700)
        values: dict[str, Any] = {"max_bytes": 2**30, "host": "127.0.0.1", "port": 0, **changes}
        made.append(Running(CacheSettings("demo", machine, folder=folder, **values)))
        return made[-1]

    yield begin
    for running in made:
        running.server.stop()
    for running in made:
        running.stop()
