"""Folders: names, processes.json, job.toml, several captures; and what several captures say together."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import places as at
import pytest
from dumps import Job, spy_json, spy_text

from minder.diagnose.stacks import Finding, analyse, capture_from_agents, read_captures, suspects_from_stacks, to_document, vote
from minder.diagnose.stacks.places import Places
from minder.model.errors import BadInputError
from minder.model.topology import Parallelism, Topology

Judge = Callable[[Job | Path], Finding]
TIMES = [f"20260302T0612{second:02d}Z" for second in (0, 10, 20, 30, 40)]


def recording(folder: Path, *captures: dict[int, list[tuple[str, str, int]]]) -> Path:
    """Eight machines in a gradient sync, except for those that a capture places elsewhere."""
    for name, elsewhere in zip(TIMES, captures, strict=False):
        job = Job(folder / "stacks" / name, 8).stand(at.GRAD_SYNC)
        for machine, frames in elsewhere.items():
            job.stand(frames, [machine])
    (folder / "job.toml").write_text('name = "r"\nmachines = ' + json.dumps(job.machines) + "\n[parallelism]\ndata = 8\n")
    return folder


# Who is who


def test_file_names_tell_machine_pid_and_rank(tmp_path: Path) -> None:
    (tmp_path / "gpu-node_1_pid77.json").write_bytes(spy_json([at.GRAD_SYNC], 77))
    (tmp_path / "node-0002-rank13.txt").write_bytes(spy_text([at.GRAD_SYNC], 9))
    (capture,) = read_captures(tmp_path)
    assert {(p.machine, p.pid, p.rank, p.name) for p in capture.processes} == {
        ("gpu-node_1", 77, None, "gpu-node_1:pid77"),
        ("node-0002", None, 13, "node-0002:rank13"),
    }


def test_a_sub_folder_named_like_a_time_that_does_not_exist_is_no_capture_and_is_told(
    tmp_path: Path, judge: Judge, caplog: pytest.LogCaptureFixture
) -> None:
    Job(tmp_path / "20261399T061231Z", 4).stand(at.READ)
    Job(tmp_path / "20260302T061231Z", 4).stand(at.GRAD_SYNC).stand(at.READ, [2])
    assert judge(tmp_path).evict == ("node-0002",)
    assert any("20261399T061231Z" in record.getMessage() for record in caplog.records)
    assert judge(tmp_path / "20261399T061231Z").captures == 1


def test_processes_json_goes_before_the_name(tmp_path: Path) -> None:
    (tmp_path / "a.out").write_bytes(spy_text([at.GRAD_SYNC], 5))
    rows = [
        {"file": "a.out", "machine": "node-0007", "pid": 4211, "rank": 4, "state": "S"},
        {"file": None, "machine": "node-0008", "pid": 9, "state": "D"},
    ]
    (tmp_path / "processes.json").write_text(json.dumps(rows))
    (capture,) = read_captures(tmp_path)
    known = {(p.machine, p.pid, p.rank, p.state, bool(p.threads)) for p in capture.processes}
    assert known == {("node-0007", 4211, 4, "S", True), ("node-0008", 9, None, "D", False)}


def test_a_process_that_could_not_be_dumped_in_uninterruptible_sleep_is_evidence(tmp_path: Path, judge: Judge) -> None:
    job = Job(tmp_path, 4).stand(at.GRAD_SYNC)
    job.file(2).write_bytes(b"Error: Failed to suspend process")
    finding = judge(job.state("D", [2]))
    assert (finding.evict, finding.blame) == (("node-0002",), "machine")


@pytest.mark.parametrize("content", [b"", b"\x00\xff\x00garbage", b'[{"frames": ['])
def test_one_unreadable_dump_is_a_process_without_a_stack(content: bytes, tmp_path: Path, judge: Judge) -> None:
    job = Job(tmp_path, 4).stand(at.GRAD_SYNC)
    job.file(2).write_bytes(content)
    finding = judge(job)
    assert [process.name for process in finding.without_stack] == ["node-0002:pid4200"]
    assert finding.without_stack[0].problem
    assert finding.evict == ()
    assert [len(group.processes) for group in finding.groups] == [3]


def test_a_dump_that_was_cut_off_stays_in_its_group(tmp_path: Path, judge: Judge) -> None:
    job = Job(tmp_path, 4).stand(at.GRAD_SYNC)
    content = job.file(2).read_bytes()
    job.file(2).write_bytes(content[: len(content) * 2 // 3])
    finding = judge(job)
    assert (finding.suspects, finding.evict) == ((), ())


def test_a_machine_without_any_dump_is_worth_a_look_and_no_eviction(tmp_path: Path, judge: Judge) -> None:
    job = Job(tmp_path, 4).stand(at.GRAD_SYNC, [0, 1, 3]).topology()
    finding = judge(job)
    assert ([suspect.machine for suspect in finding.suspects], finding.evict) == (["node-0002"], ())


@pytest.mark.parametrize("files", [{}, {"notes.md": b"# hang"}, {"node-1_pid7.txt": b""}, {"node-1_pid7.txt": b"Error: no"}])
def test_a_folder_without_any_stack_is_bad_input(files: dict[str, bytes], tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInputError, match="no readable stack dump"):
        read_captures(tmp_path)


@pytest.mark.parametrize("text", ["{", '{"file": 1}', '[{"file": "a", "pid": "x"}]', '[{"pid": 3}]', "[1]"])
def test_a_broken_processes_json_says_so(text: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(spy_text([at.GRAD_SYNC], 5))
    (tmp_path / "processes.json").write_text(text)
    with pytest.raises(BadInputError, match=r"processes\.json"):
        read_captures(tmp_path)


# Several captures


def test_two_captures_that_agree_are_surer_than_one(tmp_path: Path, judge: Judge) -> None:
    once = judge(recording(tmp_path / "once", {6: at.READ}))
    twice = judge(recording(tmp_path / "twice", {6: at.READ}, {6: at.READ}))
    assert (once.evict, twice.evict) == (("node-0006",), ("node-0006",))
    assert twice.suspects[0].confidence > once.suspects[0].confidence
    assert (once.captures, twice.captures) == (1, 2)


def test_two_captures_that_name_different_machines_evict_nobody(tmp_path: Path, judge: Judge) -> None:
    finding = judge(recording(tmp_path, {6: at.COMPUTE}, {2: at.COMPUTE}))
    assert (finding.suspects, finding.evict) == ((), ())


def test_captures_from_long_before_the_stall_do_not_count(tmp_path: Path, judge: Judge) -> None:
    recording(tmp_path, {6: at.READ})
    Job(tmp_path / "stacks" / "20260302T051200Z", 8).stand(at.COMPUTE)
    assert judge(tmp_path).evict == ("node-0006",)


def test_the_machine_flagged_in_most_of_five_rounds_is_the_slow_one(tmp_path: Path, judge: Judge) -> None:
    slow = {3: at.COMPUTE}
    finding = judge(recording(tmp_path, slow, slow, {}, slow, {5: at.COMPUTE}))
    assert (finding.evict, finding.blame) == (("node-0003",), "machine")
    assert "3 of 5" in finding.suspects[0].reason


def test_a_job_that_moves_on_between_two_captures_does_not_hang(tmp_path: Path, judge: Judge) -> None:
    elsewhere = dict.fromkeys(range(8), at.GRAD_NORM)
    finding = judge(recording(tmp_path, {6: at.COMPUTE}, {**elsewhere, 6: at.COMPUTE}))
    assert finding.evict == ()
    assert "moves" in finding.because


def places() -> Places:
    topology = Topology(tuple(f"m{i}" for i in range(8)), 1, Parallelism(pipeline=2, data=4))
    return Places(topology.machines, topology)


def test_votes_for_members_of_one_group_go_to_the_group() -> None:
    assert vote([("m1", "m5"), ("m5", "m1"), ("m1", "m5"), (), ("m1", "m5")], places()) == ("pp:1", ("m1", "m5"), 4)


@pytest.mark.parametrize(
    "rounds",
    [
        [("m1",)] * 4,
        [("m1",), ("m2",), ("m3",), ("m4",), ("m5",)],
        [("m1",), ("m1",), ("m2",), ("m2",), ()],
        [()] * 5,
        [("m0", "m1", "m2", "m6")] * 5,
    ],
)
def test_votes_that_name_nobody(rounds: list[tuple[str, ...]]) -> None:
    """Too few rounds, no majority, a tie, no flags, outliers that share no small group."""
    assert vote(rounds, places()) is None


# From live agents


def test_answers_of_agents_are_a_capture() -> None:
    """Rank 2's process is in uninterruptible sleep, and py-spy could not read it."""

    def answer(rank: int, state: str, stack: dict[str, object]) -> dict[str, object]:
        states = [{"pid": 100 + rank, "rank": rank, "state": state, "name": "python"}]
        return {
            "machine": f"node-{rank}",
            "time_s": 50.0 + rank,
            "stacks": [{"pid": 100 + rank, "rank": rank, **stack}],
            "processes": states,
        }

    waiting = {"format": "py-spy-json", "data": json.loads(spy_json([at.GRAD_SYNC], 100))}
    refused = {"format": "error", "data": "py-spy did not answer within 5.0 s"}
    capture = capture_from_agents([answer(rank, "S", waiting) for rank in (0, 1, 3)] + [answer(2, "D", refused)])
    assert capture.time_s == 53.0
    finding = analyse(capture)
    assert (finding.evict, finding.suspects[0].rank) == (("node-2",), 2)
    assert finding.without_stack[0].problem == "py-spy did not answer within 5.0 s"


