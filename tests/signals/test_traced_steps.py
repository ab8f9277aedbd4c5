"""Files of minder.trace_step, followed: whole steps only, one rank of each worker, nothing that a job writes harms the reader."""

from __future__ import annotations

import json
from pathlib import Path

from minder.edge.signals.traced_steps import TraceFollower, trace_folder

JOBS = {7: "llm", 8: "llm"}


def line(step: int, begin_s: float, **changes: object) -> str:
    row = {"dp_rank": 0, "stage": 1, "rank": 4, "step": step, "optype": "forward-compute", "start_ts": begin_s, "duration": 0.25}
    return json.dumps({**row, "mc": 0, "mb_id": 3, "gmc": -1, **changes}) + "\n"


def write(folder: Path, text: str, rank: int = 4, pid: int = 7) -> Path:
    path = folder / f"trace-rank{rank}-pid{pid}.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
    return path


def test_a_step_is_handed_on_when_a_later_one_began_or_its_file_rests(tmp_path: Path) -> None:
    follower = TraceFollower(tmp_path)
    write(tmp_path, line(10, 100.0) + line(10, 100.5, optype="backward-compute"))
    assert follower.answer(0, JOBS) == {"steps": [], "next": 0}
    (step,) = follower.answer(0, JOBS)["steps"]
    assert (step["job"], step["dp_rank"], step["stage"], step["rank"], step["step"], step["begin_s"]) == ("llm", 0, 1, 4, 10, 100.0)
    assert [step["kinds"][kind] for kind in step["kind"]] == ["forward-compute", "backward-compute"]
    assert (step["begin"], step["seconds"], step["mb"], step["mc"]) == ([0.0, 0.5], [0.25, 0.25], [3, 3], [0, 0])
    write(tmp_path, line(20, 200.0)[:40])
    assert follower.answer(1, JOBS)["steps"] == []
    write(tmp_path, line(20, 200.0)[40:] + line(30, 300.0))
    answer = follower.answer(1, JOBS)
    assert [step["step"] for step in answer["steps"]] == [20] and answer["next"] == 2


def test_the_lowest_rank_speaks_for_its_worker_and_a_process_that_is_gone_for_none(tmp_path: Path) -> None:
    follower = TraceFollower(tmp_path)
    write(tmp_path, line(10, 1.0) + line(20, 2.0))
    write(tmp_path, line(10, 1.0, rank=5) + line(20, 2.0, rank=5), 5, 8)
    write(tmp_path, line(10, 1.0, rank=6, stage=0) + line(20, 2.0, rank=6, stage=0), 6, 99)
    assert [(step["rank"], step["step"]) for step in follower.answer(0, JOBS)["steps"]] == [(4, 10)]


def test_what_is_no_row_spoils_its_own_step_alone_and_links_are_not_followed(tmp_path: Path) -> None:
    follower = TraceFollower(tmp_path)
    bad = line(10, 1.0) + "{}\n" + line(20, 2.0) + line(20, 2.5, duration=-1.0) + line(30, 3.0) + line(40, 4.0)
    write(tmp_path, bad)
    secret = tmp_path / "secret"
    secret.write_text(line(10, 1.0) + line(20, 2.0))
    (tmp_path / "trace-rank5-pid8.jsonl").symlink_to(secret)
    assert [step["step"] for step in follower.answer(0, JOBS)["steps"]] == [30]


def test_of_a_file_that_is_long_already_the_newest_part_is_read_from_a_whole_step_on(tmp_path: Path) -> None:
    write(tmp_path, "".join(line(step, float(step), mb_id=mb) for step in range(2000) for mb in range(4)))
    found = TraceFollower(tmp_path).answer(0, JOBS)["steps"]
    assert 100 < len(found) < 2000 and found[-1]["step"] == 1998
    assert all(step["mb"] == [0, 1, 2, 3] for step in found)


def test_the_folder_is_the_scripts_or_the_run_directorys(tmp_path: Path) -> None:
    assert trace_folder({}, tmp_path) == tmp_path / "traces"
    assert trace_folder({"MINDER_TRACE_DIR": "/data/t"}, tmp_path) == Path("/data/t")
