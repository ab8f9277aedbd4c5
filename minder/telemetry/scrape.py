"""The built-in scraper: the same samples as through a Prometheus, without one."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import httpx

from minder.clock import Clock, SystemClock
from minder.errors import SourceError
from minder.telemetry.exposition import parse_exposition
from minder.telemetry.identity import MachineMap
from minder.telemetry.mapping import MetricMapping, load_mapping
from minder.telemetry.translate import RawSeries, Translator
from minder.types import Sample

__all__ = ["ScrapeSource", "ScrapeTarget"]

_SOCKET_S = 3.0  # a busy machine may answer after the round; a target that sends a byte now and then gets twice as long
_LARGEST_BYTES = 16 * 2**20  # an answer that does not end must not fill our memory


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """One exporter. url: of the metrics page, or its base, to which /metrics is added."""

    machine: str
    url: str
    token: str = field(default="", repr=False)

    @property
    def metrics_url(self) -> str:
        base = self.url.rstrip("/")
        return base if base.endswith("/metrics") else f"{base}/metrics"


class ScrapeSource:
    """Scrapes all targets at once; samples carry the time of arrival on our clock, so machines' own clocks do not matter.

    Nothing is raised for a target that does not answer, or answers half: it has no samples, which is absence; `failures` tells
    why. That holds for all of them too: everybody silent is the monitoring's fault, and the caller sees it.

    `collect` scrapes when a round is due, and never waits longer than timeout_s: an answer that comes later is handed out by
    the next call. With `start()` a thread keeps the pace by itself and `collect` hands out what came.
    """

    def __init__(
        self,
        targets: Sequence[ScrapeTarget],
        mapping: MetricMapping | None = None,
        interval_s: float = 1.0,
        timeout_s: float = 0.8,
        clock: Clock | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.failures: dict[str, str] = {}
        self._targets = tuple(targets)
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._translator = Translator(mapping or load_mapping("minder"), MachineMap())
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=max(1, len(self._targets)))
        self._client = httpx.Client(timeout=max(_SOCKET_S, timeout_s), limits=limits, trust_env=False, verify=tls or True)
        self._pool = ThreadPoolExecutor(max(1, min(32, len(self._targets))), thread_name_prefix="minder-scrape")
        self._running: dict[ScrapeTarget, Future[None]] = {}
        self._arrived: list[RawSeries] = []
        self._lock = threading.Lock()
        self._due_s = float("-inf")
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Scrape in the background from now on, every interval."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_pace, name="minder-scrape", daemon=True)
            self._thread.start()

    def collect(self, now_s: float) -> list[Sample]:
        """What arrived since the last call. Raises IdentityError if two targets give the same metric of one machine."""
        if self._thread is None and now_s >= self._due_s:
            # On the clock's own beat, so that a caller that comes a little late does not shift every later round.
            self._due_s = (now_s // self._interval_s + 1) * self._interval_s - 0.05 * self._interval_s
            self._scrape_round()
        with self._lock:
            arrived, self._arrived = self._arrived, []
        return self._translator.translate(arrived)

    def close(self) -> None:
        """Stop the thread; an answer that is still under way is dropped."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=self._timeout_s + 1.0)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _keep_pace(self) -> None:
        while not self._stop.is_set():
            try:
                self._scrape_round()
            except RuntimeError:  # the interpreter ends: its pools take no more work
                return
            pause_s = self._interval_s - self._clock.now_s() % self._interval_s
            self._stop.wait(pause_s)

    def _scrape_round(self) -> None:
        """Ask every target that is not still busy with the last question; wait for those that answered it, so that a hung one
        costs one round its patience and no more."""
        asked = []
        for target in self._targets:
            running = self._running.get(target)
            if running is None or running.done():
                self._running[target] = self._pool.submit(self._scrape, target)
                if target.machine not in self.failures:
                    asked.append(self._running[target])
        wait(asked, timeout=self._timeout_s)

    def _scrape(self, target: ScrapeTarget) -> None:
        try:
            series = parse_exposition(self._fetch(target))
        except (httpx.HTTPError, SourceError, UnicodeDecodeError, OSError) as error:
            self.failures[target.machine] = f"{target.metrics_url}: {error or type(error).__name__}"
            return
        time_s = self._clock.now_s()
        labels = {"machine": target.machine, "instance": target.url}
        found = [RawSeries(name, {**own, **labels}, ((time_s, value),)) for name, own, value in series]
        with self._lock:
            self.failures.pop(target.machine, None)
            self._arrived.extend(found)

    def _fetch(self, target: ScrapeTarget) -> str:
        headers = {"Authorization": f"Bearer {target.token}"} if target.token else {}
        body = bytearray()
        patience_s = time.monotonic() + 2 * max(_SOCKET_S, self._timeout_s)
        with self._client.stream("GET", target.metrics_url, headers=headers) as answer:
            if answer.status_code != 200:
                raise SourceError(f"HTTP {answer.status_code}" + (": the token is wrong" if answer.status_code == 401 else ""))
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > _LARGEST_BYTES:
                    raise SourceError("the answer is larger than 16 MiB")
                if time.monotonic() > patience_s:
                    raise SourceError("the answer comes too slowly")
        return body.decode("utf-8")
