"""serve/deploy/slurm/node-check.sh asks a real agent: with its token, without it, while it is exchanged, and when it is gone."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from minder.wire.machine_tokens import give_token
from minder.wire.tokens import read_token

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


@pytest.mark.lab
def test_an_agent_takes_an_exchanged_token_without_a_restart_and_the_node_check_too(bench: Any, tmp_path: Path) -> None:
    """The token of machine m0, stolen and exchanged: the file has two lines meanwhile, then the old one counts no more."""
    for name in ("m0", "m1"):
        give_token(tmp_path, name)
    file = tmp_path / "m0"
    agent = bench.agent("--token-file", str(file), token=None)

    def status(token: str) -> int:
        return httpx.get(f"{agent.url}/v1/health", headers={"Authorization": f"Bearer {token}"}).status_code

    old = read_token(file)
    assert (status(old), status(read_token(tmp_path / "m1"))) == (200, 401), "its own, and no other machine's"
    give_token(tmp_path, "m0", exchange=True, overlap_s=600.0)
    new, end_s = read_token(file), time.monotonic() + 20.0
    while status(new) != 200:
        assert time.monotonic() < end_s
        time.sleep(0.1)
    assert status(old) == 200
    result = check(agent.url, file)
    assert (result.returncode, result.stderr) == (0, "")
    give_token(tmp_path, "m0", exchange=True)
    while status(old) != 401:
        assert time.monotonic() < end_s
        time.sleep(0.1)
    assert agent.process.poll() is None
