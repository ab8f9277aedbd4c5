"""Hostile inputs against a real service process: no 5xx, no hang, memory bounded, nothing accepted that should not be.

    python bench/hostile.py --cases 10000 --seed 1

Ends with 1 if anything of that does not hold, and names the inputs. While the inputs come, slow callers hold connections open.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import httpx
import psutil
from hostile_cases import Case, cases

from minder.model.evidence import Verdict
from minder.record.incidents import Ledger, kinds
from minder.record.store.tokens import TokenRecord, TokenStore, new_id

PATIENCE_S = 45.0
TOKENS = 60  # of each role: a token may send 50 requests a second
ROLES: dict[str, dict[str, Any]] = {
    "viewer": {},
    "operator": {},
    "admin": {},
    "agent": {"machine": "m1"},
    "source": {},
    "elsewhere": {"jobs": ("vision",)},
    "scorer": {},
}


class Site:
    """A ledger with a job and an incident, tokens, and `minder serve` as a process."""

    def __init__(self, folder: Path) -> None:
        self.ledger = folder / "ledger.db"
        with Ledger(self.ledger) as ledger:
            ledger.append(kinds.JOB_REGISTERED, {"machines": ["m1", "m2"], "standbys": ["s1"], "gpus": 2}, job="llm")
            ledger.open_incident(Verdict(time.time(), "machine", "page", ("m2",), "stall", 0.9, time.time()), job="llm")
            ledger.append(kinds.BARRED, {"machine": "m2", "reason": "evicted"}, job="llm", incident="llm-1")
        self.tokens = self._make_tokens()
        self.log = (folder / "log").open("w+")
        (folder / "service.toml").write_text("[jobs]\nmost = 1\n")
        options = ["--ledger", str(self.ledger), "--settings", str(folder / "service.toml")]
        command = [sys.executable, "-m", "minder", "serve", "--listen", "127.0.0.1:0", *options]
        self.process = subprocess.Popen(command, stderr=self.log, stdout=subprocess.DEVNULL)
        self.port = self._await_port(folder / "log")
        self.url = f"http://127.0.0.1:{self.port}"

    def _make_tokens(self) -> dict[str, itertools.cycle[str]]:
        store = TokenStore(self.ledger)
        found = {}
        for name, fields in ROLES.items():
            role = {"elsewhere": "operator", "scorer": "viewer"}.get(name, name)
            records = [TokenRecord(new_id(), f"{name}-{number}", role, 0.0, "bench", **fields) for number in range(TOKENS)]
            found[name] = itertools.cycle([store.create(record) for record in records])
        store.close()
        return found

    def _await_port(self, log: Path) -> int:
        while self.process.poll() is None:
            words = [word for word in log.read_text().split() if word.startswith("http://127.0.0.1:")]
            if words:
                return int(words[0].split(":")[2].split("/")[0])
            time.sleep(0.05)
        raise SystemExit(log.read_text())

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


class Watch(threading.Thread):
    """What the service and its scoring process hold, twice a second."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(pid)
        self.done = threading.Event()
        self.service_mib = self.scoring_mib = 0.0
        self.descriptors = 0

    def run(self) -> None:
        while not self.done.wait(0.5):
            try:
                self.service_mib = max(self.service_mib, self._process.memory_info().rss / 2**20)
                self.descriptors = max(self.descriptors, self._process.num_fds())
                for child in self._process.children(recursive=True):
                    self.scoring_mib = max(self.scoring_mib, child.memory_info().rss / 2**20)
            except psutil.NoSuchProcess:
                continue


