"""One dump file: every format that PyTorch writes gives the same columns; what is no dump says why."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.diagnose.flight_recorder.dumpfile import UnreadableDumpError, parse_dump, read_dump
from minder.diagnose.flight_recorder.records import COMPLETED, RECEIVE, SCHEDULED, SEND, Signatures

Build = Callable[..., dict[str, Any]]


def test_pickle_and_json_give_the_same(tmp_path: Path, build: Build) -> None:
    document = build([{}, {"done": False, "sizes": [[4, 2]]}])
    (tmp_path / "p").write_bytes(pickle.dumps(document))
    (tmp_path / "j").write_text(json.dumps(document))
    first, second = (read_dump(tmp_path / name, 3, Signatures()) for name in ("p", "j"))
    for name in ("sequence_E", "state_E", "created_E", "signature_E"):
        assert getattr(first, name).tolist() == getattr(second, name).tolist()
    assert first.groups == second.groups and first.rank == 3
    assert first.state_E.tolist() == [COMPLETED, SCHEDULED]


def test_keys_of_the_first_version_are_read(build: Build) -> None:
    document = build([{}])
    entry = document["entries"][0]
    entry["seq_id"] = entry.pop("collective_seq_id")
    del entry["p2p_seq_id"], entry["input_dtypes"], entry["output_dtypes"], entry["retired"], entry["process_group"]
    dump = parse_dump({"version": "1.1", "pg_config": {"0": {"desc": "default_pg", "ranks": [0, 1]}}, "entries": [entry]}, 0, Signatures())
    assert dump.sequence_E.tolist() == [1] and dump.groups[0].ranks == (0, 1) and dump.names == ("0",)


@pytest.mark.parametrize("ranks", [[0, 1, 5], "[0, 1, 5]", ["0", "1", "5"], {"ranks": [0, 1, 5]}, {"name": "0", "ranks": "0, 1, 5"}])
def test_the_ranks_of_a_group_are_read_alone_or_with_what_else_is_told_of_it(ranks: object, build: Build) -> None:
    dump = parse_dump(build([{}], pg_config={"0": ranks}), 0, Signatures())
    assert [(group.name, group.ranks) for group in dump.groups] == [("0", (0, 1, 5))]


@pytest.mark.parametrize(("first", "whole"), [(1, True), (7, False)])
def test_entries_that_are_not_numbered_begin_where_their_groups_counters_do(first: int, whole: bool, build: Build) -> None:
    document = build([{"collective_seq_id": first + k} for k in range(3)])
    for entry in document["entries"]:
        del entry["record_id"]
    assert parse_dump(document, 0, Signatures()).is_from_the_start is whole


def test_ends_of_sends_and_receives_are_read(build: Build) -> None:
    names = ["nccl:send 0->2", "nccl:recv 0<-1", "gloo:recv"]
    dump = parse_dump(build([{"profiling_name": name, "is_p2p": True} for name in names]), 0, Signatures())
    assert dump.kind_E.tolist() == [SEND, RECEIVE, RECEIVE]
    assert dump.peer_E.tolist() == [2, 1, -1]


def test_gloo_is_complete_when_retired_though_its_state_never_changes(build: Build) -> None:
    entries = [
        {"profiling_name": "gloo:all_reduce", "state": "scheduled", "time_discovered_completed_ns": None, "retired": k == 0} for k in (0, 1)
    ]
    assert parse_dump(build(entries), 0, Signatures()).state_E.tolist() == [COMPLETED, SCHEDULED]


def test_an_entry_that_cannot_be_read_is_left_out_and_counted(build: Build) -> None:
    document = build(
        [
            {},
            {"collective_seq_id": "x"},
            {"collective_seq_id": 1 << 80},
        ]
    )
    document["entries"].append("noise")
    dump = parse_dump(document, 0, Signatures())
    assert (dump.entries, dump.skipped) == (1, 3)


@pytest.mark.parametrize("word", ["dreaming", "Enqueued", "SCHEDULED", ""])
def test_a_state_that_no_list_has_is_of_an_operation_that_was_launched(word: str, build: Build) -> None:
    """Left out, it would say that its rank has not launched what its peers have."""
    dump = parse_dump(build([{"state": word, "retired": False, "time_discovered_completed_ns": None}]), 0, Signatures())
    assert (dump.state_E.tolist(), dump.skipped) == ([SCHEDULED], 0)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b'{"entries": [', "cut off"),
        (b"[" * 100_000, "cut off"),
        (b'{"weather": 1}', "no Flight Recorder dump"),
        (b'{"entries": 5}', "no Flight Recorder dump"),
        (b'{"entries": [1, 2]}', "no entry"),
        (b"[1, 2]", "no Flight Recorder dump"),
        (b"\x80\x02}q\x00(X", "cut off"),
        (b"cposix\nsystem\n(S'true'\ntR.", "refused"),
        (b"\xff\xfe\x00", "no dump"),
    ],
)
def test_a_file_that_is_no_dump_says_why(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "rank_1"
    path.write_bytes(content)
    with pytest.raises(UnreadableDumpError, match=says):
        read_dump(path, 1, Signatures())


def test_a_dump_without_entries_is_a_dump(build: Build) -> None:
    assert parse_dump(build([]), 0, Signatures()).entries == 0


def _written(document: object, name: str) -> bytes:
    text = json.dumps(document)
    older = json.dumps({"entries": [], "pg_config": {}})
    return {
        "appended": f"{older}\n{text}\n",
        "appended, the last cut off": f"{text}\n{text[:200]}",
        "in a collector's record": json.dumps({"rank": 0, "host": "node-1", "dump": document}),
    }[name].encode()


@pytest.mark.parametrize("name", ["appended", "appended, the last cut off", "in a collector's record"])
def test_a_dump_that_is_kept_with_others_or_in_a_record(name: str, build: Build, tmp_path: Path) -> None:
    document = build([{"profiling_name": "nccl:all_reduce"}])
    (tmp_path / "rank_0.json").write_bytes(_written(document, name))
    assert read_dump(tmp_path / "rank_0.json", 0, Signatures()).entries == 1


def test_sizes_may_be_texts(build: Build) -> None:
    signatures = Signatures()
    texts = parse_dump(build([{"input_sizes": "[[4096, 64]]", "output_sizes": "[(4096, 64)]"}]), 0, signatures)
    lists = parse_dump(build([{"input_sizes": [[4096, 64]], "output_sizes": [[4096, 64]]}]), 1, signatures)
    assert texts.signature_E.tolist() == lists.signature_E.tolist()
