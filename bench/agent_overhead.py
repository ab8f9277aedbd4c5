"""What an agent costs its machine: memory, and share of one core, at one scrape a second.

The machine of the measurement carries a job of 8 workers (heartbeat pages at 10 steps a second, a ring of TCP connections)
and 2,000 other processes. Everything is started here and ended here.

    python bench/agent_overhead.py [--seconds 60] [--others 2000] [--workers 8] [--discover] [--format json]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

GOAL_RSS_MIB, GOAL_CPU_PERCENT = 60.0, 1.0

WORKER = """
import socket, sys, time
from minder.wire.heartbeat import HeartbeatPage
page = HeartbeatPage(sys.argv[1])
page.identify(int(sys.argv[2]), 1)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
ports = [int(port) for port in sys.stdin.readline().split()]
sockets = [socket.create_connection(("127.0.0.1", port)) for port in ports]
sockets += [listener.accept()[0] for _ in ports]
for step in range(1_000_000):
    sockets[0].sendall(b"x" * 1000)
    sockets[-1].recv(65536)
    page.beat(step, loss=1.0)
    page.alive()
    time.sleep(0.1)
"""

CROWD = """
import os, signal, sys
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        signal.pause()
        os._exit(0)
print("ready", flush=True)
signal.pause()
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--others", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--discover", action="store_true", help="find the workers by their environment, not by the registry")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    with ExitStack() as stack:
        result = measure(options, Path(stack.enter_context(tempfile.TemporaryDirectory())), stack)
    if options.format == "json":
        print(json.dumps(result))
    else:
        print(f"{'workers':>8} {'others':>7} {'found by':>12} {'series':>7} {'flows':>6} {'RSS MiB':>8} {'CPU %':>6} {'sample ms':>10}")
        print(
            "{workers:>8} {others:>7} {found_by:>12} {series:>7} {flows:>6} {rss_mib:>8.1f} {cpu_percent:>6.2f} {sample_ms:>10.2f}".format(
                **result
            )
        )
        print(f"goals: under {GOAL_RSS_MIB:.0f} MiB and {GOAL_CPU_PERCENT:.0f} % of one core: {'met' if result['met'] else 'MISSED'}")
    return 0 if result["met"] else 1


def measure(options: argparse.Namespace, folder: Path, stack: ExitStack) -> dict[str, object]:
    for name in ("jobs", "heartbeats"):
        (folder / name).mkdir()
    start_crowd(options.others, stack)
    pids = start_workers(options.workers, folder, stack)
    if not options.discover:
        workers = [{"slot": rank, "pid": pid, "rank": rank, "heartbeat": f"{folder}/heartbeats/pid-{pid}"} for rank, pid in enumerate(pids)]
        (folder / "jobs" / "bench.json").write_text(json.dumps({"job": "bench", "generation": 1, "workers": workers}))
    agent, url = start_agent(folder, options.discover, stack)
    for _ in range(20):  # warm up: imports, first scans
        scrape(url)
        time.sleep(0.25)
    before_s, started_s = cpu_seconds(agent.pid), time.monotonic()
    samples: list[float] = []
    text = ""
    while time.monotonic() - started_s < options.seconds:
        text = scrape(url)
        samples.append(value_of(text, "minder_agent_sample_seconds"))
        time.sleep(1.0 - (time.monotonic() - started_s) % 1.0)
    cpu_percent = 100.0 * (cpu_seconds(agent.pid) - before_s) / (time.monotonic() - started_s)
    rss_mib = resident_mib(agent.pid)
    assert value_of(text, "minder_job_processes") >= options.workers, "the agent does not see all workers"
    flows = len(post(url + "/v1/capture", {"what": ["flows"]})["flows"])  # type: ignore[arg-type]
    return {
        "workers": options.workers,
        "others": options.others,
        "found_by": "environment" if options.discover else "registry",
        "series": sum(not line.startswith("#") for line in text.splitlines()),
        "flows": flows,
        "rss_mib": rss_mib,
        "cpu_percent": cpu_percent,
        "sample_ms": 1e3 * sum(samples) / len(samples),
        "met": rss_mib < GOAL_RSS_MIB and cpu_percent < GOAL_CPU_PERCENT,
    }


def start_crowd(count: int, stack: ExitStack) -> None:
    crowd = subprocess.Popen([sys.executable, "-S", "-c", CROWD, str(count)], stdout=subprocess.PIPE, start_new_session=True)
    stack.callback(crowd.wait)
    stack.callback(os.killpg, crowd.pid, signal.SIGKILL)
    assert crowd.stdout is not None and crowd.stdout.readline() == b"ready\n"


def start_workers(count: int, folder: Path, stack: ExitStack) -> list[int]:
    """Each worker connects to its next two neighbours."""
    workers = []
    for rank in range(count):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(count), "MINDER_JOB": "bench"}
        page = folder / "heartbeats" / f"rank-{rank}"
        command = [sys.executable, "-c", WORKER, str(page), str(rank)]
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        stack.callback(worker.wait)
        stack.callback(worker.kill)
        workers.append(worker)
        page.touch()
        (folder / "heartbeats" / f"pid-{worker.pid}").symlink_to(page)
    ports = [worker.stdout.readline().decode().strip() for worker in workers if worker.stdout is not None]
    for rank, worker in enumerate(workers):
        assert worker.stdin is not None
        worker.stdin.write(f"{ports[(rank + 1) % count]} {ports[(rank + 2) % count]}\n".encode())
        worker.stdin.flush()
    return [worker.pid for worker in workers]


def start_agent(folder: Path, discover: bool, stack: ExitStack) -> tuple[subprocess.Popen[bytes], str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, "-m", "minder", "agent", "--listen", address, "--run-dir", str(folder)]
    agent = subprocess.Popen([*command, "--discover" if discover else "--no-discover"])
    stack.callback(agent.wait)
    stack.callback(agent.kill)
    for _ in range(600):  # a busy machine may take long to start it
        try:
            scrape(f"http://{address}")
            break
        except OSError:
            time.sleep(0.1)
    return agent, f"http://{address}"


def scrape(url: str) -> str:
    with urllib.request.urlopen(url + "/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def post(url: str, body: dict[str, object]) -> dict[str, object]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return dict(json.load(answer))


def value_of(text: str, name: str) -> float:
    return next((float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name} ")), float("nan"))


def cpu_seconds(pid: int) -> float:
    """The agent and the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    sys.exit(main())
