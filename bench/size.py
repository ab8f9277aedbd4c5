"""Every page and every GET of a large site, by a real service: processor seconds cold and again, memory, and 50 people who click.

    python bench/size.py [--machines 25000] [--incidents 100000] [--ledger postgresql://...] [--clients 50] [--seconds 60] [--out FILE]

The ledger and the controller's files are those of bench/pages.py, with one job on all machines: the worst case. Processor seconds are of
the service's process between question and answer, so that a crowded machine changes little; "cold" is the first request since the start.
The clients' times are of the wall clock: leave the machine idle for them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
from load import serving
from pages import PAGES, sign_in, write_job, write_ledger, write_status
from viewers import quantiles, tokens_of

from minder.model.clock import SystemClock

AIM_S, AIM_MIB, AIM_P99_S = 0.3, 400, 1.0
EVERY_S = 5.0
AGAIN = 5
_STREAMS = ("/v1/events/stream",)  # never ends


def paths(document: dict[str, Any], last: int) -> Iterator[str]:
    """Every page, and every GET of the API with its names filled in; those that need what this ledger lacks are left out."""
    yield from (page.format(last=last) for page in PAGES)
    for path, methods in document["paths"].items():
        if "get" not in methods or path in _STREAMS or path.startswith(("/v1/decisions/", "/v1/scores/sessions/")):
            continue
        name = "node-0007" if "/machines/" in path else "big"
        yield path.format(incident=f"big-{last - 5}", name=name)
    yield from (
        "/v1/incidents?limit=200",
        "/v1/incidents?state=open",
        "/v1/machines?limit=200",
        "/v1/events?limit=1000",
        "/v1/events?job=big&kind=verdict",
    )


def measure_each(http: httpx.Client, token: str, service: psutil.Process, asked: Sequence[str]) -> dict[str, dict[str, Any]]:
    found = {}
    for path in asked:
        seconds, statuses = [], set()
        for _ in range(1 + AGAIN):
            begun = used(service)
            answer = http.get(path, headers=_bearer(path, token))
            seconds.append(used(service) - begun)
            statuses.add(answer.status_code)
        found[path] = {
            "cold_processor_s": round(seconds[0], 3),
            "processor_s": round(sum(seconds[1:]) / AGAIN, 3),
            "bytes": len(answer.content),
            "status": sorted(statuses),
        }
    return found


def _bearer(path: str, token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if path.startswith("/v1/") else {}


def used(process: psutil.Process) -> float:
    """Processor seconds of all threads so far; in hundredths, as the kernel counts."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def click(
    url: str, people: Sequence[tuple[str, httpx.Cookies]], asked: Sequence[str], seconds: float
) -> tuple[list[float], list[str]]:
    """Each person asks for something every five seconds. Returns the seconds of each answer, and what failed."""
    taken: list[float] = []
    failures: list[str] = []
    end_s = time.monotonic() + seconds

    async def person(number: int, cookies: httpx.Cookies, token: str) -> None:
        choice = random.Random(number)
        async with httpx.AsyncClient(base_url=url, cookies=cookies, timeout=30.0) as http:
            await asyncio.sleep(choice.random() * EVERY_S)
            while time.monotonic() < end_s:
                path = choice.choice(asked)
                begun = time.perf_counter()
                try:
                    answer = await http.get(path, headers=_bearer(path, token))
                    taken.append(time.perf_counter() - begun)
                    if answer.status_code != 200:
                        failures.append(f"{path}: HTTP {answer.status_code}")
                except httpx.HTTPError as error:
                    failures.append(f"{path}: {type(error).__name__}")
                await asyncio.sleep(EVERY_S)

    await asyncio.gather(*(person(number, cookies, token) for number, (token, cookies) in enumerate(people)))
    return taken, failures


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--machines", type=int, default=25_000)
    parser.add_argument("--incidents", type=int, default=100_000)
    parser.add_argument("--ledger", help="an empty PostgreSQL database; a SQLite file in a temporary folder if not given")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> int:
    given = parse()
    with tempfile.TemporaryDirectory(prefix="minder-size-") as temporary:
        folder, now_s = Path(temporary), SystemClock().now_s()
        place = given.ledger or str(folder / "ledger.db")
        write_ledger(place, given.incidents, now_s, given.machines)
        write_status(folder, now_s, given.machines)
        stopping = threading.Event()
        threading.Thread(target=keep_writing, args=(folder, given.machines, stopping), daemon=True).start()
        with serving(place, "operator", "--config", str(write_job(folder, given.machines))) as (service, url, token):
            process = psutil.Process(service.pid)
            found = {"machines": given.machines, "incidents": given.incidents, "ledger": "PostgreSQL" if given.ledger else "SQLite"}
            found |= {"start_processor_s": round(used(process), 2), "start_MiB": round(process.memory_info().rss / 2**20)}
            http = sign_in(url, token)
            asked = list(paths(http.get("/v1/openapi.json").json(), given.incidents))
            found["each"] = measure_each(http, token, process, asked)
            found["MiB"] = round(process.memory_info().rss / 2**20)
            people = [(token, sign_in(url, token).cookies) for token in tokens_of(place, given.clients)]
            taken, failures = asyncio.run(click(url, people, asked, given.seconds))
            found["clients"] = quantiles(taken) | {"failures": sorted(set(failures))[:20]}
            found["MiB_after_clients"] = round(process.memory_info().rss / 2**20)
            stopping.set()
    print(table(found))
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def keep_writing(folder: Path, machines: int, stopping: threading.Event) -> None:
    """As a controller does, every five seconds: one that is silent is another page."""
    while not stopping.wait(5.0):
        write_status(folder, SystemClock().now_s(), machines)


def table(found: dict[str, Any]) -> str:
    lines = [f"{found['machines']:,} machines, {found['incidents']:,} incidents, {found['ledger']}: started with "
             f"{found['start_processor_s']} s of processor and {found['start_MiB']} MiB"]  # fmt: skip
    lines.append(f"{'path':<44} {'cold s':>8} {'again s':>8} {'kB':>7}")
    for path, row in found["each"].items():
        over = " over" if max(row["cold_processor_s"], row["processor_s"]) > AIM_S else ""
        status = "" if row["status"] == [200] else f" HTTP {row['status']}"
        lines.append(f"{path:<44} {row['cold_processor_s']:>8.2f} {row['processor_s']:>8.3f} {row['bytes'] / 1000:>7.0f}{over}{status}")
    lines.append(f"memory: {found['MiB']} MiB, {found['MiB_after_clients']} MiB after the clients (aim {AIM_MIB})")
    lines.append(f"clients: {found['clients']} (aim: p99 {AIM_P99_S} s)")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