def with_children(*children: dict[str, object]) -> Finding:
    """Four ranks in a gradient sync; what rank 1's process started is given."""
    stack = {"format": "py-spy-json", "data": json.loads(spy_json([at.GRAD_SYNC], 100))}
    answers = []
    for rank in range(4):
        below = [{"pid": 200 + place, "rank": rank, "parent": 100, **child} for place, child in enumerate(children)] if rank == 1 else []
        states = [{"pid": row["pid"], "rank": rank, "state": row.pop("state", "S")} for row in below]
        answers.append(
            {"machine": f"node-{rank}", "stacks": [{"pid": 100, "rank": rank, "parent": None, **stack}, *below], "processes": states}
        )
    return analyse(capture_from_agents(answers))


def test_a_child_of_a_training_process_is_no_rank_whatever_it_does() -> None:
    asleep = {"format": "py-spy-json", "data": json.loads(spy_json([at.READ_PLAIN], 200))}
    finding = with_children(asleep, {"format": "error", "data": "it is no Python"})
    assert (finding.suspects, finding.evict, finding.without_stack) == ((), (), ())


def test_a_child_in_uninterruptible_sleep_speaks_for_its_machine() -> None:
    finding = with_children({"format": "error", "data": "it cannot be attached to", "state": "D"})
    assert finding.evict == ("node-1",)


