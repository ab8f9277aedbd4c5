"""What a verdict rule gets: machines, not ranks; a program's mistake evicts nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from minder.diagnose.flight_recorder.analyse import analyse
from minder.diagnose.flight_recorder.folder import read_folder
from minder.diagnose.flight_recorder.suspects import suspects_from_collectives


def test_ranks_become_machines_and_a_sure_stall_may_be_evicted(data: Path) -> None:
    collection = read_folder(data / "nccl" / "lock_gil_1st")
    suspects = suspects_from_collectives(collection, analyse(collection), 2e9, {rank: f"m{rank // 8}" for rank in range(16)})
    (suspect,) = suspects
    assert (suspect.machines, suspect.kind, suspect.cause, suspect.tier) == (("m1",), "machine", "stall", "evict")
    assert len(suspect.evidence) == 2 and "rank 9" in suspect.evidence[0].message
    assert suspect.since_s == pytest.approx(1758581237.5, abs=60) or suspect.since_s < suspect.time_s


def test_a_mismatch_is_the_programs_doing(data: Path) -> None:
    collection = read_folder(data / "gloo" / "type")
    (suspect,) = suspects_from_collectives(collection, analyse(collection), 2e9, {rank: f"m{rank}" for rank in range(4)})
    assert (suspect.machines, suspect.kind, suspect.tier) == ((), "job", "page")


def test_a_deadlock_of_the_program_is_the_jobs_and_no_machines(data: Path) -> None:
    collection = read_folder(data / "gloo" / "two_ways")
    (suspect,) = suspects_from_collectives(collection, analyse(collection), 2e9, {rank: f"m{rank}" for rank in range(4)})
    assert (suspect.machines, suspect.kind, suspect.tier) == ((), "job", "page")
    assert "different collectives" in suspect.evidence[0].message


def test_ranks_on_no_known_machine_and_healthy_dumps_give_nothing(data: Path) -> None:
    stuck, idle = (read_folder(data / "gloo" / name) for name in ("sleep", "idle"))
    assert suspects_from_collectives(stuck, analyse(stuck), 2e9, {}) == ()
    assert suspects_from_collectives(idle, analyse(idle), 2e9, {0: "m0"}) == ()
