"""A simulated day of a job through the real pipeline: windows, detector, policy, ledger, recovery, and the service beside it.

    python bench/soak.py --hours 24 --tick 2 --out soak.json

A controller as `minder run --act` builds it watches a job on paper (tests/fakes/paper_job.py) on a clock of its own, a tick every --tick
simulated seconds, as fast as it goes. Every two hours a machine is slow, hangs or falls silent and is evicted; an hour later it is
given back. Three degraded states: telemetry is out for ten minutes, the disk of the ledger is full for ten minutes (a real file
system of 24 MiB where one can be mounted), the clock is set forward and back by an hour. A real `minder serve` on the same ledger is
polled by two readers. RSS and descriptors of both processes, and the ledger's size, are taken every simulated ten minutes.
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
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import minder.app.build
from minder.act.controller import recover
from minder.act.controller.lease import Leadership
from minder.act.controller.reporting.gauges import Gauges, Sight
from minder.act.policy.config import PolicyConfig
from minder.config import JobConfig, MachineConfig
from minder.model.clock import FakeClock, SystemClock
from minder.model.errors import LedgerError
from minder.record.incidents import Ledger, kinds
from minder.record.store.tokens import TokenRecord, TokenStore, new_id
from tests.fakes.paper_job import PaperFault, PaperJob

RANKS, STANDBYS, HOUR_S = 8, 2, 3600.0
NAMES = [f"m{index:02d}" for index in range(RANKS + STANDBYS)]
KINDS = ("slow", "hang", "silent")
SETTLED_S = 3 * HOUR_S  # memory may grow until every cache is full


class NoHost:
    """No process that holds a rendezvous store: no rank would meet there."""

    @classmethod
    def ensure(cls, *unused: object) -> NoHost:
        return cls()

    def open(self, generation: int) -> tuple[str, int]:
        return "127.0.0.1", 20_000 + generation % 1000

    def close_before(self, generation: int) -> None: ...


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """A small file system for the ledger, where this process may mount one."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], check=False, capture_output=True)
    try:
        yield folder
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], check=True)


class Day:
    """One job, its controller, and what is noted of them."""

    def __init__(self, folder: Path, ledger: Path, seed: int, tick_s: float) -> None:
        self.tick_s = tick_s
        self.folder, self.path = folder, ledger
        self.clock = FakeClock(SystemClock().now_s())
        self.job = PaperJob(self.clock, NAMES, RANKS, seed=seed)
        recover.RendezvousHost = NoHost  # type: ignore[misc,assignment]
        minder.app.build.build_source = lambda config: self.job  # type: ignore[assignment]
        minder.app.build.Fleet = lambda *unused, **more: self.job  # type: ignore[misc,assignment]
        url = "http://127.0.0.1:9"
        machines = tuple(MachineConfig(name=name, agent=url, launcher=url, standby=name in NAMES[RANKS:]) for name in NAMES)
        policy = {"max_evictions_per_job": 1000, "max_evictions_per_hour": 1000, "breaker_share": 0.9}
        telemetry = {"interval_s": tick_s}
        config = JobConfig(name="soak", machines=machines, state_dir=str(folder), policy=policy, telemetry=telemetry)  # type: ignore[arg-type]
        self.ledger = Ledger(ledger, clock=self.clock)
        self.leadership = Leadership(str(ledger), "soak")
        self.ledger.fence(self.leadership.lead(threading.Event(), print))
        self.leadership.on_beat = self.ledger.note_beat
        self.app = minder.app.build.build(config, act=True, clock=self.clock, ledger=self.ledger)
        measures = self.app.controller._stages.measures
        history = lambda now_s: self.ledger.history("soak", now_s)  # noqa: E731
        self.gauges = Gauges(Sight(self.app.state, measures, self.job.views, self.job.refusals, history, PolicyConfig(), self.clock))
        self.app.begin()
        self.degraded: set[str] = set()
        self.returns: dict[str, float] = {}

    def tick(self) -> None:
        self.clock.sleep(self.tick_s)
        self.job.advance()
        self.app.controller._step_or_wait()

    def look(self) -> set[str]:
        families = [family for family in self.gauges.collect() if family.name == "minder_controller_degraded"]
        found = {sample.labels["what"] for family in families for sample in family.samples if sample.value}
        self.degraded |= found
        return found

    def repair(self) -> None:
        """An hour after it was evicted a machine is given back."""
        now_s = self.clock.monotonic_s()
        for machine in self.app.state.barred:
            self.returns.setdefault(machine, now_s + HOUR_S)
        for machine in [machine for machine, at_s in self.returns.items() if at_s <= now_s]:
            del self.returns[machine]
            self.ledger.append(kinds.UNBARRED, {"machine": machine, "by": "bench"}, job="soak")
            self.app.state.barred.discard(machine)
            self.job.give_back(machine)


