"""What a generator by another hand brought up: labels and colours of terminals, names like "pid7", waits that have no collective's
name, readers of files, guests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import frameworks as fw
import pytest
from beside import BESIDE
from dumps import FORMATS, spy_text
from strangers import Cluster, write_job

from minder.diagnose.stacks import Capture, Finding, Process, analyse, place_ranks, read_captures, read_dumps
from minder.diagnose.stacks.roles import Role
from minder.diagnose.stacks.threads import read_role
from minder.edge.signals.log_prefix import Writer
from minder.model.topology import Parallelism, Topology

Judge = Callable[[Path], Finding]


def write_by_pid(folder: Path, cluster: Cluster, place: Callable[[int], fw.Frames]) -> Path:
    """Names tell machine and pid and nothing else: there is no processes.json."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(cluster.world):
        (folder / f"{cluster.machine(rank)}_pid{7000 + rank}.txt").write_bytes(spy_text([place(rank)], 7000 + rank))
    if cluster.known:
        write_job(folder, cluster)
    return folder


def test_colours_of_a_terminal_are_no_part_of_a_dump() -> None:
    plain = spy_text([fw.SYNC["megatron"]], 9)
    coloured = plain.replace(b"Thread 9", b"\x1b[1mThread \x1b[32m9\x1b[0m").replace(b"    all_reduce", b"    \x1b[36mall_reduce\x1b[0m")
    assert coloured != plain
    assert read_dumps(coloured) == read_dumps(plain)


@pytest.mark.parametrize(
    "label",
    [
        "[rank{rank}]: ",
        "[default{rank}]:",
        " {rank}: ",
        "[1,{rank}]<stderr>: ",
        "node-{rank}: ",
        "2026-03-02T06:12:3{line}.12345678{line}Z ",
        "(Worker pid=41{rank}, ip=10.0.0.{rank}) ",
    ],
)
@pytest.mark.parametrize("dump", ["py-spy text", "faulthandler", "gdb"])
def test_what_a_launcher_writes_before_every_line_is_no_part_of_a_dump(label: str, dump: str) -> None:
    plain = FORMATS[dump]([fw.SYNC["megatron"], fw.SYNC["plain"]], 9).decode()
    rows = [f"{label.format(rank=3, line=number % 10)}{row}" for number, row in enumerate(plain.splitlines())]
    labelled = "\n".join(row.rstrip() for row in rows)
    assert [found.threads for found in read_dumps(labelled.encode())] == [found.threads for found in read_dumps(plain.encode())]


OWNERS = {
    "[rank{rank}]: ": Writer(rank=3),
    "{rank}: ": Writer(rank=3, counted=True),
    "[1,{rank}]<stderr>: ": Writer(rank=3, counted=True),
    "[{rank}] ": Writer(rank=3),
    "[default{rank}]:": Writer(local=3),
    "[node7:{rank}]:": Writer(local=3, machine="node7"),
    "0: [default{rank}]: ": Writer(local=3, machine="task0"),
    "[pod/llm-worker-0/pytorch] [rank{rank}]: ": Writer(rank=3, machine="llm-worker-0"),
    "[pod/llm-worker-{rank}/pytorch] ": Writer(machine="llm-worker-3"),
    '2026-01-05T10:11:12Z {{app="llm", pod="llm-worker-{rank}"}} ': Writer(machine="llm-worker-3"),
    "(TrainWorker pid=41{rank}, ip=10.0.0.{rank}) ": Writer(machine="10.0.0.3", pid=413),
    "(pid=41{rank}) ": Writer(pid=413),
    "trainer-{rank}  | ": Writer(machine="trainer-3"),
    "2026-03-02T06:12:3{line}Z [rank{rank}]: ": Writer(rank=3),
}


@pytest.mark.parametrize("label", OWNERS, ids=list(OWNERS))
@pytest.mark.parametrize("dump", ["py-spy text", "faulthandler", "gdb"])
def test_lines_of_several_ranks_in_one_file_are_not_mixed_into_one(label: str, dump: str) -> None:
    """Labels of torchrun, srun, mpirun, kubectl, Ray and docker compose, each line by line in turn."""
    texts = [FORMATS[dump]([fw.SYNC["megatron"]], 9 + index).decode().splitlines() for index in range(2)]
    rows = enumerate(zip(*texts, strict=True))
    mixed = "\n".join(label.format(rank=2 + index, line=line % 10) + row for line, both in rows for index, row in enumerate(both))
    own = [found.threads for text in texts for found in read_dumps("\n".join(text).encode())]
    found = read_dumps(mixed.encode())
    assert [item.threads for item in found] == own
    assert found[1].writer == OWNERS[label]


