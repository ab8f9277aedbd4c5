"""Dumps on the agent's side: who answered, who only left one, what is no dump, and what somebody else put there."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from minder.edge.agent.dumps import collect_dumps, parse_deadline
from minder.edge.exporters.jobs import JobProcess
from minder.model.errors import BadInputError


def leave(run_dir: Path, pid: int, rank: int, age_s: float = -60.0, job: str = "llm", data: bytes = b"dump") -> Path:
    """A dump as a worker leaves it; a negative age: it is written long after the agent asked, so it is an answer."""
    folder = run_dir / "dumps"
    folder.mkdir(exist_ok=True)
    header = {"pid": pid, "job": job, "rank": rank, "generation": 3, "time_s": time.time() - age_s, "since_s": 5.0}
    path = folder / f"pid-{pid}"
    path.write_bytes(json.dumps(header).encode() + b"\n" + data)
    return path


def collect(run_dir: Path, *pids: int, deadline_s: float = 0.3) -> dict[int, dict[str, Any]]:
    """Entries by pid. Process 100 + i is rank i."""
    found = asyncio.run(collect_dumps(run_dir, [JobProcess(pid, "llm", pid - 100) for pid in pids], deadline_s))
    return {row["pid"]: row for row in found}


def test_a_dump_comes_as_its_process_wrote_it_and_the_ask_is_seen(tmp_path: Path) -> None:
    leave(tmp_path, 100, 0, data=b"\x80\x02line\nmore\n")
    row = collect(tmp_path, 100)[100]
    assert base64.b64decode(row["data"]) == b"\x80\x02line\nmore\n"
    assert (row["rank"], row["generation"], row["since_s"], row["answered"], row["format"]) == (0, 3, 5.0, True, "fr-pickle")
    assert (tmp_path / "dumps" / "ask").exists()


def test_who_does_not_answer_leaves_its_last_one_and_so_does_a_dead_rank(tmp_path: Path) -> None:
    leave(tmp_path, 100, 0)
    leave(tmp_path, 101, 1, age_s=20.0)
    leave(tmp_path, 102, 2, age_s=30.0)
    rows = collect(tmp_path, 100, 101)
    assert {pid: row["answered"] for pid, row in rows.items()} == {100: True, 101: False, 102: False}


def test_a_former_process_of_a_rank_another_job_and_yesterday_do_not_count(tmp_path: Path) -> None:
    leave(tmp_path, 100, 0)
    leave(tmp_path, 90, 0, age_s=30.0)
    leave(tmp_path, 300, 7, age_s=30.0, job="theirs")
    leave(tmp_path, 301, 8, age_s=80_000.0)
    assert list(collect(tmp_path, 100)) == [100]


def test_a_process_that_keeps_none_is_told_how_to_and_nobody_waits_for_it(tmp_path: Path) -> None:
    started_s = time.monotonic()
    row = collect(tmp_path, 100, deadline_s=30.0)[100]
    assert time.monotonic() - started_s < 25.0
    assert row["format"] == "error" and "minder.keep_dumps()" in row["data"]


@pytest.mark.parametrize("content", [b"", b"no header", b'{"pid": 100}\n', b"[1]\nx", b'{"pid": 100, "time_s": "x", "since_s": 1}\n'])
def test_what_is_no_dump_is_as_good_as_missing(content: bytes, tmp_path: Path) -> None:
    leave(tmp_path, 100, 0).write_bytes(content)
    assert collect(tmp_path, 100)[100]["format"] == "error"


def test_a_link_to_a_file_of_somebody_else_is_not_followed(tmp_path: Path) -> None:
    secret = leave(tmp_path, 100, 0).rename(tmp_path / "secret")
    (tmp_path / "dumps" / "pid-100").symlink_to(secret)
    os.mkfifo(tmp_path / "dumps" / "pid-101")
    assert {row["format"] for row in collect(tmp_path, 100, 101).values()} == {"error"}


@pytest.mark.parametrize("body", [None, [], {"deadline_s": "x"}, {"deadline_s": True}, {"deadline_s": 0}, {"deadline_s": float("nan")}])
def test_a_bad_request_is_one_line_that_names_the_field(body: Any) -> None:
    with pytest.raises(BadInputError, match="deadline_s"):
        parse_deadline(body)
