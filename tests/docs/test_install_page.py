"""docs/install.md is typed, block after block, on a bare Debian that booted with systemd: a real init, real units, their hardening on.

The machine is node-0001 of the page; node-0002 is an agent and a launcher beside it. Both train, over gloo, with the page's own units.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "install.md"
DEBIAN = Path(os.environ.get("MINDER_DEBIAN") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minder/debian")
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
TYPED = "__typed__"
JOB = """
name = "llm-70b"
ranks_per_machine = 1
checkpoint_dir = "/shared/checkpoints/llm-70b"
rendezvous_address = "10.0.0.11"
machine_token_dir = "/etc/minder/agent-tokens"
launcher_token_dir = "/etc/minder/launcher-tokens"

[[machines]]
name = "node-0001"
agent = "http://10.0.0.11:9401"
launcher = "http://10.0.0.11:9402"

[[machines]]
name = "node-0002"
agent = "http://10.0.0.12:9401"
launcher = "http://10.0.0.12:9402"
"""
SCRIPT = """
import time

import torch
import torch.distributed as dist

import minder


def main():
    dist.init_process_group("gloo")
    for step in range(1, 100_000):
        time.sleep(0.2)
        loss = torch.ones(1) / step
        dist.all_reduce(loss)
        minder.heartbeat(step=step, loss=float(loss))


minder.run(main)
"""
# What an operator's controller asks of the unit's agent: with all its hardening it must see into the job's processes.
CAPTURE = """
import json, urllib.request

token = open("/etc/minder/agent-token").readline().strip()
body = json.dumps({"what": ["stacks"], "deadline_s": 20}).encode()
headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
print(urllib.request.urlopen(urllib.request.Request("http://10.0.0.11:9401/v1/capture", body, headers)).read().decode())
"""
LAUNCH = """
systemd-run --quiet --unit=launch-{number} --uid=trainer --gid=minder --setenv=GLOO_SOCKET_IFNAME=lo --setenv=OMP_NUM_THREADS=1 \\
    /opt/minder/bin/minder launch --job llm-70b --machine node-000{number} --listen 10.0.0.1{number}:9402 --slots 1 \\
    --token-file /srv/launcher-{number} --metrics-token-file /etc/minder/metrics-token --run-dir {run_dir} -- /srv/train.py
