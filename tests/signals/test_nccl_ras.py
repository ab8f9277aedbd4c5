"""NCCL's RAS: outputs in the format of its documentation and of public threads, with made-up numbers. It was never run live."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.signals import RasRule
from minder.edge.agent.ras import ask_ras, ras_signal
from minder.edge.signals.nccl_ras import RasProcess, read_ras
from minder.model.evidence import Signal, Suspect
from minder.model.observation import JobView, MachineView, Observation, WorkerView

HEAD = """NCCL version 2.26.2 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          2            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         2         4         4   RUNNING  {}

Errors
======

{}
Warnings
========

{}
"""
GONE = """DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 102 on node 10.0.0.2 managing GPU 0

#0-0 (27a079b828ff1a75) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 2 -- GPU 0 managed by process 102 on node 10.0.0.2
"""
COUNTS = """#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different {} operation counts
  3 ranks have launched up to operation {}
  1 rank has launched up to operation {}
  Rank 3 -- GPU 1 (NVML 5) managed by process 103 on node 10.0.0.2
"""


def ranks(counts: list[int]) -> list[dict[str, Any]]:
    status = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    return [
        {
            "rank": rank, "host": f"10.0.0.{1 + rank // 2}", "pid": 100 + rank, "cuda_dev": 0, "nvml_dev": 0, "status": status,
            "collective_counts": {"Broadcast": 4, "AllReduce": count},
        }
        for rank, count in enumerate(counts)
    ]  # fmt: skip


def document(counts: list[int], missing: list[dict[str, Any]] | None = None) -> str:
    size = len(counts) + len(missing or [])
    one = {"hash": "0x1", "size": size, "ranks_count": len(counts), "ranks": ranks(counts), "missing_ranks": missing or []}
    return json.dumps({"nccl_version": "2.28.7", "communicators": [one], "ras": {"timeouts_count": 1}}, indent=2)


def test_text_of_a_job_that_is_well() -> None:
    report = read_ras(HEAD.format("OK", "", ""))
    assert report is not None and (report.silent, report.behind, report.ahead, report.problems) == ((), (), (), ())


def test_text_names_who_is_gone_who_is_behind_and_who_is_ahead() -> None:
    gone = read_ras(HEAD.format("INCOMPLETE", GONE, ""))
    assert gone is not None and {item.pid for item in gone.silent} == {102} and gone.problems == ("INCOMPLETE", "DEAD")
    behind = read_ras(HEAD.format("MISMATCH", "", COUNTS.format("AllGather", 641, 640)))
    assert behind is not None and behind.behind == (RasProcess(103, "10.0.0.2", 3, 4),) and behind.ahead == ()
    ahead = read_ras(HEAD.format("MISMATCH", "", COUNTS.format("collective", 640, 641)))
    assert ahead is not None and ahead.behind == () and [item.rank for item in ahead.ahead] == [3]


def test_json_names_the_same() -> None:
    lost = {
        "rank": 3,
        "host": "10.0.0.2",
        "pid": 103,
        "cuda_dev": 1,
        "nvml_dev": 1,
        "status": {"unresponsive": True, "considered_dead": False},
    }
    left = lost | {"pid": 99, "status": {"unresponsive": False, "considered_dead": False}}  # left the communicator, and answers
    report = read_ras(document([7, 7, 7], [lost, left]))
    assert report is not None and [item.pid for item in report.silent] == [103] and report.timeouts == 1
    report = read_ras(document([7, 7, 6, 7]))
    assert report is not None and [item.rank for item in report.behind] == [2] and report.ahead == ()
    report = read_ras(document([7, 7, 6, 6]))  # no majority: nobody is behind
    assert report is not None and (report.behind, report.ahead) == ((), ())


RECORDED = Path(__file__).parent / "data" / "nccl_ras"  # NCCL 2.28.9 on one GPU: two healthy ranks, one a step ahead; one that is stopped


@pytest.mark.parametrize("name", ["moving_job.json", "moving_job.txt"])
def test_a_live_answer_of_a_healthy_job_is_read_and_names_no_rank(name: str) -> None:
    report = read_ras((RECORDED / name).read_text())
    assert report is not None and (report.silent, report.behind, report.ahead, report.problems) == ((), (), (), ())


@pytest.mark.parametrize("name", ["stopped_rank.json", "stopped_rank.txt"])
def test_a_live_answer_names_the_rank_that_is_stopped(name: str) -> None:
    """NCCL 2.28.9's JSON lacks a comma there, so no JSON reader takes it as it is."""
    report = read_ras((RECORDED / name).read_text())
    assert report is not None and (report.behind, report.ahead, report.problems) == ((), (), ("INCOMPLETE",))
    assert [(item.rank, item.pid, item.host) for item in report.silent] == [(1, 537, "127.0.0.1")]