@pytest.mark.parametrize(("tasks", "machines"), [(2, ["task0", "task1"]), (4, ["a", "a", "b", "b"])])
def test_a_tasks_number_is_a_rank_only_where_there_are_more_than_machines(tasks: int, machines: list[str], tmp_path: Path) -> None:
    """`srun --label` over one launcher a machine numbers launchers: the second machine's is no rank 1."""
    rows = [(task, row) for task in range(tasks) for row in FORMATS["py-spy text"]([fw.SYNC["megatron"]], 90 + task).decode().splitlines()]
    (tmp_path / "srun.log").write_text("\n".join(f"{task}: {row}" for task, row in rows))
    topology = Topology(("a", "b"), 2, Parallelism(data=4))
    ((*found,),) = [capture.processes for capture in place_ranks(read_captures(tmp_path), topology, {})]
    assert [item.machine for item in found] == machines


@pytest.mark.parametrize("label", ["[default{local}]: ", "[node7:{local}]:"])
def test_ranks_of_a_machine_are_named_with_their_machine(label: str, tmp_path: Path) -> None:
    """A local rank is none of the job's: it says nothing of where the process runs beyond the file that it stands in."""
    rows = [(local, row) for local in range(2) for row in FORMATS["py-spy text"]([fw.SYNC["megatron"]], 90 + local).decode().splitlines()]
    (tmp_path / "node7_pid3.log").write_text("\n".join(label.format(local=local) + row for local, row in rows))
    ((one, other),) = [capture.processes for capture in read_captures(tmp_path)]
    assert [(item.machine, item.rank, item.pid) for item in (one, other)] == [("node7", None, 90), ("node7", None, 91)]


@pytest.mark.parametrize("dump", ["py-spy text", "faulthandler"])
def test_two_machines_whose_lines_are_mixed_under_one_label_are_no_dump(dump: str) -> None:
    texts = [FORMATS[dump]([fw.SYNC["megatron"]], 9 + index).decode().splitlines() for index in range(2)]
    mixed = "\n".join(f"[default{local}]: {row}" for local in range(2) for both in zip(*texts, strict=True) for row in both)
    assert {found.problem for found in read_dumps(mixed.encode())} == {"lines of several processes stand under one label, mixed"}


def test_a_log_from_which_ray_left_lines_out_shows_no_stack() -> None:
    text = FORMATS["py-spy text"]([fw.SYNC["megatron"]], 9).decode().splitlines()
    rows = [f"(TrainWorker pid=4{index}) {row}" for index in range(2) for row in text[: 9 - 4 * index]]
    rows.append(f"(TrainWorker pid=41) {text[-1]} [repeated 3x across cluster]")
    assert {found.problem.partition(":")[0] for found in read_dumps("\n".join(rows).encode())} == {
        "Ray left out lines that several processes wrote alike"
    }


@pytest.mark.parametrize(
    ("file", "machine", "pid", "rank"),
    [
        ("rank-box-2-pid7-rank3.txt", "rank-box-2-pid7", None, 3),
        ("my-rank3-node_pid44.txt", "my-rank3-node", 44, None),
        ("10.0.3.17_pid99", "10.0.3.17", 99, None),
        ("gpu-12.dc1.example.com_pid44.json", "gpu-12.dc1.example.com", 44, None),
        ("node-7_pid44-rank3.txt", "node-7", 44, None),
        ("node-7_pid44.2.txt", "node-7", 44, None),
    ],
)
def test_a_machine_may_be_called_anything(file: str, machine: str, pid: int | None, rank: int | None, tmp_path: Path) -> None:
    (tmp_path / file).write_bytes(spy_text([fw.SYNC["plain"]], 44))
    ((process,),) = [capture.processes for capture in read_captures(tmp_path)]
    assert (process.machine, process.pid, process.rank) == (machine, pid, rank)


@pytest.mark.parametrize("known", [True, False])
def test_a_first_stage_that_computes_in_all_replicas_is_a_pipeline_at_work(known: bool, tmp_path: Path, judge: Judge) -> None:
    """Megatron waits for a batch of messages by a wait for the whole device."""
    waits = [("synchronize", f"{fw.TORCH}/cuda/__init__.py", 985), ("_communicate", fw.P2P, 402), ("recv_forward", fw.P2P, 440), *fw.PIPE]
    cluster = Cluster(16, 1, 1, 4, "tp-pp-dp", known=known)
    finding = judge(write_by_pid(tmp_path, cluster, lambda rank: waits if cluster.stage(rank) else fw.FORWARD))
    assert (finding.suspects, finding.evict) == ((), ())
    assert {group.kind for group in finding.groups} == {"point to point", "compute"}


