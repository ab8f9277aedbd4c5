"""A job is found by its id, started again without a node, and made smaller by it."""

from __future__ import annotations

import signal
from typing import Any

import psutil
import pytest

from minder.act.actuators.slurm.jobs import SlurmJob
from minder.model.errors import ActuatorError, EngineUnavailableError


def test_a_job_is_found_by_its_id_with_its_nodes(cluster: Any) -> None:
    job = cluster.submit(3)
    shown = job.show()
    assert (shown.state, shown.requeue, shown.restarts, shown.batch_host) == ("RUNNING", True, 0, "n1")
    assert job.nodes() == ("n1", "n2", "n3") == cluster.nodes.expand(shown.node_list)


def test_an_id_that_slurm_does_not_know_is_an_error(cluster: Any) -> None:
    with pytest.raises(ActuatorError, match="refused"):
        SlurmJob(999_999, cluster.commands, cluster.nodes).show()


@pytest.mark.timeout(120)
def test_a_job_is_requeued_without_the_node_at_once(cluster: Any) -> None:
    """Without StartTime=now Slurm would hold it for two minutes."""
    job = cluster.submit(3)
    cluster.nodes.drain("n2", "evict-0a", "stall")
    assert "n2" in job.requeue_without(["n2"])
    cluster.wait(lambda: job.show().state == "RUNNING", 45.0)
    assert job.nodes() == ("n1", "n3", "n4")
    assert (job.show().restarts, job.show().excluded) == (1, "n2")
    assert "runs on" in job.requeue_without(["n2"]), "done again: it is where it shall be"
    assert job.show().restarts == 1


@pytest.mark.timeout(120)
def test_a_running_job_is_made_smaller_and_goes_on(cluster: Any) -> None:
    job = cluster.submit(3)
    cluster.wait(lambda: cluster.slurm is None or (cluster.tasks("n2", "sleep") and cluster.tasks("n3", "sleep")))
    stopped = [] if cluster.slurm is None else cluster.tasks("n2", "sleep")
    for process in stopped:
        process.send_signal(signal.SIGSTOP)
    assert "goes on without n2" in job.release(["n2"])
    assert job.nodes() == ("n1", "n3") and job.show().state == "RUNNING"
    cluster.wait(lambda: all(not process.is_running() or process.status() == psutil.STATUS_ZOMBIE for process in stopped))
    assert cluster.slurm is None or (len(stopped) == 1 and len(cluster.tasks("n3", "sleep")) == 1), "a stopped task is ended, others go on"
    assert "no n2 any more" in job.release(["n2"])
    with pytest.raises(ActuatorError, match="n1 runs the batch script"):
        job.release(["n1"])


def test_what_was_begun_before_a_crash_is_finished_once(fake: Any) -> None:
    """Requeued, and the controller died before it let the job go: the second try only lets it go."""
    job = fake.submit(3)
    fake.nodes.drain("n2", "evict-0a", "stall")
    fake.commands.call(["scontrol", "requeue", "7"])
    assert fake.fake.jobs[7].held
    job.requeue_without(["n2"])
    assert fake.fake.jobs[7].nodes == ["n1", "n3", "n4"] and fake.fake.jobs[7].restarts == 1


def test_nodes_that_were_excluded_before_stay_excluded(fake: Any) -> None:
    job = fake.submit(2)
    fake.fake.jobs[7].excluded = "n4"
    job.requeue_without(["n1"])
    assert fake.fake.jobs[7].excluded == "n4,n1" and fake.fake.jobs[7].nodes == ["n2", "n3"]


def test_a_job_that_may_not_be_requeued_or_is_over_is_left_alone(fake: Any) -> None:
    job = fake.submit(2)
    fake.fake.jobs[7].requeue = False
    with pytest.raises(ActuatorError, match="--requeue"):
        job.requeue_without(["n1"])
    fake.fake.jobs[7].state = "CANCELLED"
    with pytest.raises(ActuatorError, match="is over"):
        job.requeue_without(["n1"])
    assert fake.fake.changes == []


def test_silence_in_the_middle_is_told(fake: Any) -> None:
    job = fake.submit(2)
    fake.fake.silent = 1
    with pytest.raises(EngineUnavailableError):
        job.requeue_without(["n1"])
    assert fake.fake.changes == []
