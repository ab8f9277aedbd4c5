"""Real ranks of the lab's training script: restarts, and the faults that live in the script."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.simulate.lab.reference import compare_losses, reference_losses

if importlib.util.find_spec("torch") is None:  # not loaded: every quick run collects this file
    pytest.skip("needs the extra torch", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "minder" / "simulate" / "lab" / "train.py"
RANKS, STEPS = 2, 24


class Job:
    """Two ranks of the script, one generation after the other."""

    def __init__(self, folder: Path, *arguments: str, fault: str = "") -> None:
        self.folder = folder
        self.output = folder / "out"
        self._arguments = ["--output", str(self.output), "--steps", str(STEPS), "--step-seconds", "0.02", *arguments]
        self._fault = fault
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, generation: int) -> None:
        for rank in range(RANKS):
            environment = {name: value for name, value in os.environ.items() if not name.startswith(("MINDER_", "TORCHELASTIC_"))}
            environment |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "MINDER_GENERATION": str(generation), "PYTHONPATH": str(ROOT)}
            environment |= {"GLOO_SOCKET_IFNAME": "lo", "MINDER_LAB_FAULT": self._fault, "MINDER_RUN_DIR": str(self.folder / "run")}
            command = [sys.executable, str(SCRIPT), *self._arguments, "--init-method", f"file://{self.folder}/meet-{generation}"]
            self.processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))

    def end(self) -> list[tuple[int, str, str]]:
        """(status, stdout, stderr) of each rank."""
        results = []
        for process in self.processes:
            stdout, stderr = process.communicate(timeout=120)
            results.append((process.returncode, stdout, stderr))
        self.processes = []
        return results

    def kill_at(self, step: int) -> None:
        while all(line["step"] < step for line in self.losses()):
            assert all(process.poll() is None for process in self.processes)
            time.sleep(0.01)
        self.kill()

    def kill(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
        self.end()

    def losses(self) -> list[dict[str, Any]]:
        path = self.output / "losses.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[list[Job]]:
    started: list[Job] = []
    yield started
    for job in started:
        job.kill()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reference_losses(0, STEPS, RANKS, tmp_path_factory.mktemp("cache"))


@pytest.mark.lab
def test_two_kills_and_restarts_change_no_bit_and_the_loss_falls(tmp_path: Path, jobs: list[Job], undisturbed: Path) -> None:
    job = Job(tmp_path)
    jobs.append(job)
    for generation, step in ((0, 7), (1, 15)):
        job.start(generation)
        job.kill_at(step)
    job.start(2)
    assert [status for status, _, _ in job.end()] == [0, 0]
    comparison = compare_losses(job.output, undisturbed)
    assert comparison.equal, comparison.detail
    assert {line["generation"] for line in job.losses()} == {0, 1, 2}
    assert float.fromhex(job.losses()[-1]["loss"]) < 0.7 * float.fromhex(job.losses()[0]["loss"])


@pytest.mark.release
@pytest.mark.lab
def test_a_script_without_minder_is_equal_too_and_never_loads_it(tmp_path: Path, jobs: list[Job], undisturbed: Path) -> None:
    job = Job(tmp_path, "--plain")
    jobs.append(job)
    job.start(0)
    job.kill_at(9)
    job.start(1)
    results = job.end()
    assert [status for status, _, _ in results] == [0, 0]
    assert f"iteration {STEPS:8d}/" in results[0][1]
    comparison = compare_losses(job.output, undisturbed)
    assert comparison.equal, comparison.detail
    assert not (tmp_path / "run").exists(), "no heartbeat page was made"


@pytest.mark.lab
def test_plain_loads_nothing_of_minder() -> None:
    code = f"import sys, runpy; runpy.run_path({str(SCRIPT)!r}, run_name='lab'); print([m for m in sys.modules if m.startswith('minder')])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.release
@pytest.mark.lab
def test_the_exception_is_raised_by_every_rank_in_one_generation_only(tmp_path: Path, jobs: list[Job], undisturbed: Path) -> None:
    job = Job(tmp_path, fault="exception@6")
    jobs.append(job)
    job.start(3)
    results = job.end()
    assert all(status != 0 and "step 6: this bug is in the training script" in stderr for status, _, stderr in results)
    job.start(4)
    assert [status for status, _, _ in job.end()] == [0, 0]
    assert compare_losses(job.output, undisturbed).equal


@pytest.mark.lab
def test_the_nan_is_found_in_its_own_rank_and_never_comes_back(tmp_path: Path, jobs: list[Job], undisturbed: Path) -> None:
    job = Job(tmp_path, fault="nan@8:1")
    jobs.append(job)
    job.start(0)
    results = job.end()
    assert results[0][0] != 0
    assert results[1][0] != 0
    assert "own gradient is not finite" in results[1][2]
    assert "own gradient is not finite" not in results[0][2]
    assert max(line["step"] for line in job.losses()) == 7
    job.start(1)
    assert [status for status, _, _ in job.end()] == [0, 0]
    comparison = compare_losses(job.output, undisturbed)
    assert comparison.equal, comparison.detail
