"""What a rank goes on from: its own record of the newest step that all ranks can have, wherever its parts lie."""

from __future__ import annotations

import logging
import mmap
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from minder.edge.cache.choice import Copy, Holding, Reader, choose_step, copies_of_body, equal_bodies, shared_reads
from minder.edge.cache.client import CacheClient
from minder.edge.cache.folder import read_record
from minder.edge.cache.record import Record, RecordName, body_path, wrong_chunk
from minder.edge.checkpoint.ranks import Ranks
from minder.edge.checkpoint.shards import idle_cores
from minder.model.errors import CheckpointError

__all__ = ["Recovery", "as_tensor"]

T = TypeVar("T")
_log = logging.getLogger("minder.checkpoint")
_FETCH_S = 3600.0
_FLUSH_S = 10.0  # so long a record may be on its way to a disk, and for each byte as long as a slow disk takes; one that hangs is left out
_SLOW_BYTES_PER_S = 50e6
_LEFT_S = 3.0  # for the answer of a cache whose machine has left the job


class Recovery:
    """All ranks call `find` together. run: which steps this run may go on from. doubted: machines whose memory is not read once they have
    left the job, since what they computed may be wrong."""

    def __init__(self, cache: CacheClient, ranks: Ranks, flush_dir: str, run: Reader, doubted: frozenset[str] = frozenset()) -> None:
        self._cache, self._ranks, self._flush_dir, self._run = cache, ranks, flush_dir, run
        self._doubted = doubted
        self._tokens: dict[str, str] = {}  # of caches whose machines have left the job, by their addresses

    def find(self, meanwhile: Callable[[], None] = lambda: None) -> tuple[Record, torch.Tensor] | None:
        """Our own record of the step that all ranks take, with its body; None at a job's beginning. meanwhile: called in this thread while
        bodies come, and so only where there is a step to take; once for each try. Raises CheckpointError."""
        bad: set[tuple[RecordName, str, str]] = set()
        while True:
            answers = self._ask(bad)
            holdings = [_holding(answer, self._run) for answer in answers]
            chosen = choose_step(holdings, self._ranks.size, bad)
            if _is_behind(answers, chosen):
                left = self._ask_left(answers)
                holdings += [_holding(answer, self._run) for answer in left]
                self._tokens = {answer["url"]: answer["token"] for answer in left}
                chosen = choose_step(holdings, self._ranks.size, bad)
            if chosen is None:
                self._refuse_a_silent_start(answers, bad)
                return None
            mine = [*self._read_once(holdings, chosen), *chosen[self._ranks.rank]]
            found, mine_bad = _beside(partial(self._first_whole, mine, holdings, bad), meanwhile)
            news = [copy for each in self._ranks.gather_all(mine_bad) for copy in each]
            if not news:
                assert found is not None
                return found
            bad.update(news)

    def _ask(self, bad: set[tuple[RecordName, str, str]]) -> list[dict[str, Any]]:
        """What every rank's cache has. Where a newer step would be complete with what is on its way to a disk, that has time to arrive: all
        ranks see the same answers, and so wait or do not wait together."""
        answers: list[dict[str, Any]] = self._ranks.gather_all(self._cache.hello(self._flush_dir))
        now, soon = self._newest(answers, bad)
        if soon == now:
            return answers
        most_bytes = max(sum(item["bytes"] for item in answer.get("on_the_way", ())) for answer in answers)
        wait_s = min(_FLUSH_S + most_bytes / _SLOW_BYTES_PER_S, self._ranks.timeout_s / 2)
        _log.info("step %s is on its way to the disk, and is waited for", soon and soon[0])
        answers = self._ranks.gather_all(self._cache.hello(self._flush_dir, wait_s))
        now, soon = self._newest(answers, bad)
        if now is None and soon is not None:
            raise CheckpointError(
                f"step {soon[0]} is on its way to the disk and did not arrive within {wait_s:.0f} s, and there is no other: see why "
                f"{self._flush_dir} is slow, and start again"
            )
        return answers

    def _newest(
        self, answers: list[dict[str, Any]], bad: set[tuple[RecordName, str, str]]
    ) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """Step and generation that all ranks can have: now, and once everything has arrived that is on its way to a disk."""
        now, soon = (
            choose_step([_holding(answer, self._run, on_the_way) for answer in answers], self._ranks.size, bad)
            for on_the_way in (False, True)
        )
        return _moment(now), _moment(soon)

    def _ask_left(self, answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What machines hold that have left the job and still answer. Each is asked once, by a rank whose cache knows it; all ranks see the
        same answers."""
        asked_by: dict[str, int] = {}
        for rank, answer in enumerate(answers):
            for peer in answer.get("left", ()):
                if peer["machine"] not in self._doubted:
                    asked_by.setdefault(peer["url"], rank)
        if not asked_by:
            return []
        mine, found = [url for url, rank in asked_by.items() if rank == self._ranks.rank], []
        try:
            found = self._cache.ask_left(mine, _LEFT_S) if mine else []
        except CheckpointError as error:
            _log.warning("machines that have left the job are not asked: %s", error)
        return [answer for each in self._ranks.gather_all(found) for answer in each]

    def _read_once(self, holdings: list[Holding], chosen: dict[int, list[Copy]]) -> list[Copy]:
        """Where ranks with equal bodies have them in a shared store only: one reads it, and in each round twice as many have it in memory.
        The copy that is in our own memory then, if all went well; else the store is left."""
        groups = shared_reads(holdings, chosen)
        if not groups:
            return []
        rank = self._ranks.rank
        group = next((each for each in groups if rank in each), ())
        place, found = group.index(rank) if group else -1, []
        for have in [0, *(2**turn for turn in range((max(map(len, groups)) - 1).bit_length()))]:
            if have <= place < max(1, 2 * have):
                copy = chosen[rank][0]
                before = [(holdings[peer].url, chosen[peer][0].name) for peer in group[:have]]
                turn = place % max(1, have)
                try:
                    self._cache.fetch(copy.name, copy.url, _FETCH_S, before[turn:] + before[:turn])
                    found = [Copy(copy.name, holdings[rank].url, "memory", own=True)]
                except (CheckpointError, OSError) as error:
                    _log.warning("record %s is read from the store: %s", copy.name, error)
            self._ranks.gather_all(None)
        return found

    def _first_whole(
        self, copies: list[Copy], holdings: list[Holding], bad: set[tuple[RecordName, str, str]]
    ) -> tuple[tuple[Record, torch.Tensor] | None, list[tuple[RecordName, str, str]]]:
        """The first copy that can be had and is undamaged; else all of them, as bad ones. Where another rank's body stands for our own, it
        comes with that one, or its copies are the bad ones."""
        found = self._try(copies, holdings, bad)
        if found is None or found[0].keeper is None:
            return found, [] if found is not None else _places(copies)
        record = found[0]
        bodies = copies_of_body(
            holdings, record.name.step, record.name.generation, record.digest, holdings[self._ranks.rank].url, bad
        )  # fmt: skip
        of_keeper = self._try(bodies, holdings, bad)
        if of_keeper is None:
            _log.warning("record %s has its body with rank %d, which cannot be had", record.name, record.keeper)
            return None, _places(bodies or copies)
        return (record, of_keeper[1]), []

    def _try(
        self, copies: list[Copy], holdings: list[Holding], bad: set[tuple[RecordName, str, str]]
    ) -> tuple[Record, torch.Tensor] | None:
        for copy in copies:
            try:
                return self._open(copy, [] if copy.own else equal_bodies(holdings, copy, bad))
            except (CheckpointError, OSError) as error:
                _log.warning("record %s in %s of %s is passed over: %s", copy.name, copy.where, copy.url, error)
        return None

    def _open(self, copy: Copy, elsewhere: list[tuple[str, RecordName]]) -> tuple[Record, torch.Tensor]:
        if not copy.own:
            folder = self._cache.fetch(
                copy.name, copy.url, _FETCH_S, elsewhere, self._tokens
            )  # as long as it comes; a silent peer raises sooner
        else:
            folder = self._cache.folder if copy.where == "memory" else Path(self._flush_dir)
        record = read_record(folder, copy.name)
        body = _map(body_path(folder, copy.name), record.body_bytes)
        # what the cache has just fetched it has checked chunk by chunk
        bad = None if body is None or not copy.own else wrong_chunk(memoryview(body), record, idle_cores())
        if bad is not None:
            raise CheckpointError(f"chunk {bad} of {copy.name} in {folder} is damaged")
        return record, as_tensor(body)

    def _refuse_a_silent_start(self, answers: list[dict[str, Any]], bad: set[tuple[RecordName, str, str]]) -> None:
        steps = [answer["committed"][0] for answer in answers if answer["committed"] is not None]
        items = [item for answer in answers for item in answer["records"] if item["world_size"] == self._ranks.size]
        if items and not any(_read_by(self._run, item) for item in items):
            raise CheckpointError(
                f"all steps that are kept have learned from other batches than this run, which leaves out {self._run.skipped or 'none'}, "
                "or were saved by updates that it does not read: take the skip back with `minder job skip JOB --undo`, set "
                "checkpoints_compatible = true, or end the caches and remove their folders to start again"
            )
        unreadable = next((why for answer in answers for why in answer.get("unreadable", ())), None)
        if unreadable is not None and not steps and not items:
            raise CheckpointError(f"what was saved cannot be read: {unreadable}; to start again from nothing, remove these files")
        if steps or bad:
            sizes = sorted({item["world_size"] for answer in answers for item in answer["records"]} - {self._ranks.size})
            why = f"its records are of a job of {sizes[0]} ranks" if sizes else "a rank's copies are all lost or damaged"
            raise CheckpointError(
                f"step {max(steps, default='?')} was saved and cannot be loaded: {why}; to start again from nothing, end the caches and "
                "remove their folders"
            )


def _beside(work: Callable[[], T], meanwhile: Callable[[], None]) -> T:
    """The result of `work`, which a thread does: a daemon, since a peer that hangs must not keep a process that a signal ends."""
    outcome: Future[T] = Future()
    threading.Thread(target=_settle, args=(outcome, work), name="minder-fetch", daemon=True).start()
    meanwhile()
    return outcome.result()


def _settle(outcome: Future[T], work: Callable[[], T]) -> None:
    try:
        outcome.set_result(work())
    except Exception as error:  # noqa: BLE001 - it is raised again, in the thread that waits
        outcome.set_exception(error)


def as_tensor(body: mmap.mmap | None) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8) if body is None else torch.frombuffer(body, dtype=torch.uint8)


def _map(path: Path, size_bytes: int) -> mmap.mmap | None:
    if not size_bytes:
        return None
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), size_bytes, mmap.MAP_PRIVATE)  # private: torch wants memory that it could write to


def _moment(chosen: Mapping[int, list[Copy]] | None) -> tuple[int, int] | None:
    """Step and generation of what was chosen."""
    return None if chosen is None else (chosen[0][0].name.step, chosen[0][0].name.generation)


def _is_behind(answers: Sequence[Mapping[str, Any]], chosen: Mapping[int, list[Copy]] | None) -> bool:
    """Whether a step was committed that is newer than what was chosen: all ranks had it, and twice."""
    committed = [(int(step), int(generation)) for step, generation in (answer["committed"] for answer in answers if answer["committed"])]
    return max(committed, default=(-1, -1)) > (_moment(chosen) or (-1, -1))


def _holding(answer: Mapping[str, Any], run: Reader, on_the_way: bool = False) -> Holding:
    """Of what this run may go on from. on_the_way: as it is once what is on its way to a disk has arrived."""
    soon = [{**item, "where": "disk"} for item in answer.get("on_the_way", ())] if on_the_way else []
    named = ((RecordName.parse(item["name"]), item) for item in [*answer["records"], *soon] if _read_by(run, item))
    records = [(name, item) for name, item in named if name is not None]
    keys = {name: item["key"] for name, item in records if item.get("key")}
    digests = {name: item["digest"] for name, item in records if item.get("digest") and item.get("keeper") is None}
    return Holding(answer["url"], {(name, item["where"]): item["world_size"] for name, item in records}, keys, digests)


def _places(copies: list[Copy]) -> list[tuple[RecordName, str, str]]:
    return [(copy.name, copy.url, copy.where) for copy in copies]


def _read_by(run: Reader, item: Mapping[str, Any]) -> bool:
    """A cache of before says neither."""
    name = RecordName.parse(item["name"])
    return name is not None and run.reads(name.step, int(item.get("update") or 0), str(item.get("skipped") or ""))
