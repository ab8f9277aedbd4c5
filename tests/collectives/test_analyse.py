"""Who holds a job up: real dumps with known truth, synthetic ones of every kind, and what must name nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.diagnose.flight_recorder.analyse import Analysis, analyse
from minder.diagnose.flight_recorder.folder import read_folder
from minder.diagnose.flight_recorder.report import as_document

Judge = Callable[[dict[int, dict[str, Any]]], Analysis]
Build = Callable[..., dict[str, Any]]
NAMED = (
    "stuck before a collective", "stuck before a send", "two ranks stuck", "wrong size", "wrong dtype", "wrong operation", "dump missing",
    "dump without entries", "dump cut off", "ring overwritten", "straggler", "launched the last one late",
)  # fmt: skip
NO_FAULT = ("healthy, idle", "healthy, in flight", "network stall")


def ranks(analysis: Analysis) -> set[int]:
    return {culprit.rank for culprit in analysis.culprits}


@pytest.mark.parametrize("case", ["gpu_error_2nd", "lock_gil_1st"])
def test_both_culprits_of_a_real_job_are_named_and_nobody_else(data: Path, case: str) -> None:
    collection = read_folder(data / "nccl" / case)
    document = as_document(collection, analyse(collection))
    assert document["suspect_ranks"] == [9, 14]
    assert document["cause"] == "not launched" and document["confidence"] >= 0.9
    assert {item["description"] for item in document["order"]} == {"TENSOR_MODEL_PARALLEL_GROUP"}


def test_counters_of_a_dump_without_entries_are_joined_through_its_peers(data: Path) -> None:
    collection = read_folder(data / "nccl" / "lock_gil_1st")
    first = as_document(collection, analyse(collection))["order"][0]
    counters = [first[key] for key in ("last_enqueued", "last_completed", "peers_enqueued", "peers_completed")]
    assert counters == [88683, 88683, 88688, 88683]


@pytest.mark.parametrize("folder", ["sleep", "sleep_json"])
def test_a_gloo_rank_that_sleeps_before_a_collective(data: Path, folder: str) -> None:
    analysis = analyse(read_folder(data / "gloo" / folder))
    assert (ranks(analysis), analysis.cause) == ({2}, "not launched")


def test_a_gloo_rank_that_calls_something_else(data: Path) -> None:
    analysis = analyse(read_folder(data / "gloo" / "type"))
    assert (ranks(analysis), analysis.cause) == ({1}, "mismatch")
    assert analysis.mismatches[0].by_rank == {0: "all_reduce", 1: "broadcast", 2: "all_reduce", 3: "all_reduce"}


def test_ranks_that_wait_for_one_another_in_different_collectives_took_two_ways(data: Path) -> None:
    """Ranks 1 and 3 left the step for a barrier; 0 and 2 reduce their gradients with them. Neither pair is the machine at fault."""
    analysis = analyse(read_folder(data / "gloo" / "two_ways"))
    assert (ranks(analysis), analysis.cause) == (set(), "mismatch")
    assert "1, 3 in barrier" in analysis.detail and "0 in all_reduce" in analysis.detail


def test_a_gloo_job_at_rest_names_nobody(data: Path) -> None:
    analysis = analyse(read_folder(data / "gloo" / "idle"))
    assert (ranks(analysis), analysis.cause) == (set(), "none")


def test_what_gloo_does_not_record_keeps_the_confidence_low(data: Path) -> None:
    """Rank 3 sleeps before a send that nobody sees; rank 1 waits for it, unseen as well."""
    analysis = analyse(read_folder(data / "gloo" / "p2p"))
    assert 3 in ranks(analysis) and analysis.confidence <= 0.5


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.release) for seed in (1, 2))])
@pytest.mark.parametrize("kind", NAMED)
def test_the_rank_at_fault_is_named(kind: str, seed: int, judge: Judge) -> None:
    from dump_faults import make  # type: ignore[import-not-found]

    case = make(kind, seed)
    analysis = judge(case.documents)
    assert ranks(analysis) == case.truth
    assert analysis.cause in case.causes


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", NO_FAULT)
def test_nobody_is_named_where_nobody_is_at_fault(kind: str, seed: int, judge: Judge) -> None:
    from dump_faults import make

    case = make(kind, seed)
    analysis = judge(case.documents)
    assert ranks(analysis) == set()
    assert analysis.cause in case.causes


def stuck_at(build: Build, seen: dict[int, list[dict[str, Any]]]) -> dict[int, dict[str, Any]]:
    return {rank: build(entries, ranks=len(seen)) for rank, entries in seen.items()}


def test_a_tie_names_nobody_and_shows_both_sides(judge: Judge, build: Build) -> None:
    seen = {rank: [{}, {"done": False, "sizes": [[8 if rank < 2 else 9]]}] for rank in range(4)}
    analysis = judge(stuck_at(build, seen))
    assert (ranks(analysis), analysis.cause) == (set(), "unknown")
    assert analysis.mismatches[0].field == "sizes" and set(analysis.mismatches[0].by_rank) == {0, 1, 2, 3}
    assert analysis.confidence < 0.5


def test_another_shape_of_the_same_size_is_no_mismatch(judge: Judge, build: Build) -> None:
    seen = {rank: [{}, {"sizes": [[8, 2]] if rank else [[16]]}] for rank in range(4)}
    assert judge(stuck_at(build, seen)).mismatches == ()


def test_uneven_all_to_all_is_no_mismatch(judge: Judge, build: Build) -> None:
    seen = {rank: [{"profiling_name": "nccl:all_to_all", "sizes": [[8 + rank]]}] for rank in range(4)}
    assert judge(stuck_at(build, seen)).mismatches == ()


def test_old_entries_that_one_ring_has_lost_are_no_mismatch(judge: Judge, build: Build) -> None:
    seen = {rank: build([{}] * 6) for rank in range(4)}
    seen[2]["entries"] = seen[2]["entries"][4:]
    analysis = judge(seen)
    assert (ranks(analysis), analysis.cause) == (set(), "none")


def test_one_missing_dump_of_a_job_at_rest_is_missing_and_blames_nobody(build: Build, judge: Judge) -> None:
    documents = stuck_at(build, {rank: [{}] for rank in range(4)})
    del documents[3]
    analysis = judge(documents)
    assert (ranks(analysis), analysis.cause) == (set(), "none")


def test_mostly_missing_dumps_are_too_little_to_blame_anybody(build: Build, judge: Judge) -> None:
    documents = stuck_at(build, {rank: [{}, {"done": False}] for rank in range(8)})
    analysis = judge({rank: documents[rank] for rank in (0, 1)})
    assert (ranks(analysis), analysis.cause, analysis.confidence) == (set(), "unknown", 0.0)


def test_the_device_that_has_not_reached_a_collective_is_behind(build: Build, judge: Judge) -> None:
    """All launched; the recorder times starts; one rank's device has not begun."""
    seen = {rank: [{}, {"done": False, "state": "scheduled" if rank == 1 else "started"}] for rank in range(4)}
    assert ranks(judge(stuck_at(build, seen))) == {1}


