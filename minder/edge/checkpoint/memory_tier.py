"""Checkpoints in the machines' own memory: every step, each rank's shard in the cache beside it, and a backup on another machine.

A save takes four steps, of which the training loop waits for the first only: what changes outside of an optimiser's step is copied at once;
the rest is copied into the cache's folder; the cache sends the record to the backup's machine; all ranks compare notes, and a step that all
have twice is committed. Saves overlap: two may be in flight. A third waits a second, and is left out then: a cache or a peer that hangs
costs checkpoints, and never stops a step.
"""

from __future__ import annotations

import contextlib
import json
import logging
import mmap
import os
import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

import torch
import torch.distributed as dist

from minder.edge.cache.choice import Reader
from minder.edge.cache.client import CacheClient
from minder.edge.cache.folder import discard
from minder.edge.cache.members import Member
from minder.edge.cache.placement import place_backups
from minder.edge.cache.record import Record, RecordName, body_path, checksums, draft_path, write_head
from minder.edge.checkpoint import optimizer_state, random_state, twins
from minder.edge.checkpoint.copying import CopyOut, StepGate
from minder.edge.checkpoint.manifest import foreign_updates, own_version
from minder.edge.checkpoint.ranks import Ranks
from minder.edge.checkpoint.recovering import Recovery, as_tensor
from minder.edge.checkpoint.shards import Shard, put_together, take_apart, unpack_values
from minder.edge.checkpoint.staging import Staging
from minder.model.errors import BadInputError, CheckpointError
from minder.model.private import open_private
from minder.model.topology import Parallelism

__all__ = ["MemoryTier", "Retention"]

