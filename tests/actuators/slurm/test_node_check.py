"""serve/deploy/slurm/node-check.sh where it belongs: called by a real slurmd before and after each job, and by its health check."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minder.act.actuators.slurm.nodes import SlurmNodes
from minder.simulate.lab.slurm import LocalSlurm

CHECK = Path(__file__).parents[3] / "serve" / "deploy" / "slurm" / "node-check.sh"

pytestmark = [pytest.mark.root, pytest.mark.server("slurmctld", "slurmd", "munged")]


class Site:
    """Two nodes, each with a node-check.conf of its own."""

    def __init__(self, slurm: LocalSlurm, folder: Path) -> None:
        self.slurm, self.folder = slurm, folder
        self.nodes = SlurmNodes(slurm.commands(), time.time)
        for node in slurm.nodes:
            self.configure(node)

    def configure(self, node: str, *lines: str) -> None:
        (self.folder / f"{node}.conf").write_text("\n".join(["MIN_FREE_KIB=1", *lines, ""]))

    def submit(self, *flags: str, command: str = "true") -> int:
        script = self.folder / "job.sh"
        script.write_text(f"#!/bin/sh\nsrun {command}\n")
        words = ["sbatch", "--parsable", "--requeue", "-N1", "-n1", "-o", "/dev/null", *flags, str(script)]
        return int(subprocess.run(words, env=self.slurm.environment, capture_output=True, text=True, check=True).stdout)

    def job(self, number: int) -> dict[str, str]:
        told = self.slurm.commands().call(["scontrol", "show", "job", str(number), "-o"])
        return dict(word.split("=", 1) for word in told.split() if "=" in word)

    def wait(self, look: Callable[[], bool], limit_s: float = 60.0) -> None:
        end_s = time.monotonic() + limit_s
        while not look():
            assert time.monotonic() < end_s, self.slurm.commands().call(["sinfo", "-N", "-o", "%N %T %E"])
            time.sleep(0.2)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    folder = tmp_path_factory.mktemp("node-check")
    for node in ("n1", "n2"):
        (folder / f"{node}.conf").write_text("MIN_FREE_KIB=1\n")
    caller = folder / "check.sh"
    caller.write_text(f'#!/bin/sh\nNODE_CHECK_CONF="{folder}/$SLURMD_NODENAME.conf" exec {CHECK} 2>>"{folder}/$SLURMD_NODENAME.said"\n')
    caller.chmod(0o755)
    settings = [f"Prolog={caller}", f"Epilog={caller}", "SchedulerParameters=sched_interval=1,bf_interval=1,nohold_on_prolog_fail"]
    with LocalSlurm(folder, nodes=2, settings=settings) as running:
        yield running


@pytest.fixture
def site(slurm: LocalSlurm) -> Iterator[Site]:
    site = Site(slurm, slurm.folder)
    yield site
    subprocess.run(["scancel", "--user=root"], env=slurm.environment, check=True)
    for node in slurm.nodes:
        site.configure(node)
    site.wait(lambda: not slurm.commands().call(["squeue", "-h"]).strip())
    for node in slurm.nodes:
        if site.nodes.show(node).is_held:
            slurm.commands().call(["scontrol", "update", f"NodeName={node}", "State=RESUME"])
    slurm.await_states(["idle"])


def test_a_job_runs_between_a_prolog_and_an_epilog_that_pass(site: Site) -> None:
    number = site.submit("-w", "n1")
    site.wait(lambda: site.job(number)["JobState"] == "COMPLETED")
    site.slurm.await_states(["idle"])
    assert not (site.folder / "n1.said").exists() or (site.folder / "n1.said").read_text() == ""


def test_a_node_that_fails_its_prolog_is_drained_by_slurm_the_job_runs_elsewhere_and_minder_leaves_it_alone(site: Site) -> None:
    site.configure("n1", "CHECK_PATH=/no/such/disk")
    number = site.submit()  # n1 is the first that is tried
    site.wait(lambda: site.nodes.show("n1").is_held and site.job(number)["JobState"] == "PENDING")
    site.slurm.commands().call(["scontrol", "update", f"JobId={number}", "StartTime=now"])  # Slurm would wait for two minutes
    site.wait(lambda: site.job(number)["JobState"] == "COMPLETED")
    assert site.job(number)["NodeList"] == "n2"
    held = site.nodes.show("n1")
    assert held.is_held and not held.reason.startswith("minder") and site.nodes.ours() == {}
    assert "/no/such/disk cannot be read" in (site.folder / "n1.said").read_text()
    assert site.nodes.drain("n1", "evict-0123456789ab", "stall").undo == ""
    assert site.nodes.uncordon("n1", "return-1", {"evict-0123456789ab"}).outcome == "failed"
    assert site.nodes.show("n1").reason == held.reason


def test_a_node_that_breaks_under_a_job_is_drained_when_the_job_is_over(site: Site) -> None:
    number = site.submit("-w", "n2", command="sleep 2")
    site.wait(lambda: site.job(number)["JobState"] == "RUNNING")
    site.configure("n2", "AGENT_URL=http://127.0.0.1:9")  # nobody listens there
    site.wait(lambda: site.job(number)["JobState"] in ("COMPLETED", "COMPLETING"))
    site.wait(lambda: site.nodes.show("n2").is_held)
    assert "the agent at http://127.0.0.1:9 does not answer" in (site.folder / "n2.said").read_text()
    assert not site.nodes.show("n1").is_held
