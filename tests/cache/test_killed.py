"""Caches as processes, killed in the middle of what they do: nothing is lost, nothing is done twice, nothing half is taken for whole."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minder.edge.cache.client import CacheClient
from minder.edge.cache.members import Member
from minder.edge.cache.record import RecordName, draft_path
from tests.cache.conftest import TOKEN, Running

pytestmark = [pytest.mark.lab, pytest.mark.timeout(120)]
BODY = bytes(range(256)) * (2**17)  # 32 MiB: eight pieces
NAME = RecordName(7, 1, 0)


class Process:
    """`minder cache` on a machine, as its launcher starts it."""

    def __init__(self, folder: Path, rate: str = "0") -> None:
        self.folder = folder
        command = [sys.executable, "-m", "minder", "cache", "--job", "demo", "--machine", folder.name, "--folder", str(folder)]
        command += ["--max-bytes", "256M", "--rate", rate, "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.url = line.split(" at ")[1].split(",")[0]

    @property
    def client(self) -> CacheClient:
        return CacheClient(self.folder / "socket")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def again(self) -> Process:
        return Process(self.folder)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    made: list[Process] = []

    def begin(machine: str, rate: str = "0") -> Process:
        made.append(Process(tmp_path / machine, rate))
        return made[-1]

    yield begin
    for process in made:
        process.kill()


def _until(what: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 30.0
    while not what():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_a_cache_killed_in_the_middle_of_a_backup_goes_on_with_the_rest(
    processes: Callable[..., Process], start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    from minder.edge.cache import sending

    owner, holder = start("m0"), processes("m1", "8M")
    holder.client.join(Member(1, 1, 2, owner.cache.url, TOKEN))
    owner.client.join(Member(0, 1, 2, holder.url, TOKEN))
    owner.write(NAME, BODY)
    outcome: list[str] = []
    keeping = threading.Thread(target=lambda: outcome.append(owner.client.keep(NAME, 60.0)))
    keeping.start()
    draft = draft_path(holder.folder, NAME)
    _until(lambda: draft.exists() and draft.stat().st_blocks * 512 > len(BODY) // 4)
    holder.kill()
    came = draft.stat().st_blocks * 512
    assert came < len(BODY)
    keeping.join(60.0)
    assert "does not answer" in outcome[0]
    again = holder.again()
    sent: list[tuple[int, int]] = []
    send = sending._send
    monkeypatch.setattr(sending, "_send", lambda to, file, begin, count: (sent.append((begin, count)), send(to, file, begin, count)))
    assert owner.client.keep(NAME, 60.0) == ""
    assert (again.folder / f"{NAME}.body").read_bytes() == BODY
    assert min(begin for begin, _ in sent) > 0
    assert sum(count for _, count in sent) <= len(BODY) - came + 2**18
    again.kill()


def test_a_peer_killed_in_the_middle_of_a_recovery_has_a_moment_to_return(
    processes: Callable[..., Process], start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    from minder.edge.cache import pull

    owner, holder = start("m0"), processes("m1")
    holder.client.join(Member(1, 1, 2, owner.cache.url, TOKEN))
    owner.client.join(Member(0, 1, 2, holder.url, TOKEN))
    owner.write(NAME, BODY)
    assert owner.client.keep(NAME, 60.0) == ""
    owner.cache.memory.drop([NAME])
    keep, killed, kept = pull._Pull._keep, threading.Event(), []

    def kill_at_the_fortieth(pulling: pull._Pull, block: range, data: memoryview) -> list[int]:
        kept.extend(block)
        if len(kept) >= 40 and not killed.is_set():
            killed.set()
            holder.kill()
        return keep(pulling, block, data)

    monkeypatch.setattr(pull._Pull, "_keep", kill_at_the_fortieth)
    returned: list[Process] = []
    threading.Thread(target=lambda: (killed.wait(30.0), returned.append(holder.again())), daemon=True).start()
    assert owner.client.fetch(NAME, holder.url, 30.0) == owner.settings.folder
    assert owner.body(NAME) == BODY
    returned[0].kill()


def test_what_is_not_on_the_disk_yet_is_written_on_request_and_before_a_shutdown(processes: Callable[..., Process], tmp_path: Path) -> None:
    process, disk = processes("m0"), tmp_path / "disk"
    running = process.client
    running.join(Member(0, 1, 1, token=TOKEN, flush_dir=str(disk), flush_every=100))

    def save(step: int, is_committed: bool) -> RecordName:
        name = RecordName(step, 1, 0)
        Running.write_into(process.folder, name, BODY, 1)
        assert running.keep(name, 5.0) == ""
        if is_committed:
            running.commit(step, 1)
        return name

    def on_disk() -> set[str]:
        return {path.stem for path in disk.glob("*.head")}

    first = save(6, True)
    assert on_disk() == set()
    process.process.send_signal(signal.SIGUSR1)
    end_s = time.monotonic() + 60.0
    while not on_disk() and time.monotonic() < end_s:
        time.sleep(0.02)
    assert on_disk() == {str(first)} and process.process.poll() is None
    later = save(7, True), save(8, False)  # another rank elsewhere has committed step 8
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(60.0) == 0
    assert on_disk() == {str(first), *map(str, later)}
    assert (disk / f"{later[1]}.body").read_bytes() == BODY
    assert (process.folder / f"{later[0]}.body").exists(), "its records stay for the next cache"
