"""serve/deploy/slurm/node-check.sh asks a real agent: with its token, without it, and when it is gone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHECK = Path(__file__).parents[2] / "serve" / "deploy" / "slurm" / "node-check.sh"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on the PATH")


def check(url: str, token_file: Path | str = "") -> subprocess.CompletedProcess[str]:
    settings = {"AGENT_URL": url, "AGENT_TOKEN_FILE": str(token_file), "MIN_FREE_KIB": "1", "NODE_CHECK_CONF": "/dev/null"}
    return subprocess.run(["bash", str(CHECK)], env={"PATH": "/usr/bin:/bin", **settings}, capture_output=True, text=True, check=False)


def test_a_living_agent_fails_no_node_whatever_the_token(bench: Any, tmp_path: Path) -> None:
    """As a prolog it drained every node: the agent answered 401, which was taken for silence."""
    agent = bench.agent()
    url, file = agent.url, tmp_path / "token"
    file.write_text(agent.http.headers["Authorization"].removeprefix("Bearer "))
    result = check(url, file)
    assert (result.returncode, result.stderr) == (0, "")
    result = check(url)
    assert result.returncode == 0 and "AGENT_TOKEN_FILE" in result.stderr
    agent.process.kill()
    agent.process.wait()
    result = check(url, file)
    assert result.returncode == 1 and result.stderr == f"minder-node-check: the agent at {url} does not answer\n"
