"""Dumps as people have them: names with pids and times, gzip, marks of editors, counters as texts, numbers of a whole recorder."""

from __future__ import annotations

import copy
import gzip
import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dump_faults as df
import pytest
from dump_synthesis import Layout, Simulation, document, entries_of

from minder.diagnose.flight_recorder.analyse import Analysis
from minder.diagnose.flight_recorder.filenames import dump_files
from minder.diagnose.flight_recorder.folder import read_folder
from minder.model.errors import BadInputError

Build = Callable[..., dict[str, Any]]
Judge = Callable[[dict[int, dict[str, Any]]], Analysis]


# Names


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("trace_rank_3_pid4103.pkl", 3),
        ("nccl_trace_rank_3_20260302T061231Z", 3),
        ("2026-03-02T06:12:31_rank3.json.gz", 3),
        ("global_rank_11_local_rank_3.pkl", 11),
        ("node-7_local_rank_3-rank11.bin", 11),
        ("RANK_00003", 3),
        ("trace_3_pid4103.json", 3),
        ("trace_3_1758580000.json", 3),
        ("dump_2026-03-02_3.pkl", 3),
        ("nranks8_5", 5),
    ],
)
def test_the_rank_stands_after_the_word_or_is_the_last_number_that_is_no_pid_or_time(name: str, rank: int, tmp_path: Path) -> None:
    (tmp_path / name).write_text("x")
    assert list(dump_files(tmp_path)) == [rank]


@pytest.mark.parametrize("names", [("trace_0_061231", "trace_1_061231"), ("node-1_rank0.pkl", "node-2_rank0.pkl"), ("a_7.pkl", "b_7.pkl")])
def test_files_of_several_processes_that_would_be_one_rank_are_an_error(names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_text("x")
    with pytest.raises(BadInputError, match=f"{names[0]}, {names[1]}"):
        dump_files(tmp_path)


def test_numbers_that_no_group_knows_are_no_ranks(tmp_path: Path, build: Build) -> None:
    for rank in range(4):
        (tmp_path / f"trace_{rank}_{61231 + rank}.json").write_text(json.dumps(build([{}])))
    with pytest.raises(BadInputError, match="none of that dump's groups"):
        read_folder(tmp_path)


def test_of_two_dumps_of_a_rank_the_newest_counts_or_nothing_does(tmp_path: Path, build: Build) -> None:
    old, new = build([{}]), build([{}, {}, {}])
    for number, entry in enumerate(new["entries"]):
        entry["time_created_ns"] += 1_000_000 * (number + 1)
    (tmp_path / "rank_0_pid9.json").write_text(json.dumps(new))
    (tmp_path / "rank_0_pid8.json").write_text(json.dumps(old))
    assert read_folder(tmp_path).dumps[0].entries == 3
    (tmp_path / "rank_0_pid8.json").write_text(json.dumps({**old, "entries": []}))
    with pytest.raises(BadInputError, match="nothing says which is newer"):
        read_folder(tmp_path)


def test_a_folder_of_files_that_are_no_dumps_is_bad_input(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"rank_{rank}.txt").write_text("Process 7: python train.py")
    with pytest.raises(BadInputError, match="holds no Flight Recorder dump"):
        read_folder(tmp_path)


# What editors and other recorders make of them


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("packed", [True, False])
def test_marks_and_gzip_are_read_through(encoding: str, packed: bool, tmp_path: Path, build: Build) -> None:
    data = json.dumps(build([{}, {}])).encode(encoding)
    (tmp_path / f"rank_0.json{'.gz' if packed else ''}").write_bytes(gzip.compress(data) if packed else data)
    (tmp_path / "rank_1.pkl.gz").write_bytes(gzip.compress(pickle.dumps(build([{}, {}]))))
    assert {rank: dump.entries for rank, dump in read_folder(tmp_path).dumps.items()} == {0: 2, 1: 2}


def test_a_gzip_that_is_cut_off_is_a_rank_that_is_missing(tmp_path: Path, build: Build) -> None:
    (tmp_path / "rank_0.json").write_text(json.dumps(build([{}])))
    (tmp_path / "rank_1.json.gz").write_bytes(gzip.compress(json.dumps(build([{}])).encode())[:-9])
    assert "gzip" in read_folder(tmp_path).missing[1]


def as_texts(value: Any) -> Any:
    """Every number and flag as a text, as a handler that writes JSON by hand has it."""
    if isinstance(value, dict):
        return {key: as_texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_texts(item) for item in value]
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int) else value


@pytest.mark.parametrize("seed", range(6))
def test_counters_and_flags_as_texts_say_the_same(seed: int, judge: Judge) -> None:
    case = df.make("stuck before a collective" if seed % 2 else "dump without entries", seed)
    texts = {rank: as_texts(item) for rank, item in case.documents.items()}
    assert [(one.rank, one.cause, one.last_enqueued) for one in judge(texts).culprits] == [
        (one.rank, one.cause, one.last_enqueued) for one in judge(case.documents).culprits
    ]