@pytest.mark.parametrize(
    ("cluster", "stages"),
    [
        (Cluster(8, 4, 4, 2), (fw.BACKWARD, fw.FORWARD)),  # no messages now: the first stage is in its backward pass, the last one forward
        (Cluster(4, 8, 4, 4), (fw.FORWARD, fw.BATCH_WAIT, fw.message("recv_forward"), fw.message("recv_forward"))),  # a machine a stage
        (Cluster(4, 1, 1, 4), (fw.message("send_forward"), fw.BATCH_WAIT, fw.BATCH_WAIT, fw.BATCH_WAIT)),  # one replica: no peers
        (Cluster(4, 1, 1, 4), (fw.message("recv_backward"), fw.message("send_backward"), fw.BACKWARD, fw.BATCH_WAIT)),
    ],
)
def test_stages_that_differ_and_replicas_that_agree_accuse_nobody(
    cluster: Cluster, stages: tuple[fw.Frames, ...], tmp_path: Path, judge: Judge
) -> None:
    finding = judge(write_by_pid(tmp_path, cluster, lambda rank: stages[cluster.stage(rank)]))
    assert (finding.suspects, finding.evict) == ((), ())


def test_one_of_a_stage_that_computes_alone_is_still_named(tmp_path: Path, judge: Judge) -> None:
    """In the one replica that has not reached the gradients."""
    cluster = Cluster(16, 1, 1, 4, "tp-pp-dp")
    ours = {
        4: fw.message("recv_backward"),
        5: fw.DURING_STEP["reading a file"],
        6: fw.message("recv_forward"),
        7: fw.message("recv_forward"),
    }
    finding = judge(write_by_pid(tmp_path, cluster, lambda rank: [*ours.get(rank, fw.SYNC["megatron"])]))
    assert finding.evict == ("gpu-105",)


GUEST = [
    ("select", f"{fw.STD}/selectors.py", 468),
    ("run_forever", f"{fw.STD}/asyncio/base_events.py", 603),
    ("<module>", "/opt/site/probe/exporter.py", 3),
]


def test_another_program_beside_all_ranks_of_a_machine_is_no_rank(tmp_path: Path, judge: Judge) -> None:
    folder = write_by_pid(tmp_path, Cluster(4, 2, known=False), lambda rank: fw.SYNC["megatron"])
    (folder / "gpu-100_pid77.txt").write_bytes(spy_text([GUEST], 77))
    finding = judge(folder)
    assert (finding.suspects, finding.evict, finding.blame) == ((), (), "unknown")


def test_a_rank_that_runs_another_program_is_a_rank(tmp_path: Path, judge: Judge) -> None:
    """Its machine has one of the usual ranks less."""
    odd = [*fw.DURING_STEP["reading a file"], ("main", "/app/other.py", 10), ("<module>", "/app/other.py", 20)]
    finding = judge(write_by_pid(tmp_path, Cluster(4, 2, known=False), lambda rank: odd if rank == 5 else fw.SYNC["megatron"]))
    assert (finding.evict, finding.blame) == (("gpu-102",), "machine")


def role_of(*frames: tuple[str, str, int]) -> Role:
    (dump,) = read_dumps(spy_text([[*frames, *fw.LOOP["plain"]]], 4))
    return read_role(Process("node-0", threads=dump.threads))


@pytest.mark.parametrize(
    ("function", "file"),
    [
        ("block_until_ready", "jax/_src/array.py"),
        ("get_grad_norm_fp32", "megatron/core/optimizer/clip_grads.py"),
        ("has_overflow", "deepspeed/runtime/zero/stage3.py"),
    ],
)
def test_who_reads_a_number_from_its_device_may_wait_for_peers(function: str, file: str) -> None:
    role = role_of((function, f"{fw.SITE}/{file}", 620))
    assert (role.kind, role.stance) == ("compute", "may wait")


def test_kernels_that_talk_to_peers_themselves_are_collectives() -> None:
    role = role_of(("dispatch", f"{fw.SITE}/deep_ep/buffer.py", 310), ("forward", "/app/moe_layer.py", 200))
    assert (role.kind, role.stance) == ("collective", "waits")


@pytest.mark.parametrize(("function", "file"), [("__getitem__", "h5py/_hl/dataset.py"), ("load", "PIL/ImageFile.py")])
def test_a_library_that_reads_files_is_a_file_that_is_read(function: str, file: str, tmp_path: Path, judge: Judge) -> None:
    loader = [("fetch", f"{fw.TORCH}/utils/data/_utils/fetch.py", 52), ("_next_data", f"{fw.TORCH}/utils/data/dataloader.py", 673)]
    odd = [(function, f"{fw.SITE}/{file}", 840), *loader, *fw.LOOP["plain"]]
    finding = judge(write_by_pid(tmp_path, Cluster(4, 2), lambda rank: odd if rank == 5 else fw.SYNC["plain"]))
    assert (finding.evict, finding.blame) == (("gpu-102",), "machine")