T = TypeVar("T")
_log = logging.getLogger("minder.checkpoint")
_IN_FLIGHT = 2
_LONGEST_WAIT_S = 1.0  # of a training step, for a save before it
_SILENCE_S = 10.0  # so long a cache that did not answer is not asked again
_BACKUP_S = 30.0  # from the hand-over on, and for each byte as long as a slow network takes; a step without a backup is not committed
_SLOW_BYTES_PER_S = 50e6
_THREADS = max(1, min(4, (os.cpu_count() or 1) // 4))  # for the checksums of a large body: the other cores are the job's
_FAILURES = (OSError, RuntimeError, ValueError, TypeError, CheckpointError)


@dataclass(frozen=True, slots=True)
class Retention:
    """Which steps stay: `ring` in memory; of those that go to a disk, every flush_every-th, the newest flush_keep and each that keep_every
    divides (0: none). Raises CheckpointError for numbers that keep too little."""

    flush_every: int = 100
    ring: int = 1
    flush_keep: int = 3
    keep_every: int = 0

    def __post_init__(self) -> None:
        if self.flush_every < 1:
            raise CheckpointError(f"flush_every={self.flush_every}: give a number of steps, 1 or more")
        if self.ring < 1:
            raise CheckpointError(f"ring={self.ring}: at least the newest step stays in memory; give 1 or more")
        if self.flush_keep < 3:
            raise CheckpointError(
                f"keep={self.flush_keep}: at least 3 steps must stay on the disk, so that a damaged one can be passed over"
            )
        if self.keep_every < 0 or self.keep_every % self.flush_every:
            raise CheckpointError(f"keep_every={self.keep_every}: give a multiple of flush_every={self.flush_every}, or 0 for none")


class MemoryTier:
    """`Checkpointer("memory")`; its arguments stand there."""

    def __init__(  # noqa: PLR0913 - as Checkpointer's
        self,
        process_group: dist.ProcessGroup | None,
        timeout_s: float,
        flush_dir: Path | None,
        retention: Retention,
        *,
        overlap: bool = True,
        once_per: str | None = "machine",
        parallelism: Parallelism | None = None,
        cache: CacheClient | None = None,
    ) -> None:
        self._cache = cache or CacheClient()
        self._quick_cache = CacheClient(self._cache.path, patience_s=0.0, timeout_s=_LONGEST_WAIT_S)
        self._flush_dir = "" if flush_dir is None else str(flush_dir)
        self._retention = retention
        self._update, _, self._skipped = own_version()
        self._overlap = overlap
        self._gate, self._staging = StepGate(), Staging()
        self._ranks = Ranks(process_group, timeout_s)
        self._recovery = Recovery(self._cache, self._ranks, self._flush_dir, Reader(foreign_updates(), self._skipped), _doubted())
        self._copying, self._summing = _Lane("minder-copy"), _Lane("minder-sum")
        self._committing, self._asking = _Lane("minder-commit"), _Lane("minder-ask")
        self._in_flight: deque[threading.Event] = deque()
        self._bodies: deque[tuple[int, threading.Event]] = deque()  # those in flight that take memory, and their steps
        self._said = ""
        self._left_out = False
        self._silent_until_s = 0.0
        self._saved_step: int | None = None
        self._error: CheckpointError | None = None
        self._has_room = False
        self._body_bytes = 0
        self._begun = 0  # bodies
        self._granted = (-1, 0)  # there is room for one of so many bytes, as long as no more bodies than this were begun
        self._once_per = once_per
        self._domains: list[str] = []  # of each rank, where a body that several have is kept once; none: every rank keeps its own
        self._keepers: dict[int, int] | None = None  # rank to the rank whose body stands for its own; None: not compared yet
        self.generation = self._join(parallelism)

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """See Checkpointer."""
        if step == self._saved_step:
            return
        self._saved_step = step
        name = RecordName(step, self.generation, self._ranks.rank)
        done = threading.Event()
        try:
            copy_out = self._take(name, state)
        except _FAILURES as error:
            if not self._has_room and isinstance(error, CheckpointError):
                raise
            self._left_out = True
            discard(self._cache.folder, name)
            self._note(step, error)
            self._in_flight.append(done)
            # the others wait for our word, and for that on every step before it
            self._copying.run(lambda: self._copy(name, None, done))
            return
        self._left_out = False
        self._in_flight.append(done)
        self._bodies.append((step, done))
        self._copying.run(lambda: self._copy(name, copy_out, done))

    def wait(self) -> CheckpointError | None:
        """See Checkpointer."""
        while self._in_flight:
            self._in_flight.popleft().wait()
        return self._error

    def wait_at_most(self, limit_s: float) -> bool:
        """Whether no save is in flight any more."""
        deadline_s = time.monotonic() + limit_s
        return all(done.wait(max(0.0, deadline_s - time.monotonic())) for done in tuple(self._in_flight))

    def close(self) -> CheckpointError | None:
        """See Checkpointer. The cache removes its records a minute after its last rank has left."""
        error = self.wait()
        self._ranks.close()
        try:
            self._cache.leave(self._ranks.rank, self.generation)
        except CheckpointError as refused:
            _log.warning("%s", refused)
        return error

    def load_latest(self, state: dict[str, Any]) -> int | None:
        """See Checkpointer."""
        self.wait()

        def prepare() -> None:
            for value in state.values():
                if isinstance(value, torch.optim.Optimizer):
                    optimizer_state.materialise(value)

        found = self._recovery.find(prepare)
        if found is None:
            return None
        record, body = found
        values, pieces, random = unpack_values(record.values)
        with torch.no_grad():
            put_together(values, pieces, body, state)
        random_state.restore(random)
        settled = threading.Event()
        self._in_flight.append(settled)
        self._committing.run(lambda: self._settle_loaded(record, settled))
        return record.name.step

    # Meeting

    def _join(self, parallelism: Parallelism | None) -> int:
        """Every rank's cache learns its peers and the token of this generation. Returns the generation."""
        mine = self._cache.hello(self._flush_dir)
        about = {"machine": mine["machine"], "url": mine["url"], "domain": _own_domain(), "newest": _newest_generation(mine)}
        all_ranks = self._ranks.gather_all(about)
        given = os.environ.get("MINDER_GENERATION") or os.environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
        generation = max(self._ranks.gather_all(int(given)) + [about["newest"] + 1 for about in all_ranks])
        layout = parallelism or _parallelism_of_job(self._ranks.size)
        if layout.world_size != self._ranks.size:
            raise CheckpointError(
                f"parallelism has {layout.world_size} ranks and the job {self._ranks.size}: mend parallelism of Checkpointer or job.toml"
            )
        machines = {rank: about["machine"] for rank, about in enumerate(all_ranks)}
        domains = {about["machine"]: about["domain"] for about in all_ranks}
        placed, token = self._ranks.from_first(lambda: (place_backups(layout, machines, domains), secrets.token_hex(16)))
        peer = placed.get(self._ranks.rank)
        backup_url = "" if peer is None else all_ranks[peer]["url"]
        about_us = self._ranks.rank, generation, self._ranks.size
        member = Member(*about_us, backup_url, token, flush_dir=self._flush_dir, **asdict(self._retention))
        if self._once_per is not None:
            known = sorted({"machine", *(kind for domain in domains.values() for kind in domain)})
            if self._once_per not in known:
                raise CheckpointError(
                    f"once_per={self._once_per!r}: the job's machines name {', '.join(known)}; give one of these, or None"
                )
            self._domains = [domains[name].get(self._once_per, name) for name in machines.values()]
        is_first = all(machine != machines[self._ranks.rank] for rank, machine in machines.items() if rank < self._ranks.rank)
        self._cache.join(member, {about["machine"]: about["url"] for about in all_ranks} if is_first else None)
        self._ranks.gather_all(None)  # from here on every cache knows the token
        return int(generation)

    # Saving

    def _take(self, name: RecordName, state: Mapping[str, Any]) -> Callable[[], Callable[[], _Note]]:
        """Copy what cannot wait. What is returned copies the rest, in the background, and returns what makes the record whole."""
        self._await_turn(_IN_FLIGHT - 1)
        late = self._gate.watch(state.values()) if self._overlap else frozenset()
        shard = take_apart(state)
        values = shard.pack_values(random_state.capture())
        if not self._has_room:
            unpack_values(values)  # what could not be read again must not be found out at the recovery
        keeper = self._keeper(shard)
        self._body_bytes = 0 if keeper is not None else shard.body_bytes
        self._await_room(self._body_bytes)
        self._begun += 1
        file, body = _new_body(draft_path(self._cache.folder, name), self._body_bytes)
        copy = CopyOut(shard, None if keeper is not None else as_tensor(body), late, self._staging, file)
        self._gate.hold_for(copy)

        def copy_out() -> Callable[[], _Note]:
            with file:
                copy.finish()
            return partial(self._complete, name, shard, values, body, keeper, copy.sums)

        return copy_out

    def _keeper(self, shard: Shard) -> int | None:
        """Whose body stands for ours. At the first save all ranks compare theirs."""
        if self._keepers is None:
            self._keepers = {}
            if len(set(self._domains)) < len(self._domains):
                self.wait()
                samples = self._ranks.gather_tensors(torch.tensor([twins.sample(shard)]))
                self._keepers = twins.group([int(each) for each in samples], self._domains)
        return self._keepers.get(self._ranks.rank)

    def _await_turn(self, most: int) -> None:
        """Until at most so many bodies are in flight. Once a save was left out, later ones do not wait before they may go on."""
        end_s = time.monotonic() + (0.0 if self._left_out else _LONGEST_WAIT_S)
        while len(self._bodies) > most:
            if not self._bodies[0][1].wait(max(0.0, end_s - time.monotonic())):
                raise CheckpointError("two earlier saves are still in flight")
            self._bodies.popleft()
        while self._in_flight and self._in_flight[0].is_set():
            self._in_flight.popleft()

    def _await_room(self, body_bytes: int) -> None:
        if self._granted == (self._begun, body_bytes) or self._ask_room(body_bytes):
            return
        self._await_turn(0)  # an earlier step's commit makes room
        if not self._ask_room(body_bytes):
            raise CheckpointError(f"the checkpoint cache at {self._cache.path} is full: steps before it have no backup yet")

    def _ask_ahead(self) -> None:
        """For the next save: an answer of the cache is what a step would wait for longest. In a thread that no save waits for: a busy cache
        would hold up the commits of all ranks. A body that is begun meanwhile asks for itself."""
        begun, body_bytes = self._begun, self._body_bytes
        with contextlib.suppress(CheckpointError):  # the save itself asks, and says why
            is_granted = self._quick_cache.make_room(self._ranks.rank, body_bytes, self._open_steps())
            self._granted = (begun if is_granted else -1, body_bytes)

    def _ask_room(self, body_bytes: int) -> bool:
        """At the first save the cache has time to come up. Later one that is silent is left alone for a while."""
        if not self._has_room:
            self._has_room = self._cache.make_room(self._ranks.rank, body_bytes, self._open_steps())
            return self._has_room
        if time.monotonic() < self._silent_until_s:
            raise CheckpointError(f"the checkpoint cache at {self._cache.path} did not answer lately")
        begun_s = time.monotonic()
        try:
            return self._quick_cache.make_room(self._ranks.rank, body_bytes, self._open_steps())
        except CheckpointError:
            if time.monotonic() - begun_s > _LONGEST_WAIT_S / 2:  # it hangs; one that is just gone is asked again at the next step
                self._silent_until_s = time.monotonic() + _SILENCE_S
            raise

    def _open_steps(self) -> list[int]:
        """Those of which it is not known yet whether they are committed."""
        return [step for step, done in tuple(self._bodies) if not done.is_set()]

    def _complete(
        self, name: RecordName, shard: Shard, values: bytes, body: mmap.mmap | None, keeper: int | None, sums: list[int]
    ) -> _Note:  # fmt: skip
        folder, digest = self._cache.folder, ""
        chunks = () if body is None else checksums(memoryview(body), _THREADS)
        if keeper is not None or self._ranks.rank in (self._keepers or {}).values():
            whole = as_tensor(body)
            digest = twins.digest_of(shard.layout, sums if keeper is not None else [twins.crc(piece.of(whole)) for piece in shard.pieces])
        draft_path(folder, name).replace(body_path(folder, name))
        body_bytes = 0 if keeper is not None else shard.body_bytes
        about = self._update, self._skipped, keeper, digest
        record = Record(name, self._ranks.size, body_bytes, shard.layout, chunks, values, *about)
        write_head(folder, record)
        return _Note.of(record)

    def _copy(self, name: RecordName, copy_out: Callable[[], Callable[[], _Note]] | None, done: threading.Event) -> None:
        """copy_out: None where the save was left out."""
        complete = None if copy_out is None else self._tried(name, copy_out)
        self._summing.run(lambda: self._sum_up(name, complete, done))

    def _sum_up(self, name: RecordName, complete: Callable[[], _Note] | None, done: threading.Event) -> None:
        """In a thread of its own: the next step waits for the next copy, which must not stand behind this one's checksums."""
        note = None if complete is None else self._tried(name, complete)
        self._committing.run(lambda: self._commit(name, note, done))

    def _tried(self, name: RecordName, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except _FAILURES as error:
            discard(self._cache.folder, name)
            self._note(name.step, error)
            return None

    def _commit(self, name: RecordName, note: _Note | None, done: threading.Event) -> None:
        """Each save ends in one exchange of all ranks, whether it went well here or not. note: None where it did not."""
        try:
            why = self._back_up(name) if note is not None else ""
            whole = note is not None
            if self._settle(name, note or _Note(), whole and not why):
                self._said = ""
                self._error = None if name.step == self._saved_step else self._error
                self._asking.run(self._ask_ahead)
            elif whole:
                self._note(name.step, CheckpointError(why or "another rank has no copy or no backup of its own"))
        except _FAILURES as error:
            self._note(name.step, error)
        finally:
            done.set()

    def _settle(self, name: RecordName, note: _Note, is_safe: bool) -> bool:
        """Compare notes with all ranks; whether all have it twice. Ranks that were alike and are no more keep their own from now on."""
        notes = self._ranks.gather_tensors(torch.tensor([name.step, int(is_safe), note.keeper, note.digest]))
        steps, safe, keepers, digests = zip(*(map(int, each) for each in notes), strict=True)
        all_safe = all(safe) and set(steps) == {name.step}
        if all_safe and not twins.are_alike(keepers, digests):
            self._keepers, self._has_room = {}, False
            raise CheckpointError("replicas that had equal state differ: each rank keeps its own from now on")
        if all_safe:
            self._cache.commit(name.step, name.generation)
        return all_safe

    def _back_up(self, name: RecordName) -> str:
        """ "" when our record of this step lies on another machine too; else why not."""
        try:
            return self._cache.keep(name, _BACKUP_S + self._body_bytes / _SLOW_BYTES_PER_S)
        except _FAILURES as error:
            return str(error)

    def _settle_loaded(self, record: Record, done: threading.Event) -> None:
        """After a recovery a record may lie on one machine only: back it up at once, not at the next step."""
        try:
            self._settle(record.name, _Note.of(record), not self._back_up(record.name))
        except _FAILURES as error:
            _log.warning("step %d was loaded, and may have no second copy: %s", record.name.step, error)
        finally:
            done.set()

    def _note(self, step: int, error: BaseException) -> None:
        self._error = CheckpointError(f"checkpoint of step {step} in memory failed: {error}")
        if str(error) != self._said:  # once, however long it lasts
            _log.error("%s; training goes on, later saves try again", self._error)
        self._said = str(error)


@dataclass(frozen=True, slots=True)
class _Note:
    """What a rank says of its record of one step. keeper: the rank whose body stands for its own; digest: of its tensors, 0 for none."""

    keeper: int = twins.NONE
    digest: int = 0

    @classmethod
    def of(cls, record: Record) -> _Note:
        keeper = twins.NONE if record.keeper is None else record.keeper
        return cls(keeper, twins.number_of(record.digest) if record.digest else 0)


class _Lane:
    """A thread that does one thing after the other. A daemon: what hangs in the group of a dead generation must not keep the process."""

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._name = name
        self._is_alive = False

    def run(self, work: Callable[[], None]) -> None:
        self._work.put(work)
        if not self._is_alive:
            self._is_alive = True
            threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def _run(self) -> None:
        while True:
            self._work.get()()


def _new_body(path: Path, size_bytes: int) -> tuple[IO[bytes], mmap.mmap | None]:
    """A file in memory, and its map; None for an empty one, which cannot be mapped."""
    file = open_private(path, "w+b")
    file.truncate(size_bytes)
    return file, mmap.mmap(file.fileno(), size_bytes) if size_bytes else None


def _newest_generation(answer: Mapping[str, Any]) -> int:
    names = [RecordName.parse(item["name"]) for item in answer["records"]]
    return max([int(answer["generation"]), *(name.generation for name in names if name is not None)])


def _own_domain() -> dict[str, str]:
    """Rack, switch and the like of this machine, as job.toml has them."""
    return {str(kind): str(name) for kind, name in json.loads(os.environ.get("MINDER_DOMAIN") or "{}").items()}


def _doubted() -> frozenset[str]:
    """Machines that were evicted since what they computed is in doubt."""
    return frozenset(map(str, json.loads(os.environ.get("MINDER_DOUBTED") or "[]")))


def _parallelism_of_job(world_size: int) -> Parallelism:
    """What job.toml says; without it all ranks are one data-parallel group."""
    given = os.environ.get("MINDER_PARALLELISM")
    try:
        return Parallelism(**json.loads(given)) if given else Parallelism(data=world_size)
    except (ValueError, TypeError, BadInputError) as error:
        raise CheckpointError(f"MINDER_PARALLELISM is {given!r}: {error}") from error