def recorder_wide(documents: dict[int, dict[str, Any]], ring: int) -> dict[int, dict[str, Any]]:
    """As torchcomms numbers them: one row for all groups of a process. ring: how many entries are left, 0 for all."""
    found = copy.deepcopy(documents)
    for item in found.values():
        for number, entry in enumerate(item["entries"]):
            entry["collective_seq_id"] = number
            entry["profiling_name"] = entry["profiling_name"].replace("nccl:", "ncclx:")
        item["entries"] = item["entries"][-ring:]
        item["pg_status"] = {}
    return found


def stuck_in(layout: Layout, seed: int, ranks: int) -> tuple[dict[int, dict[str, Any]], set[int]]:
    """Ranks that stop before the same collective of their tensor groups, each in another group."""
    chance = random.Random(seed)
    programs = df._programs(layout, chance)
    first = chance.randrange(layout.world)
    truth = {first, *chance.sample([rank for rank in range(layout.world) if rank // layout.tp != first // layout.tp], ranks - 1)}
    place = chance.choice(df._places(programs[first], df._is_tensor(layout)))
    for rank in truth:
        programs[rank].insert(place, {"do": "stop"})
    simulation = Simulation(layout, programs, set())
    simulation.run()
    simulation.finish()
    return {rank: document(layout, rank, entries_of(simulation, rank, float("inf"), 0.0), "nccl", 0) for rank in range(layout.world)}, truth


@pytest.mark.parametrize("ring", [0, 40])
@pytest.mark.parametrize("seed", range(4))
def test_numbers_of_a_whole_recorder_are_counted_group_by_group(seed: int, ring: int, judge: Judge) -> None:
    documents, truth = stuck_in(Layout(2, 4, 1), seed, 1)
    assert {one.rank for one in judge(recorder_wide(documents, ring)).culprits} == truth


@pytest.mark.parametrize("seed", range(6))
def test_two_ranks_that_fail_in_two_groups_at_once_are_both_named(seed: int, judge: Judge) -> None:
    documents, truth = stuck_in(Layout(4, 2, 1), seed, 2)
    analysis = judge(documents)
    assert {one.rank for one in analysis.culprits} == truth and all(f"rank {rank}" in analysis.detail for rank in truth)


@pytest.mark.parametrize("ahead", [(0,), (3,), (0, 4)])
def test_ranks_that_are_one_collective_ahead_are_said_and_blame_nobody(ahead: tuple[int, ...], judge: Judge, build: Build) -> None:
    def of(rank: int) -> dict[str, Any]:
        last = [{"state": "scheduled", "retired": False, "time_discovered_completed_ns": None}] if rank in ahead else []
        return build([{}, {}, *last], ranks=8)

    analysis = judge({rank: of(rank) for rank in range(8)})
    assert (analysis.culprits, analysis.cause) == ((), "none")
    assert all(f"rank {rank} has launched" in analysis.detail for rank in ahead)


@pytest.mark.parametrize("number", [int, str, float])
def test_counters_alone_name_who_has_launched_less_where_there_is_one_group(
    number: Callable[[int], Any], judge: Judge, build: Build
) -> None:
    def of(rank: int, key: str) -> dict[str, Any]:
        counts = {"last_enqueued_collective": number(5 if rank == 3 else 6), "last_completed_collective": number(5)}
        return build([], ranks=8, pg_status={key: counts})

    analysis = judge({rank: of(rank, "0") for rank in range(8)})
    assert ([one.rank for one in analysis.culprits], analysis.cause) == ([3], "not launched")
    assert analysis.confidence < 0.9  # a page at most
    assert "5 of 6" in analysis.detail
    analysis = judge({rank: of(rank, str(rank % 2)) for rank in range(8)})  # a number of each rank's own: no saying in which group
    assert (analysis.culprits, analysis.cause) == ((), "unknown")


@pytest.mark.parametrize("beside", ["notes1.txt", "slurm-1234.out", "train_3.out"])
def test_other_files_with_numbers_are_nobodys_dump(beside: str, tmp_path: Path, build: Build) -> None:
    for rank in range(4):
        (tmp_path / f"rank_{rank}.json").write_text(json.dumps(build([{}])))
    (tmp_path / beside).write_text("a note")
    collection = read_folder(tmp_path)
    assert sorted(collection.dumps) == [0, 1, 2, 3]
    assert not collection.missing


def test_a_dump_behind_a_hole_is_read(tmp_path: Path, build: Build) -> None:
    (tmp_path / "rank_0.json").write_bytes(b"\0" * 4097 + json.dumps(build([{}])).encode())
    assert read_folder(tmp_path).dumps[0].entries == 1