@pytest.mark.parametrize("rank", [0, 1, 5])
def test_who_evaluates_for_all_that_have_met_is_nobodys_fault(rank: int, tmp_path: Path, judge: Judge) -> None:
    """Without ranks and groups nobody knows which process is rank 0: pids come in any order."""
    odd = [*fw.DURING_STEP["attention"], ("evaluate", "/app/train.py", 88), *fw.LOOP["plain"]]
    finding = judge(write_by_pid(tmp_path, Cluster(4, 2, known=False), lambda at: odd if at == rank else fw.meet("plain")))
    assert (finding.evict, finding.blame) == ((), "workload")


def test_the_interpreters_own_frames_are_compiled_code() -> None:
    """As py-spy --native shows them: without a line, from the program's own file."""
    text = spy_text([fw.SYNC["megatron"]], 4).replace(b"    all_reduce", b"    _Py_read (python3.10)\n    all_reduce")
    (dump,) = read_dumps(text)
    assert [frame.native for frame in dump.threads[0].frames[:2]] == [True, False]


# What is left of a dump


WAITS = {
    "collective": fw.SYNC["megatron"],
    "backward": fw.SYNC["plain"],
    "norm": [("get_grad_norm_fp32", f"{fw.SITE}/megatron/core/optimizer/clip_grads.py", 131), *fw.STEP["megatron"]],
    "unknown": [("check_finite", "/app/loop.py", 70), *fw.LOOP["plain"]],
}
HELPERS = [BESIDE[name] for name in sorted(BESIDE)[:3]]


@pytest.mark.parametrize("wait", sorted(WAITS))
@pytest.mark.parametrize("dump", ["py-spy text", "py-spy json", "faulthandler"])
def test_wherever_a_dump_is_cut_off_its_machine_is_not_accused(wait: str, dump: str) -> None:
    contents = [FORMATS[dump]([WAITS[wait], *HELPERS], 40 + rank) for rank in range(8)]
    whole = [Process(f"n{rank // 2}", 40 + rank, threads=read_dumps(content)[0].threads) for rank, content in enumerate(contents)]
    for part in range(1, 40):
        (found,) = read_dumps(contents[5][: len(contents[5]) * part // 40])
        processes = [*whole[:5], Process("n2", 45, threads=found.threads, problem=found.problem), *whole[6:]]
        finding = analyse(Capture(tuple(processes)))
        assert (finding.evict, finding.blame) == ((), "unknown"), part


def test_a_culprit_whose_dump_is_cut_off_after_what_tells_is_named() -> None:
    odd = [*fw.DURING_STEP["reading a file"], *fw.STEP["megatron"]]
    contents = [FORMATS["py-spy text"]([odd if rank == 5 else WAITS["collective"], *HELPERS], 40 + rank) for rank in range(8)]
    contents[5] = contents[5].partition(b"<module>")[0]
    processes = [Process(f"n{rank // 2}", 40 + rank, threads=read_dumps(content)[0].threads) for rank, content in enumerate(contents)]
    assert analyse(Capture(tuple(processes))).evict == ("n2",)


COALESCED: fw.Frames = [("_coalescing_manager", fw.C10D, 2688), ("__exit__", f"{fw.STD}/contextlib.py", 144)]
PIPELINE_MESSAGE: fw.Frames = [
    ("batch_isend_irecv", fw.C10D, 2725),
    ("_batched_p2p_ops", "/workspace/megatron-lm/megatron/core/pipeline_parallel/p2p_communication.py", 142),
]
GRADIENTS: fw.Frames = [("start_grad_sync", "/workspace/megatron-lm/megatron/core/distributed/param_and_grad_buffer.py", 392)]


@pytest.mark.parametrize("inner", [[], COALESCED])
@pytest.mark.parametrize("native", ["", "    ncclGroupEnd (libnccl.so.2)\n    c10d::ProcessGroupNCCL::endCoalescing (libtorch_cuda.so)\n"])
@pytest.mark.parametrize(("frames", "kind"), [(PIPELINE_MESSAGE, "point to point"), (GRADIENTS, "collective")])
def test_a_batch_is_what_its_caller_sends_with_compiled_frames_or_without(
    inner: fw.Frames, native: str, frames: fw.Frames, kind: str
) -> None:
    """Operations are batched by the same functions, of torch and of NCCL, whether they are messages or collectives."""
    text = spy_text([[*inner, *frames, *fw.STEP["megatron"]]], 9).decode()
    text = text.replace('"MainThread"\n', f'"MainThread"\n{native}')
    role = read_role(Process("node-0", threads=read_dumps(text.encode())[0].threads))
    assert (role.kind, role.stance) == (kind, "waits")
