"""The built-in scraper: the same samples as through a Prometheus, without one."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from minder.ingest.sources.exposition import Layout, PageReader
from minder.ingest.sources.identity import MachineMap
from minder.ingest.sources.mapping import MetricMapping, load_mapping
from minder.ingest.sources.translate import Page, Translator
from minder.model.clock import Clock, SystemClock
from minder.model.errors import NoAnswerError, SourceError
from minder.model.telemetry import Sample
from minder.wire.allowance import Allowance
from minder.wire.asking import Asker
from minder.wire.plain import PlainHttp
from minder.wire.token_files import Token

__all__ = ["ScrapeSource", "ScrapeTarget"]

_LARGEST_BYTES = 4 * 2**20  # of a page; an agent's has 0.1 MiB at most, a large machine's node_exporter 1
_BYTES_PER_S = 2**20
_MOST_NEW = 20_000  # series of one target, at once; each is remembered for an hour
_NEW_PER_S = 5.0
_SILENT_S = 3.0  # a busy machine may answer after the round; a machine that has begun to answer gets twice as long


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """One exporter. url: of the metrics page, or its base, to which /metrics is added."""

    machine: str
    url: str
    token: Token = field(default="", repr=False)

    @property
    def metrics_url(self) -> str:
        base = self.url.rstrip("/")
        return base if base.endswith("/metrics") else f"{base}/metrics"


@dataclass(slots=True)
class _Sight:
    """What is known of one target, so that a compromised one takes neither our time nor our memory."""

    layout: Layout | None = None
    series: frozenset[tuple[str, tuple[tuple[str, str], ...]]] = frozenset()
    news: Allowance = field(default_factory=lambda: Allowance(_MOST_NEW, _NEW_PER_S))
    due_s: float = float("-inf")  # monotonic

    def admit(self, layout: Layout) -> None:
        """Raises SourceError for names that change without end."""
        if layout is self.layout:
            return
        series = frozenset((name, tuple(labels.items())) for name, labels in layout.series)
        new = len(series - self.series)
        if self.news.take(new, whole=True) < new:
            raise SourceError(f"{new} of its {len(series)} series are new, as were thousands before: the page is left out")
        self.layout, self.series = layout, series


class ScrapeSource:
    """Scrapes all targets at once; samples carry the time of arrival on our clock, so machines' own clocks do not matter.

    Nothing is raised for a target that does not answer, or answers half: it has no samples, which is absence; `failures` says
    why. That holds for all of them too: silence of all is the monitoring's fault, and the caller sees it.

    `collect` scrapes when a round is due, and never waits longer than timeout_s: an answer that comes later is handed out by
    the next call. With `start()` it keeps the pace by itself and `collect` hands out what came. One thread asks them all.
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
        self._http = PlainHttp(tls, _LARGEST_BYTES)
        self._sights = {target: _Sight() for target in self._targets}
        self._pages = PageReader()
        self._askers: dict[ScrapeTarget, Asker] = {}
        self._running: dict[ScrapeTarget, asyncio.Task[None]] = {}
        self._late: set[ScrapeTarget] = set()  # let a whole round wait in vain, and have not answered since
        self._arrived: list[Page] = []
        self._lock = threading.Lock()
        self._due_s = float("-inf")
        self._paced = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def add(self, targets: Iterable[ScrapeTarget]) -> None:
        """Scrape these too, from the next round on."""
        for target in targets:
            self._sights.setdefault(target, _Sight())
            self._targets = (*(item for item in self._targets if item != target), target)

    def start(self) -> None:
        """Scrape in the background from now on, every interval."""
        if not self._paced:
            self._paced = True
            asyncio.run_coroutine_threadsafe(self._keep_pace(), self._begin())

    def collect(self, now_s: float) -> list[Sample]:
        """What arrived since the last call. Raises IdentityError if two targets give the same metric of one machine."""
        if not self._paced and now_s >= self._due_s:
            # On the clock's own beat, so that a caller that comes a little late does not shift every later round.
            self._due_s = (now_s // self._interval_s + 1) * self._interval_s - 0.05 * self._interval_s
            asyncio.run_coroutine_threadsafe(self._scrape_round(), self._begin()).result()
        with self._lock:
            arrived, self._arrived = self._arrived, []
        return self._translator.translate_pages(arrived)

    def close(self) -> None:
        """Stop the thread; an answer that is still under way is dropped. May be called twice."""
        if self._loop is not None and self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=self._timeout_s + 1.0)

    def _begin(self) -> asyncio.AbstractEventLoop:
        """The loop that asks, which runs in a thread of its own."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name="minder-scrape", daemon=True)
            self._thread.start()
        return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._http.close()
        loop.run_until_complete(asyncio.sleep(0))  # connections that were aborted go now
        loop.close()

    async def _keep_pace(self) -> None:
        while True:
            await self._scrape_round()
            await asyncio.sleep(self._interval_s - self._clock.now_s() % self._interval_s)

    async def _scrape_round(self) -> None:
        """Ask every target that is not still busy with the last question; wait for all but those that were too late once, so that a
        hung one costs one round its patience and no more. Who refuses at once costs nothing, and its return is seen at once."""
        asked: dict[asyncio.Task[None], ScrapeTarget] = {}
        for target in self._targets:
            running = self._running.get(target)
            if running is None or running.done():
                running = self._running[target] = asyncio.create_task(self._scrape(target))
                if target not in self._late:
                    asked[running] = target
        if asked:
            _, pending = await asyncio.wait(asked, timeout=self._timeout_s)
            self._late.update(asked[task] for task in pending)

    async def _scrape(self, target: ScrapeTarget) -> None:
        sight = self._sights[target]
        if time.monotonic() < sight.due_s:
            return  # its last page was so large that reading the next one at once would keep us from the others
        try:
            text = await self._fetch(target)
            sight.due_s = time.monotonic() + len(text) / _BYTES_PER_S if len(text) > _BYTES_PER_S else sight.due_s
            layout, values = self._pages.read(text)
            sight.admit(layout)
        except (NoAnswerError, SourceError, UnicodeDecodeError) as error:
            self.failures[target.machine] = f"{target.metrics_url}: {error}"
            return
        self._late.discard(target)
        page = Page({"machine": target.machine, "instance": target.url}, layout, self._clock.now_s(), values)
        with self._lock:
            self.failures.pop(target.machine, None)
            self._arrived.append(page)

    async def _fetch(self, target: ScrapeTarget) -> str:
        asker = self._askers.get(target)
        if asker is None:
            asker = self._askers[target] = Asker(target.metrics_url, target.token)
        answer = await asker.get(self._http, "", max(_SILENT_S, self._timeout_s))
        if answer.status != 200:
            raise SourceError(f"HTTP {answer.status}" + (": the token is wrong" if answer.status == 401 else ""))
        return answer.body.decode("utf-8")
