"""Flight Recorder dumps of strangers: every version, form and name, and what else happens to files. Who an expert would name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dump_faults import Case, make  # type: ignore[import-not-found]
from strange_dumps import VERSIONS, as_version, earlier_life, file_of, taken_early, wrapped, write_strangely  # type: ignore[import-not-found]

from minder.diagnose.flight_recorder.analyse import Analysis, analyse
from minder.diagnose.flight_recorder.folder import read_folder
from minder.diagnose.flight_recorder.records import Collection
from minder.diagnose.flight_recorder.report import as_document
from minder.ingest.sources.jobfile import read_job

ALIKE = (
    "stuck before a collective",
    "stuck before a send",
    "two ranks stuck",
    "wrong size",
    "wrong operation",
    "dump missing",
    "dump cut off",
)
QUIET = ("healthy, idle", "healthy, in flight", "network stall")
ENDS = (VERSIONS[0], VERSIONS[-1])


def look(folder: Path) -> tuple[Collection, Analysis]:
    job = folder / "job.toml"
    collection = read_folder(folder, read_job(job).parallelism if job.is_file() else None)
    return collection, analyse(collection)


def named(folder: Path) -> set[int]:
    return {culprit.rank for culprit in look(folder)[1].culprits}


def judge(case: Case, documents: dict[int, dict[str, Any]], folder: Path, seed: int) -> None:
    known = case.layout.job_toml() if seed % 2 or "dump" in case.kind else None
    folder = write_strangely(folder, documents, known, seed)
    collection, analysis = look(folder)
    assert {culprit.rank for culprit in analysis.culprits} == case.truth
    assert analysis.cause in case.causes
    as_document(collection, analysis)


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        *(("stuck before a collective", version) for version in VERSIONS),
        *(pytest.param("healthy, idle", version, marks=[] if version in ENDS else [pytest.mark.lab]) for version in VERSIONS),
    ],
)
def test_every_version_of_the_format(kind: str, version: str, tmp_path: Path) -> None:
    seed = VERSIONS.index(version)
    case = make(kind, 100 + seed, "nccl")
    judge(case, as_version(case.documents, version), tmp_path, seed)


@pytest.mark.parametrize("seed", [10, pytest.param(11, marks=pytest.mark.release)])
@pytest.mark.parametrize("kind", [*ALIKE, *QUIET])
def test_rings_that_wrapped_at_different_places(kind: str, seed: int, tmp_path: Path) -> None:
    case = make(kind, seed, "nccl")
    judge(case, wrapped(case.documents, seed), tmp_path, seed)


@pytest.mark.parametrize("seed", [2000, *(pytest.param(seed, marks=pytest.mark.release) for seed in (2001, 2003))])
@pytest.mark.parametrize("kind", ["stuck before a collective", "wrong operation", "healthy, idle"])
def test_rings_that_wrapped_in_recorders_that_did_not_number_their_entries(kind: str, seed: int, tmp_path: Path) -> None:
    case = make(kind, seed, "nccl")
    judge(case, as_version(wrapped(case.documents, seed), "2.1"), tmp_path, seed)


@pytest.mark.parametrize(
    ("who", "dangling"),
    [("one", False), ("all", True), *(pytest.param(*each, marks=pytest.mark.lab) for each in (("one", True), ("all", False)))],
)
@pytest.mark.parametrize("kind", ["stuck before a collective", "stuck before a send", "healthy, idle", "healthy, in flight", "wrong size"])
def test_what_an_earlier_life_left_in_the_ring_does_not_count(kind: str, who: str, dangling: bool, tmp_path: Path) -> None:
    seed = 30 + len(who) + dangling
    case = make(kind, seed, "nccl")
    ranks = sorted(case.documents)
    chosen = {"one": ranks[2:3], "half": ranks[::2], "all": ranks}[who]
    judge(case, earlier_life(case.documents, chosen, 40, dangling), tmp_path, seed)


@pytest.mark.parametrize("share", [0.2, 0.6, 0.9])
@pytest.mark.parametrize("seed", [50, pytest.param(51, marks=pytest.mark.release)])
@pytest.mark.parametrize("kind", ["healthy, idle", "healthy, in flight"])
def test_a_dump_that_is_older_than_its_peers_accuses_nobody(kind: str, seed: int, share: float, tmp_path: Path) -> None:
    case = make(kind, seed, "nccl")
    rank = seed % case.layout.world
    folder = write_strangely(tmp_path, taken_early(case.documents, rank, share), case.layout.job_toml(), seed)
    collection, analysis = look(folder)
    assert [culprit.rank for culprit in analysis.culprits] == []
    assert rank in collection.missing


@pytest.mark.parametrize("share", [0.2, 0.6])
@pytest.mark.parametrize("seed", [60, pytest.param(61, marks=pytest.mark.release)])
def test_an_old_dump_beside_a_culprit_does_not_take_its_place(seed: int, share: float, tmp_path: Path) -> None:
    case = make("stuck before a collective", seed, "nccl")
    rank = next(rank for rank in range(case.layout.world) if rank not in case.truth)
    folder = write_strangely(tmp_path, taken_early(case.documents, rank, share), case.layout.job_toml(), seed)
    assert named(folder) == case.truth


@pytest.mark.parametrize("seed", [71, pytest.param(70, marks=pytest.mark.release)])
def test_the_front_most_of_many_groups(seed: int, tmp_path: Path) -> None:
    """128 ranks of TP 4, DP 4, PP 8: everybody waits for somebody, one rank for nobody."""
    import dump_faults

    original = dump_faults.layout_of
    try:
        dump_faults.layout_of = lambda rng: dump_faults.Layout(4, 4, 8)
        case = make("stuck before a collective" if seed % 2 else "stuck before a send", seed, "nccl")
    finally:
        dump_faults.layout_of = original
    judge(case, case.documents, tmp_path, seed)


@pytest.mark.parametrize(
    "spoilt", [b"", b" \n", b"\x80\x02}", b"{", b"\x00" * 64, b"[]", b"null", b'"text"', b"{}", b"\x80\x02K.r\xff\xff\xff\x7f."]
)
def test_a_culprit_whose_file_is_spoilt_is_missing_and_named(spoilt: bytes, tmp_path: Path) -> None:
    case = make("stuck before a collective", 81, "nccl")
    (culprit,) = case.truth
    folder = write_strangely(tmp_path, case.documents, case.layout.job_toml(), 2)
    file_of(folder, culprit, 2).write_bytes(spoilt)
    collection, analysis = look(folder)
    assert culprit in collection.missing
    assert {one.rank for one in analysis.culprits} == {culprit}
    assert analysis.cause == "dead"


@pytest.mark.parametrize("backend", ["nccl", "xccl", "hccl", "rccl", "ucc", "mpi"])
def test_other_backends_use_the_same_words(backend: str, tmp_path: Path) -> None:
    case = make("stuck before a collective", 90, "nccl")
    for document in case.documents.values():
        for entry in document["entries"]:
            entry["profiling_name"] = entry["profiling_name"].replace("nccl:", f"{backend}:")
    judge(case, case.documents, tmp_path, 91)


# By hand: what simulation does not make


def dumps_of(build: Any, seen: dict[int, list[dict[str, Any]]], **more: Any) -> dict[int, dict[str, Any]]:
    return {rank: build(entries, ranks=len(seen), **more) for rank, entries in seen.items()}


def p2p(number: int, name: str, size: int, done: bool, dtype: str = "Float") -> dict[str, Any]:
    return {
        "profiling_name": name,
        "is_p2p": True,
        "p2p_seq_id": number,
        "collective_seq_id": 0,
        "sizes": [[size]],
        "done": done,
        "input_dtypes": [dtype],
        "output_dtypes": [dtype],
    }


@pytest.mark.parametrize(("size", "dtype", "field"), [(7, "Float", "sizes"), (8, "BFloat16", "dtype")])
def test_a_message_whose_ends_differ_is_a_mismatch_and_accuses_neither(size: int, dtype: str, field: str, judge: Any, build: Any) -> None:
    seen = {
        0: [p2p(1, "nccl:send 0->1", 8, True), p2p(2, "nccl:send 0->1", 8, False)],
        1: [p2p(1, "nccl:recv 1<-0", 8, True), p2p(2, "nccl:recv 1<-0", size, False, dtype)],
    }
    analysis = judge(dumps_of(build, seen))
    assert analysis.culprits == () and analysis.cause in ("mismatch", "unknown")
    assert [(item.field, set(item.by_rank)) for item in analysis.mismatches] == [(field, {0, 1})]


def test_two_that_both_send_wait_for_each_other_and_neither_is_named(judge: Any, build: Any) -> None:
    seen = {0: [p2p(1, "nccl:send 0->1", 8, False)], 1: [p2p(1, "nccl:send 1->0", 8, False)]}
    assert judge(dumps_of(build, seen)).culprits == ()


def test_a_receive_that_nobody_sends_to_names_the_one_that_did_not_send(judge: Any, build: Any) -> None:
    seen = {
        0: [p2p(1, "nccl:send 0->1", 8, True), p2p(2, "nccl:recv 0<-1", 8, False)],
        1: [p2p(1, "nccl:recv 1<-0", 8, True)],
        2: [],
        3: [],
    }
    assert {one.rank for one in judge(dumps_of(build, seen)).culprits} == {1}


def test_valid_dumps_without_entries_everywhere_tell_nothing(judge: Any, build: Any) -> None:
    analysis = judge(dumps_of(build, {rank: [] for rank in range(4)}))
    assert (analysis.culprits, analysis.cause) == ((), "unknown")


def test_the_one_that_reports_first_is_not_taken_to_be_innocent(judge: Any, build: Any) -> None:
    """Rank 3 has gone into a barrier that nobody else calls; the others have not launched it, and they are the majority."""
    seen: dict[int, list[dict[str, Any]]] = {rank: [{}, {}, {}] for rank in range(7)}
    seen[7] = [{}, {}, {}, {"profiling_name": "nccl:all_reduce_barrier", "done": False}]
    analysis = judge(dumps_of(build, seen))
    assert {one.rank for one in analysis.culprits} in (set(), {7})


@pytest.mark.parametrize("names", [("_all_gather_base", "all_gather"), ("_reduce_scatter_base", "reduce_scatter")])
def test_two_names_of_one_operation_are_no_mismatch(names: tuple[str, str], judge: Any, build: Any) -> None:
    seen = {rank: [{}, {"profiling_name": f"nccl:{names[rank == 2]}"}] for rank in range(4)}
    assert judge(dumps_of(build, seen)).culprits == ()


def test_counters_that_are_offset_between_ranks_accuse_nobody(judge: Any, build: Any) -> None:
    """Rank 2's process was started again and counts from 1, the others go on from 500: nothing can be compared."""
    seen = {rank: [{"collective_seq_id": 500 + k} for k in range(6)] for rank in range(4)}
    seen[2] = [{"collective_seq_id": 1 + k} for k in range(6)]
    assert judge(dumps_of(build, seen)).culprits == ()