class Trouble:
    """The day's script, in simulated seconds since its start."""

    def __init__(self, day: Day, span_s: float) -> None:
        self.day, self.faults, self.told = day, 0, list[dict[str, Any]]()
        self._ballast = day.path.parent / "ballast"
        spread = span_s / 24.0
        self._plan: list[tuple[float, str]] = [
            (7.0 * spread, "telemetry out"), (7.0 * spread + 600.0, "telemetry back"),
            (11.0 * spread, "disk full"), (11.0 * spread + 600.0, "disk free"),
            (15.0 * spread, "clock forward"), (19.0 * spread, "clock back"),
        ]  # fmt: skip
        self._plan += [(1800.0 + number * 2 * HOUR_S, "fault") for number in range(int((span_s - 1800.0) / (2 * HOUR_S)) + 1)]
        self._plan.sort()

    def turn(self, at_s: float) -> None:
        while self._plan and self._plan[0][0] <= at_s:
            what = self._plan.pop(0)[1]
            self._do(what)
            self.told.append({"at_s": round(at_s), "what": what})

    def _do(self, what: str) -> None:
        day = self.day
        if what == "fault":
            running = sorted(set(day.app.state.rank_machine.values()))
            now_s, kind = day.clock.now_s(), KINDS[self.faults % len(KINDS)]
            day.job.faults = [PaperFault(kind, running[self.faults % len(running)], now_s, now_s + 900.0)]  # type: ignore[arg-type]
            self.faults += 1
        elif what.startswith("telemetry"):
            day.job.source_down = what.endswith("out")
        elif what == "disk full":
            self._fill()
        elif what == "disk free":
            self._ballast.unlink(missing_ok=True)
        else:
            day.clock.set_forward(HOUR_S if what.endswith("forward") else -HOUR_S)

    def _fill(self) -> None:
        if not os.path.ismount(self._ballast.parent):
            return
        try:
            with self._ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        except OSError:
            pass
        try:
            while True:
                self.day.ledger.append(kinds.NOTE, {"text": "x" * 500})
        except LedgerError:
            pass


def serve(folder: Path, ledger: Path) -> tuple[subprocess.Popen[bytes], str, str]:
    tokens = TokenStore(ledger)
    token = tokens.create(TokenRecord(new_id(), "bench", "viewer", SystemClock().now_s(), "bench"))
    tokens.close()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    job = folder / "job.toml"
    job.write_text(f'name = "soak"\nstate_dir = "{folder}"\n' + "".join(f'[[machines]]\nname = "{name}"\n' for name in NAMES))
    command = [sys.executable, "-m", "minder", "serve", "--listen", address, "--ledger", str(ledger), "--config", str(job)]
    with (folder / "serve.log").open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=log), f"http://{address}", token


def read(url: str, token: str, stopping: threading.Event, answers: Counter[str]) -> None:
    """Two readers: the job by ETag, and the events."""
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30.0) as http:
        tags: dict[str, str] = {}
        while not stopping.wait(0.5):
            for path in ("/v1/jobs/soak", "/v1/incidents?limit=20", "/v1/events?limit=20", "/v1/metrics"):
                try:
                    answer = http.get(path, headers={"If-None-Match": tags[path]} if path in tags else {})
                except httpx.HTTPError as error:
                    answers[type(error).__name__] += 1
                    continue
                answers[str(answer.status_code)] += 1
                if "ETag" in answer.headers:
                    tags[path] = answer.headers["ETag"]


def weigh(name: str, process: psutil.Process) -> dict[str, float]:
    """Resident MiB, open descriptors and threads of one process. Not of those below it: the service is a child of this one."""
    return {
        f"{name}_mib": round(process.memory_info().rss / 2**20, 2), f"{name}_fds": process.num_fds(),
        f"{name}_threads": process.num_threads(),
    }  # fmt: skip


def concluded(day: Day) -> dict[str, int]:
    """What the controller counted so far: verdicts of each kind, and evictions that were carried out."""
    families = list(day.app.controller._stages.measures.registry.collect())
    found = Counter[str]()
    for sample in (sample for family in families for sample in family.samples):
        if sample.name == "minder_controller_verdicts_total":
            found[sample.labels["kind"]] += int(sample.value)
        elif sample.name == "minder_controller_actions_total" and sample.labels["outcome"] == "done":
            found["evicted"] += int(sample.value)
    return dict(found)


