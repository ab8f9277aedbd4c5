"""Files as they lie about: several dumps of one process, long logs, refusals, training in another thread, two programs, racks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import frameworks as fw
import places as at
import pytest
from dumps import FORMATS, Frames, Job, faulthandler_text, spy_json, spy_text

from minder.diagnose.stacks import Finding, Process, read_captures, read_dumps, reader
from minder.diagnose.stacks.threads import read_role
from minder.model.errors import BadInputError

Judge = Callable[[Job | Path], Finding]
MakeJob = Callable[..., Job]
OLD, NEW = [at.READ, at.TQDM], [at.GRAD_SYNC, at.TQDM]


def innermost(content: bytes) -> str:
    (dump,) = read_dumps(content)
    return max(dump.threads, key=lambda thread: thread.main).frames[0].function


@pytest.mark.parametrize("dump", sorted(FORMATS))
@pytest.mark.parametrize("between", [b"\n", b"\n2026-03-02 06:00:10 looking again\n", b"\nMon Mar  2 06:00:10 UTC 2026\n\n"])
def test_the_newest_of_several_dumps_of_a_process_counts(dump: str, between: bytes) -> None:
    old, new = FORMATS[dump](OLD, 7), FORMATS[dump](NEW, 7)
    for content in (old + between + old + between + new, between + old + between + new + between):
        assert innermost(content).startswith(("all_reduce", "__futex"))
        assert "read_shard" not in str(read_dumps(content)[0].threads[-1 if dump == "faulthandler" else 0].frames)


def test_without_banners_a_thread_that_appears_again_begins_the_next_dump() -> None:
    old, new = (spy_text(threads, 7).partition(b"\n\n")[2] for threads in (OLD, NEW))
    assert innermost(old + b"\n" + new) == "all_reduce"


def test_a_dump_that_has_a_thread_more_than_the_one_before_is_still_one() -> None:
    (dump,) = read_dumps(faulthandler_text(OLD, 7) + b"\n" + faulthandler_text([*NEW, at.PIN_MEMORY, at.PIN_MEMORY], 7))
    assert len(dump.threads) == 4 and dump.threads[-1].frames[0].function == "all_reduce"


def test_json_documents_on_one_line_each_and_one_that_is_cut_off() -> None:
    line = [json.dumps(json.loads(spy_json(threads, 7))).encode() for threads in (OLD, NEW)]
    assert innermost(line[0] + b"\n" + line[1]) == "all_reduce"
    assert innermost(line[0] + line[1]) == "all_reduce"
    assert innermost(line[0] + b"\n" + line[1] + b"\n" + line[0][:90]) == "all_reduce"


def test_a_process_that_py_spy_calls_a_child_is_not_the_rank(tmp_path: Path) -> None:
    child = spy_text([at.READ], 12).replace(b"\nPython v", b"\nParent Process 11: python train.py\nPython v")
    (tmp_path / "n1-rank3.txt").write_bytes(spy_text(NEW, 11) + b"\n" + child)
    (process,) = read_captures(tmp_path)[0].processes
    assert (process.rank, process.threads[0].frames[0].function) == (3, "all_reduce")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_file_too_long_to_read_is_read_from_its_end(encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_MOST_BYTES", 20_001)
    text = faulthandler_text(OLD, 7).decode() + "step 1 loss 2.5\n" * 4000 + faulthandler_text(NEW, 7).decode()
    (tmp_path / "n1-rank0.log").write_bytes(text.encode(encoding))
    (process,) = read_captures(tmp_path)[0].processes
    assert process.threads[-1].frames[0].function == "all_reduce"


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("Error: Failed to suspend process\nReason: EPERM: Operation not permitted\n", ("EPERM", "CAP_SYS_PTRACE")),
        ("Permission Denied: Try running again with elevated permissions by going 'sudo env'\n", ("Permission Denied", "CAP_SYS_PTRACE")),
        ("ptrace: Operation not permitted.\nNo stack.\n", ("ptrace", "CAP_SYS_PTRACE")),
        ("Error: No such process (os error 3)\n", ("No such process", "had ended")),
    ],
)
def test_what_the_tool_said_when_it_was_refused_is_passed_on(said: str, names: tuple[str, ...], tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"n{rank}-rank{rank}.txt").write_text(said)
    with pytest.raises(BadInputError) as caught:
        read_captures(tmp_path)
    assert all(name in str(caught.value) for name in names)


# Training in another thread

RAY: Frames = [("main_loop", "ray/_private/worker.py", 946), ("<module>", "ray/_private/workers/default_worker.py", 330)]
LOOP: Frames = [
    ("select", "/usr/lib/python3.11/selectors.py", 468),
    ("_run_once", "/usr/lib/python3.11/asyncio/base_events.py", 1890),
    ("run_forever", "/usr/lib/python3.11/asyncio/base_events.py", 607),
    ("<module>", "serve.py", 3),
]
JOIN: Frames = [("join", "/usr/lib/python3.11/threading.py", 1112), ("main", "t.py", 3), ("<module>", "t.py", 9)]
FUTURE: Frames = [("result", "/usr/lib/python3.11/concurrent/futures/_base.py", 451), ("main", "t.py", 3), ("<module>", "t.py", 9)]
SHALLOW: Frames = [("main", "t.py", 3), ("<module>", "t.py", 9)]
STARTED: Frames = [("_bootstrap_inner", "/usr/lib/python3.11/threading.py", 1038), ("_bootstrap", "/usr/lib/python3.11/threading.py", 995)]
POOL: Frames = [
    ("run", "/usr/lib/python3.11/concurrent/futures/thread.py", 58),
    ("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py", 83),
]
TRAIN: Frames = [("train_step", "trainer.py", 150), ("train_fn_per_worker", "train.py", 91)]


@pytest.mark.parametrize("main", [RAY, LOOP, JOIN, FUTURE, SHALLOW], ids=["ray", "asyncio", "join", "future", "own code"])
@pytest.mark.parametrize("below", [STARTED, [*POOL, *STARTED]], ids=["thread", "pool"])
def test_training_in_a_thread_of_its_own_is_found(main: Frames, below: Frames, make_job: MakeJob, judge: Judge) -> None:
    idle_pool: Frames = [("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py", 81), *STARTED]
    metrics: Frames = [("push_local_metrics", "ray/train/v2/_internal/callbacks/metrics.py", 223), *STARTED]

    def threads(doing: Frames) -> list[Frames]:
        return [main, metrics, idle_pool, [*doing, *TRAIN, *below]]

    wait: Frames = [("all_reduce", f"{fw.TORCH}/distributed/distributed_c10d.py", 2997)]
    read: Frames = [("read", "/usr/lib/python3.11/codecs.py", 320)]
    finding = judge(make_job(8).stand(threads(wait)).stand(threads(read), [5]))
    assert (finding.evict, finding.blame) == (("node-0005",), "machine")


def test_idle_actors_are_no_evidence_against_the_one_that_works(make_job: MakeJob, judge: Judge) -> None:
    working = [RAY, [("read", "/usr/lib/python3.11/codecs.py", 320), *TRAIN, *STARTED]]
    finding = judge(make_job(8).stand([RAY]).stand(working, [5]))
    assert (finding.evict, finding.suspects) == ((), ())


def test_the_actor_whose_training_has_ended_is_the_programs(make_job: MakeJob, judge: Judge) -> None:
    wait = [RAY, [("all_reduce", f"{fw.TORCH}/distributed/distributed_c10d.py", 2997), *TRAIN, *STARTED]]
    finding = judge(make_job(8).stand(wait).stand([RAY], [5]))
    assert (finding.evict, finding.blame) == ((), "software")
    assert [suspect.machine for suspect in finding.suspects] == ["node-0005"]


def test_a_main_thread_that_sleeps_in_training_itself_is_not_excused_by_a_thread_beside_it() -> None:
    text = spy_text([[("sleep", "t.py", 1), ("train_step", "t.py", 4), ("<module>", "t.py", 9)], [*TRAIN, *STARTED]], 7)
    role = read_role(Process("n", threads=read_dumps(text)[0].threads))
    assert role.reason == "sleeping"


# Two programs on one machine


def test_an_outlier_of_the_second_program_is_a_suspect_and_the_job_at_work_evicts_nobody(tmp_path: Path, judge: Judge) -> None:
    serve: Frames = [
        ("execute_model", "vllm/v1/worker/gpu_model_runner.py", 2500),
        ("worker_main", "vllm/executor.py", 700),
        ("<module>", "serve.py", 1),
    ]
    wait: Frames = [("all_reduce", f"{fw.TORCH}/distributed/distributed_c10d.py", 2997)]
    for machine in range(3):
        for local in range(2):
            (tmp_path / f"n{machine}_pid{100 + local}.txt").write_bytes(spy_text([fw.SYNC["plain"]], 100 + local))
            odd = (machine, local) == (1, 1)
            doing: Frames = [("read", "app/kv.py", 31)] if odd else wait
            (tmp_path / f"n{machine}_pid{200 + local}.txt").write_bytes(spy_text([[*doing, *serve]], 200 + local))
    finding = judge(tmp_path)
    assert [(suspect.machine, suspect.pid) for suspect in finding.suspects] == [("n1", 201)]
    assert finding.evict == () and "another program" in finding.because


# Racks, and ranks in different collectives


def with_racks(job: Job, size: int) -> Job:
    job.topology()
    rows = "\n".join(f'"{name}" = {{ rack = "r{at // size}" }}' for at, name in enumerate(job.machines))
    with (job.folder / "job.toml").open("a") as file:
        file.write(f"\n[topology]\n{rows}\n")
    return job


@pytest.mark.parametrize("doing", [at.READ, at.COMPUTE, at.SYNC], ids=["reading", "computing", "device"])
@pytest.mark.parametrize("machines", [8, 16])
def test_a_rack_that_stands_apart_is_named_and_nobody_is_evicted(doing: Frames, machines: int, make_job: MakeJob, judge: Judge) -> None:
    job = with_racks(make_job(machines).stand(at.GRAD_SYNC).stand(doing, range(2, 4)), 2)
    finding = judge(job)
    assert finding.evict == () and "rack r1" in finding.because


def test_a_rack_of_stopped_processes_is_named(make_job: MakeJob, judge: Judge) -> None:
    job = with_racks(make_job(8).stand(at.GRAD_SYNC), 2).state("T", [2, 3])
    finding = judge(job)
    assert finding.evict == () and "rack r1" in finding.because


OTHER: Frames = [("all_reduce", f"{fw.TORCH}/distributed/distributed_c10d.py", 2997), ("average_losses", "trainer.py", 60), *TRAIN]
GRADIENTS: Frames = [("all_reduce", f"{fw.TORCH}/distributed/distributed_c10d.py", 2997), ("reduce_grads", "trainer.py", 20), *TRAIN]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("odd", [[1, 4], [1, 4, 6], [0, 2, 4, 6]])
def test_ranks_of_one_group_in_two_collectives_are_the_programs(known: bool, odd: list[int], make_job: MakeJob, judge: Judge) -> None:
    job = make_job(8).stand(GRADIENTS).stand(OTHER, odd)
    finding = judge(job.topology() if known else job)
    assert (finding.evict, finding.blame) == ((), "software")
    assert "average_losses" in finding.because and "reduce_grads" in finding.because and "usual" not in finding.because


def test_whole_tensor_groups_in_a_collective_of_their_own_are_said_and_blame_nobody(make_job: MakeJob, judge: Judge) -> None:
    finding = judge(make_job(4, ranks=2).stand(GRADIENTS).stand(OTHER, [1, 2]).topology(tensor=2))
    assert (finding.evict, finding.blame) == ((), "unknown") and "average_losses" in finding.because


FAILED = 'Traceback (most recent call last):\n  File "/app/train.py", line 9, in main\n  File "/app/train.py", line 4, in step\n'


@pytest.mark.parametrize("last", ["KeyError: 'k'", "torch.OutOfMemoryError: CUDA out of memory.", "ZeroDivisionError"])
def test_the_traceback_of_an_exception_shows_no_process_that_stands(last: str, tmp_path: Path, judge: Judge) -> None:
    for rank in range(8):
        (tmp_path / f"n{rank}-rank{rank}.txt").write_bytes(spy_text([at.GRAD_SYNC], rank) if rank != 5 else (FAILED + last + "\n").encode())
    finding = judge(tmp_path)
    assert (finding.evict, finding.blame) == ((), "unknown")
    assert last in finding.suspects[0].reason
    for path in tmp_path.iterdir():
        path.write_text(f"step 3 loss 2.5\n{FAILED}{last}\n")
    with pytest.raises(BadInputError, match="traceback of an exception"):
        read_captures(tmp_path)


@pytest.mark.parametrize("names", [("_20260302T060000", "_20260302T061000"), (".9.txt", ".10.txt"), (".gdb.txt", ".pyspy.txt")])
def test_several_files_of_one_process_are_several_dumps_of_it(names: tuple[str, str], tmp_path: Path, judge: Judge) -> None:
    for rank in range(8):
        for name, odd in zip(names, (2, 5), strict=True):
            (tmp_path / f"n{rank}_pid{40 + rank}{name}").write_bytes(spy_text([at.READ if rank == odd else at.GRAD_SYNC], 40 + rank))
    (tmp_path / f"n5_pid45{names[1]}.zz").write_bytes(b"Error: Failed to suspend process\n")  # a refusal is no newer stack
    finding = judge(tmp_path)
    assert finding.evict == ("n5",) and sum(len(group.processes) for group in finding.groups) == 8


def test_a_capture_without_any_stack_does_not_hide_those_of_another(tmp_path: Path, judge: Judge) -> None:
    for name in ("20260302T060000Z", "20260302T060010Z"):
        (tmp_path / name).mkdir()
        for rank in range(8):
            whole = spy_text([at.READ if rank == 5 else at.GRAD_SYNC], 40 + rank)
            (tmp_path / name / f"n{rank}_pid{40 + rank}").write_bytes(whole if name.endswith("00Z") else b"Error: Permission denied\n")
    assert judge(tmp_path).evict == ("n5",)


def test_what_is_no_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "n0_pid7.txt").write_bytes(spy_text([at.READ], 7))
    (tmp_path / "n1_pid8.txt").symlink_to(tmp_path / "n1_pid8.txt")
    for name in ("n2_pid9.txt", "processes.json"):
        os.mkfifo(tmp_path / name)
    assert [process.machine for process in read_captures(tmp_path)[0].processes] == ["n0"]


def test_a_log_whose_beginning_is_a_hole_is_read(tmp_path: Path) -> None:
    assert innermost(b"\0" * 4097 + spy_text([at.READ], 7)) == innermost(spy_text([at.READ], 7))


@pytest.mark.parametrize(
    ("label", "dump", "machine"),
    [
        ("node-{}: ", "py-spy text", "node-5"),
        ("node-{}: ", "gdb", "node-5"),
        ("{}: ", "py-spy text", "rank5"),
        ("[rank{}]: ", "faulthandler", "rank5"),
        ("[rank{}]:", "faulthandler", "rank5"),
    ],
)
def test_lines_of_many_in_one_file_are_told_apart_by_their_labels(
    label: str, dump: str, machine: str, tmp_path: Path, judge: Judge
) -> None:
    """As they come, mixed: two lines of each in turn."""
    texts = [FORMATS[dump]([at.READ if rank == 5 else at.GRAD_SYNC], 40 + rank).decode().splitlines() for rank in range(12)]
    mixed = [
        label.format(rank) + line
        for at_line in range(0, max(map(len, texts)), 2)
        for rank in range(12)
        for line in texts[rank][at_line : at_line + 2]
    ]
    (tmp_path / "job.out").write_text("starting\n" + "\n".join(mixed) + "\n")
    finding = judge(tmp_path)
    assert finding.evict == (machine,)
    assert sum(len(group.processes) for group in finding.groups) == 12
