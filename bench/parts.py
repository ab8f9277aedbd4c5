"""What each part of a second of one machine costs its controller, in processor time: reading a page, names and units, windows; then a
scrape and a poll over real HTTP.

    python bench/parts.py --machines 300

Pages are those of bench/load.py (52 series); a process of its own answers. A scrape is asking and reading; a poll is one answer of the
long poll or of the clock, decoded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from contextlib import suppress

import httpx
from load import Agents, asked, free_port

from minder.ingest.sources.exposition import PageReader
from minder.ingest.sources.identity import MachineMap
from minder.ingest.sources.mapping import load_mapping
from minder.ingest.sources.scrape import ScrapeSource, ScrapeTarget
from minder.ingest.sources.translate import Page, Translator
from minder.ingest.windows.aligner import Aligner
from minder.wire.client import Endpoint, MachineEndpoints
from minder.wire.fleet import Fleet


def in_memory(machines: int, rounds: int) -> dict[str, float]:
    """Least µs a page of each step, over rounds of pages whose numbers differ."""
    names, agents = [f"m{index:04d}" for index in range(machines)], Agents(8)
    reader, translator, windows = PageReader(), Translator(load_mapping("minder"), MachineMap()), Aligner(names, 1.0)
    spent: dict[str, list[float]] = {"read": [], "names, units, counters": [], "windows": []}
    for number in range(rounds):
        now_s = 1_700_000_000.0 + number
        texts = [asyncio.run(agents._answer(f"/{name}/metrics"))[0].decode() for name in names]
        marks = [time.process_time()]
        read = [reader.read(text) for text in texts]
        pages = [
            Page({"machine": name, "instance": name}, layout, now_s, values) for name, (layout, values) in zip(names, read, strict=True)
        ]
        marks.append(time.process_time())
        samples = translator.translate_pages(pages)
        marks.append(time.process_time())
        windows.push(samples)
        windows.pop(now_s + 0.5)
        marks.append(time.process_time())
        for step, begin, end in zip(spent, marks, marks[1:], strict=False):
            spent[step].append(end - begin)
    return {step: round(1e6 * min(costs[2:]) / machines, 1) for step, costs in spent.items()}


def over_http(machines: int, rounds: int) -> dict[str, float]:
    """µs of this process an answer."""
    port = free_port()
    answering = subprocess.Popen([sys.executable, str(__file__).replace("parts.py", "load.py"), "play", "--port", str(port)])
    try:
        for _ in range(200):
            with suppress(httpx.HTTPError):
                asked(port)
                break
            time.sleep(0.2)
        urls = {f"m{index:04d}": f"http://127.0.0.1:{port}/m{index:04d}" for index in range(machines)}
        source = ScrapeSource([ScrapeTarget(name, url) for name, url in urls.items()], interval_s=0.1, timeout_s=20.0)
        source.collect(0.0)
        begun_s, before = time.process_time(), asked(port)["metrics"]
        for _ in range(rounds):
            asyncio.run_coroutine_threadsafe(source._scrape_round(), source._begin()).result()
        scrape_s = (time.process_time() - begun_s) / (asked(port)["metrics"] - before)
        source.close()
        fleet = Fleet([MachineEndpoints(name, Endpoint(url, ""), None) for name, url in urls.items()])
        fleet.start()
        time.sleep(5.0)
        begun_s, first = time.process_time(), sum(asked(port).values())
        time.sleep(10.0)
        poll_s = (time.process_time() - begun_s) / (sum(asked(port).values()) - first)
        fleet.stop()
    finally:
        answering.kill()
        answering.wait()
    return {"scrape": round(1e6 * scrape_s, 1), "poll": round(1e6 * poll_s, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=12)
    given = parser.parse_args()
    print(json.dumps(in_memory(given.machines, given.rounds) | over_http(given.machines, given.rounds), indent=1))


if __name__ == "__main__":
    main()
