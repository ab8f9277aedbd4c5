"""The files for a Slurm site: the configuration is one, the batch script is a script, the node check says what is wrong."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from minder.app.engine import place_machines
from minder.config import load_config
from tests.fakes.slurm_fake import FakeJob, FakeSlurm

FILES = Path(__file__).resolve().parents[2] / "serve/deploy/slurm"


def test_the_configuration_is_one_that_minder_reads(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text((FILES / "job.toml").read_text())
    for name in ("agent-token", "launcher-token"):
        (tmp_path / name).write_text("a-token-of-the-tests")
        (tmp_path / name).chmod(0o600)
    slurm = FakeSlurm([f"n{index}" for index in range(66)])
    assert load_config(tmp_path / "job.toml").engine is not None
    (tmp_path / "job.toml").write_text((FILES / "job.toml").read_text().replace('kind = "slurm"', 'kind = "slurm"\njob = 7'))
    slurm.jobs[7] = FakeJob(list(slurm.nodes))
    placed = place_machines(load_config(tmp_path / "job.toml"), asked=slurm)
    assert sum(not machine.standby for machine in placed.machines) == 64 and placed.topology().parallelism.data == 16


def test_the_batch_script_is_a_script() -> None:
    text = (FILES / "job.sbatch").read_text()
    filled = text.replace("<66>", "66").replace("<llm-70b>", "llm-70b").replace("</shared/llm-70b>", "/shared/llm-70b")
    assert "<" not in filled.split("set -euo pipefail")[0].replace("< >", "")
    done = subprocess.run(["bash", "-n"], input=filled, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--no-kill" in filled and "--requeue" in filled


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """check(nvidia_smi="0", GPUS="1"): the node check with a GPU tool of that output."""

    def run(nvidia_smi: str | None = None, **settings: str) -> tuple[int, str]:
        if nvidia_smi is not None:
            tool = tmp_path / "nvidia-smi"
            tool.write_text(f"#!/bin/sh\n{nvidia_smi}\n")
            tool.chmod(0o755)
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "NODE_CHECK_CONF": "/no/such", "MIN_FREE_KIB": "1", **settings}
        done = subprocess.run([str(FILES / "node-check.sh")], env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    return run


def test_a_node_that_is_well_passes(check: Callable[..., tuple[int, str]]) -> None:
    assert check() == (0, "")
    assert check("printf '0\\n0\\n'", GPUS="2") == (0, "")


@pytest.mark.parametrize(
    ("tool", "settings", "said"),
    [
        ("printf '0\\n'", {"GPUS": "2"}, "1 GPUs answer, 2 expected"),
        ("printf '0\\n3\\n'", {"GPUS": "2"}, "uncorrectable ECC errors: 0 3"),
        ("exit 9", {"GPUS": "1"}, "nvidia-smi failed"),
        (None, {"MIN_FREE_KIB": "99999999999999"}, "less than 99999999999999"),
        (None, {"CHECK_PATH": "/no/such/folder"}, "cannot be read"),
        (None, {"AGENT_URL": "http://127.0.0.1:9"}, "does not answer"),
    ],
)
def test_a_node_that_is_not_says_why(check: Callable[..., tuple[int, str]], tool: str | None, settings: dict[str, str], said: str) -> None:
    status, told = check(tool, **settings)
    assert status == 1 and said in told
