"""What a cache does with records: takes them from its ranks, has them backed up, holds backups of peers, drops what is obsolete.

Retention follows one rule: a step is committed when every rank of the job has a record of it and a backup of that record; what is older
than the newest committed step goes, but for the ring of committed steps that the ranks asked for; nothing else does. So there is always one
step that survives the loss of any one machine.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from minder.edge.cache.choice import obsolete
from minder.edge.cache.folder import RecordFolder, discard, read_record
from minder.edge.cache.members import Kept, Member, Members
from minder.edge.cache.peers import Peers, ask_all
from minder.edge.cache.pull import PIECE_BYTES, RateLimit, Source, be_nice, pull_body, pull_head
from minder.edge.cache.record import Record, RecordName, body_path, draft_path, head_path
from minder.edge.cache.settings import CacheSettings
from minder.model.errors import CheckpointError, NoAnswerError
from minder.model.log import event
from minder.model.private import open_private

__all__ = ["RETURNS_S", "AskPeer", "Cache"]

_log = logging.getLogger("minder.cache")
_BODIES_A_STEP = 2  # its own and that of the peer that it is the backup of: of the steps that stay, and of the one that is written
_SAME_STEP_S = 1.0  # so long a peer's record waits for our own of the same step, where they were equal before
RETURNS_S = 10.0  # a cache that died is started again within this
AskPeer = Callable[[str, str, Mapping[str, Any], float], str]  # url, token, body of POST /v1/backups, seconds: "" or why not


class Cache:
    """Thread safe; calls that wait for a peer block. Raises CheckpointError for what a rank or a peer may not or cannot have."""

    def __init__(self, settings: CacheSettings, url: str, ask_peer: AskPeer, now_s: Callable[[], float] = time.monotonic) -> None:
        self.settings, self.url = settings, url
        self.memory = RecordFolder(settings.folder)
        self.members = Members(settings.folder)
        self._peers = Peers()
        self._ask_peer, self._now_s = ask_peer, now_s
        self._limit = RateLimit(settings.rate_bytes_per_s)
        self._lock = threading.RLock()
        self._pulls: dict[RecordName, threading.Lock] = {}
        self._moving: set[RecordName] = set()  # records that a peer is pulling from us
        self._pulling: set[RecordName] = set()  # records that we are pulling
        self._in_flight: dict[int, frozenset[int]] = {}  # of each rank, as it said last
        self._was_equal: set[int] = set()  # ranks whose last backup had the body of a record of our own
        self._heard_s = now_s()
        self.has_ended = False
        self._flushing: threading.Thread | None = None
        self._flush_turn = threading.Lock()
        self._on_the_way: list[_Flush] = []  # to a disk, and not there yet
        self._arrived = threading.Condition(self._lock)
        self._closer = ThreadPoolExecutor(1, "minder-close", be_nice)
        self._leaving: list[tuple[Future[None], int]] = []  # bodies that are removed, and their bytes, which are not free yet

    # What ranks ask

    def hello(self, flush_dir: str = "", wait_s: float = 0.0) -> dict[str, Any]:
        """Name and address, what lies here and in the flush folder, which other machines may share, and what is on its way there. wait_s:
        how long what is on its way now may take to arrive, before the answer. Raises OSError."""
        with self._lock:
            self._heard_s = self._now_s()
            awaited = list(self._on_the_way)
            self._arrived.wait_for(lambda: not any(flush in self._on_the_way for flush in awaited), wait_s)
            on_the_way = list(self._on_the_way)  # what arrives from here on is named twice, not left out
        disk = RecordFolder(Path(flush_dir)) if flush_dir else None
        with self._lock:
            self._heard_s = self._now_s()
            self.memory.look()
            places = [("memory", self.memory), *([("disk", disk)] if disk is not None else [])]
            held = [
                _described(record) | {"where": where} for where, folder in places for _, record in sorted(folder.records.items())
            ]  # fmt: skip
            unreadable = [f"{name} in {folder.path}: {why}" for _, folder in places for name, why in sorted(folder.unreadable.items())]
            about = {"machine": self.settings.machine, "job": self.settings.job, "url": self.url, "folder": str(self.settings.folder)}
            return {
                **about,
                "generation": self.members.generation,
                "committed": self.members.committed,
                "records": held,
                "on_the_way": [_described(flush.record) | {"bytes": flush.record.body_bytes} for flush in on_the_way],
                "unreadable": unreadable[:3],
                "left": [{"machine": peer.machine, "url": peer.url} for peer in self._peers.left(self.members.generation)],
            }

    def join(self, member: Member, peers: Mapping[str, str] | None = None) -> None:
        """A rank of a new generation, or of the present one again. peers: each machine of it, and its cache's address."""
        with self._lock:
            self._heard_s = self._now_s()
            if not self.members.join(member):
                raise CheckpointError(f"generation {member.generation} is over: this cache is in {self.members.generation}")
            self._peers.meet(peers or {}, member.generation, member.token)

    def ask_left(self, urls: Collection[str], wait_s: float) -> list[dict[str, Any]]:
        """What caches hold whose machines have left the job, of those at these addresses that answer within wait_s."""
        with self._lock:
            self._heard_s = self._now_s()
            left = [peer for peer in self._peers.left(self.members.generation) if peer.url in urls]
        return ask_all(left, self.settings.job, wait_s)

    def make_room(self, rank: int, body_bytes: int, in_flight: Collection[int] = ()) -> bool:
        """Whether a body may be written now; False until an earlier step is committed. in_flight: steps that this rank is saving: they may
        be committed at any moment, and stay. Raises CheckpointError where it never can be."""
        with self._lock:
            self._heard_s = self._now_s()
            self._in_flight[rank] = frozenset(in_flight)
            if rank not in self.members.ranks:
                raise CheckpointError(f"rank {rank} has not joined this cache")
            if self.members.ranks[rank].body_bytes != body_bytes:
                self.members.change(rank, body_bytes=body_bytes)
            needed = sum(_BODIES_A_STEP * (1 + member.ring) * member.body_bytes for member in self.members.ranks.values())
            if needed > self.settings.max_bytes:
                steps = 1 + self.members.ranks[rank].ring
                raise CheckpointError(
                    f"the checkpoint cache of {self.settings.machine} holds {self.settings.max_bytes} bytes, and "
                    f"{'two' if steps == 2 else steps} steps with their backups need {needed}: give `minder launch --cache-bytes` more"
                    f"{', or a smaller ring,' if steps > 2 else ','} or save to a folder"
                )
            return self._fits(body_bytes)

    def keep(self, name: RecordName, wait_s: float) -> str:
        """Take over a record that a rank wrote into our folder, and have it backed up. "" when it is; else why not."""
        with self._lock:
            self._heard_s = self._now_s()
            record = self.memory.read(name)
            twin = self.memory.equal(record)
            if twin is not None:
                self.memory.link(record, twin)
            self._drop_old_of(name.rank)
            member = self.members.ranks.get(name.rank)
        if member is None:
            return f"rank {name.rank} has not joined this cache"
        if not member.backup_url:
            return ""
        with self._lock:
            self._moving.add(name)
        try:
            return self._back_up(name, member, wait_s)
        finally:
            with self._lock:
                self._moving.discard(name)

    def commit(self, step: int, generation: int) -> None:
        """All ranks have a record of this step, and a backup of it."""
        with self._lock:
            self._heard_s = self._now_s()
            self._peers.forget_before(generation)
            if not self.members.commit(self._kept(step, generation)):
                return

            def obsolete(name: RecordName) -> bool:
                is_older = name.generation < generation or (name.generation == generation and name.step < step)
                return is_older and not self.members.keeps(name.step, name.generation)

            due = self._due(step, generation)
            self._on_the_way += due
            self._remove([name for name in self.memory.records if obsolete(name)])
            self.memory.drop_unfinished(obsolete)
        if due:
            self._flush(due)

    def fetch(self, name: RecordName, url: str, bodies: Sequence[Source] = (), tokens: Mapping[str, str] | None = None) -> str:
        """Pull a record from a peer into our folder, as fast as it comes, and check all of it; the folder. A damaged one of our own is
        mended. bodies: where equal bodies lie, if not only there. tokens: what those let in that have left the job, by their addresses.
        A peer that dies meanwhile has a moment to return."""
        with self._lock:
            self._heard_s = self._now_s()
            known = tokens or {}
            source, *sources = (self._source(each.url, each.name, known) for each in (Source(url, name), *bodies))
        end_s = time.monotonic() + RETURNS_S
        while True:
            try:
                self._pull(source, bodies=sources)
                return str(self.settings.folder)
            except NoAnswerError:
                if time.monotonic() >= end_s:
                    raise
                time.sleep(0.2)

    def leave(self, rank: int, generation: int) -> None:
        """A rank is done with its part of the job."""
        with self._lock:
            self._heard_s = self._now_s()
            member = self.members.ranks.get(rank)
            if member is not None and member.generation == generation:
                self.members.change(rank, is_done=True)

    # What peers ask

    def hold_backup(self, name: RecordName, url: str) -> None:
        """Pull a peer's record; one whose body lies here already costs its head only. Raises WireError, CheckpointError, OSError."""
        with self._lock:
            source = self._source(url, name, {})
        self._pull(source, self._limit)

    def head(self, name: RecordName) -> bytes:
        return self._find(name)[1].pack()

    def find_body(self, name: RecordName) -> tuple[Path, int]:
        """The file, in memory or on the flush disk, and its bytes."""
        with self._lock:
            self._heard_s = self._now_s()
        folder, record = self._find(name)
        return body_path(folder, name), record.body_bytes

    # Its life

    def is_over(self) -> bool:
        """Whether nothing needs these records any more: its ranks are done, or none was heard for max_age_s. What is being pulled, and who
        reads here, needs them."""
        with self._lock:
            if self._pulling:
                return False
            silent_s = self._now_s() - self._heard_s
            ranks = self.members.ranks.values()
            done = bool(ranks) and all(member.is_done for member in ranks)
            return silent_s > (self.settings.linger_s if done else self.settings.max_age_s)

    def flush_now(self) -> int:
        """Write what its ranks have, from the newest committed step on, to their flush_dir, on request: before the machine's memory goes.
        Later steps too, since a rank elsewhere may have committed one more. Blocks; returns how many records lie there now."""
        with self._lock:
            committed = self.members.committed
            oldest = (-1, -1) if committed is None else (committed[1], committed[0])
            mine = [each for each in self.memory.records if each.rank in self.members.ranks and _age(each) >= oldest]
            due = [self._to_disk(name) for name in sorted(mine, key=_age) if self.members.ranks[name.rank].flush_dir]
            self._on_the_way += due
        with self._flush_turn:
            if self._flushing is not None:
                self._flushing.join()
            return sum(self._write(flush) for flush in due)

    def end(self) -> None:
        """Remove everything. What is being flushed is flushed."""
        if self._flushing is not None:
            self._flushing.join()
        self.memory.remove()
        self.has_ended = True

    def _back_up(self, name: RecordName, member: Member, wait_s: float) -> str:
        """Ask the peer once; it pulls the record. Another try would hold newer steps up; asked again, it goes on where it was."""
        try:
            why = self._ask_peer(member.backup_url, member.token, {"name": str(name), "url": self.url}, wait_s)
        except NoAnswerError as error:
            why = str(error)
        if why:
            event(_log, logging.WARNING, "no backup", record=name, peer=member.backup_url, detail=why)
        return why

    def _pull(self, source: Source, limit: RateLimit | None = None, bodies: Sequence[Source] = ()) -> None:
        """limit: of a backup; without one it is a recovery, which takes nothing for whole that is not."""
        name = source.name
        with self._one_at_a_time(name), self._noted(name):
            with self._lock:
                ours = self.memory.records.get(name)
                if ours is not None and (limit is not None or not self.memory.is_damaged(name)):
                    return
            record = ours or pull_head(source)
            if self._linked(record, is_recovery=limit is None):
                return
            if ours is not None:
                with self.memory.mending(name):
                    pull_body(bodies or [source], record, self.memory.path, limit)
                return
            with self._lock:
                if not self._fits(record.body_bytes - _allocated(draft_path(self.memory.path, name))):
                    raise CheckpointError(f"the cache of {self.settings.machine} is full: it holds {self.settings.max_bytes} bytes at most")
            pull_body(bodies or [source], record, self.memory.path, limit)
            with self._lock:
                self.memory.add(record)
                self._drop_old_of(name.rank)

    @contextlib.contextmanager
    def _noted(self, name: RecordName) -> Iterator[None]:
        """A record that is being pulled: its draft stays, and so does the cache."""
        with self._lock:
            self._pulling.add(name)
        try:
            yield
        finally:
            with self._lock:
                self._pulling.discard(name)
                self._heard_s = self._now_s()

    def _fits(self, body_bytes: int) -> bool:
        """Whether there is room, without the oldest steps that are not committed if need be: a cache full of them could commit none. A step
        whose outcome is still open is none of them: it may be the one that is committed next, and the one before it goes then."""
        generation, in_flight = self.members.generation, frozenset[int]().union(*self._in_flight.values())
        while self.memory.used_bytes() + self._leaving_bytes() + body_bytes > self.settings.max_bytes:
            if self._leaving:
                self._leaving.pop(0)[0].result()
                continue
            if self.memory.drop_unfinished(lambda name: name.generation < generation and name not in self._pulling):
                continue  # of ranks that were killed in the middle of a save: no commit would come that drops it
            settled = (name for name in self._uncommitted() if name.generation != generation or name.step not in in_flight)
            old = [name for name in settled if name not in self._moving]
            if not old:
                return False
            self.memory.drop([min(old, key=_age)])
        return True

    def _remove(self, names: list[RecordName]) -> None:
        """Records, now; their memory is given back beside the answer, for which all ranks wait."""
        for file in self.memory.take_away(names):
            status = os.fstat(file.fileno())
            size_bytes = 0 if status.st_nlink else status.st_blocks * 512
            self._leaving.append((self._closer.submit(file.close), size_bytes))

    def _leaving_bytes(self) -> int:
        self._leaving = [each for each in self._leaving if not each[0].done()]
        return sum(size_bytes for _, size_bytes in self._leaving)

    def _drop_old_of(self, rank: int) -> None:
        """Of steps that are not committed the newest two of a rank stay: ranks that step together have one of them in common. After a
        rollback those of the run that was left go first, though their steps are greater."""
        own = sorted((name for name in self._uncommitted() if name.rank == rank), key=_age)
        self.memory.drop([name for name in own[:-2] if name not in self._moving])

    def _uncommitted(self) -> list[RecordName]:
        return [name for name in self.memory.records if not self.members.keeps(name.step, name.generation)]

    def _kept(self, step: int, generation: int) -> Kept:
        """With what the records of it say; they say the same in all ranks."""
        found = (record for name, record in self.memory.records.items() if (name.step, name.generation) == (step, generation))
        about = next(found, None)
        return Kept(step, generation, **({} if about is None else _made_by(about)), time_s=time.time())

    def _linked(self, record: Record, is_recovery: bool) -> bool:
        """Replicas of a data-parallel group save equal bodies within the same moment: then ours serves for both."""
        end_s = time.monotonic() + (_SAME_STEP_S if record.name.rank in self._was_equal else 0.0)
        while True:
            with self._lock:
                twin = self.memory.equal(record, whole=is_recovery)
                if twin is not None:
                    self.memory.link(record, twin)
                    self._was_equal.add(record.name.rank)
                    return True
            if time.monotonic() >= end_s:
                self._was_equal.discard(record.name.rank)
                return False
            time.sleep(0.01)

    def _one_at_a_time(self, name: RecordName) -> AbstractContextManager[Any]:
        with self._lock:
            if len(self._pulls) > 1000:
                self._pulls.clear()
            return self._pulls.setdefault(name, threading.Lock())

    def _find(self, name: RecordName) -> tuple[Path, Record]:
        """In memory, else on the flush disk."""
        with self._lock:
            if name in self.memory.records:
                return self.memory.path, self.memory.records[name]
            folders = self._flush_folders()
        for folder in folders:
            with contextlib.suppress(CheckpointError):
                return folder, read_record(folder, name)
        raise CheckpointError(f"no record {name} here")

    def _source(self, url: str, name: RecordName, tokens: Mapping[str, str]) -> Source:
        return Source(url, name, tokens.get(url) or next((member.token for member in self.members.ranks.values()), ""))

    def _flush_folders(self) -> list[Path]:
        return [Path(path) for path in sorted({member.flush_dir for member in self.members.ranks.values()} - {""})]

    def _due(self, step: int, generation: int) -> list[_Flush]:
        """Our own ranks' records of this step, if it goes to the disk; open, so that the next commit may drop their names."""
        found = []
        for member in self.members.ranks.values():
            name = RecordName(step, generation, member.rank)
            if member.flush_dir and step % max(1, member.flush_every) == 0 and name in self.memory.records:
                found.append(self._to_disk(name))
        return found

    def _to_disk(self, name: RecordName) -> _Flush:
        member = self.members.ranks[name.rank]
        body = body_path(self.memory.path, name).open("rb")
        return _Flush(self.memory.records[name], body, Path(member.flush_dir), member.flush_keep, member.keep_every)

    def _write(self, flush: _Flush) -> bool:
        try:
            return flush.write()
        finally:
            with self._arrived:
                self._on_the_way.remove(flush)
                self._arrived.notify_all()

    def _write_all(self, flushes: list[_Flush]) -> None:
        be_nice()
        for flush in flushes:
            self._write(flush)

    def _flush(self, due: list[_Flush]) -> None:
        """In the background, one step after the other: caches that left different ones out would have no step in common."""
        with self._flush_turn:
            if self._flushing is not None:
                self._flushing.join()
            self._flushing = threading.Thread(target=self._write_all, args=(due,), name="minder-flush", daemon=True)
            self._flushing.start()


