"""One suite for a Slurm in memory and a real one."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from minder.act.actuators.slurm.jobs import SlurmJob
from minder.act.actuators.slurm.nodes import SlurmNodes
from minder.simulate.lab.slurm import LocalSlurm
from tests.fakes.slurm_fake import FakeJob, FakeSlurm

NAMES = ("n1", "n2", "n3", "n4")


class Cluster:
    """Four nodes, and a person with an account on them."""

    def __init__(self, commands: Any, slurm: LocalSlurm | None = None) -> None:
        self.commands = commands
        self.slurm = slurm
        self.nodes = SlurmNodes(commands, lambda: 1000.0)

    @property
    def fake(self) -> FakeSlurm:
        assert isinstance(self.commands, FakeSlurm)
        return self.commands

    def by_hand(self, node: str, *changes: str) -> None:
        """What a person types."""
        self.commands.call(["scontrol", "update", f"NodeName={node}", *changes])

    def submit(self, count: int, *flags: str) -> SlurmJob:
        """A job on so many whole nodes that sleeps, one step over all of them; returned when it runs."""
        if self.slurm is None:
            self.fake.jobs[7] = FakeJob([name for name, node in self.fake.nodes.items() if not node.states][:count])
            return SlurmJob(7, self.commands, self.nodes, sleep=lambda seconds: None)
        script = self.slurm.folder / "sleep.sh"
        script.write_text("#!/bin/sh\nsrun --no-kill sleep 1000\n")
        words = ["sbatch", "--parsable", "--no-kill", "--requeue", "--exclusive", f"-N{count}", f"-n{count}", "-o", "/dev/null", *flags]
        told = subprocess.run([*words, str(script)], env=self.slurm.environment, capture_output=True, text=True, check=True).stdout
        job = SlurmJob(int(told), self.commands, self.nodes)
        self.wait(lambda: job.show().state == "RUNNING")
        return job

    def tasks(self, node: str, name: str) -> list[psutil.Process]:
        """Processes of this name that Slurm started on a node."""
        found = []
        for process in psutil.process_iter(["name"]):
            with contextlib.suppress(psutil.Error):
                if process.info["name"] == name and process.environ().get("SLURMD_NODENAME") == node:
                    found.append(process)
        return found

    def wait(self, look: Any, limit_s: float = 60.0) -> None:
        end_s = time.monotonic() + (limit_s if self.slurm else 1.0)
        while not look():
            assert time.monotonic() < end_s
            time.sleep(0.1)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    with LocalSlurm(tmp_path_factory.mktemp("slurm"), nodes=len(NAMES)) as slurm:
        yield slurm


def tidy(slurm: LocalSlurm) -> None:
    """As it was: no job, no drain."""
    commands = slurm.commands()
    subprocess.run(["scancel", "--user=root", "--signal=KILL"], env=slurm.environment, check=True)
    subprocess.run(["scancel", "--user=root"], env=slurm.environment, check=True)
    nodes = SlurmNodes(commands, time.time)
    for node in slurm.nodes:
        if nodes.show(node).is_held:
            commands.call(["scontrol", "update", f"NodeName={node}", "State=RESUME"])
    slurm.await_states(["idle"])


@pytest.fixture(params=["fake", pytest.param("real", marks=[pytest.mark.root, pytest.mark.server("slurmctld", "slurmd", "munged")])])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "fake":
        yield Cluster(FakeSlurm(NAMES))
        return
    slurm = request.getfixturevalue("real")
    yield Cluster(slurm.commands(), slurm)
    tidy(slurm)


@pytest.fixture
def fake() -> Cluster:
    return Cluster(FakeSlurm(NAMES))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
