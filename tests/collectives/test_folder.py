"""A folder of dumps: whose they are, who is missing and why, and which groups there are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.diagnose.flight_recorder.filenames import dump_files
from minder.diagnose.flight_recorder.folder import read_folder
from minder.model.errors import BadInputError
from minder.model.topology import Parallelism

Build = Callable[..., dict[str, Any]]


def test_a_rank_is_the_last_integer_of_the_name(tmp_path: Path) -> None:
    for name in (
        "node3_rank_07.json",
        "trace_12",
        "a1_dump_2.pkl",
        "nccl.5",
        "labels.json",
        "job.toml",
        "notes.txt",
        "fault_injection.log",
        ".hidden_4",
    ):
        (tmp_path / name).write_text("x")
    assert {rank: path.name for rank, (path,) in dump_files(tmp_path).items()} == {
        7: "node3_rank_07.json", 12: "trace_12", 2: "a1_dump_2.pkl", 5: "nccl.5",
    }  # fmt: skip


def test_ranks_without_a_dump_are_missing_with_the_reason(tmp_path: Path, build: Build) -> None:
    (tmp_path / "rank_0.json").write_text(json.dumps(build([{}])))
    (tmp_path / "rank_1.json").write_text("")
    (tmp_path / "rank_2.json").write_text(json.dumps(build([{}]))[:-40])
    missing = read_folder(tmp_path).missing
    assert sorted(missing) == [1, 2, 3]
    assert "empty" in missing[1] and "cut off" in missing[2] and missing[3] == "no dump"


def test_a_folder_without_dumps_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no dumps"):
        read_folder(tmp_path)
    with pytest.raises(BadInputError, match="no folder"):
        read_folder(tmp_path / "nowhere")


def test_groups_that_gloo_does_not_tell_come_from_who_used_them(data: Path) -> None:
    groups = {group.name: group.ranks for group in read_folder(data / "gloo" / "sleep").groups}
    assert groups == {"0": (0, 1, 2, 3), "1": (0, 1), "2": (2, 3), "3": (0, 2), "4": (1, 3)}


def test_a_group_that_a_silent_rank_never_used_is_filled_from_the_topology(tmp_path: Path, build: Build) -> None:
    for rank in range(8):
        entry = {"process_group": ("7", "undefined"), "profiling_name": "gloo:all_reduce"}
        document = {**build([entry] if rank in (0, 1, 2) else []), "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}}}
        (tmp_path / f"rank_{rank}.json").write_text(json.dumps(document))
    (group,) = read_folder(tmp_path, Parallelism(tensor=4, data=2)).groups
    assert group.ranks == (0, 1, 2, 3)