# Into a verdict


def test_an_eviction_becomes_one_suspect_of_that_tier(tmp_path: Path, judge: Judge) -> None:
    finding = judge(Job(tmp_path, 8).stand(at.GRAD_SYNC).stand(at.READ, [6]))
    (suspect,) = suspects_from_stacks(finding, time_s=100.0, since_s=40.0)
    assert (suspect.kind, suspect.machines, suspect.tier, suspect.cause, suspect.since_s) == (
        "machine",
        ("node-0006",),
        "evict",
        "stall",
        40.0,
    )
    assert "reading a file" in suspect.evidence[0].message


def test_the_programs_fault_accuses_no_machine(tmp_path: Path, judge: Judge) -> None:
    finding = judge(Job(tmp_path, 8).stand(at.GRAD_SYNC).stand(at.LOADER_WAIT, [6]))
    (suspect,) = suspects_from_stacks(finding, time_s=100.0)
    assert (suspect.kind, suspect.machines, suspect.tier) == ("job", (), "watch")


def test_nobody_is_nobody(tmp_path: Path, judge: Judge) -> None:
    assert suspects_from_stacks(judge(Job(tmp_path, 8).stand(at.GRAD_SYNC)), time_s=1.0) == ()


def test_the_document_has_the_frozen_keys(tmp_path: Path, judge: Judge) -> None:
    document = to_document(judge(Job(tmp_path, 8).stand(at.GRAD_SYNC).stand(at.READ, [6])))
    assert set(document["groups"][0]) == {"size", "kind", "frames", "processes"}
    assert document["groups"][0]["frames"][:2] == ["all_reduce", "start_grad_sync"]
    assert set(document["suspects"][0]) == {"machine", "pid", "rank", "reason", "confidence"}
    assert document["evict"] == {"machines": ["node-0006"], "group": None}
    assert document["blame"] == "machine"
