"""A disk that is slow: what is on it stays, every byte is as it was written, and it takes its time."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from minder.diagnose.diagnostics.judgement import judge
from minder.edge.probes.contract import find_program
from minder.edge.probes.runner import run_probe
from minder.model.errors import LabError, UnsupportedFaultError
from minder.model.probes import ProbeResult
from minder.simulate.lab import faults
from minder.simulate.lab.capabilities import Capabilities
from minder.simulate.lab.disk_faults import FUSE, slow_down
from minder.simulate.lab.faults import Fault, check_fault, inject
from minder.simulate.lab.lab import Lab

needs_fuse = pytest.mark.skipif(not os.access(FUSE, os.R_OK | os.W_OK), reason=f"{FUSE} cannot be opened")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Fast enough for what is asked of it here."""
    (tmp_path / "before").write_text("here before")
    undo = slow_down(tmp_path, f"minder-test-{os.getpid()}", 1e9, 0.0, {})
    try:
        yield tmp_path
    finally:
        undo()


@pytest.mark.root
@needs_fuse
def test_it_is_a_folder_like_any_other(disk: Path) -> None:
    assert (disk / "before").read_text() == "here before" and os.path.ismount(disk)
    deep = disk / "a" / "b"
    deep.mkdir(parents=True)
    block = os.urandom(3_000_001)
    (deep / "state.tmp").write_bytes(block)
    (deep / "state.tmp").rename(deep / "state")
    assert (deep / "state").read_bytes() == block and [item.name for item in deep.iterdir()] == ["state"]
    (disk / "a").rename(disk / "c")
    assert (disk / "c" / "b" / "state").stat().st_size == len(block) and not deep.exists()
    (disk / "c" / "b" / "other").write_text("new")
    (disk / "c" / "b" / "other").replace(disk / "c" / "b" / "state")
    with (disk / "c" / "b" / "state").open("a") as stream:
        stream.write(" and more")
    assert (disk / "c" / "b" / "state").read_text() == "new and more"
    os.truncate(disk / "c" / "b" / "state", 3)
    assert (disk / "c" / "b" / "state").read_text() == "new"
    with pytest.raises(FileNotFoundError):
        (disk / "nothing").read_text()
    with pytest.raises(OSError, match="not empty"):
        (disk / "c").rmdir()
    for index in range(300):
        (disk / f"f{index:03d}").touch()
    assert len(list(disk.iterdir())) == 302


@pytest.mark.root
@needs_fuse
def test_a_file_without_a_name_and_two_files_at_once(disk: Path) -> None:
    handle, name = tempfile.mkstemp(dir=disk)
    Path(name).unlink()
    os.write(handle, b"x" * 10_000)
    os.ftruncate(handle, 9_000)
    assert os.fstat(handle).st_size == 9_000 and os.pread(handle, 20_000, 0) == b"x" * 9_000
    os.close(handle)
    with (disk / "one").open("wb", buffering=0) as one, (disk / "one").open("rb", buffering=0) as again:
        one.write(b"first")
        assert again.read() == b"first"
        os.fsync(one.fileno())
    assert os.statvfs(disk).f_bavail > 0


@pytest.mark.root
@needs_fuse
def test_the_lab_makes_a_machines_disk_slow_and_takes_it_away_again(process_lab: Lab) -> None:
    machine, other = process_lab.machines[:2]
    (machine.scratch / "kept").write_text("kept")
    record = inject(process_lab, Fault("slow-disk", disk_bytes_per_s=1e6, fsync_s=0.3), 0)
    begun_s = time.monotonic()
    with (machine.scratch / "new").open("wb", buffering=0) as stream:
        stream.write(bytes(300_000))
        os.fsync(stream.fileno())
    assert time.monotonic() - begun_s >= 0.6, "0.3 s to write and 0.3 s to sync, however fast the disk below"
    assert "1000000 B/s, 0.3 s a sync" in record.detail
    assert os.path.ismount(other.scratch), "of the same kind, and at full speed"
    machine.kill_all()
    assert (machine.scratch / "kept").read_text() == "kept", "the disk outlives the machine's processes"
    record.undo()
    assert not os.path.ismount(machine.scratch) and (machine.scratch / "new").stat().st_size == 300_000


@pytest.mark.root
@needs_fuse
def test_what_was_not_undone_goes_with_the_lab(make_lab: Callable[..., Lab]) -> None:
    with make_lab(1, mode="processes") as lab:
        scratch = lab.machines[0].scratch
        inject(lab, "slow-disk", 0)
        assert os.path.ismount(scratch)
    assert not os.path.ismount(scratch)


@pytest.mark.root
@needs_fuse
def test_a_slow_store_is_the_folder_that_the_job_saves_to(
    process_lab: Lab, start_worker: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    start_worker(process_lab.machines[0])
    with pytest.raises(LabError, match="no checkpoints in a folder"):
        inject(process_lab, "slow-store", 0)
    given = inject(process_lab, Fault("slow-store", store=store), 0)  # as the demo does, whose workers get it after they were started
    assert os.path.ismount(store) and str(store) in given.detail
    given.undo()
    monkeypatch.setenv("MINDER_CHECKPOINT_DIR", str(store))
    start_worker(process_lab.machines[1])
    record = inject(process_lab, "slow-store", 1)
    assert os.path.ismount(store) and str(store) in record.detail
    record.undo()
    assert not os.path.ismount(store)


def probed(folder: Path) -> ProbeResult:
    found = asyncio.run(run_probe(find_program("disk"), {"folder": str(folder), "size_bytes": 4 << 20}))
    assert found.state == "measured", found.detail
    return found


@pytest.mark.root
@needs_fuse
def test_a_store_with_a_limited_rate_is_slow_to_the_disk_probe_and_no_machines_own(tmp_path: Path) -> None:
    """One machine that asks alone sees that its store has become slow; beside others that see the same no one is slow."""
    store, name = tmp_path / "store", f"minder-test-{os.getpid()}"
    store.mkdir()
    undo = slow_down(store, name, 1e12, 0.0, {})  # a store of the same kind, as it was
    try:
        was = probed(store)
    finally:
        undo()
    undo = slow_down(store, name, 4e6, 0.05, {})
    try:
        now = probed(store)
    finally:
        undo()
    past = [replace(was, started_s=was.started_s - age_s) for age_s in (30.0, 20.0, 10.0)]
    alone = judge({"m0": now}, {"m0": past})["m0"]
    assert alone.verdict == "slow" and "disk_write" in alone.reason
    machines = [f"m{number}" for number in range(5)]
    together = judge(dict.fromkeys(machines, now), dict.fromkeys(machines, past))
    assert {item.verdict for item in together.values()} == {"pass"}


@pytest.mark.parametrize(("exists", "why"), [(False, "is missing"), (True, "cannot be opened (root)")])
def test_without_fuse_the_lab_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, exists: bool, why: str) -> None:
    device = tmp_path / "fuse"
    if exists:
        device.touch()
    monkeypatch.setattr(faults, "FUSE", device)
    monkeypatch.setattr(faults.os, "access", lambda *unused: False)
    for kind in ("slow-disk", "slow-store"):
        with pytest.raises(UnsupportedFaultError, match=f"fault {kind} cannot be injected here: .*fuse") as caught:
            check_fault(kind, "namespaces", Capabilities())
        assert str(caught.value).endswith(why)
