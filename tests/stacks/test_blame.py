"""Who is named for what, whatever tool wrote the dumps. Every case is a job that hangs, or is only slow to start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import places as at
import pytest
from dumps import FORMATS, Job

from minder.diagnose.stacks import Finding, suspects_from_stacks

MakeJob = Callable[..., Job]
Judge = Callable[[Job], Finding]
in_every_format = pytest.mark.parametrize("dump", list(FORMATS))


def named(finding: Finding) -> set[str]:
    return {suspect.machine for suspect in finding.suspects}


def is_nobody(finding: Finding) -> bool:
    return finding.evict == () and finding.group is None


# One machine is to blame


@in_every_format
@pytest.mark.parametrize(
    ("usual", "odd", "reason"),
    [
        (at.GRAD_SYNC, at.READ, "reading a file"),
        (at.DDP_BACKWARD, at.READ_PLAIN, "reading a file"),
        (at.DDP_BACKWARD, at.USER_CODE, "in main (train_ddp.py:71)"),
        (at.GRAD_SYNC, at.COMPUTE, "computing"),
        (at.GRAD_NORM, at.COMPUTE, "computing"),
        (at.GRAD_SYNC, at.SYNC, "waiting for its own device"),
    ],
)
def test_the_one_that_is_busy_while_all_others_wait_is_evicted(
    usual: Any, odd: Any, reason: str, dump: str, make_job: MakeJob, judge: Judge
) -> None:
    finding = judge(make_job(8, dump=dump).stand(usual).stand(odd, [6]))
    assert (finding.evict, finding.group, finding.blame) == (("node-0006",), None, "machine")
    (suspect,) = finding.suspects
    assert reason in suspect.reason
    assert suspect.pid == 4600
    assert 0.5 < suspect.confidence < 1


@in_every_format
def test_the_backward_threads_decide_where_the_main_thread_only_waits_for_them(dump: str, make_job: MakeJob, judge: Judge) -> None:
    """ZeRO-3: the main thread stands in backward, the gathering is in an autograd thread; bystanders must not be read as the job."""
    busy = [at.ZERO_MAIN, at.TQDM, at.ZERO_GATHER, at.PIN_MEMORY]
    finding = judge(make_job(4, 2, dump).stand(busy).stand([at.COMPUTE, at.PIN_MEMORY, at.TQDM], [2], [1]))
    assert finding.evict == ("node-0002",)
    assert [(len(group.processes), group.kind) for group in finding.groups] == [(7, "collective"), (1, "compute")]


@in_every_format
def test_in_a_pipeline_the_stage_that_computes_is_named_and_not_its_waiting_neighbours(dump: str, make_job: MakeJob, judge: Judge) -> None:
    job = make_job(16, 8, dump).stand(at.GRAD_SYNC).stand(at.RECV, [9]).stand(at.SEND, [1]).stand(at.COMPUTE, [5]).topology(8, 4)
    assert judge(job).evict == ("node-0005",)


@in_every_format
@pytest.mark.parametrize(("letter", "word"), [("T", "stopped"), ("D", "uninterruptible")])
def test_a_process_that_the_kernel_holds_is_named_though_its_stack_is_like_all_others(
    letter: str, word: str, dump: str, make_job: MakeJob, judge: Judge
) -> None:
    finding = judge(make_job(4, dump=dump).stand(at.GRAD_SYNC).state(letter, [3]))
    assert (finding.evict, finding.blame) == (("node-0003",), "machine")
    assert word in finding.suspects[0].reason


# A parallel group is to blame


@in_every_format
def test_the_papers_example_evicts_the_pipeline_group_that_the_outliers_share(dump: str, make_job: MakeJob, judge: Judge) -> None:
    """ByteRobust, figure 7: TP 2, PP 4, DP 4 on 16 machines of two; 12 to 15 wait in irecv, isend and all_gather_into_tensor."""
    job = make_job(16, 2, dump).stand(at.GRAD_SYNC).stand(at.RECV, [12, 13]).stand(at.SEND, [14]).stand(at.GATHER, [15])
    finding = judge(job.topology(2, 4, "tp-pp-dp"))
    assert finding.evict == ("node-0012", "node-0013", "node-0014", "node-0015")
    assert (finding.group, finding.blame) == ("pp:3", "machine")


def test_without_a_topology_no_group_is_guessed(make_job: MakeJob, judge: Judge) -> None:
    job = make_job(16, 2).stand(at.GRAD_SYNC).stand(at.RECV, [12, 13]).stand(at.SEND, [14]).stand(at.GATHER, [15])
    assert is_nobody(judge(job))


def test_two_stopped_machines_of_one_pipeline_are_its_group(make_job: MakeJob, judge: Judge) -> None:
    finding = judge(make_job(4).stand(at.GRAD_SYNC).state("T", [1, 3]).topology(1, 2))
    assert (finding.evict, finding.group) == (("node-0001", "node-0003"), "pp:1")


# Nobody is to blame


@in_every_format
@pytest.mark.parametrize(
    ("place", "blame"),
    [
        (at.GRAD_SYNC, "unknown"),
        (at.DDP_BACKWARD, "unknown"),
        (at.LOADER_WAIT, "workload"),
        (at.READ, "workload"),
        (at.SAVE, "workload"),
        (at.IMPORTING, "workload"),
        (at.COMPILE, "software"),
        (at.COMPUTE, "unknown"),
    ],
)
def test_nobody_stands_out_where_all_stand_together(place: Any, blame: str, dump: str, make_job: MakeJob, judge: Judge) -> None:
    finding = judge(make_job(4, 2, dump).stand(place))
    assert is_nobody(finding)
    assert finding.suspects == ()
    assert finding.blame == blame


@in_every_format
@pytest.mark.parametrize(
    ("usual", "odd", "where", "blame"),
    [
        (at.GRAD_SYNC, at.LOADER_WAIT, [5], "workload"),
        (at.SAVE_BARRIER, at.SAVE, [0], "workload"),
        (at.RENDEZVOUS, at.IMPORTING, [3], "workload"),
        (at.RENDEZVOUS, at.LOADING_MODEL, [3], "workload"),
        (at.BROADCAST, at.COMPILE, [0, 1, 2], "software"),
        (at.GRAD_SYNC, at.BROADCAST, [2], "software"),
        (at.LOADER_WAIT, at.GRAD_SYNC, [1], "workload"),
    ],
)
def test_what_the_program_does_is_no_machines_fault(
    usual: Any, odd: Any, where: list[int], blame: str, dump: str, make_job: MakeJob, judge: Judge
) -> None:
    """A data loader that hangs, a checkpoint that rank 0 writes, a slow start, a compilation, another collective than the peers'."""
    finding = judge(make_job(8, dump=dump).stand(usual).stand(odd, where))
    assert is_nobody(finding)
    assert finding.blame == blame