def test_a_rank_whose_clock_is_wrong_is_not_late(judge: Judge) -> None:
    from dump_faults import make

    case = make("healthy, idle", 1, "nccl")
    for entry in case.documents[3]["entries"]:
        for key in ("time_created_ns", "time_discovered_completed_ns"):
            entry[key] = entry[key] and entry[key] + 30_000_000_000
    assert ranks(judge(case.documents)) == set()


def test_a_group_that_a_rank_never_used_counts_as_never_launched(judge: Judge, build: Build) -> None:
    """Dumps of what is open only: rank 1's counters know the world group, and nothing of the group that rank 0 waits in."""
    other = {"process_group": ("1", "PAIR"), "pg_id": 1, "collective_seq_id": 1, "done": False, "record_id": 90}
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}, "1": {"name": "1", "desc": "PAIR", "ranks": "[0, 1, 2]"}}
    used = {"last_enqueued_collective": 5, "last_started_collective": -1, "last_completed_collective": 5}
    waits = {"last_enqueued_collective": 1, "last_started_collective": -1, "last_completed_collective": -1}
    documents = {rank: build([other] if rank in (0, 2) else [], pg_config=config, pg_status={"0": used}) for rank in range(4)}
    for rank in (0, 2):
        documents[rank]["pg_status"] = {"0": used, "1": waits}
    analysis = judge(documents)
    assert (ranks(analysis), analysis.cause) == ({1}, "not launched")


@pytest.mark.parametrize("case", ["gpu_error_2nd", "lock_gil_1st"])
@pytest.mark.parametrize("lost", [1, 6, 8, 10, 11, 12, 13, 15])
def test_a_lost_dump_of_a_peer_clears_no_culprit_of_a_real_job(data: Path, tmp_path: Path, case: str, lost: int) -> None:
    """What the culprits launched behind the operation that holds them waits for the lost rank, and says nothing of them."""
    for path in sorted((data / "nccl" / case).glob("_dump_*")):
        (tmp_path / path.name).write_bytes(b"" if path.name == f"_dump_{lost}" else path.read_bytes())
    named = ranks(analyse(read_folder(tmp_path)))
    assert {9, 14} <= named <= {9, 14, lost}


@pytest.mark.parametrize("seed", [2000, 2004, 2012, 2013])
def test_a_lost_dump_makes_no_victim_of_a_straggler_the_straggler(judge: Judge, seed: int) -> None:
    """The straggler's own group is not whole; in its victim's group, another stage, everybody is there."""
    from dump_faults import make

    case = make("straggler", seed)
    lost = {2000: 14, 2004: 11, 2012: 15, 2013: 1}[seed]
    assert ranks(judge({rank: document for rank, document in case.documents.items() if rank != lost})) == case.truth


def test_who_exchanges_messages_with_a_lost_straggler_is_not_named_in_its_place(judge: Judge) -> None:
    from dump_faults import make

    case = make("straggler", 2014)
    assert ranks(judge({rank: document for rank, document in case.documents.items() if rank not in case.truth})) == set()