"""

pytestmark = [pytest.mark.root, pytest.mark.server("systemd-nspawn"), pytest.mark.timeout(900)]


class Machine:
    """A copy of the Debian, booted; one shell of root's on it, into which the page is typed."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "machine"
        subprocess.run(["cp", "-a", str(DEBIAN), str(self.root)], check=True)
        for name, text in {"hostname": "node-0001\n", "hosts": "127.0.0.1 localhost node-0001\n", "machine-id": ""}.items():
            (self.root / "etc" / name).write_text(text)
        self._boot_log = (folder / "boot.log").open("wb")
        own = ["--private-network", "--register=no", "--keep-unit", "--hostname=node-0001", "--link-journal=no"]
        command = ["systemd-nspawn", "--quiet", "--directory", str(self.root), *own, "--boot"]
        self._nspawn = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._boot_log, stderr=self._boot_log)
        leader = self._leader()
        enter = ["nsenter", "-t", str(leader), "-m", "-u", "-i", "-n", "-p", "-C", "--root", "--wd"]
        clean = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"]
        self.log: list[str] = []
        self._enter = [*enter, *clean]
        self._shell = subprocess.Popen(
            [*self._enter, "bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )

    def _leader(self) -> int:
        """The machine's process 1, once it runs services."""
        end_s = time.monotonic() + 90.0
        while time.monotonic() < end_s:
            for child in psutil.Process(self._nspawn.pid).children():
                probe = ["nsenter", "-t", str(child.pid), "-m", "-p", "--root", "systemctl", "is-system-running"]
                done = subprocess.run(probe, capture_output=True, text=True, check=False)
                if done.stdout.strip() in ("running", "degraded"):
                    return child.pid
            time.sleep(0.3)
        raise AssertionError(f"the machine did not boot: {Path(self._boot_log.name).read_text(errors='replace')[-2000:]}")

    def type(self, text: str, limit_s: float = 300.0) -> str:
        """Type it, and fail if any line of it does. Returns what it printed."""
        assert self._shell.stdin is not None and self._shell.stdout is not None
        self._shell.stdin.write(f"set -e\n{text}\necho {TYPED}\n")
        self._shell.stdin.flush()
        lines: list[str] = []
        ends = threading.Timer(limit_s, self._shell.kill)
        ends.start()
        try:
            for line in self._shell.stdout:
                if line.strip() == TYPED:
                    return "".join(lines)
                lines.append(line)
        finally:
            ends.cancel()
        raise AssertionError(f"typed:\n{text}\nand it ended with:\n{''.join(lines[-30:])}")

    def ask(self, command: str) -> str:
        """What a command prints, whatever its status."""
        done = subprocess.run([*self._enter, "bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
        return done.stdout + done.stderr

    def until(self, command: str, right: Callable[[str], bool], limit_s: float = 90.0) -> str:
        end_s = time.monotonic() + limit_s
        while not right(said := self.ask(command)):
            journal = self.ask("journalctl --no-pager -n 30 -u 'minder-*' -u 'launch-*'")
            assert time.monotonic() < end_s, f"{command}: {said}\n{journal}"
            time.sleep(0.5)
        return said

    def close(self) -> None:
        self._shell.kill()
        self._shell.wait()
        for child in psutil.Process(self._nspawn.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._nspawn.wait(30.0)
        self._boot_log.close()
        shutil.rmtree(self.root, ignore_errors=True)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    if not (DEBIAN / "sbin/init").exists():
        pytest.skip("needs a bare Debian to boot: .ci/debian makes it")
    python = next(iter(sorted((DEBIAN / "usr/bin").glob("python3.[0-9]*"))), None)
    if python is None or python.name != f"python3.{sys.version_info.minor}":
        pytest.skip(f"packages for {python and python.name} cannot be fetched by {sys.version.split()[0]}")
    booted = Machine(tmp_path)
    try:
        yield booted
    finally:
        booted.close()


def deliver(machine: Machine, folder: Path) -> None:
    """What the page presumes: the wheel and constraints.txt in a folder, and an index that has the rest."""
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("minder_cluster-*.whl")
    wheels = machine.root / "srv/index"
    needed = f"{wheel}[serve,postgres,torch]"
    subprocess.run([*pip, "download", "-qq", "-c", str(ROOT / "constraints.txt"), "-d", str(wheels), needed], check=True)
    shutil.copy(wheel, machine.root / "root")
    shutil.copy(ROOT / "constraints.txt", machine.root / "root")
    (machine.root / "etc/pip.conf").write_text("[global]\nno-index = true\nfind-links = /srv/index\n")


def sections() -> dict[str, list[str]]:
    """Heading to its blocks, in order."""
    parts = re.split(r"^## (.*)$", PAGE.read_text(), flags=re.MULTILINE)
    return {title.strip(): BLOCK.findall(body) for title, body in zip(parts[1::2], parts[2::2], strict=True)}


def step_of(status: str) -> float:
    with contextlib.suppress(ValueError):
        return float(json.loads(status).get("step") or 0)
    return 0.0


@pytest.mark.release
def test_the_page_is_typed_from_a_bare_machine_to_a_verdict_and_back(machine: Machine, tmp_path: Path) -> None:
    page = sections()
    deliver(machine, tmp_path)
    machine.type("cd /root; ip address add 10.0.0.11/24 dev lo; ip address add 10.0.0.12/24 dev lo; ip link set lo up")

    for block in (*page["1. The package"], *page["2. Tokens"]):
        machine.type(block)
    said = "".join(machine.type(block) for block in page["3. Agents"])
    assert re.search(r"^ok +ptrace", said, re.MULTILINE) and re.search(r"^ok +run folder", said, re.MULTILINE), said

    machine.type("useradd --create-home trainer; usermod -aG minder trainer; install -d -m 0777 /shared/checkpoints/llm-70b /run/minder-2")
    (machine.root / "etc/minder/jobs/llm-70b.toml").write_text(JOB)
    (machine.root / "srv/train.py").write_text(SCRIPT)
    machine.type(
        "systemd-run --quiet --unit=agent-2 /opt/minder/bin/minder agent --machine node-0002 --listen 10.0.0.12:9401 "
        "--token-file /etc/minder/agent-tokens/node-0002 --metrics-token-file /etc/minder/metrics-token --run-dir /run/minder-2"
    )
    for number in (1, 2):  # as on the second machine: its own copy
        machine.type(f"install -m 0640 -g minder /etc/minder/launcher-tokens/node-000{number} /srv/launcher-{number}")
    for number, run_dir in ((1, "/run/minder"), (2, "/run/minder-2")):
        machine.type(LAUNCH.format(number=number, run_dir=run_dir))
    machine.until("ss -ltn", lambda seen: "10.0.0.11:9402" in seen and "10.0.0.12:9402" in seen)
    said = "".join(machine.type(block) for block in page["5. The controller"])
    assert "missing" not in said, said
    status = "cat /var/lib/minder/status.json"
    machine.until(status, lambda seen: step_of(seen) > 10)
    journal = machine.ask("journalctl --no-pager -u minder-run@llm-70b")
    assert "leads llm-70b: 2 machines, evictions are only written down" in journal, journal

    machine.type("systemctl restart minder-run@llm-70b")
    before = step_of(machine.ask(status))
    seen = machine.until(status, lambda seen: step_of(seen) > before + 10)
    assert json.loads(seen)["generation"] == 1, "the job ran on while its controller was restarted"

    for block in (*page["6. The service"], *page["7. Prometheus and Grafana"]):
        machine.type(block)
    targets = "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:9090/api/v1/targets\").read().decode())'"
    wanted = {("minder-agent", "node-0001"), ("minder-launcher", "node-0002"), ("minder-service", "")}
    machine.until(targets, lambda seen: wanted <= healthy(seen))

    machine.type("kill -STOP $(systemctl show --value --property MainPID launch-1 | xargs pgrep -P)")
    said = machine.until("journalctl --no-pager -u minder-run@llm-70b", lambda seen: "verdict: machine node-0001, stall" in seen)
    assert "decision: page node-0001 (0 standbys are ready, 1 needed)" in said
    stacks = machine.ask(f"/opt/minder/bin/python - <<'END'\n{CAPTURE}\nEND")
    assert "py-spy-json" in stacks and "train.py" in stacks, stacks
    machine.type("pkill -CONT -u trainer")

    for title in ("Back up the ledger", "Uninstall"):
        if title == "Uninstall":
            machine.type("systemctl stop launch-1 launch-2 agent-2")
        for block in page[title]:
            machine.type(block)
    assert machine.ask("sqlite3 /backup/minder-ledger.db 'PRAGMA integrity_check'").strip() == "ok"
    left = machine.ask(
        "ls -d /opt/minder /etc/minder /var/lib/minder /etc/systemd/system/minder-*; pgrep -a minder; systemctl --failed --no-legend"
    )
    assert [line for line in left.splitlines() if "No such file" not in line] == [], left


def healthy(answer: str) -> set[tuple[str, str]]:
    """(job, machine) of Prometheus' targets that answer."""
    with contextlib.suppress(ValueError):
        found: list[dict[str, Any]] = json.loads(answer)["data"]["activeTargets"]
        return {(item["labels"]["job"], item["labels"].get("machine", "")) for item in found if item["health"] == "up"}
    return set()
