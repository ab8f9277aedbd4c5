"""How quickly the pages appear: a job of 1,500 machines and 10,000 incidents, over loopback, in a real browser.

    python bench/pages.py --out results.json [--incidents 10000] [--pictures FOLDER]

The ledger is written in a temporary folder; `minder serve` is started on it as a process of its own. Needs Chromium and playwright.
"""

# ruff: noqa: E501
from __future__ import annotations

import argparse
import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from minder.config import load_config
from minder.model.clock import SystemClock
from minder.record.store.engine import writing
from minder.record.store.events import EventStore
from minder.record.store.tables import EVENTS
from minder.record.store.tokens import TokenRecord, TokenStore, new_id
from serve.app import build_app
from serve.settings import Settings
from serve.state import open_service

MACHINES, RANKS = 1500, 8
PAGES = ("/", "/incidents", "/incidents?state=open", "/incidents/big-{last}", "/jobs/big", "/machines", "/machines/node-0007", "/standbys",
         "/pauses", "/policy?job=big", "/models", "/audit", "/audit?kind=all")  # fmt: skip


def machine_names(machines: int = MACHINES) -> list[str]:
    return [f"node-{index:04d}" for index in range(machines)]


def write_ledger(path: Path | str, incidents: int, now_s: float, machines: int = MACHINES) -> None:
    """A month of a large job: every incident with verdict, decision, intent, result, evidence and recovery; the newest three open."""
    store = EventStore(path)
    begin_s = now_s - 30 * 86_400.0
    names = machine_names(machines)
    rows: list[dict[str, Any]] = []

    def put(kind: str, payload: Any, time_s: float, incident: str | None = None, operation: str | None = None) -> None:
        rows.append(
            {"time_s": time_s, "kind": kind, "payload": json.dumps(payload), "job": "big", "incident": incident, "operation_id": operation}
        )

    ranks = {str(rank): names[rank // RANKS] for rank in range(machines * RANKS)}
    domains = {name: {"rack": f"r{index // 40}", "switch": f"leaf-{index // 20}"} for index, name in enumerate(names)}
    put("job_registered", {"machines": names, "standbys": ["spare-1", "spare-2"], "gpus": machines * RANKS, "domains": domains}, begin_s)
    put("generation_started", {"generation": 1, "rank_machine": ranks}, begin_s + 1)
    for number in range(1, incidents + 1):
        time_s = begin_s + 86_400.0 * 29.9 * number / incidents
        machine = names[number * 7 % machines]
        write_incident(put, number, time_s, machine, is_open=number > incidents - 3, ranks=ranks if number == incidents - 3 else {})
    with writing(store._engine) as connection:
        for begin in range(0, len(rows), 20_000):  # PostgreSQL takes a bounded number of parameters at once
            connection.execute(EVENTS.insert(), rows[begin : begin + 20_000])
    store.close()


def write_incident(put: Any, number: int, time_s: float, machine: str, is_open: bool, ranks: dict[str, str]) -> None:
    name, operation = f"big-{number}", f"evict-big-{number}"
    evidence = {"source": "telemetry", "machine": machine, "metric": "gpu_power_draw_watts", "device": "gpu3", "observed": 131.2,
                "expected": 548.0, "since_s": time_s - 9}  # fmt: skip
    verdict = {"time_s": time_s, "kind": "machine", "tier": "evict", "machines": [machine], "cause": "stall", "confidence": 0.97,
               "since_s": time_s - 9, "evidence": [evidence] * 3, "against": [{"source": "signals", "message": "its agent answers"}]}  # fmt: skip
    decision = {"operation_id": operation, "time_s": time_s, "action": "evict", "machines": [machine], "reason": "act", "verdict": verdict,
                "detail": "every stage passed: evict", "price": {"acting_gpu_s": 120000.0, "waiting_gpu_s": 21000000.0},
                "replacements": ["spare-1"], "stages": ["tier: pass", "pause: pass", "budgets: pass"]}  # fmt: skip
    put("verdict", verdict, time_s, name)
    put("decision", decision | ({"action": "page", "reason": "dry_run"} if is_open else {}), time_s + 1, name, None)
    put("evidence", {"machine": machine, "what": "evidence", "data": {"kernel": ["NVRM: Xid 79"] * 5}}, time_s + 2, name)
    if is_open:
        return
    put("intent", {"action": "evict", "machines": [machine], "decision": decision}, time_s + 3, name, operation)
    put("barred", {"machine": machine, "reason": "evicted"}, time_s + 3, name)
    put("result", {"operation_id": operation, "time_s": time_s + 4, "outcome": "done", "undo": f"minder machine return {machine}"},
        time_s + 4, name, operation)  # fmt: skip
    put("generation_started", {"generation": number + 1, "rank_machine": ranks}, time_s + 5, name)
    put(
        "first_step",
        {"step": number, "generation": number + 1, "gpus": 12000, "last_step": number, "resumed_from": number - 1},
        time_s + 8,
        name,
    )
    put("outcome", {"machine": machine, "outcome": "confirmed", "note": "HBM", "by": "alice"}, time_s + 60, name)
    put("unbarred", {"machine": machine, "by": "alice", "note": "replaced"}, time_s + 61, name)


def write_status(folder: Path, now_s: float, machines: int = MACHINES) -> None:
    """What a controller of that job would have written: three machines stand out."""
    shares = dict.fromkeys(range(machines), 0.02) | {7: 1.6, 300: 0.7, 901: 0.3}
    rows = [{"name": name, "role": "training", "agent_age_s": 0.4, "launcher_age_s": 0.4, "workers": ["running"] * RANKS, "step": 10_000,
             "score": shares[index]} for index, name in enumerate(machine_names(machines))]  # fmt: skip
    rows += [{"name": f"spare-{n}", "role": "standby", "agent_age_s": 0.4, "launcher_age_s": 0.4, "workers": ["waiting"] * RANKS, "step": None,
              "score": None} for n in (1, 2)]  # fmt: skip
    status = {"job": "big", "now_s": now_s, "generation": 3, "phase": "running", "machines": rows, "message": "", "step": 10_000,
              "errors": {"telemetry": 3}, "undecided": 0}  # fmt: skip
    times = [now_s - 600 + 5 * row for row in range(120)]
    metrics = {}
    for number, (metric, usual) in enumerate({"gpu_power_draw_watts": 540.0, "gpu_temperature_celsius": 61.0, "step_seconds": 4.2,
                                              "rdma_throughput_bytes_per_second": 2.1e10, "cpu_usage_ratio": 0.4, "gpu_duty_cycle_ratio": 0.97}.items()):  # fmt: skip
        wave = [1 + 0.01 * ((row * 7 + number) % 5 - 2) for row in range(120)]
        falls = [usual * w * (0.24 if row > 80 and number in (0, 5) else 1.0) for row, w in enumerate(wave)]
        metrics[metric] = {"low": [usual * w * 0.95 for w in wave], "middle": [usual * w for w in wave], "high": [usual * w * 1.05 for w in wave],
                           "lines": {"node-0007": falls, "node-0300": [usual * w * 0.97 for w in wave]}}  # fmt: skip
    live = {"now_s": now_s, "machines": machines, "standouts": ["node-0007", "node-0300"], "times": times, "metrics": metrics}
    for name, content in (("status.json", status), ("live.json", live)):  # whole, as a controller does: no page reads half a file
        (folder / f"{name}.new").write_text(json.dumps(content))
        (folder / f"{name}.new").replace(folder / name)


def _keep_writing(folder: Path) -> None:
    """As a controller does, so that it is not silent; its five seconds are those of the pages."""
    while folder.exists():
        time.sleep(5.0)
        with contextlib.suppress(FileNotFoundError):  # the bench is over
            write_status(folder, SystemClock().now_s())


def write_job(folder: Path, machines: int = MACHINES) -> Path:
    members = "".join(
        f'[[machines]]\nname = "{name}"\nrack = "r{index // 40}"\nswitch = "leaf-{index // 20}"\nserial = "SN{index:06d}"\n'
        for index, name in enumerate(machine_names(machines))
    )
    head = f'name = "big"\nranks_per_machine = {RANKS}\nstate_dir = "{folder}"\n'
    path = folder / "job.toml"
    path.write_text(f"{head}{members}[parallelism]\ntensor = 8\npipeline = 10\n")
    return path


def sign_in(address: str, token: str) -> httpx.Client:
    return sign_in_to(httpx.Client(base_url=address, timeout=60.0, follow_redirects=True), token)


def sign_in_to(http: httpx.Client, token: str) -> httpx.Client:
    form = http.get("/sign-in").text
    (csrf,) = re.findall(r'name="csrf" value="([^"]*)"', form)
    http.post("/sign-in", data={"csrf": csrf, "next": "/pauses", "token": token}).raise_for_status()
    return http


def measure_server(http: httpx.Client, last: int) -> dict[str, Any]:
    """Seconds to the whole answer: the first time since the service started, and the median of five more."""
    found = {}
    for page in PAGES:
        seconds = []
        for _ in range(6):
            begun = time.perf_counter()
            answer = http.get(page.format(last=last))
            seconds.append(time.perf_counter() - begun)
            answer.raise_for_status()
        found[page] = {"first_s": round(seconds[0], 3), "median_s": round(sorted(seconds[1:])[2], 3), "bytes": len(answer.content)}
    return found


def measure_processor(ledger: Path, job: Path, token: str, last: int) -> dict[str, Any]:
    """Processor seconds of a page in this process, which a crowded machine does not change: the first time, and the least of five more."""
    from starlette.testclient import TestClient

    config = load_config(job)
    service = open_service(Settings(str(ledger), {"big": config}, {"big": job.parent / "status.json"}))
    found = {}
    begun = time.process_time()
    service.read_past()
    found["at the start, once"] = {"processor_s": round(time.process_time() - begun, 3)}
    http = sign_in_to(TestClient(build_app(service)), token)
    for page in PAGES:
        seconds = []
        for _ in range(6):
            begun = time.process_time()
            http.get(page.format(last=last)).raise_for_status()
            seconds.append(time.process_time() - begun)
        found[page] = {"first_processor_s": round(seconds[0], 3), "processor_s": round(min(seconds[1:]), 3)}
    service.close()
    return found


def measure_browser(address: str, token: str, last: int, pictures: Path | None) -> dict[str, Any]:
    """First contentful paint and bytes of everything that the page loads, in a browser that has seen none of it."""
    from playwright.sync_api import sync_playwright

    found: dict[str, Any] = {}
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for scheme in ("light", "dark") if pictures else ("light",):
            context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 900})  # type: ignore[arg-type]
            tab = context.new_page()
            tab.goto(f"{address}/sign-in?next=/models")
            tab.fill("#token", token)
            tab.click("form.narrow button")
            tab.wait_for_url("**/models")
            session = context.new_cdp_session(tab)
            session.send("Network.enable")
            loaded: list[float] = []
            session.on("Network.loadingFinished", lambda event, loaded=loaded: loaded.append(event["encodedDataLength"]))
            for page in PAGES:
                session.send("Network.clearBrowserCache")
                loaded.clear()
                tab.goto(address + page.format(last=last), wait_until="load")
                tab.wait_for_timeout(700)
                paint = tab.evaluate("performance.getEntriesByName('first-contentful-paint').map(e => e.startTime)[0]")
                if scheme == "light":
                    found[page] = {"paint_s": round(paint / 1000, 3) if paint else None, "weight_bytes": int(sum(loaded))}
                if pictures:
                    name = re.sub(r"\W+", "-", page.format(last="n")).strip("-") or "fleet"
                    tab.screenshot(path=str(pictures / f"{name}-{scheme}.png"), full_page="jobs" not in page)
                    if "jobs" in page:
                        tab.locator("#panels").scroll_into_view_if_needed()
                        tab.screenshot(path=str(pictures / f"{name}-live-{scheme}.png"))
            context.close()
        browser.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench-out/pages.json"))
    parser.add_argument("--incidents", type=int, default=10_000)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--no-browser", action="store_true")
    parser.add_argument("--processor", action="store_true", help="processor time in this process only: no server, no browser")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder, now_s = Path(temporary), SystemClock().now_s()
        ledger = folder / "ledger.db"
        write_ledger(ledger, given.incidents, now_s)
        write_status(folder, now_s)
        threading.Thread(target=_keep_writing, args=(folder,), daemon=True).start()
        tokens = TokenStore(ledger)
        token = tokens.create(TokenRecord(new_id(), "bench", "operator", now_s, "bench"))
        tokens.close()
        if given.processor:
            job = write_job(folder)
            given.out.write_text(json.dumps(measure_processor(ledger, job, token, given.incidents), indent=1) + "\n")
            print(given.out.read_text())
            return
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        command = [
            sys.executable,
            "-m",
            "minder",
            "serve",
            "--listen",
            address,
            "--ledger",
            str(ledger),
            "--config",
            str(write_job(folder)),
        ]
        service = subprocess.Popen(command)
        try:
            url = f"http://{address}"
            for _ in range(300):
                try:
                    if httpx.get(f"{url}/v1/ready", timeout=5.0).status_code == 200:
                        break
                except httpx.HTTPError:
                    time.sleep(0.2)
            http = sign_in(url, token)
            results: dict[str, Any] = {"incidents": given.incidents, "server": measure_server(http, given.incidents)}
            if given.pictures:
                given.pictures.mkdir(parents=True, exist_ok=True)
            if not given.no_browser:
                results["browser"] = measure_browser(url, token, given.incidents, given.pictures)
        finally:
            service.terminate()
            service.wait(20)
    given.out.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