def test_integers_in_names_that_are_no_ranks(tmp_path: Path) -> None:
    case = make("stuck before a collective", 95, "nccl")
    folder = write_strangely(tmp_path, case.documents, case.layout.job_toml(), 4)
    for name in ("labels.json", "README.md", "ranks.json", "fault_injection.log"):
        (folder / name).write_text("[]")
    assert named(folder) == case.truth


def diverged(kind: str, seed: int, message: bool, twice: bool) -> tuple[Case, int]:
    """Of a healthy job's programs, one rank's leaves one call out, or makes it twice."""
    import random

    import dump_faults as faults
    from dump_synthesis import Simulation, document, entries_of

    rng = random.Random(seed)
    layout = faults.layout_of(rng)
    programs = faults._programs(layout, rng)
    rank = rng.randrange(layout.world)
    at = rng.choice(faults._places(programs[rank], (lambda item: item["do"] == "messages") if message else faults._is_collective))
    programs[rank][at : at + 1] = [dict(programs[rank][at]) for _ in range(2 * twice)]
    simulation = Simulation(layout, programs)
    simulation.run()
    simulation.finish()
    seen = {one: document(layout, one, entries_of(simulation, one, float("inf"), 0.0), "nccl", 0) for one in range(layout.world)}
    return Case(kind, layout, seen, frozenset(), frozenset({"mismatch", "unknown"})), rank


