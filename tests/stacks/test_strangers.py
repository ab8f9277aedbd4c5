"""Jobs of strangers: six frameworks, 4 to 512 processes, every tool's dumps, with and without a topology. Who an expert would name."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import frameworks as fw
import pytest
from strangers import Cluster, write_folder

from minder.diagnose.stacks import Finding

Judge = Callable[[Path], Finding]
FRAMEWORKS = tuple(fw.SYNC)
SHAPES = ((4, 1), (2, 2), (8, 1), (4, 8), (16, 4))


def pick(*words: str) -> int:
    """A number that only depends on the case: it chooses tool, names, threads and shape."""
    return zlib.crc32("/".join(words).encode())


def shape(number: int, **axes: int) -> Cluster:
    machines, gpus = SHAPES[number % len(SHAPES)]
    return Cluster(machines, gpus, known=number % 3 != 0, **axes)


def one_elsewhere(usual: fw.Frames, odd: fw.Frames, rank: int) -> Callable[[int], fw.Frames]:
    return lambda at: odd if at == rank else usual


def spread(places: Mapping[int, fw.Frames], usual: fw.Frames) -> Callable[[int], fw.Frames]:
    return lambda at: places.get(at, usual)


# One rank is outside while all others wait


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("doing", sorted(fw.DURING_STEP))
def test_the_machine_of_the_rank_that_is_outside(framework: str, doing: str, tmp_path: Path, judge: Judge) -> None:
    number = pick(framework, doing)
    cluster = shape(number)
    rank = 1 + number // 7 % (cluster.world - 1)
    odd = [*fw.DURING_STEP[doing], *fw.STEP[framework]]
    finding = judge(write_folder(tmp_path, cluster, one_elsewhere(fw.SYNC[framework], odd, rank), number))
    assert (finding.evict, finding.group, finding.blame) == ((cluster.machine(rank),), None, "machine")
    assert {suspect.machine for suspect in finding.suspects} == {cluster.machine(rank)}


PROGRAM = {
    "lock": (fw.LOCK, "step"),
    "garbage": (fw.GARBAGE, "step"),
    "compiling again": (fw.RECOMPILE, "step"),
    "debugger": (fw.DEBUGGER, "step"),
    "loader's queue": (fw.LOADER_QUEUE, "loop"),
    "loader's pinned queue": (fw.LOADER_PINNED, "loop"),
    "data set's lock": (fw.LOADER_LOCK, "loop"),
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("doing", sorted(PROGRAM))
def test_the_rank_whose_program_holds_it_up_is_shown_and_kept(framework: str, doing: str, tmp_path: Path, judge: Judge) -> None:
    number = pick(framework, doing)
    cluster, (frames, trunk) = shape(number), PROGRAM[doing]
    rank = 1 + number // 7 % (cluster.world - 1)
    odd = [*frames, *(fw.STEP if trunk == "step" else fw.LOOP)[framework]]
    finding = judge(write_folder(tmp_path, cluster, one_elsewhere(fw.SYNC[framework], odd, rank), number))
    assert (finding.evict, finding.group) == ((), None)
    assert finding.blame in ("software", "workload")
    assert {suspect.machine for suspect in finding.suspects} == {cluster.machine(rank)}


@pytest.mark.parametrize("letter", ["T", "D"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_the_kernel_holds(framework: str, letter: str, tmp_path: Path, judge: Judge) -> None:
    number = pick(framework, letter)
    cluster = shape(number)
    rank = number // 7 % cluster.world
    cluster.states = {rank: letter}
    finding = judge(write_folder(tmp_path, cluster, lambda at: fw.SYNC[framework], number))
    assert (finding.evict, finding.blame) == ((cluster.machine(rank),), "machine")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_rank_that_calls_another_collective_took_another_way(framework: str, tmp_path: Path, judge: Judge) -> None:
    number = pick(framework, "another")
    cluster = shape(number)
    rank = 1 + number // 7 % (cluster.world - 1)
    odd = [("broadcast", fw.C10D, 2103), fw.LOG, ("sync_flag", "/app/early_stop.py", 12), *fw.LOOP[framework]]
    finding = judge(write_folder(tmp_path, cluster, one_elsewhere(fw.SYNC[framework], odd, rank), number))
    assert (finding.evict, finding.blame) == ((), "software")
    assert {suspect.machine for suspect in finding.suspects} == {cluster.machine(rank)}


@pytest.mark.parametrize("rank", [0, 5])
def test_who_sleeps_between_two_tries_to_reach_a_service_talks_to_it(rank: int, tmp_path: Path, judge: Judge) -> None:
    retry = [
        ("sleep", "/app/patience.py", 3),
        ("wrapped_fn", f"{fw.SITE}/wandb/sdk/lib/retry.py", 150),
        ("log", f"{fw.SITE}/wandb/sdk/wandb_run.py", 1700),
    ]
    odd = [*retry, *fw.LOOP["plain"]]
    finding = judge(write_folder(tmp_path, Cluster(8, 1), one_elsewhere(fw.SYNC["plain"], odd, rank), 5))
    assert (finding.evict, finding.blame) == ((), "workload" if rank == 0 else "software")


def test_a_checkpointed_forward_pass_is_no_checkpoint(tmp_path: Path, judge: Judge) -> None:
    """Activation checkpointing has the word in its functions' names; rank 0 computes there, and the others wait for it."""
    odd = [*fw.DURING_STEP["attention"], ("checkpoint_forward", "/app/model.py", 4), *fw.STEP["fsdp"]]
    finding = judge(write_folder(tmp_path, Cluster(4, 2), one_elsewhere(fw.SYNC["fsdp"], odd, 0), 8))
    assert finding.evict == ("gpu-100",)