def test_a_live_answer_names_the_rank_that_is_behind_two_others() -> None:
    text = (RECORDED / "moving_job.json").read_text()
    accepted, document = text[: text.index("{")], json.loads(text[text.index("{") :])
    communicator = document["communicators"][0]
    communicator["ranks"].append(communicator["ranks"][0] | {"rank": 2, "pid": 1510})
    report = read_ras(accepted + json.dumps(document))
    assert report is not None and [(item.rank, item.pid) for item in report.behind] == [(1, 1509)]


@pytest.mark.parametrize(
    "text", ["", "Connection refused", "{", "[]", '{"communicators": 3}', '{"communicators": [{"size": 2}]}', HEAD[:200]]
)
def test_what_is_no_report(text: str) -> None:
    assert read_ras(text) is None


def suspects(report_text: str, stands: bool = True, after_s: float = 60.0) -> list[Suspect]:
    report = read_ras(report_text)
    job = JobView("j", 1, "running", ("m1", "m2"), (), (), {0: "m1", 1: "m1", 2: "m2", 3: "m2"}, 0.0, 0.0)
    views = {
        name: MachineView(name, 0.1, 0.1, tuple(WorkerView(slot, 100 + first + slot, first + slot, "running", 1) for slot in (0, 1)))
        for name, first in (("m1", 0), ("m2", 2))
    }
    tracker = JobTracker()
    tracker.halt.since_s = 50.0 if stands else None
    heard = ras_signal("m1", report)
    signal = Signal(after_s, "ras", "m1", heard.message, data=heard.data)
    return list(RasRule(tracker).observe(Observation(after_s, signals=[signal], job=job, fleet=views)).suspects)


def test_a_rank_that_is_gone_or_behind_is_noted_and_never_more() -> None:
    for text in (
        HEAD.format("INCOMPLETE", GONE, ""),
        document([7, 7, 6, 7]),
        HEAD.format("MISMATCH", "", COUNTS.format("AllReduce", 7, 6)),
    ):
        assert [(item.machines, item.tier) for item in suspects(text)] == [(("m2",), "watch")]


def test_ok_ahead_no_answer_and_a_job_that_steps_name_nobody() -> None:
    assert suspects(HEAD.format("OK", "", "")) == []
    assert suspects(document([7, 7, 8, 7])) == []
    assert suspects("") == []
    assert suspects(document([7, 7, 6, 7]), stands=False) == []
    assert suspects(document([7, 7, 6, 7]), after_s=30.0) == []  # heard before it stood


def ask(answer: bytes | None) -> Any:
    """What the agent hears of a port that answers so; None: that takes the question and says nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readline()
        if answer is None or asked.strip().lower() != b"verbose status":
            await asyncio.sleep(5.0)
        else:
            writer.write(answer)
        writer.close()

    async def run() -> Any:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            return await ask_ras(0.5, port)

    return asyncio.run(run())


def test_the_agent_asks_the_port() -> None:
    report = ask(HEAD.format("INCOMPLETE", GONE, "").encode())
    assert report is not None and {item.pid for item in report.silent} == {102}


@pytest.mark.parametrize("answer", [None, b"", b"nonsense\n"])
def test_a_port_that_does_not_answer_is_no_news(answer: bytes | None) -> None:
    report = ask(answer)
    assert report is None
    assert ras_signal("m1", report).data == {"answered": False}
