"""What one controller carries: agents over real HTTP, scraped and polled once a second.

    python bench/load.py agents --machines 1500 --seconds 60

A process of its own answers as that many agents (metrics of one GPU machine, long-polled signals, health); a controller as
`minder watch` builds it scrapes and polls them, with its windows, detector, rules and ledger. CPU seconds are of the controller's
process alone, and an answer is one of any kind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from minder.model.clock import SystemClock
from minder.record.store.tokens import TokenRecord, TokenStore, new_id

METRICS = {
    "gpu_duty_cycle_ratio": 0.96, "gpu_power_draw_watts": 540.0, "gpu_temperature_celsius": 62.0, "gpu_memory_used_ratio": 0.8,
    "gpu_sm_activity_ratio": 0.9, "gpu_memory_bandwidth_ratio": 0.5,
}  # fmt: skip
HOST = {"cpu_usage_ratio": 0.2, "memory_usage_ratio": 0.4, "disk_usage_ratio": 0.3, "rdma_throughput_bytes_per_second": 2e10}


class Agents:
    """Answers as many agents as are asked for, by the first part of the path: /m0007/metrics. As little work as possible."""

    def __init__(self, gpus: int) -> None:
        self.started_s, self.gpus, self.asked = time.time(), gpus, Counter[str]()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode()
                body, kind = await self._answer(path)
                writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        writer.close()

    async def _answer(self, path: str) -> tuple[bytes, str]:
        name, _, rest = path.strip("/").partition("/")
        now_s = time.time()
        if name == "asked":
            return json.dumps(self.asked).encode(), "application/json"
        self.asked[rest.split("?")[0]] += 1
        if rest.startswith("metrics"):
            shake = 1.0 + (hash((name, int(now_s))) % 100 - 50) / 5000.0
            lines = [f"minder_{metric} {usual * shake:.6g}" for metric, usual in HOST.items()]
            gpus = [f'{{device="gpu{number}"}}' for number in range(self.gpus)]
            lines += [f"minder_{metric}{gpu} {usual * shake:.6g}" for metric, usual in METRICS.items() for gpu in gpus]
            return ("\n".join(lines) + "\n").encode(), "text/plain"
        if rest.startswith("v1/signals"):
            await asyncio.sleep(1.0 if "wait=1" in rest else 0.0)
            now_s = time.time()
            rank, step = int(name[1:]), int((now_s - self.started_s) / 2.0)
            process: dict[str, Any] = {"pid": 1000 + rank, "rank": rank, "job": "big", "step": step, "alive_time_s": now_s}
            process["step_time_s"] = self.started_s + 2.0 * step
            answer = {"machine": name, "started_s": self.started_s, "now_s": now_s, "next": 0, "signals": []}
            answer |= {"jobs": ["big"], "processes": [process]}
            return json.dumps(answer).encode(), "application/json"
        return json.dumps({"machine": name, "started_s": self.started_s, "now_s": now_s}).encode(), "application/json"


def play_agents(port: int, gpus: int) -> None:
    async def run() -> None:
        server = await asyncio.start_server(Agents(gpus).handle, "127.0.0.1", port, backlog=4096)
        await server.serve_forever()

    asyncio.run(run())


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def serving(ledger: Path | str, role: str, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], str, str]]:
    """A service on a ledger for as long as the block lasts: its process, its URL, and a token of that role."""
    tokens = TokenStore(ledger)
    token = tokens.create(TokenRecord(new_id(), "bench", role, SystemClock().now_s(), "bench"))
    tokens.close()
    address = f"127.0.0.1:{free_port()}"
    service = subprocess.Popen([sys.executable, "-m", "minder", "serve", "--listen", address, "--ledger", str(ledger), *words])
    try:
        while service.poll() is None:
            with suppress(httpx.HTTPError):
                if httpx.get(f"http://{address}/v1/ready", timeout=5.0).status_code == 200:
                    break
            time.sleep(0.2)
        yield service, f"http://{address}", token
    finally:
        service.terminate()
        service.wait(30)


def asked(port: int) -> dict[str, int]:
    return dict(httpx.get(f"http://127.0.0.1:{port}/asked", timeout=30.0).json())


def measure_agents(machines: int, seconds: float, gpus: int) -> dict[str, Any]:
    from minder.app.build import build
    from minder.config import JobConfig, MachineConfig

    port = free_port()
    agents = subprocess.Popen([sys.executable, __file__, "play", "--port", str(port), "--gpus", str(gpus)])
    names = [f"m{index:04d}" for index in range(machines)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            members = tuple(MachineConfig(name=name, agent=f"http://127.0.0.1:{port}/{name}") for name in names)
            config = JobConfig(name="big", state_dir=folder, machines=members)
            time.sleep(2.0)
            app = build(config)
            ticks: list[float] = []
            stages: dict[str, float] = {}
            app.begin()
            threading.Event().wait(5.0)  # connections are made once
            cpu_s, begun_s, before = time.process_time(), time.monotonic(), asked(port)
            sampled: list[float] = []
            while time.monotonic() - begun_s < seconds:
                at_s = time.monotonic()
                app.controller.step(SystemClock().now_s())
                ticks.append(time.monotonic() - at_s)
                newest = app.controller._stages.measures.newest_sample_s
                sampled.append(sum(time.time() - s < 3.0 for s in newest.values()) / machines)
                time.sleep(max(0.0, 1.0 - ticks[-1]))
            passed_s = time.monotonic() - begun_s
            cpu_s, after = time.process_time() - cpu_s, asked(port)
            views = app.fleet.views()
            heard = sum(view.agent_age_s is not None and view.agent_age_s < 3.0 for view in views.values())
            for metric in app.controller._stages.measures.registry.collect():
                for sample in metric.samples:
                    if sample.name.endswith("_sum"):
                        stages[sample.labels["stage"]] = round(sample.value / max(1, len(ticks)), 4)
            app.close()
    finally:
        agents.kill()
        agents.wait()
    return {
        "machines": machines, "seconds": round(passed_s, 1), "ticks": len(ticks), "tick_s_median": round(statistics.median(ticks), 3),
        "tick_s_most": round(max(ticks), 3), "cpu_s_per_s": round(cpu_s / passed_s, 3), "cpu_s_per_tick": round(cpu_s / len(ticks), 3),
        "answers_per_s": {path: round((after[path] - before.get(path, 0)) / passed_s, 1) for path in after},
        "cpu_ms_per_answer": round(1e3 * cpu_s / max(1, sum(after.values()) - sum(before.values())), 3),
        "agents_heard_within_3_s": heard, "sampled_within_3_s": round(statistics.median(sampled), 3), "stage_s_per_tick": stages,
        "load": [round(item, 1) for item in os.getloadavg()],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", default="agents", choices=["agents", "play"])
    parser.add_argument("--machines", type=int, default=1500)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    if given.what == "play":
        play_agents(given.port, given.gpus)
        return
    print(json.dumps(measure_agents(given.machines, given.seconds, given.gpus), indent=1))


if __name__ == "__main__":
    main()