@pytest.mark.parametrize(
    ("usual", "odd", "where", "alone"),
    [(at.GRAD_SYNC, at.SAVE, [0], "watch"), (at.SAVE, at.SAVE, [0], "watch"), (at.GRAD_SYNC, at.LOADER_WAIT, [0], None)],
)
def test_a_checkpoint_passes_by_itself_and_a_data_loader_may_not(
    usual: Any, odd: Any, where: list[int], alone: str | None, make_job: MakeJob, judge: Judge
) -> None:
    (suspect,) = suspects_from_stacks(judge(make_job(8).stand(usual).stand(odd, where)), 100.0)
    assert (suspect.kind, suspect.alone) == ("job", alone)


def test_real_stages_that_wait_for_a_checkpoint_of_rank_0(judge: Callable[[Path], Finding]) -> None:
    """Its replica waits for gradients, its next stage for a message, and of the fourth rank there is no dump."""
    finding = judge(Path(__file__).parent / "data" / "stages_saving")
    assert (finding.blame, finding.passes, finding.suspects, finding.evict) == ("workload", True, (), ())
    assert [group.kind for group in finding.groups] == ["checkpoint", "collective", "point to point"]


def test_healthy_stages_of_a_pipeline_differ(make_job: MakeJob, judge: Judge) -> None:
    finding = judge(make_job(8, 8).stand(at.GRAD_SYNC).stand(at.RECV, [4, 5, 6, 7]).topology(8, 2))
    assert is_nobody(finding)
    assert finding.suspects == ()


def test_a_stray_barrier_is_the_programs(make_job: MakeJob, judge: Judge) -> None:
    """47 of 48 wait for data, rank 0 alone waits in a barrier that nobody else calls."""
    finding = judge(make_job(4, 12).stand(at.LOADER_WAIT).stand(at.STRAY_BARRIER, [0], [0]))
    assert is_nobody(finding)
    assert (named(finding), finding.blame) == ({"node-0000"}, "software")


def test_the_same_ranks_of_every_machine_astray_are_the_programs(make_job: MakeJob, judge: Judge) -> None:
    """BLOOM, 2022: on each machine two of eight tensor ranks are in a broadcast of train_step, six have left it."""
    behind = [("broadcast", at.C10D, 1191), ("_aggregate_total_loss", f"{at.DEEPSPEED}/runtime/pipe/engine.py", 540), *at.ROOT]
    finding = judge(make_job(2, 8).stand(at.ROOT[1:]).stand(behind, None, [2, 5]))
    assert is_nobody(finding)
    assert finding.blame == "software"