@pytest.mark.parametrize("seed", [4, 8, 20, 21])
@pytest.mark.parametrize("twice", [False, True])
def test_of_two_that_differ_in_a_collective_neither_is_the_one_that_never_came(seed: int, twice: bool, judge: Any) -> None:
    """Everybody else waits for both of them, which is no reason to name them."""
    case, _ = diverged("another call", seed, False, twice)
    analysis = judge(case.documents)
    assert (analysis.culprits, analysis.cause) == ((), "unknown")
    assert [len(item.by_rank) for item in analysis.mismatches if item.pending] == [2]


@pytest.mark.parametrize("seed", [2, 3])
def test_what_follows_a_mismatch_in_its_group_accuses_nobody(seed: int, judge: Any) -> None:
    case, rank = diverged("a call made twice", seed, False, True)
    assert {one.rank for one in judge(case.documents).culprits} <= {rank}


@pytest.mark.parametrize("seed", [2, 3, 7, 13, 19, 22])
def test_in_a_ring_of_waits_the_one_that_most_wait_for_is_not_named(seed: int, judge: Any) -> None:
    """A rank left a message out: it and the other end wait for each other, and their peers for them."""
    case, rank = diverged("a message left out", seed, True, False)
    analysis = judge(case.documents)
    assert {one.rank for one in analysis.culprits} <= {rank}
    assert analysis.culprits or ("wait for one another" in analysis.detail and f"rank {rank}" in analysis.detail)