# Nobody


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("doing", sorted(fw.FOR_ALL))
def test_what_rank_0_does_for_all_accuses_nobody(framework: str, doing: str, tmp_path: Path, judge: Judge) -> None:
    number = pick(framework, doing)
    cluster = shape(number)
    odd = [*fw.FOR_ALL[doing], *fw.LOOP[framework]]
    finding = judge(write_folder(tmp_path, cluster, one_elsewhere(fw.meet(framework), odd, 0), number))
    assert (finding.suspects, finding.evict) == ((), ())
    assert finding.blame in ("workload", "software", "unknown")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("doing", ["sync", "barrier", "loader", "loader's lock", "compute", "start", "compiling", "debugger", "saving"])
def test_where_all_agree_nobody_stands_out(framework: str, doing: str, tmp_path: Path, judge: Judge) -> None:
    number = pick(framework, doing)
    place = {
        "sync": fw.SYNC[framework],
        "barrier": fw.meet(framework),
        "loader": [*fw.LOADER_QUEUE, *fw.LOOP[framework]],
        "loader's lock": [*fw.LOADER_LOCK, *fw.LOOP[framework]],
        "compute": [*fw.DURING_STEP["attention"], *fw.STEP[framework]],
        "start": fw.IMPORTS,
        "compiling": [*fw.FIRST_COMPILE, *fw.STEP[framework]],
        "debugger": [*fw.DEBUGGER, *fw.STEP[framework]],
        "saving": [*fw.FOR_ALL["saving"], *fw.LOOP[framework]],
    }[doing]
    finding = judge(write_folder(tmp_path, shape(number), lambda at: place, number))
    assert (finding.suspects, finding.evict) == ((), ())
    assert finding.blame != "machine"


