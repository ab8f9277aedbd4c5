"""A real Prometheus scrapes a real agent."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: minder
    authorization: {{credentials_file: {token}}}
    static_configs: [{{targets: ["127.0.0.1:{port}"], labels: {{machine: m0}}}}]
"""


@pytest.mark.server
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not on the PATH")
def test_prometheus_scrapes_the_agent(bench: Any, wait: Any, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    token.chmod(0o600)
    bench.register(bench.worker(0))
    agent = bench.agent("--token-file", str(token), token="secret")
    (tmp_path / "prometheus.yml").write_text(CONFIG.format(token=token, port=agent.port))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{probe.getsockname()[1]}"
    bench.spawn(
        ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address={url}"]
    )

    def ask(query: str) -> list[Any]:
        try:
            answer = httpx.get(f"http://{url}/api/v1/query", params={"query": query}, trust_env=False).json()
        except (httpx.TransportError, ValueError):
            return []
        return list(answer.get("data", {}).get("result", []))

    def steps() -> list[Any]:
        return [item for item in ask("rate(minder_steps_total[10s])") if float(item["value"][1]) > 0]

    (found,) = wait(steps, "a rate of steps", 40.0)
    assert found["metric"]["machine"] == "m0"
    # Prometheus keeps `job` for its own scrape job: ours has another name, and reaches a query as it was exported.
    info = ask("minder_job_info")[0]["metric"]
    assert info["training_job"] == "testjob" and "exported_job" not in info
    meta = httpx.get(f"http://{url}/api/v1/metadata", params={"metric": "minder_steps_total"}, trust_env=False).json()["data"]
    assert meta["minder_steps_total"][0]["type"] == "counter"