def slope(hours: list[float], values: list[float]) -> dict[str, float]:
    """Growth per simulated day with a 95 percent interval, from the time on when caches are full. Residuals of one process follow
    each other, so the interval comes from slopes of six blocks and not from single samples."""
    kept = np.array([(h, v) for h, v in zip(hours, values, strict=True) if h * HOUR_S >= min(SETTLED_S, 0.4 * hours[-1] * HOUR_S)])
    if len(kept) < 6:
        return {}
    per_day = float(np.polyfit(kept[:, 0], kept[:, 1], 1)[0]) * 24
    means = np.array([(block[:, 0].mean(), block[:, 1].mean()) for block in np.array_split(kept, 6)])
    line = np.polyfit(means[:, 0], means[:, 1], 1)
    left = means[:, 1] - np.polyval(line, means[:, 0])
    error = float(np.sqrt((left**2).sum() / 4 / ((means[:, 0] - means[:, 0].mean()) ** 2).sum())) * 24
    return {
        "per_day": round(per_day, 2),
        "low": round(float(line[0]) * 24 - 2.78 * error, 2),
        "high": round(float(line[0]) * 24 + 2.78 * error, 2),
    }


def live(day: Day, trouble: Trouble, until: tuple[float, float], service: psutil.Process) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    span_s, most_s = until
    states: list[dict[str, Any]] = []
    own, begun_s, next_s = psutil.Process(), time.monotonic(), 0.0
    cpu_s = time.process_time()
    while (at_s := day.clock.monotonic_s()) < span_s and time.monotonic() - begun_s < most_s:
        trouble.turn(at_s)
        day.tick()
        if at_s >= next_s:
            next_s += 600.0
            size = sum(path.stat().st_size for path in day.path.parent.glob("ledger.db*")) / 2**20
            row = {"hour": round(at_s / HOUR_S, 3), **weigh("controller", own), **weigh("service", service)}
            for scorer in service.children()[:1]:
                row |= weigh("scorer", scorer)
            rows.append({**row, "ledger_mib": round(size, 2), "concluded": concluded(day)})
            tick_ms = (time.process_time() - cpu_s) / max(1.0, at_s) * 1e3 * day.tick_s
            print(*(f"{name} {value}" for name, value in rows[-1].items()), f"{tick_ms:.1f} ms/tick", sep="  ", flush=True)
        if at_s % 60.0 < day.tick_s:
            now = sorted(day.look())
            if not states or states[-1]["degraded"] != now:
                states.append({"at_s": round(at_s), "degraded": now})
            if "ledger" not in now:
                day.repair()
    hours = [row["hour"] for row in rows]
    measured = [name for name in rows[-1] if name not in ("hour", "concluded")]
    kept = {name: [(at, row[name]) for at, row in zip(hours, rows, strict=True) if name in row] for name in measured}
    return {
        "simulated_hours": round(day.clock.monotonic_s() / HOUR_S, 2), "real_seconds": round(time.monotonic() - begun_s),
        "cpu_ms_per_tick": round((time.process_time() - cpu_s) * 1e3 / (day.clock.monotonic_s() / day.tick_s), 2), "states": states,
        **{name: {"first": items[0][1], "last": items[-1][1], "most": max(value for _, value in items),
                  **slope(*map(list, zip(*items, strict=True)))} for name, items in kept.items()}, "rows": rows,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--tick", type=float, default=2.0, help="Simulated seconds between ticks, and between samples.")
    parser.add_argument("--minutes", type=float, default=120.0, help="Stop after so many real minutes, wherever the day is then.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))  # the mount and the service must not outlive this
    span_s, answers, stopping = given.hours * HOUR_S, Counter[str](), threading.Event()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="minder-soak-")))
        small = stack.enter_context(disk(folder / "disk"))
        day = Day(folder, small / "ledger.db", given.seed, given.tick)
        trouble = Trouble(day, span_s)
        process, url, token = serve(folder, small / "ledger.db")
        stack.callback(process.wait, 20)
        stack.callback(process.terminate)
        reader = threading.Thread(target=read, args=(url, token, stopping, answers), daemon=True)
        reader.start()
        found = live(day, trouble, (span_s, 60.0 * given.minutes), psutil.Process(process.pid))
        stopping.set()
        reader.join(40.0)
        events = Counter(event.kind for event in day.ledger.events())
        wrong = [event.payload["machine"] for event in day.ledger.events(kinds=[kinds.BARRED])]
        day.app.close()
        day.leadership.close()
    found |= {"faults": trouble.faults, "evicted": len(wrong), "degraded_seen": sorted(day.degraded), "script": trouble.told,
              "events": dict(events), "answers": dict(answers), "load": os.getloadavg(), "phase": day.app.state.phase}  # fmt: skip
    print(json.dumps(found, indent=1))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if found["phase"] == "running" else 1


if __name__ == "__main__":
    raise SystemExit(main())
