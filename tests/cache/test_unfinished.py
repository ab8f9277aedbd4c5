"""What killed writers, full disks, short answers and slow peers leave behind: none of it is taken for a record, nor keeps room for ever."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.edge.cache import cache as cache_module
from minder.edge.cache import serve
from minder.edge.cache.cache import Cache
from minder.edge.cache.folder import LOCK, RecordFolder, complete_steps
from minder.edge.cache.members import Member
from minder.edge.cache.pull import be_nice
from minder.edge.cache.record import CHUNK_BYTES, RecordName, body_path, draft_path, head_path
from minder.edge.cache.settings import CacheSettings
from minder.model.errors import BadInputError
from tests.cache.conftest import TOKEN, Running

Start = Callable[..., Running]
SMALL = b"x" * 1000
LARGE = bytes(range(256)) * (10 * CHUNK_BYTES // 256)


def name(step: int, rank: int = 0, generation: int = 1) -> RecordName:
    return RecordName(step, generation, rank)


def other(body: bytes, by: int) -> bytes:
    """No two bodies are equal."""
    return body[by:] + body[:by]


@pytest.fixture
def alone(tmp_path: Path) -> Cache:
    """A cache of rank 0, in a job of one, with the memory that the page asks for."""
    settings = CacheSettings("demo", "m0", "127.0.0.1", 0, tmp_path / "m0", int(4.5 * len(LARGE)))
    made = Cache(settings, "http://127.0.0.1:1", lambda *unused: "")
    made.join(Member(0, 1, 1, token=TOKEN))
    return made


def save(cache: Cache, step: int, generation: int = 1) -> None:
    record = name(step, generation=generation)
    assert cache.make_room(0, len(LARGE))
    Running.write_into(cache.settings.folder, record, other(LARGE, step), 1)
    assert cache.keep(record, 1.0) == ""
    cache.commit(step, generation)


def on_disk(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def flushed(cache: Cache) -> None:
    assert cache._flushing is not None
    cache._flushing.join(5.0)


def test_ranks_that_were_killed_in_their_saves_leave_no_full_cache(alone: Cache) -> None:
    """Their drafts belong to a generation that is over: no commit would ever come that drops them."""
    save(alone, 1)
    folder = alone.settings.folder
    for left in (draft_path(folder, name(2)), draft_path(folder, name(2, 1)), body_path(folder, name(3))):
        left.write_bytes(LARGE)
    assert not alone.make_room(0, len(LARGE), [2, 3]), "their generation goes on: they are being written"
    alone.join(Member(0, 2, 1, token=TOKEN))
    draft_path(folder, name(2, generation=2)).write_bytes(SMALL)
    with alone._noted(name(2, 1)):
        assert alone.make_room(0, len(LARGE))
        assert draft_path(folder, name(2, 1)).exists(), "what is being pulled goes on"
    save(alone, 3, generation=2)
    assert set(alone.memory.records) == {name(3, generation=2)}
    assert not list(folder.glob("*.draft"))


def test_a_body_whose_writer_was_killed_before_its_head_is_no_record(start: Start) -> None:
    one = start("m0")
    one.join(0, 1)
    one.write(name(1), SMALL, 1)
    one.client.keep(name(1), 1.0)
    one.write(name(2), SMALL, 1)
    head_path(one.settings.folder, name(2)).rename(head_path(one.settings.folder, name(2)).with_suffix(".head.new"))
    again = one.again()
    assert again.held == {name(1)}
    again.join(0, 1, generation=2)
    again.write(name(2, generation=2), SMALL, 1)
    again.client.keep(name(2, generation=2), 1.0)
    again.client.commit(2, 2)
    assert {path.stem for path in again.settings.folder.glob("step-*")} == {str(name(2, generation=2))}
    again.stop()


def test_a_draft_in_use_stays_whatever_the_clock_does(alone: Cache) -> None:
    draft = draft_path(alone.settings.folder, name(2))
    draft.write_bytes(SMALL)
    os.utime(draft, (0.0, 0.0))  # the clock has jumped ahead since
    save(alone, 1)
    assert draft.exists()
    save(alone, 3)
    assert not draft.exists()


def test_a_full_disk_costs_a_flush_and_keeps_none_of_it(alone: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, copy = tmp_path / "disk", shutil.copyfileobj
    alone.join(Member(0, 1, 1, token=TOKEN, flush_dir=str(disk), flush_every=1))
    save(alone, 1)
    flushed(alone)
    before = on_disk(disk)

    def fill_up(body: Any, draft: Any, length: int) -> None:
        draft.write(body.read(len(LARGE) // 2))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_module.shutil, "copyfileobj", fill_up)
    save(alone, 2)
    flushed(alone)
    assert on_disk(disk) == before
    monkeypatch.setattr(cache_module.shutil, "copyfileobj", copy)
    save(alone, 3)
    flushed(alone)
    assert {item.name.step for item in complete_steps(disk)} == {1, 3}
    assert body_path(disk, name(3)).read_bytes() == other(LARGE, 3)


def test_a_record_that_is_whole_on_the_disk_stays_where_an_older_one_cannot_be_removed(
    alone: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    alone.join(Member(0, 1, 1, token=TOKEN, flush_dir=str(disk), flush_every=1))

    def refuse(*unused: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cache_module, "obsolete", refuse)
    save(alone, 1)
    flushed(alone)
    assert RecordFolder(disk).records.keys() == {name(1)}


def test_a_flush_that_was_killed_is_not_offered_and_goes_with_the_next(start: Start, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    one = start("m0")
    one.join(0, 2, flush_dir=str(disk), flush_every=1)
    disk.mkdir(mode=0o700)
    draft_path(disk, name(1)).write_bytes(LARGE[:1000])
    body_path(disk, name(2)).write_bytes(LARGE)  # killed before its head
    (disk / f"{name(2)}.head.new").write_bytes(b"half")
    of_another = draft_path(disk, name(2, 1))
    of_another.write_bytes(LARGE)
    newer_format = [body_path(disk, name(1, generation=0)), head_path(disk, name(1, generation=0))]
    for path in newer_format:
        path.write_bytes(b"what this version does not read")
    assert one.client.hello(str(disk))["records"] == [] == complete_steps(disk)
    one.write(name(3), SMALL)
    one.client.keep(name(3), 1.0)
    one.client.commit(3, 1)
    flushed(one.cache)
    assert on_disk(disk) == sorted([of_another.name, *(path.name for path in newer_format), f"{name(3)}.body", f"{name(3)}.head"])


@pytest.mark.parametrize("gone", ["body", "head"])
def test_a_step_on_a_shared_disk_is_complete_with_head_and_body_of_every_rank(tmp_path: Path, gone: str) -> None:
    for step in (1, 2):
        for rank in (0, 1):
            Running.write_into(tmp_path, name(step, rank), SMALL)
    assert [item.name.step for item in complete_steps(tmp_path)] == [2, 1]
    (tmp_path / f"{name(2, 1)}.{gone}").unlink()
    assert [item.name.step for item in complete_steps(tmp_path)] == [1]
    assert complete_steps(tmp_path / "none") == []


@pytest.mark.parametrize("is_cut_off", [False, True], ids=["it says so", "it is cut off"])
def test_a_body_that_comes_shorter_is_no_backup(start: Start, monkeypatch: pytest.MonkeyPatch, is_cut_off: bool) -> None:
    one, holder = start("m0"), start("m1")
    one.join(0, 2, holder)
    holder.join(1, 2, one)
    one.write(name(1), LARGE)
    path, find = body_path(one.settings.folder, name(1)), one.cache.find_body

    def find_less(record: RecordName) -> tuple[Path, int]:
        if is_cut_off:
            os.truncate(path, len(LARGE) // 2)
        return path, len(LARGE) if is_cut_off else len(LARGE) // 2

    monkeypatch.setattr(one.cache, "find_body", find_less)
    assert "stopped in the middle of a record" in one.client.keep(name(1), 5.0)
    assert holder.held == set()
    assert not body_path(holder.settings.folder, name(1)).exists()
    monkeypatch.setattr(one.cache, "find_body", find)
    path.write_bytes(LARGE)
    assert one.client.keep(name(1), 5.0) == ""
    assert holder.body(name(1)) == LARGE


def test_a_slow_peer_costs_saves_and_takes_no_more_memory(tmp_path: Path) -> None:
    goes_on = threading.Event()
    settings = CacheSettings("demo", "m0", "127.0.0.1", 0, tmp_path / "m0", int(4.5 * len(LARGE)))
    cache = Cache(settings, "http://127.0.0.1:1", lambda *unused: "" if goes_on.wait(10.0) else "late")
    cache.join(Member(0, 1, 2, "http://127.0.0.1:2", TOKEN))
    keeping = []
    for step in range(1, 5):
        assert cache.make_room(0, len(LARGE))
        Running.write_into(settings.folder, name(step), other(LARGE, step))
        keeping.append(threading.Thread(target=cache.keep, args=(name(step), 10.0)))
        keeping[-1].start()
        while name(step) not in cache._moving:
            keeping[-1].join(0.001)
    assert not cache.make_room(0, len(LARGE))
    assert cache.memory.used_bytes() <= settings.max_bytes
    assert set(cache.memory.records) == {name(step) for step in range(1, 5)}, "what the peer reads just now stays"
    goes_on.set()
    for each in keeping:
        each.join(10.0)
    cache.commit(4, 1)
    assert cache.make_room(0, len(LARGE))


def test_a_commit_does_not_wait_for_memory_that_is_given_back_and_the_next_body_does(alone: Cache) -> None:
    save(alone, 1)
    given_back = threading.Event()
    alone._closer.submit(given_back.wait, 10.0)
    for step in (2, 3, 4):
        save(alone, step)
    assert not list(alone.settings.folder.glob(f"{name(1)}*"))
    assert alone._leaving_bytes() == 3 * len(LARGE)
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(alone.make_room(0, len(LARGE))))
    asking.start()
    asking.join(0.05)
    assert answers == []
    given_back.set()
    asking.join(10.0)
    assert answers == [True]


def test_records_that_are_being_pulled_or_read_do_not_go_by_their_age(tmp_path: Path) -> None:
    now_s = 0.0
    settings = CacheSettings("demo", "m0", "127.0.0.1", 0, tmp_path / "m0", 2**20, max_age_s=60.0)
    cache = Cache(settings, "http://127.0.0.1:1", lambda *unused: "", lambda: now_s)
    cache.join(Member(0, 1, 1))
    Running.write_into(settings.folder, name(1), SMALL, 1)
    cache.keep(name(1), 1.0)
    with cache._noted(name(2, 1)):
        now_s = 100.0
        assert not cache.is_over(), "a recovery takes as long as it takes"
    now_s = 150.0
    assert not cache.is_over()
    cache.find_body(name(1))
    now_s = 200.0
    assert not cache.is_over()
    now_s = 300.0
    assert cache.is_over()


def test_a_folder_has_one_cache_and_one_that_ends_lets_the_next_begin(alone: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = alone.settings
    with serve._hold(settings):
        with pytest.raises(BadInputError, match="a cache of demo runs in"):
            serve._hold(settings)
        alone.end()
        with pytest.raises(BadInputError, match="a cache of demo runs in"):
            serve._hold(settings)
        assert on_disk(settings.folder) == [LOCK]
    serve._hold(settings).close()
    lock = serve.fcntl.flock

    def end_meanwhile(*arguments: Any) -> None:
        (settings.folder / LOCK).unlink()
        lock(*arguments)

    monkeypatch.setattr(serve.fcntl, "flock", end_meanwhile)
    with pytest.raises(BadInputError, match="a cache of demo runs in"):
        serve._hold(settings)


def test_a_thread_that_gives_way_never_asks_for_a_higher_priority() -> None:
    found = []

    def be_nicer(first: int) -> None:
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, first)
        be_nice()
        found.append(os.getpriority(os.PRIO_PROCESS, thread))

    for first in (os.getpriority(os.PRIO_PROCESS, 0), 15):
        thread = threading.Thread(target=be_nicer, args=(first,))
        thread.start()
        thread.join()
    assert found == [max(10, os.getpriority(os.PRIO_PROCESS, 0)), 15]