@dataclass(frozen=True, slots=True, eq=False)
class _Flush:
    """One record on its way to the disk. keep, every: which steps stay there."""

    record: Record
    body: IO[bytes]
    folder: Path
    keep: int
    every: int

    def write(self) -> bool:
        """And drop what is older there and does not stay. A disk that fails is logged; the record in memory is no worse for it. Whether it
        lies there now."""
        name = self.record.name
        try:
            disk = RecordFolder(self.folder)
            if name in disk.records:
                self.body.close()
                return True
            disk.drop_unfinished(
                lambda left: left.rank == name.rank and _age(left) < _age(name) and not head_path(self.folder, left).exists()
            )
            with self.body, open_private(draft_path(self.folder, name), "wb") as draft:
                shutil.copyfileobj(self.body, draft, PIECE_BYTES)
            disk.add(self.record, sync=True)
            own = [known for known in disk.records.values() if known.name.rank == name.rank]
            disk.drop(obsolete(own, self.record, self.keep, self.every))
        except OSError as error:
            discard(self.folder, name)  # half of it would keep a full disk full
            event(_log, logging.ERROR, "flush failed", record=name, folder=self.folder, detail=str(error))
            return False
        return True


def _described(record: Record) -> dict[str, Any]:
    return {"name": str(record.name), "world_size": record.world_size, "key": record.key, **_made_by(record), **_twin(record)}


def _made_by(record: Record) -> dict[str, Any]:
    return {"update": record.update, "skipped": record.skipped}


def _twin(record: Record) -> dict[str, Any]:
    return {"keeper": record.keeper, "digest": record.digest} if record.digest else {}


def _age(name: RecordName) -> tuple[int, int]:
    """Smaller is older: what an earlier generation saved, whatever its step."""
    return name.generation, name.step


def _allocated(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except OSError:
        return 0
