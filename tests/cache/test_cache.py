"""What a cache promises: records survive it, damage is found, what is obsolete goes, and nothing else does."""

from __future__ import annotations

import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from minder.edge.cache import pull
from minder.edge.cache.cache import Cache
from minder.edge.cache.members import Member
from minder.edge.cache.pull import PIECE_BYTES, RateLimit, Source, pull_body, pull_head
from minder.edge.cache.record import CHUNK_BYTES, RecordName, draft_path
from minder.edge.cache.settings import CacheSettings, cgroup_room, check_settings, parse_bytes
from minder.model.errors import BadInputError, CheckpointError, NoAnswerError, WireError
from tests.cache.conftest import TOKEN, Running

Start = Callable[..., Running]
SMALL = b"x" * 1000
LARGE = bytes(range(256)) * (10 * CHUNK_BYTES // 256)


def name(step: int, rank: int = 0, generation: int = 1) -> RecordName:
    return RecordName(step, generation, rank)


@pytest.fixture
def pair(start: Start) -> tuple[Running, Running]:
    """Two machines with a rank each, either the backup of the other."""
    one, other = start("m0"), start("m1")
    one.join(0, 2, other)
    other.join(1, 2, one)
    return one, other


def test_a_record_is_backed_up_whole_and_its_files_are_the_owners_alone(pair: tuple[Running, Running]) -> None:
    one, other = pair
    one.write(name(1), LARGE)
    assert one.client.keep(name(1), 5.0) == ""
    assert other.body(name(1)) == LARGE
    modes = {stat.S_IMODE(path.stat().st_mode) for path in other.settings.folder.iterdir() if path.name.startswith("step")}
    assert modes == {0o600}


def test_a_cache_that_starts_again_adopts_records_ranks_and_the_committed_step(pair: tuple[Running, Running]) -> None:
    one, other = pair
    one.write(name(1), LARGE)
    one.client.keep(name(1), 5.0)
    for each in pair:
        each.client.commit(1, 1)
    (other.settings.folder / f"{name(9)}.draft").write_bytes(b"half")  # of a rank that was killed
    again = other.again()
    assert again.held == {name(1)}
    assert again.client.hello()["committed"] == [1, 1]
    one.write(name(2), SMALL)
    assert one.client.keep(name(2), 5.0) == ""  # the peer's token still counts
    again.stop()


def test_a_backup_that_was_cut_off_goes_on_where_it_was(pair: tuple[Running, Running], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = pair
    record = one.write(name(1), LARGE)
    one.cache.memory.read(name(1))
    draft = draft_path(other.settings.folder, name(1))
    draft.write_bytes(LARGE[: 4 * CHUNK_BYTES] + b"\0" * (len(LARGE) - 4 * CHUNK_BYTES))
    asked: list[str] = []
    ask = pull._Peer._ask
    monkeypatch.setattr(pull._Peer, "_ask", lambda peer, path: (asked.append(path), ask(peer, path))[1])
    pull_body([Source(one.cache.url, name(1), TOKEN)], record, other.settings.folder, RateLimit(0))
    assert draft.read_bytes() == LARGE
    assert f"from={4 * CHUNK_BYTES}&" in asked[0]


def test_a_chunk_that_comes_damaged_is_asked_for_again(pair: tuple[Running, Running], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = pair
    one.write(name(1), LARGE)
    fill, spoilt = pull._Peer.fill, []

    def damage_once(peer: pull._Peer, target: memoryview, answer: Any) -> None:
        fill(peer, target, answer)
        if not spoilt:
            spoilt.append(target[100])
            target[100] ^= 1

    monkeypatch.setattr(pull._Peer, "fill", damage_once)
    assert one.client.keep(name(1), 5.0) == ""
    assert other.body(name(1)) == LARGE
    assert spoilt


def test_a_record_that_is_damaged_at_its_owner_is_never_taken_for_a_backup(pair: tuple[Running, Running]) -> None:
    one, other = pair
    one.write(name(1), LARGE)
    path = one.settings.folder / f"{name(1)}.body"
    path.write_bytes(LARGE[:-1] + b"!")
    assert "is damaged" in one.client.keep(name(1), 5.0)
    assert other.held == set()


def test_a_peer_that_is_gone_leaves_a_record_without_backup_and_says_so(pair: tuple[Running, Running]) -> None:
    one, other = pair
    other.stop()
    one.write(name(1), SMALL)
    assert "does not answer" in one.client.keep(name(1), 5.0)
    assert one.held == {name(1)}


def test_a_cache_that_comes_back_is_found_where_it_was(pair: tuple[Running, Running]) -> None:
    one, other = pair
    one.write(name(1), SMALL)
    again = other.again()
    assert one.client.keep(name(1), 5.0) == ""
    assert name(1) in again.held
    again.stop()


def test_what_is_older_than_the_committed_step_goes_and_nothing_else(pair: tuple[Running, Running]) -> None:
    one, other = pair
    for step in (1, 2, 3):
        one.write(name(step), SMALL)
        one.client.keep(name(step), 5.0)
        if step == 1:
            for each in pair:
                each.client.commit(1, 1)
    (one.settings.folder / f"{name(1)}.draft").write_bytes(b"left behind")
    assert one.held == other.held == {name(1), name(2), name(3)}
    for each in pair:
        each.client.commit(2, 1)
    assert one.held == other.held == {name(2), name(3)}
    assert not (one.settings.folder / f"{name(1)}.draft").exists()


def test_a_newer_generation_that_went_back_drops_the_steps_that_it_will_take_again(start: Start) -> None:
    one = start("m0")
    one.join(0, 1)
    one.write(name(9, generation=1), SMALL, 1)
    one.join(0, 1, generation=2)
    one.write(name(5, generation=2), SMALL, 1)
    one.client.commit(5, 2)
    assert one.held == {name(5, generation=2)}
    with pytest.raises(CheckpointError, match="generation 1 is over"):
        one.join(0, 1, generation=1)


def test_a_job_that_went_back_keeps_its_new_steps_beside_newer_ones_that_were_abandoned(pair: tuple[Running, Running]) -> None:
    """Steps 8 and 9 were made with a bad batch; generation 2 goes back to step 5, whose record is the committed one."""
    one, other = pair
    for step in (5, 8, 9):
        one.write(name(step), SMALL)
        assert one.client.keep(name(step), 5.0) == ""
    for each in pair:
        each.client.commit(5, 1)
    one.join(0, 2, other, generation=2)
    other.join(1, 2, one, generation=2)
    one.write(name(6, generation=2), SMALL)
    assert one.client.keep(name(6, generation=2), 5.0) == "" and name(6, generation=2) in one.held & other.held


def test_equal_bodies_are_kept_once_a_machine_and_not_sent(pair: tuple[Running, Running], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = pair
    sent: list[RecordName] = []
    find_body = one.cache.find_body
    monkeypatch.setattr(one.cache, "find_body", lambda record: (sent.append(record), find_body(record))[1])
    other.write(name(1, rank=1), LARGE, values=b"of rank 1")
    other.client.keep(name(1, rank=1), 5.0)
    one.write(name(1, rank=0), LARGE, values=b"of rank 0")
    assert one.client.keep(name(1, rank=0), 5.0) == ""
    assert sent == []
    assert pull_head(Source(other.cache.url, name(1, rank=0), TOKEN)).values == b"of rank 0"
    assert other.body(name(1, rank=0)) == LARGE
    assert other.cache.memory.used_bytes() < 1.2 * len(LARGE)


def test_a_memory_that_is_too_small_is_refused_before_the_first_step(start: Start, tmp_path: Path) -> None:
    one = start("m0", max_bytes=3 * 10**6)
    one.join(0, 2)
    assert one.client.make_room(0, 10**5)
    with pytest.raises(CheckpointError, match="need 4000000: give `minder launch --cache-bytes` more"):
        one.client.make_room(0, 10**6)
    settings = CacheSettings("demo", "m1", "127.0.0.1", 0, tmp_path / "m1", 2**60)
    with pytest.raises(BadInputError, match="have room for"):
        check_settings(settings)
    assert parse_bytes("512M") == 2**29


@pytest.mark.parametrize(
    ("lines", "files"),
    [
        ("0::/slurm/job_7/step_1\n", {"slurm/job_7/memory.max": "5000", "slurm/job_7/memory.current": "2000"}),
        ("0::/\n", {"memory.max": "5000", "memory.current": "2500", "memory.stat": "inactive_file 500"}),
        (
            "4:memory:/pod/cache\n0::/\n",
            {
                "memory/pod/cache/memory.limit_in_bytes": str(2**63 - 4096), "memory/pod/cache/memory.usage_in_bytes": "1",
                "memory/pod/memory.limit_in_bytes": "5000", "memory/pod/memory.usage_in_bytes": "2000",
            },
        ),
        ("1:cpu:/pod\n0::/\n", {"memory.max": "max", "memory.current": "2000"}),
        ("0::/../../kubepods/pod1\n", {}),
    ],
    ids=["a Slurm job's", "a container's, which sees itself only", "a pod's in the older hierarchy", "no limit", "not to be seen"],
)  # fmt: skip
def test_limits_of_the_cgroups_above_a_cache_are_limits_of_its_memory(lines: str, files: dict[str, str], tmp_path: Path) -> None:
    own, root = tmp_path / "own", tmp_path / "root"
    own.write_text(lines)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    limited = any("5000" in text for text in files.values())
    assert list(cgroup_room(own, root)) == ([3000] if limited else [])


def test_a_full_cache_takes_no_further_body_and_no_backup(start: Start) -> None:
    one, other = start("m0"), start("m1", max_bytes=len(LARGE) // 2)
    one.join(0, 2, other)
    other.join(1, 2, one)
    one.write(name(1), LARGE)
    assert "is full" in one.client.keep(name(1), 5.0)
    other.client.make_room(1, 1000)
    body = b"y" * (len(LARGE) // 2)
    other.write(name(1, rank=1), body)
    other.client.commit(1, 1)
    assert not other.client.make_room(1, 1000)


def test_steps_that_are_never_committed_do_not_fill_the_cache(start: Start) -> None:
    one = start("m0", max_bytes=5 * len(LARGE))
    one.join(0, 1)
    for step in range(1, 8):
        assert one.client.make_room(0, len(LARGE))
        one.write(name(step), LARGE[step:] + LARGE[:step], 1)
        one.client.keep(name(step), 1.0)
        if step == 2:
            one.client.commit(2, 1)
    assert one.held == {name(2), name(6), name(7)}


def test_a_step_that_may_still_be_committed_does_not_make_room_for_the_next(start: Start) -> None:
    """Memory for two steps, as the page says: while the ranks compare notes on the second, the third asks for room."""
    room = int(4.5 * len(LARGE))
    one, other = start("m0", max_bytes=room), start("m1", max_bytes=room)
    one.join(0, 2, other)
    other.join(1, 2, one)
    for step in (1, 2):
        for rank, running in enumerate((one, other)):
            at = 2 * step + rank  # no two bodies are equal
            running.write(name(step, rank), LARGE[at:] + LARGE[:at])
            assert running.client.keep(name(step, rank), 5.0) == ""
        if step == 1:
            for running in (one, other):
                running.client.commit(1, 1)
    both = {name(2, rank) for rank in (0, 1)}
    for rank, running in enumerate((one, other)):
        assert not running.client.make_room(rank, len(LARGE), [2])
        running.client.commit(2, 1)
        assert running.held == both
        assert running.client.make_room(rank, len(LARGE))


@pytest.mark.parametrize("header", [None, "Bearer wrong"])
def test_a_caller_without_the_jobs_token_gets_nothing(start: Start, header: str | None) -> None:
    one = start("m0")
    headers = {} if header is None else {"Authorization": header}
    paths = ["/v1/state", f"/v1/records/{name(1)}/head", f"/v1/records/{name(1)}/body?from=0&bytes=9"]
    for joined in (False, True):
        if joined:
            one.join(0, 1)
        assert [httpx.get(one.cache.url + path, headers=headers).status_code for path in paths] == [401] * 3
        body = {"name": str(name(1)), "url": one.cache.url}
        assert httpx.post(one.cache.url + "/v1/backups", json=body, headers=headers).status_code == 401


def test_what_is_no_request_gets_one_line(start: Start) -> None:
    one = start("m0")
    one.join(0, 1)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    wrong = {"/v1/records/..%2F..%2Fetc/head": 404, "/v1/records/passwd/head": 400, f"/v1/records/{name(7)}/head": 404}
    wrong[f"/v1/records/{name(7)}/body?from=-1&bytes=2"] = 400
    for path, status in wrong.items():
        assert httpx.get(one.cache.url + path, headers=headers).status_code == status, path
    assert httpx.post(one.cache.url + "/v1/backups", content=b"[", headers=headers).status_code == 400
    assert httpx.get(one.cache.url + "/v1/state", headers=headers).json()["machine"] == "m0"
    with pytest.raises(CheckpointError, match="names no record"):
        one.client._ask("keep", name="../../x", wait_s=0.1)
    with pytest.raises(CheckpointError, match="no request of this protocol"):
        one.client._ask("dance")


def test_the_former_token_counts_for_one_generation_more(start: Start) -> None:
    one = start("m0")
    for generation in (1, 2, 3):
        one.client.join(Member(0, generation, 1, "", f"token-{generation}"))
    assert one.cache.members.tokens == ("token-2", "token-3")


def test_every_nth_step_goes_to_the_disk_and_is_offered_from_there(start: Start, tmp_path: Path) -> None:
    one = start("m0")
    disk = tmp_path / "disk"
    one.join(0, 1, flush_dir=str(disk), flush_every=2)
    for step in range(1, 10):
        one.write(name(step), SMALL, 1)
        one.client.keep(name(step), 1.0)
        one.client.commit(step, 1)
        if one.cache._flushing is not None:
            one.cache._flushing.join(5.0)
    records = one.client.hello(str(disk))["records"]
    assert [item["name"] for item in records if item["where"] == "disk"] == [str(name(step)) for step in (4, 6, 8)]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert httpx.get(f"{one.cache.url}/v1/records/{name(8)}/body?from=10&bytes=10", headers=headers).content == SMALL[10:20]
    assert pull_head(Source(one.cache.url, name(6), TOKEN)).world_size == 1


def test_records_go_when_the_ranks_are_done_and_when_none_was_heard_for_long(tmp_path: Path) -> None:
    now_s = 0.0
    settings = CacheSettings("demo", "m0", "127.0.0.1", 0, tmp_path / "m0", 2**20, linger_s=60.0, max_age_s=3600.0)
    cache = Cache(settings, "http://127.0.0.1:1", lambda *unused: "", lambda: now_s)
    cache.join(Member(0, 1, 1))
    now_s = 3599.0
    assert not cache.is_over()
    now_s = 3601.0
    assert cache.is_over()
    cache.leave(0, generation=1)
    now_s += 59.0
    assert not cache.is_over()
    now_s += 2.0
    assert cache.is_over()
    cache.join(Member(0, 2, 1))  # the job goes on after all
    assert not cache.is_over()
    cache.end()
    assert not settings.folder.exists()


def test_a_rate_limit_spreads_what_it_lets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(pull.time, "sleep", slept.append)
    monkeypatch.setattr(pull.time, "monotonic", lambda: 100.0)
    limit = RateLimit(PIECE_BYTES)
    for _ in range(3):
        limit.take(PIECE_BYTES)
    assert slept == pytest.approx([0.0, 1.0, 2.0])


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_body_comes_from_all_that_have_an_equal_one_and_a_holder_that_goes_is_left_out(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    body = LARGE * 8
    caches = [start(f"m{rank}") for rank in range(4)]
    for rank, each in enumerate(caches):
        disk = tmp_path / f"disk{rank}"
        disk.mkdir(mode=0o700)
        each.join(rank, 4, caches[(rank + 1) % 4], flush_dir=str(disk))
        if rank:
            each.write_into(each.settings.folder if where == "memory" else disk, name(3, rank), body, 4)
            each.client.hello()
    fill, asked = pull._Peer.fill, []

    def fill_or_go(peer: pull._Peer, target: memoryview, answer: Any) -> None:
        asked.append(peer.url)
        if peer.url == caches[2].cache.url and asked.count(peer.url) > 3:
            raise NoAnswerError("it has gone")
        fill(peer, target, answer)

    monkeypatch.setattr(pull._Peer, "fill", fill_or_go)
    bodies = [(each.cache.url, name(3, rank)) for rank, each in enumerate(caches) if rank]
    caches[0].client.fetch(name(3, 1), caches[1].cache.url, 5.0, bodies)
    assert caches[0].body(name(3, 1)) == body
    assert set(asked) == {each.cache.url for each in caches[1:]}


def test_a_damaged_body_of_our_own_is_not_taken_for_an_equal_one(pair: tuple[Running, Running]) -> None:
    one, other = pair
    other.write(name(3, rank=1), LARGE)
    one.write(name(3, rank=0), LARGE)
    for each in pair:
        each.client.hello()
    (one.settings.folder / f"{name(3)}.body").write_bytes(b"!" + LARGE[1:])
    one.client.fetch(name(3, rank=1), other.cache.url, 5.0)
    assert one.body(name(3, rank=1)) == LARGE


def test_a_machine_that_mends_its_body_still_holds_the_backup_that_is_the_same_file(
    pair: tuple[Running, Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    for each in pair:
        each.write(name(3, rank=0), LARGE)
        each.client.hello()
    one.write(name(3, rank=1), LARGE)
    one.client.keep(name(3, rank=1), 5.0)
    with (one.settings.folder / f"{name(3)}.body").open("r+b") as file:
        file.write(b"!")
    assert one.body(name(3, rank=1)) != LARGE, "one file: a bit that flips there is in both"
    fill, heads = pull._Peer.fill, []

    def ask_meanwhile(peer: pull._Peer, target: memoryview, answer: Any) -> None:
        heads.append(pull_head(Source(one.cache.url, name(3, rank=1), TOKEN)).name)
        fill(peer, target, answer)

    monkeypatch.setattr(pull._Peer, "fill", ask_meanwhile)
    one.client.fetch(name(3), other.cache.url, 5.0)
    assert heads == [name(3, rank=1)], "asked for what was damaged only"
    assert one.body(name(3)) == one.body(name(3, rank=1)) == LARGE
    assert not list(one.settings.folder.glob("*.draft"))


def test_a_fetch_for_recovery_finds_what_a_peer_holds_or_says_what_is_missing(pair: tuple[Running, Running]) -> None:
    one, other = pair
    one.write(name(3), LARGE)
    one.client.keep(name(3), 5.0)
    one.cache.memory.drop([name(3)])
    assert one.client.fetch(name(3), other.cache.url, 5.0) == one.settings.folder
    assert one.body(name(3)) == LARGE
    (one.settings.folder / f"{name(3)}.body").write_bytes(b"!" + LARGE[1:])
    one.client.fetch(name(3), other.cache.url, 5.0)
    assert one.body(name(3)) == LARGE
    with pytest.raises(CheckpointError, match="answered 404"):
        one.client.fetch(name(4), other.cache.url, 5.0)
    with pytest.raises(WireError, match="answered 401"):
        pull_head(Source(other.cache.url, name(3), "wrong"))


def _settings(folder: Path, job: str = "demo", machine: str = "m1") -> CacheSettings:
    return CacheSettings(job, machine, "127.0.0.1", 0, folder, 2**20)


def test_a_folder_that_is_not_the_caches_own_is_refused_and_nothing_in_it_is_touched(tmp_path: Path) -> None:
    for held in ("notes.txt", "step-5", "members.json.bak", "step-000000001.pt"):
        folder = tmp_path / str(len(held))
        folder.mkdir()
        (folder / held).write_text("not ours")
        with pytest.raises(BadInputError, match=f"holds {held}, which is none of a cache's"):
            check_settings(_settings(folder))
        assert [path.name for path in folder.iterdir()] == [held]
    (tmp_path / "file").touch()
    for wrong in (tmp_path / "file", Path("/proc/none")):
        with pytest.raises(BadInputError, match=f"--folder {wrong}: .*; give a folder in memory that this user may write"):
            check_settings(_settings(wrong))


def test_the_records_of_another_job_or_machine_are_not_adopted(tmp_path: Path) -> None:
    check_settings(_settings(tmp_path / "m1"))
    check_settings(_settings(tmp_path / "m1"))  # the next cache of the same
    for other in (_settings(tmp_path / "m1", job="another"), _settings(tmp_path / "m1", machine="m2")):
        with pytest.raises(BadInputError, match="is of job demo on m1: give another"):
            check_settings(other)
    (tmp_path / "m1" / "owner.json").write_text("[]")
    with pytest.raises(BadInputError, match=r"owner.json is damaged"):
        check_settings(_settings(tmp_path / "m1"))


def test_at_the_jobs_end_only_its_own_files_go(tmp_path: Path) -> None:
    check_settings(_settings(tmp_path / "m1"))
    cache = Cache(_settings(tmp_path / "m1"), "http://127.0.0.1:1", lambda *unused: "")
    cache.join(Member(0, 1, 1))
    (tmp_path / "m1" / "notes.txt").write_text("put there later")
    (tmp_path / "m1" / "folder").mkdir()
    cache.end()
    assert sorted(path.name for path in (tmp_path / "m1").iterdir()) == ["folder", "notes.txt"]


def test_a_record_of_another_format_is_named_and_not_passed_over_in_silence(start: Start, tmp_path: Path) -> None:
    one = start("m0")
    one.join(0, 1)
    record = one.write(name(3), SMALL, 1)
    content = record.pack().partition(b"\n")[2].replace(b'"format":1', b'"format":0')
    head = b"%08x %d\n" % (zlib.crc32(content), len(content) - len(record.values)) + content
    (one.settings.folder / f"{name(3)}.head").write_bytes(head)
    said = one.client.hello()
    assert said["records"] == [] and "is of format 0: this version of minder reads 1" in said["unreadable"][0]
