"""Which logs an agent follows, and how it counts their lines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.edge.agent.joblogs import JobLogs
from minder.edge.agent.slurm_log import SlurmOutput, SlurmOutputs, find_output
from minder.edge.exporters.jobs import JobProcess

JOB = """\
JobId=4711 JobName=train
   UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A
   JobState=RUNNING Reason=None Dependency=(null)
   NodeList=n[1-4]
   BatchHost=n1
   Command=/data/ann/train.sh
   StdErr={err}
   StdIn=/dev/null
   StdOut={out}
"""


@pytest.mark.parametrize(
    ("out", "err", "node", "paths"),
    [
        ("/shared/slurm-4711.out", "/shared/slurm-4711.out", "n1", ("/shared/slurm-4711.out",)),
        ("/shared/a b/train.out", "/shared/a b/train.err", "n1", ("/shared/a b/train.err", "/shared/a b/train.out")),
        ("/shared/slurm-4711.out", "/dev/null", "n2", ()),  # the batch host writes it: elsewhere it comes late
        ("/shared/slurm-4711.out", "/shared/slurm-4711.out", None, ("/shared/slurm-4711.out",)),
        ("/shared/100%%.out", "/shared/100%%.out", "n1", ("/shared/100%.out",)),
        ("/shared/%N-%n-%4t.out", "/dev/null", "n1", ("/shared/n1-0-0000.out",)),  # left so by 22.05
    ],
)
def test_slurm_tells_where_the_output_goes(out: str, err: str, node: str | None, paths: tuple[str, ...]) -> None:
    found = find_output(JOB.format(out=out, err=err), {node} if node else set())
    assert sorted(map(str, found.paths)) == sorted(paths) and not found.problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (JOB.format(out="/shared/%x-%j.out", err="/shared/%x-%j.out"), "--log"),
        ("JobId=4711 JobName=interactive\n   NodeList=n1\n", "no output file"),
        (JOB.format(out="(null)", err="(null)"), "no output file"),
        ("", "no output file"),
    ],
)
def test_a_job_whose_output_cannot_be_found_says_why(text: str, expected: str) -> None:
    found = find_output(text, {"n1"})
    assert found.paths == () and expected in found.problem


def started(logs: JobLogs) -> JobLogs:
    logs.start()
    return logs


def lines_of(logs: JobLogs) -> float | None:
    return logs.read().counters.get(("job_log_lines", None))


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_the_output_of_a_slurm_job_is_followed_and_a_jobs_own_pattern_read(tmp_path: Path, wait: Callable[..., Any]) -> None:
    output = tmp_path / "slurm-4711.out"
    output.touch()
    asked: list[str] = []

    def show(job: str) -> str:
        asked.append(job)
        return JOB.format(out=output, err=output)

    logs = started(JobLogs([], slurm=SlurmOutputs(show)))
    process = JobProcess(os.getpid(), "4711", 0, slurm_job="4711", node="n1", step_pattern=r"upd=(?P<step>\d+)")
    try:

        def follow() -> bool:
            logs.follow([process], time.time())
            append(output, "upd=7 x\n")
            return bool(logs.steps and logs.steps[0].steps is not None)

        wait(follow, "the step")
        assert asked == ["4711"] and logs.steps[0].steps is not None and logs.steps[0].steps.step == 7
        before = lines_of(logs)
        assert before is not None and before > 0
        logs.follow([], time.time())
        assert logs.steps == [], "the job is gone"
        assert logs._ended_lines >= before
    finally:
        logs.stop()


def test_a_slurm_that_does_not_answer_is_said_and_asked_again(wait: Callable[..., Any]) -> None:
    answers = iter([OSError("Unable to contact slurm controller"), None])

    def show(job: str) -> str:
        if (error := next(answers)) is not None:
            raise error
        return JOB.format(out="/nowhere/x.out", err="/nowhere/x.out")

    slurm = SlurmOutputs(show)
    process = JobProcess(1, "j", 0, slurm_job="4711", node="n1")
    slurm.follow([process], 0.0)
    wait(slurm.found, "the answer")
    assert "Unable to contact" in slurm.found()["4711"].problem
    slurm.follow([process], 30.0)
    assert slurm.found()["4711"].problem, "not more often than once a minute"
    slurm.follow([process], 90.0)
    wait(lambda: not slurm.found()["4711"].problem, "the second answer")
    assert slurm.found()["4711"] == SlurmOutput((Path("/nowhere/x.out"),))


def test_lines_of_followed_logs_and_of_workers_are_counted_together(tmp_path: Path, wait: Callable[..., Any]) -> None:
    given, worker = tmp_path / "given", tmp_path / "worker"
    given.touch()
    worker.touch()
    logs = started(JobLogs([given]))
    logs.follow([JobProcess(1, "j", 0, 0, log=str(worker))], time.time())
    try:
        wait(lambda: lines_of(logs) is not None and worker.exists(), "a look")
        wait(lambda: logs._workers.looked_s > 0, "a look at the worker's file")
        append(given, "one\ntwo\n")
        append(worker, " 1/9 \r 2/9 \rthree\n")
        assert wait(lambda: lines_of(logs) == 5, "all lines")
    finally:
        logs.stop()


def test_without_a_log_there_is_no_count(tmp_path: Path) -> None:
    """Not 0: a job whose log nobody reads is not a quiet one."""
    logs = JobLogs([])
    logs.follow([JobProcess(1, "j", 0)], time.time())
    assert lines_of(logs) is None
    assert lines_of(JobLogs([tmp_path / "never"])) is None


def test_a_log_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    logs = JobLogs([tmp_path / "never"])
    (row,) = logs.describe()
    assert (row["path"], row["lines"], row["step"], row["problem"]) == (
        str(tmp_path / "never"),
        0,
        None,
        "there is no such file",
    )


@pytest.mark.root
@pytest.mark.server("slurmctld", "slurmd", "munged")
def test_the_output_of_a_real_slurm_job_tells_its_steps(tmp_path: Path, bench: Any, wait: Callable[..., Any]) -> None:
    """As docs/slurm.md says: RANK from SLURM_PROCID, the pattern exported in the batch script, and no option of the agent."""
    import subprocess
    import sys

    from minder.simulate.lab.slurm import LocalSlurm

    (tmp_path / "train.py").write_text("import time\nfor step in range(1, 3000):\n print(f'upd={step}', flush=True)\n time.sleep(0.2)\n")
    (tmp_path / "task.sh").write_text(f"export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS\nexec {sys.executable} {tmp_path}/train.py\n")
    head = f"#!/bin/bash\n#SBATCH -J train -n1 -o {tmp_path}/%x-%j-%N.out\n"
    (tmp_path / "job.sh").write_text(f"{head}export MINDER_STEP_PATTERN='upd=(?P<step>\\d+)'\nsrun bash {tmp_path}/task.sh\n")
    with LocalSlurm(tmp_path / "slurm", nodes=1) as slurm:
        subprocess.run(["sbatch", str(tmp_path / "job.sh")], env=slurm.environment, check=True, capture_output=True)
        wait(lambda: list(tmp_path.glob("train-*.out")), "the job's output", 60.0)
        agent = bench.agent("--discover", env=slurm.environment)
        wait(lambda: [row for row in agent.signals().get("processes", ()) if row["step"]], "a step of the job", 60.0)
        (log,) = agent.http.get("/v1/health").json()["logs"]
        assert log["path"].startswith(str(tmp_path / "train-1-")) and log["lines"] > 0 and log["problem"] == ""
        assert agent.wait_metric("minder_job_log_lines_total", lambda value: value > 0)