def test_one_data_loader_that_hangs_among_384_ranks_is_found_and_not_evicted(make_job: MakeJob, judge: Judge) -> None:
    """BLOOM's evaluation hang: broadcasts, sends and all-reduces everywhere, one process waits for its data-loading worker."""
    job = make_job(48, 8).stand(at.GRAD_SYNC).stand(at.BROADCAST, range(12)).stand(at.SEND, range(12, 16), range(4))
    finding = judge(job.stand(at.LOADER_WAIT, [30], [3]))
    assert (named(finding), finding.evict, finding.blame) == ({"node-0030"}, (), "workload")


def test_two_machines_that_read_files_point_at_their_storage(make_job: MakeJob, judge: Judge) -> None:
    finding = judge(make_job(8).stand(at.GRAD_SYNC).stand(at.READ, [1, 5]).topology(1, 2))
    assert (named(finding), finding.evict, finding.blame) == ({"node-0001", "node-0005"}, (), "unknown")


def test_of_two_that_talk_over_a_socket_the_one_that_does_not_wait_is_named(make_job: MakeJob, judge: Judge) -> None:
    """Two ranks outside any collective library: one waits on its socket, the other is busy; both wait: nobody can tell."""
    job = make_job(8).stand(at.GRAD_SYNC).stand(at.OWN_SOCKET, [2]).stand(at.USER_CODE, [5])
    assert judge(job).evict == ("node-0005",)
    both = judge(job.stand(at.OWN_SOCKET, [5]))
    assert (named(both), both.evict, both.blame) == ({"node-0002", "node-0005"}, (), "unknown")


def test_everybody_stopped_is_a_debugger(make_job: MakeJob, judge: Judge) -> None:
    finding = judge(make_job(4).stand(at.GRAD_SYNC).state("T", [0, 1, 2, 3]))
    assert is_nobody(finding)
    assert finding.suspects == ()


def test_a_process_that_has_ended_is_named_but_its_machine_is_not_evicted(make_job: MakeJob, judge: Judge) -> None:
    finding = judge(make_job(4).stand(at.GRAD_SYNC).state("Z", [1]))
    assert (named(finding), finding.evict) == ({"node-0001"}, ())


@pytest.mark.parametrize(("machine", "letter", "evicted"), [(0, "D", ()), (5, "S", ()), (5, "D", ("node-0005",))])
def test_only_a_writer_that_the_kernel_holds_and_that_does_not_write_for_all_is_a_sick_disk(
    machine: int, letter: str, evicted: tuple[str, ...], make_job: MakeJob, judge: Judge
) -> None:
    finding = judge(make_job(8).stand(at.SAVE_BARRIER).stand(at.SAVE, [machine]).state(letter, [machine]))
    assert finding.evict == evicted


def test_ranks_of_a_single_machine_cannot_accuse_it(make_job: MakeJob, judge: Judge) -> None:
    finding = judge(make_job(1, 8).stand(at.GRAD_SYNC).stand(at.READ, [0], [3]))
    assert (named(finding), finding.evict) == ({"node-0000"}, ())


def test_one_line_behind_its_peers_is_told(make_job: MakeJob, judge: Judge) -> None:
    behind = [(function, file, 2066 if function == "train" else line) for function, file, line in at.GRAD_SYNC]
    finding = judge(make_job(8).stand(at.GRAD_SYNC).stand(behind, [4]))
    assert (named(finding), finding.evict) == ({"node-0004"}, ())
    assert "one call site behind (training.py:2066 against 2101)" in finding.suspects[0].reason
    assert [len(group.processes) for group in finding.groups] == [8]


# Helpers


def test_launchers_and_data_workers_do_not_vote(make_job: MakeJob, judge: Judge) -> None:
    """More idle data-loading workers than ranks, and a launcher per machine: the rank that is busy is still the odd one."""
    job = make_job(4, 6).stand(at.WORKER_IDLE).stand(at.LAUNCHER, None, [5]).stand(at.GRAD_SYNC, None, [0, 1]).stand(at.READ, [2], [0])
    finding = judge(job)
    assert finding.evict == ("node-0002",)
    assert {group.kind for group in finding.groups} == {"collective", "data loading", "idle"}


def test_a_data_worker_that_is_stopped_accuses_its_machine(make_job: MakeJob, judge: Judge) -> None:
    job = make_job(4, 2).stand(at.WORKER_IDLE, None, [1]).stand(at.GRAD_SYNC, None, [0]).stand(at.LOADER_WAIT, [3], [0]).state("S", [])
    rows = (job.folder / "processes.json").read_text()
    stopped = rows.replace('"pid": 4301, "rank": null, "state": "S"', '"pid": 4301, "rank": null, "state": "T"')
    assert stopped != rows
    (job.folder / "processes.json").write_text(stopped)
    finding = judge(job)
    assert (finding.evict, finding.blame) == (("node-0003",), "machine")
    assert "data-loading worker" in finding.suspects[0].reason