def test_everybody_stopped_is_an_operator(tmp_path: Path, judge: Judge) -> None:
    cluster = Cluster(4, 2, states=dict.fromkeys(range(8), "t"))
    finding = judge(write_folder(tmp_path, cluster, lambda at: fw.SYNC["plain"], 3))
    assert (finding.suspects, finding.evict) == ((), ())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("usual", "late", "share"),
    [
        (fw.MEETING, fw.IMPORTS, 1),
        (fw.MEETING, fw.IMPORTS, 5),
        (fw.TCP_STORE, fw.LOADING, 1),
        (fw.MEETING, fw.TCP_STORE, 3),
        (fw.MEETING, [*fw.FOR_ALL["downloading"], *fw.PLAIN_MAIN], 1),
    ],
)
def test_a_start_that_takes_its_time(usual: fw.Frames, late: fw.Frames, share: int, seed: int, tmp_path: Path, judge: Judge) -> None:
    cluster = shape(seed)
    finding = judge(write_folder(tmp_path, cluster, lambda at: late if 0 < at <= min(share, cluster.world // 2 - 1) else usual, seed))
    assert finding.evict == ()
    assert finding.blame != "machine"


# Pipelines


PIPELINES = (
    Cluster(4, 1, pipeline=4),
    Cluster(8, 1, pipeline=4),
    Cluster(16, 1, pipeline=4, order="tp-pp-dp"),
    Cluster(4, 8, tensor=8, pipeline=4),
    Cluster(8, 8, tensor=8, pipeline=4, order="tp-pp-dp"),
    Cluster(16, 4, tensor=2, pipeline=8),
    Cluster(64, 8, tensor=8, pipeline=8),
)
WORK = (
    fw.message("recv_forward"),
    fw.FORWARD,
    fw.BACKWARD,
    fw.message("send_backward_recv_forward"),
    fw.BATCH_WAIT,
    fw.message("recv_backward"),
)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("number", range(len(PIPELINES)))
@pytest.mark.parametrize("moment", ["warm-up", "steady", "drain", "unequal"])
def test_a_pipeline_at_work_accuses_nobody(number: int, moment: str, known: bool, tmp_path: Path, judge: Judge) -> None:
    """Every stage does something else, and what the stages do in one replica is what they do in all of them, or nearly."""
    cluster = PIPELINES[number]
    cluster = Cluster(cluster.machines, cluster.gpus, cluster.tensor, cluster.pipeline, cluster.order, known=known)
    stages = {
        "warm-up": lambda stage, replica: fw.FORWARD if stage < 2 else fw.message("recv_forward"),
        "steady": lambda stage, replica: (fw.FORWARD, fw.BACKWARD, fw.message("send_forward_recv_backward"), fw.FORWARD)[stage % 4],
        "drain": lambda stage, replica: fw.BACKWARD if stage < 2 else fw.SYNC["megatron"],
        "unequal": lambda stage, replica: WORK[pick(str(stage), str(replica)) % len(WORK)] if stage else fw.BACKWARD,
    }[moment]

    def place(rank: int) -> fw.Frames:
        data = cluster.world // cluster.tensor // cluster.pipeline
        replica = rank // cluster.tensor % data if cluster.order == "tp-dp-pp" else rank // cluster.tensor // cluster.pipeline
        return stages(cluster.stage(rank), replica)

    finding = judge(write_folder(tmp_path, cluster, place, number))
    assert (finding.suspects, finding.evict) == ((), ())
    assert finding.blame != "machine"


@pytest.mark.parametrize("number", range(len(PIPELINES)))
def test_healthy_stages_wait_in_places_of_their_own(number: int, tmp_path: Path, judge: Judge) -> None:
    cluster = PIPELINES[number]
    places = (fw.message("recv_backward"), fw.message("send_backward"), fw.message("recv_forward"), fw.SYNC["megatron"])
    finding = judge(write_folder(tmp_path, cluster, lambda rank: places[cluster.stage(rank) * 4 // cluster.pipeline], number))
    assert (finding.suspects, finding.evict) == ((), ())


@pytest.mark.parametrize("doing", ["reading a file", "python sleep", "user loop"])
@pytest.mark.parametrize("number", range(len(PIPELINES)))
def test_one_rank_outside_among_the_places_of_a_pipeline(number: int, doing: str, tmp_path: Path, judge: Judge) -> None:
    """Several healthy groups, and one rank that is in none of them."""
    cluster = PIPELINES[number]
    rank = pick(doing) % cluster.world
    places = (fw.message("recv_backward"), fw.message("send_backward"), fw.message("recv_forward"), fw.SYNC["megatron"])
    odd = [*fw.DURING_STEP[doing], *fw.STEP["megatron"]]
    finding = judge(
        write_folder(tmp_path, cluster, lambda at: odd if at == rank else places[cluster.stage(at) * 4 // cluster.pipeline], number)
    )
    assert (finding.evict, finding.group, finding.blame) == ((cluster.machine(rank),), None, "machine")


@pytest.mark.parametrize("replica", [0, 1])
@pytest.mark.parametrize(
    ("machines", "gpus", "tensor", "pipeline"), [(8, 1, 1, 4), (12, 1, 1, 4), (16, 2, 2, 4), (16, 8, 8, 4), (32, 8, 8, 8)]
)
def test_one_pipeline_that_is_stuck_is_its_group(
    machines: int, gpus: int, tensor: int, pipeline: int, replica: int, tmp_path: Path, judge: Judge
) -> None:
    """All other pipelines have reached the gradients; this one's stages wait for one another."""
    cluster = Cluster(machines, gpus, tensor, pipeline, "tp-pp-dp")
    ours = range(replica * tensor * pipeline, (replica + 1) * tensor * pipeline)

    def place(rank: int) -> fw.Frames:
        if rank not in ours:
            return fw.SYNC["megatron"]
        stage = cluster.stage(rank)
        return fw.TENSOR_GATHER if stage == pipeline - 1 else fw.message("recv_forward" if stage % 2 else "recv_backward")

    finding = judge(write_folder(tmp_path, cluster, place, machines))
    if machines // pipeline > 1 and replica < 2:
        assert set(finding.evict) == {cluster.machine(rank) for rank in ours}
        assert (finding.group, finding.blame) == (f"pp:{replica}", "machine")


@pytest.mark.parametrize("order", ["tp-dp-pp", "tp-pp-dp"])
@pytest.mark.parametrize("letter", ["T"])
@pytest.mark.parametrize(
    ("machines", "gpus", "pipeline", "stages"), [(8, 1, 4, (1, 2)), (8, 1, 2, (0, 1)), (16, 2, 4, (0, 3)), (16, 1, 4, (0, 1, 2))]
)
def test_several_stopped_machines_of_one_pipeline_are_their_group(
    machines: int, gpus: int, pipeline: int, stages: tuple[int, ...], letter: str, order: str, tmp_path: Path, judge: Judge
) -> None:
    cluster = Cluster(machines, gpus, gpus, pipeline, order)
    data = machines // pipeline
    home = [rank for rank in range(cluster.world) if (rank // gpus % data if order == "tp-dp-pp" else rank // gpus // pipeline) == 1]
    stopped = [rank for rank in home if cluster.stage(rank) in stages]
    cluster.states = dict.fromkeys(stopped, letter)
    finding = judge(write_folder(tmp_path, cluster, lambda at: fw.SYNC["megatron"], machines))
    assert finding.group == "pp:1"
    assert set(finding.evict) == {cluster.machine(rank) for rank in home}
    assert {suspect.machine for suspect in finding.suspects} == {cluster.machine(rank) for rank in stopped}


def test_two_stopped_machines_that_share_no_small_group_are_two_machines(tmp_path: Path, judge: Judge) -> None:
    cluster = Cluster(16, 1, 1, 4, "tp-pp-dp", states={1: "T", 6: "T"})
    finding = judge(write_folder(tmp_path, cluster, lambda at: fw.SYNC["megatron"], 1))
    assert (set(finding.evict), finding.group) == ({cluster.machine(1), cluster.machine(6)}, None)


# Two looks


def test_a_machine_that_has_no_dump_is_looked_at(tmp_path: Path, judge: Judge) -> None:
    cluster = Cluster(8, 4)
    finding = judge(write_folder(tmp_path, cluster, lambda at: None if at // 4 == 5 else fw.SYNC["fsdp"], 5))
    assert ([suspect.machine for suspect in finding.suspects], finding.evict) == ([cluster.machine(20)], ())


@pytest.mark.parametrize("doing", ["reading a file", "user loop", "matrix product"])
def test_two_captures_of_the_same_rank_outside(doing: str, tmp_path: Path, judge: Judge) -> None:
    cluster = Cluster(8, 2)
    odd = [*fw.DURING_STEP[doing], *fw.STEP["plain"]]
    for name in ("20260302T061200Z", "20260302T061215Z"):
        write_folder(tmp_path / "stacks" / name, cluster, one_elsewhere(fw.SYNC["plain"], odd, 9), 7)
    assert judge(tmp_path).evict == (cluster.machine(9),)


def test_a_pipeline_whose_one_stage_still_computes_in_the_second_capture_is_stuck_there(tmp_path: Path, judge: Judge) -> None:
    cluster = Cluster(4, 1, pipeline=4)
    for name in ("20260302T061200Z", "20260302T061230Z"):
        write_folder(tmp_path / "stacks" / name, cluster, one_elsewhere(fw.message("recv_forward"), fw.FORWARD, 2), 7)
    assert judge(tmp_path).evict == (cluster.machine(2),)


# Who does what for all, besides rank 0


@pytest.mark.parametrize("doing", ["extracting", "safetensors", "downloading"])
def test_what_the_first_rank_of_every_machine_does_accuses_nobody(doing: str, tmp_path: Path, judge: Judge) -> None:
    odd = [*fw.FOR_ALL[doing], *fw.LOOP["plain"]]
    finding = judge(write_folder(tmp_path, Cluster(8, 8), lambda at: fw.meet("plain") if at % 8 else odd, 9))
    assert (finding.suspects, finding.evict) == ((), ())


def test_the_last_rank_may_be_the_one_that_logs(tmp_path: Path, judge: Judge) -> None:
    odd = [*fw.FOR_ALL["tensorboard"], *fw.LOOP["megatron"]]
    finding = judge(write_folder(tmp_path, Cluster(8, 8), one_elsewhere(fw.SYNC["megatron"], odd, 63), 9))
    assert (finding.suspects, finding.evict) == ((), ())


@pytest.mark.parametrize("doing", ["reading a file", "sleep seen natively", "attention"])
def test_rank_0_that_holds_a_step_up_is_no_deputy(doing: str, tmp_path: Path, judge: Judge) -> None:
    odd = [*fw.DURING_STEP[doing], *fw.STEP["fsdp"]]
    finding = judge(write_folder(tmp_path, Cluster(8, 8), one_elsewhere(fw.SYNC["fsdp"], odd, 0), 9))
    assert (finding.evict, finding.blame) == (("gpu-100",), "machine")


@pytest.mark.parametrize("order", ["tp-dp-pp", "tp-pp-dp"])
@pytest.mark.parametrize("known", [True, False])
def test_one_loader_of_a_large_pipeline_in_its_evaluation(order: str, known: bool, tmp_path: Path, judge: Judge) -> None:
    """After BLOOM's evaluation hang, 2022: TP 4, PP 12, DP 8 on 48 machines; broadcasts, sends and all-reduces are all healthy."""
    engine = "/w/deepspeed/runtime/pipe/engine.py"
    trunk = [
        ("_exec_schedule", engine, 1384),
        ("eval_batch", engine, 453),
        ("evaluate", "/w/megatron/training.py", 983),
        *fw.LOOP["megatron"],
    ]
    cluster = Cluster(48, 8, 4, 12, order, known=known)

    def place(rank: int) -> fw.Frames:
        if rank == 243:
            return [*fw.LOADER_PINNED, ("_next_batch", engine, 631), ("_exec_load_micro_batch", engine, 799), *trunk]
        stage = cluster.stage(rank)
        if stage == 4 and rank % 8 < 4:
            return [
                ("send", fw.C10D, 900),
                ("send", "/w/deepspeed/runtime/pipe/p2p.py", 60),
                ("_exec_send_activations", engine, 900),
                *trunk,
            ]
        inner = "broadcast" if stage < 5 else "all_reduce"
        return [(inner, fw.C10D, 1191), ("_aggregate", engine, 600), *trunk]

    finding = judge(write_folder(tmp_path, cluster, place, 2))
    assert ([suspect.machine for suspect in finding.suspects], finding.evict, finding.blame) == (["gpu-130"], (), "workload")