def send(site: Site, http: httpx.Client, case: Case, token: str) -> int | str:
    """The status; "closed" where the connection was ended, "hang" where nothing came."""
    if case.raw is not None:
        return send_raw(site.port, case.raw.replace(b"\r\nHost: x", f"\r\nHost: x\r\nAuthorization: Bearer {token}".encode(), 1))
    own = {} if case.role == "none" else {"Authorization": f"Bearer {token}"}
    try:
        return http.request(case.method, site.url + case.path, headers={**own, **case.headers}, content=case.body).status_code
    except httpx.TimeoutException:
        return "hang"
    except httpx.HTTPError:
        return "closed"
    except (httpx.InvalidURL, ValueError, UnicodeError):
        return send_raw(site.port, f"{case.method} {case.path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())


def send_raw(port: int, content: bytes) -> int | str:
    """Say it, say that no more comes, and read the first answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            begin = connection.recv(64)
    except TimeoutError:
        return "hang"
    except OSError:
        return "closed"
    words = begin.split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else "closed"


def slow_callers(port: int, token: str, count: int, ended: list[float]) -> threading.Thread:
    """Connections that send one byte a second of a body that was promised: how long does the service bear each?"""

    def run() -> None:
        begun_s = time.monotonic()
        head = f"POST /v1/scores HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        head += "Content-Length: 5000\r\n\r\n"
        left = []
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port), 10.0)
            connection.sendall(head.encode())
            connection.setblocking(False)
            left.append(connection)
        while left and time.monotonic() - begun_s < 150.0:
            time.sleep(1.0)
            for connection in list(left):
                try:
                    connection.send(b" ")
                    if connection.recv(1024) is not None:
                        raise OSError
                except BlockingIOError:
                    continue
                except OSError:
                    left.remove(connection)
                    connection.close()
                    ended.append(time.monotonic() - begun_s)
        for connection in left:
            connection.close()
            ended.append(float("inf"))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--slow", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="minder-hostile-") as name:
        site = Site(Path(name))
        try:
            return attack(site, given)
        finally:
            site.stop()


def attack(site: Site, given: argparse.Namespace) -> int:
    with Ledger(site.ledger) as ledger:
        before = len(ledger.events())
    watch, ended = Watch(site.process.pid), []
    watch.start()
    slow = slow_callers(site.port, next(site.tokens["viewer"]), given.slow, ended)
    found: dict[str, Counter[str]] = defaultdict(Counter)
    bad: list[str] = []
    seconds: list[float] = []
    lock = threading.Lock()
    begun_s = time.monotonic()
    limits = httpx.Limits(max_connections=given.callers)
    with (
        httpx.Client(timeout=PATIENCE_S, limits=limits, trust_env=False) as http,
        concurrent.futures.ThreadPoolExecutor(given.callers) as pool,
    ):

        def one(case: Case) -> None:
            with lock:
                token = next(site.tokens["viewer" if case.role == "none" else case.role])
            sent_s = time.monotonic()
            answer = send(site, http, case, token)
            took_s = time.monotonic() - sent_s
            is_2xx = isinstance(answer, int) and answer < 300
            wrong = answer == "hang" or (isinstance(answer, int) and answer >= 500) or (is_2xx and not case.harmless)
            with lock:
                seconds.append(took_s)
                found[case.family][str(answer)] += 1
                if wrong:
                    bad.append(f"{answer} {case.family}: {case.method} {case.path[:80]} {case.role} {(case.raw or case.body)[:120]!r}")

        waiting: set[concurrent.futures.Future[None]] = set()
        for case in cases(given.seed, given.cases):
            waiting.add(pool.submit(one, case))
            if len(waiting) > 4 * given.callers:
                _, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
    took_s = time.monotonic() - begun_s
    slow.join(160.0)
    watch.done.set()
    with Ledger(site.ledger) as ledger:
        written = [event.kind for event in ledger.events()[before:]]
    alive = httpx.get(f"{site.url}/v1/health", timeout=PATIENCE_S).status_code == 200
    ordered = sorted(seconds)
    summary = {
        "cases": len(seconds),
        "seconds": round(took_s),
        "answers": {family: dict(counts.most_common()) for family, counts in sorted(found.items())},
        "p50_s": round(ordered[len(ordered) // 2], 3),
        "p99_s": round(ordered[int(len(ordered) * 0.99)], 3),
        "longest_s": round(ordered[-1], 1),
        "service_mib": round(watch.service_mib),
        "scoring_mib": round(watch.scoring_mib),
        "descriptors": watch.descriptors,
        "slow_callers": len(ended),
        "slow_longest_s": round(max(ended, default=0.0), 1),
        "written": dict(Counter(written)),
        "alive": alive,
        "bad": len(bad),
        "examples": bad[:20],
    }
    print(json.dumps(summary, indent=1))
    return 0 if alive and not bad and not written and max(ended, default=0.0) < 90.0 else 1


if __name__ == "__main__":
    sys.exit(main())
