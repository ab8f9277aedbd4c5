"""A site in small: real agents, a launcher, a controller that watches, the service, node_exporter and a page in the DCGM exporter's
layout, all scraped by a real Prometheus with the configuration and rules that we ship."""

from __future__ import annotations

import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "serve/deploy/helm/minder"
SHIPPED = ROOT / "serve/deploy/prometheus"
TOKEN = "a-token-of-the-tests"
DCGM = Path(__file__).parent / "data/dcgm.prom"
JOB = """
name = "llm"
state_dir = "{folder}/state"
agent_token_file = "{folder}/token"

[[machines]]
name = "node-0001"
agent = "http://127.0.0.1:{first}"

[[machines]]
name = "node-0002"
agent = "http://127.0.0.1:{second}"

[telemetry]
url = "http://127.0.0.1:{prometheus}"
interval_s = 1.0
mapping = "minder+dcgm+node"

[metrics]
listen = "127.0.0.1:{controller}"
"""


class Site:
    """Ports by name, and what the Prometheus says."""

    def __init__(self, folder: Path, kit: ModuleType, stack: ExitStack) -> None:
        self.folder = folder
        self._kit, self._stack = kit, stack
        names = ("first", "second", "launcher", "controller", "service", "node", "dcgm", "prometheus")
        self.ports = {name: kit.free_port() for name in names}
        self.url = f"http://127.0.0.1:{self.ports['prometheus']}"
        self.environment = {**os.environ, "MINDER_LEDGER": str(folder / "ledger.db"), "MINDER_STATE_DIR": str(folder / "state")}
        (folder / "token").write_text(TOKEN)
        (folder / "token").chmod(0o600)

    def minder(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "minder", *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True, timeout=120).stdout

    def spawn(self, *command: str, env: dict[str, str] | None = None) -> None:
        process = subprocess.Popen(
            command, env={**self.environment, **(env or {})}, stdout=subprocess.DEVNULL, stderr=(self.folder / "errors").open("ab")
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)

    def start(self) -> None:
        run = [sys.executable, "-m", "minder"]
        bench = self._kit.Bench(self.folder, self._stack)
        bench.register(bench.worker(0))
        more = ["--token-file", f"{self.folder}/token", "--interval", "0.5", "--gpu", "off"]
        for name, port, runs in (("node-0001", "first", bench.run_dir), ("node-0002", "second", self.folder / "other")):
            self.spawn(*run, "agent", "--listen", f"127.0.0.1:{self.ports[port]}", "--machine", name, "--run-dir", str(runs), *more)
        idle = ROOT / "tests/launcher/scripts/idle.py"
        self.spawn(
            *run, "launch", "--job", "other", "--machine", "node-0003", "--listen", f"127.0.0.1:{self.ports['launcher']}",
            "--run-dir", f"{self.folder}/third", "--token-file", f"{self.folder}/token", "--", str(idle),
            env={"PYTHONPATH": str(ROOT / "tests/launcher/scripts/no_torch")},
        )  # fmt: skip
        self.spawn("prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{self.ports['node']}")
        self._serve_dcgm()
        self._start_prometheus(self.minder("token", "create", "prometheus", "--role", "viewer").split()[-1])
        (self.folder / "job.toml").write_text(JOB.format(folder=self.folder, **self.ports))
        self.spawn(*run, "serve", "--listen", f"127.0.0.1:{self.ports['service']}", "--config", f"{self.folder}/job.toml")
        self.spawn(*run, "watch", "--job", f"{self.folder}/job.toml")

    def _serve_dcgm(self) -> None:
        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = DCGM.read_bytes()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *unused: Any) -> None: ...

        server = http.server.ThreadingHTTPServer(("127.0.0.1", self.ports["dcgm"]), Page)
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        self._stack.callback(server.server_close)
        self._stack.callback(server.shutdown)

    def _start_prometheus(self, viewer: str) -> None:
        """The shipped configuration: only addresses, token files and the pace are changed."""
        ports, folder = self.ports, self.folder
        text = (SHIPPED / "prometheus.yml").read_text()
        text = re.sub(r"scrape_interval: \d+s", "scrape_interval: 1s", re.sub(r"scrape_timeout: \d+s", "scrape_timeout: 1s", text))
        text = text.replace("127.0.0.1:9403", f"127.0.0.1:{ports['controller']}").replace("127.0.0.1:9400", f"127.0.0.1:{ports['service']}")
        text = re.sub(r"/etc/minder/(\w+)-token", rf"{folder}/\1-token", text)
        for name, token in (("metrics", TOKEN), ("service", viewer)):
            (folder / f"{name}-token").write_text(token)
        (folder / "prometheus.yml").write_text(text)
        (folder / "minder.rules.yml").write_bytes((SHIPPED / "minder.rules.yml").read_bytes())
        (folder / "machines").mkdir()
        targets = {"agents": ("first", "second"), "launchers": ("launcher",), "dcgm": ("dcgm",), "node": ("node",)}
        for name, places in targets.items():
            shipped = (SHIPPED / f"machines/{name}.yml").read_text()
            for number, place in enumerate(places, start=1):
                shipped = re.sub(rf"10\.0\.0\.1{number}:\d+", f"127.0.0.1:{ports[place]}", shipped)
            if len(places) == 1:
                shipped = shipped[: shipped.index("- targets", shipped.index("- targets") + 1)]
            (folder / f"machines/{name}.yml").write_text(shipped)
        self.spawn(
            "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/samples",
            f"--web.listen-address=127.0.0.1:{ports['prometheus']}",
        )  # fmt: skip

    def get(self, path: str, **query: str) -> Any:
        try:
            answer = httpx.get(f"{self.url}/api/v1/{path}", params=query, trust_env=False, timeout=20.0).json()
        except (httpx.TransportError, ValueError):
            return None
        assert answer["status"] == "success", (path, query, answer)
        return answer["data"]

    def ask(self, query: str) -> list[Any]:
        found = self.get("query", query=query)
        return [] if found is None else list(found["result"])

    def wait(self, look: Callable[[], Any], what: str) -> Any:
        try:
            return self._kit.wait_for(look, what, 90.0)
        except AssertionError as error:
            raise AssertionError(f"{error}; {(self.folder / 'errors').read_text(errors='replace')[-3000:]}") from None


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, load_file: Callable[[Path], ModuleType]) -> Iterator[Site]:
    with ExitStack() as stack:
        made = Site(tmp_path_factory.mktemp("site"), load_file(ROOT / "tests/agent/conftest.py"), stack)
        made.start()
        yield made


class Helm:
    """A real helm with a home of its own. It sees no cluster but the one that it is given."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE"))}
        self._environment = {**kept, "HOME": str(folder), "KUBECONFIG": str(folder / "none")}

    def call(self, *arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        environment = {**self._environment, **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})}
        command = [self._program, *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60)

    def template(self, *values: str, release: str = "minder", namespace: str = "minder") -> subprocess.CompletedProcess[str]:
        told = [word for value in values for word in ("--set-json" if "=[" in value or "={" in value else "--set", value)]
        return self.call("template", release, str(CHART), "--namespace", namespace, *told)

    def objects(self, *values: str, **where: str) -> dict[tuple[str, str], dict[str, Any]]:
        """By kind and name."""
        done = self.template(*values, **where)
        assert done.returncode == 0, done.stderr
        return {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(done.stdout) if item}


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    told = os.environ.get("MINDER_HELM")
    program = shutil.which(told or "helm")
    if program is None:
        pytest.skip(f"MINDER_HELM={told} is no program" if told else "needs helm 3 on the PATH, or its path in MINDER_HELM (.ci/helm)")
    return Helm(program, tmp_path_factory.mktemp("helm"))
