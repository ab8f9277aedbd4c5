"""Many people look at one job: python bench/viewers.py [--viewers 200] [--seconds 60]

A service on the ledger and files of bench/pages.py (1,500 machines, 10,000 incidents), whose live telemetry a controller would renew every
second. A viewer does what the job's page does: two reads every five seconds, with the ETag of the last, and the stream of new events held
open. Every second one event is written. CPU seconds are of the service's process alone; nothing else of a browser is played.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
from load import serving
from pages import sign_in, write_job, write_ledger, write_status

from minder.model.clock import SystemClock
from minder.record.incidents import Ledger, kinds
from minder.record.store.tokens import TokenRecord, TokenStore, new_id

PATHS = ("/jobs/big/now", "/jobs/big/telemetry")
EVERY_S = 5.0


class Seen:
    """What the viewers met: seconds of every read by path, how old an event was when it came, and what failed."""

    def __init__(self) -> None:
        self.reads: dict[str, list[float]] = {path: [] for path in PATHS}
        self.unchanged = 0
        self.delays: list[float] = []
        self.failures: list[str] = []


async def view(url: str, cookies: httpx.Cookies, token: str, seen: Seen, stopping: asyncio.Event) -> None:
    limits = httpx.Limits(max_connections=3)
    async with httpx.AsyncClient(base_url=url, cookies=cookies, timeout=30.0, limits=limits) as http:
        stream = asyncio.create_task(listen(http, token, seen))
        await asyncio.sleep(random.random() * EVERY_S)
        tags: dict[str, str] = {}
        while not stopping.is_set():
            for path in PATHS:
                begun_s = time.perf_counter()
                try:
                    answer = await http.get(path, headers={"If-None-Match": tags[path]} if path in tags else {})
                except httpx.HTTPError as error:
                    seen.failures.append(type(error).__name__)
                    continue
                seen.reads[path].append(time.perf_counter() - begun_s)
                seen.unchanged += answer.status_code == 304
                if answer.status_code not in (200, 304):
                    seen.failures.append(f"HTTP {answer.status_code}")
                tags |= {path: answer.headers["etag"]} if "etag" in answer.headers else {}
            await asyncio.sleep(EVERY_S)
        stream.cancel()


async def listen(http: httpx.AsyncClient, token: str, seen: Seen) -> None:
    try:
        headers = {"Authorization": f"Bearer {token}"}
        async with http.stream("GET", "/v1/events/stream?job=big&kind=note", headers=headers, timeout=None) as answer:
            if answer.status_code != 200:
                seen.failures.append(f"stream HTTP {answer.status_code}")
            async for line in answer.aiter_lines():
                if line.startswith("data:") and (sent_s := json.loads(line[5:]).get("data", {}).get("told_s")):
                    seen.delays.append(time.time() - sent_s)
    except httpx.HTTPError as error:
        seen.failures.append(f"stream {type(error).__name__}")


def keep_alive(folder: Path, ledger: Path, stopping: threading.Event) -> None:
    """What a controller does meanwhile: its files every second, and now and then an event."""
    with Ledger(ledger) as opened:
        while not stopping.wait(1.0):
            write_status(folder, SystemClock().now_s())
            opened.append(kinds.NOTE, {"text": "a second has passed", "told_s": time.time()}, job="big")


def tokens_of(ledger: Path | str, count: int) -> list[str]:
    """Everybody has their own: rates are limited for each."""
    store = TokenStore(ledger)
    now_s = SystemClock().now_s()
    found = [store.create(TokenRecord(new_id(), f"viewer-{number}", "viewer", now_s, "bench")) for number in range(count)]
    store.close()
    return found


async def look(url: str, people: Sequence[tuple[str, httpx.Cookies]], seconds: float) -> Seen:
    seen, stopping = Seen(), asyncio.Event()
    tasks = [asyncio.create_task(view(url, cookies, token, seen, stopping)) for token, cookies in people]
    await asyncio.sleep(seconds)
    stopping.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    return seen


def quantiles(seconds: list[float]) -> dict[str, Any]:
    ranked = sorted(seconds)
    if not ranked:
        return {"count": 0}
    return {"count": len(ranked), "median_s": round(statistics.median(ranked), 3), "p99_s": round(ranked[int(0.99 * (len(ranked) - 1))], 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--incidents", type=int, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, now_s = Path(temporary), SystemClock().now_s()
        ledger = folder / "ledger.db"
        write_ledger(ledger, given.incidents, now_s)
        write_status(folder, now_s)
        stopping = threading.Event()
        with serving(ledger, "viewer", "--config", str(write_job(folder))) as (service, url, _):
            alive = threading.Thread(target=keep_alive, args=(folder, ledger, stopping), daemon=True)
            alive.start()
            people = [(token, sign_in(url, token).cookies) for token in tokens_of(ledger, given.viewers)]
            process = psutil.Process(service.pid)
            used = process.cpu_times()
            begun_s = time.monotonic()
            seen = asyncio.run(look(url, people, given.seconds))
            spent, took_s = process.cpu_times(), time.monotonic() - begun_s
            memory = process.memory_info().rss
            stopping.set()
            alive.join()
        print(
            json.dumps(
                {
                    "viewers": given.viewers,
                    "seconds": round(took_s, 1),
                    "service_cores": round((spent.user + spent.system - used.user - used.system) / took_s, 3),
                    "service_MiB": round(memory / 2**20),
                    "reads": {path: quantiles(values) for path, values in seen.reads.items()},
                    "unchanged": seen.unchanged,
                    "events_heard": quantiles(seen.delays),
                    "failures": {name: seen.failures.count(name) for name in sorted(set(seen.failures))},
                },
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
