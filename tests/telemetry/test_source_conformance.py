"""One contract, three sources, three scrape intervals: what `Source.collect` promises, on simulated time.

The site is made up: three machines export a gauge that is a function of machine and time, so that a sample with a wrong time
stamp or a repeated value shows. Only the time is simulated; HTTP is real.
"""

from __future__ import annotations

import http.server
import json
import math
import re
import threading
import urllib.parse
from dataclasses import dataclass

import numpy as np
import pytest

from minder.ingest.sources.frames import Frames
from minder.ingest.sources.jobfile import RecordedJob
from minder.ingest.sources.prometheus import PrometheusOptions, PrometheusSource
from minder.ingest.sources.recording import Recording, RecordingSource
from minder.ingest.sources.scrape import ScrapeSource, ScrapeTarget
from minder.model.clock import FakeClock

START_S = 1_700_000_100.0
GAUGE, RATE = "cpu_usage_ratio", "tcp_retransmits_per_second"
COUNTER = "minder_tcp_retransmits_total"
MACHINES = ("m0", "m1", "m2")


def gauge(machine, time_s):
    return 0.5 + 0.4 * math.sin(time_s * (1 + MACHINES.index(machine)))


class Site:
    """Three exporters: what they say at a time, and when they say nothing."""

    def __init__(self, interval_s):
        self.interval_s = interval_s
        self.silent = {}  # machine -> (from, until)

    def answers(self, machine, time_s):
        begin, end = self.silent.get(machine, (math.inf, math.inf))
        return not begin <= time_s < end

    def page(self, machine, time_s):
        return {"minder_" + GAUGE: gauge(machine, time_s), COUNTER: 5.0 * (time_s - START_S)}

    def scrapes(self, machine, after_s, until_s):
        """Times at which a scraper that is not ours asks this machine: its own offset, then every interval."""
        offset_s = 0.31 * MACHINES.index(machine) * self.interval_s
        first = math.floor((after_s - START_S - offset_s) / self.interval_s) + 1
        last = math.floor((until_s - START_S - offset_s) / self.interval_s)
        times = [round(START_S + offset_s + n * self.interval_s, 3) for n in range(max(0, first), last + 1)]
        return [time_s for time_s in times if self.answers(machine, time_s)]


def serve(answer):
    """A real HTTP server; answer(path) gives (status, body)."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


@dataclass
class Rig:
    """A source, the site behind it, and the clock of both."""

    site: Site
    clock: FakeClock
    source: object
    servers: list

    def run(self, until_s, poll_s):
        """Let time pass and collect every poll_s; all samples, call by call."""
        calls = []
        while self.clock.now_s() < START_S + until_s:
            self.clock.sleep(poll_s)
            calls.append(self.source.collect(self.clock.now_s()))
        return calls

    def close(self):
        self.source.close()
        for server in self.servers:
            server.shutdown()
            server.server_close()


def prometheus_rig(site, clock):
    def answer(path):
        query = urllib.parse.parse_qs(urllib.parse.urlparse(path).query)["query"][0]
        lookback_s = float(re.search(r"\[(\d+)s\]$", query)[1])
        names = re.search(r'__name__=~"([^"]*)"', query)[1]
        result = []
        for machine in MACHINES:
            times = site.scrapes(machine, clock.now_s() - lookback_s, clock.now_s())
            for name in ("minder_" + GAUGE, COUNTER):
                if times and re.fullmatch(names, name):
                    labels = {"__name__": name, "machine": machine, "instance": f"{machine}:9400", "job": "minder"}
                    result.append({"metric": labels, "values": [[t, repr(site.page(machine, t)[name])] for t in times]})
        return 200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()

    server = serve(answer)
    options = PrometheusOptions(f"http://127.0.0.1:{server.server_port}", site.interval_s, 'job="minder"')
    return Rig(site, clock, PrometheusSource(options), [server])


def scrape_rig(site, clock):
    def page_of(machine):
        def answer(path):
            if not site.answers(machine, clock.now_s()):
                return 503, b"not now\n"
            return 200, "".join(f"{name} {value!r}\n" for name, value in site.page(machine, clock.now_s()).items()).encode()

        return answer

    servers = [serve(page_of(machine)) for machine in MACHINES]
    targets = [ScrapeTarget(m, f"http://127.0.0.1:{server.server_port}") for m, server in zip(MACHINES, servers, strict=True)]
    return Rig(site, clock, ScrapeSource(targets, interval_s=site.interval_s, timeout_s=10.0, clock=clock), servers)


class LateRecording:
    """A recording is there before the test decides who is silent: it is put together at the first call."""

    def __init__(self, site):
        self._site, self._source = site, None

    def collect(self, now_s):
        self._source = self._source or RecordingSource(record(self._site))
        return self._source.collect(now_s)

    def close(self):
        pass


def record(site):
    rows = [(t, m) for m, name in enumerate(MACHINES) for t in site.scrapes(name, START_S - 1, START_S + 4000)]
    rows.sort()
    before = {}
    values = []
    for t, m in rows:
        count = 5.0 * (t - START_S)
        values.append((gauge(MACHINES[m], t), (count - before[m][1]) / (t - before[m][0]) if m in before else np.nan))
        before[m] = (t, count)
    none = np.full(len(rows), -1)
    frames = Frames(
        np.array([t for t, _ in rows]), np.array([m for _, m in rows]), none, np.array(values), MACHINES, (), (GAUGE, RATE)
    )  # fmt: skip
    job = RecordedJob("made-up", MACHINES)
    return Recording(None, job, None, frames, site.interval_s)


def recording_rig(site, clock):
    return Rig(site, clock, LateRecording(site), [])


RIGS = {"prometheus": prometheus_rig, "scrape": scrape_rig, "recording": recording_rig}


@pytest.fixture(params=[(kind, interval) for kind in RIGS for interval in (1.0, 15.0, 30.0)], ids=lambda p: f"{p[0]}-{p[1]:g}s")
def rig(request):
    kind, interval_s = request.param
    made = RIGS[kind](Site(interval_s), FakeClock(START_S))
    yield made
    made.close()


def of(calls, machine, metric=GAUGE):
    return [(s.time_s, s.values[metric]) for call in calls for s in call if s.machine == machine and metric in s.values]


def test_every_scrape_comes_once_with_its_own_time(rig):
    interval_s = rig.site.interval_s
    calls = rig.run(12 * interval_s, poll_s=interval_s / 2)
    for machine in MACHINES:
        found = of(calls, machine)
        assert 11 <= len(found) <= 13
        for time_s, value in found:
            assert value == pytest.approx(gauge(machine, time_s), abs=1e-9)
        gaps = np.diff([time_s for time_s, _ in found])
        assert gaps[0] <= interval_s * 1.01  # the first round may come before the beat
        assert gaps[1:] == pytest.approx(interval_s, rel=0.01)


def test_nothing_new_is_nothing(rig):
    rig.run(3 * rig.site.interval_s, poll_s=rig.site.interval_s)
    assert rig.source.collect(rig.clock.now_s()) == []


def test_samples_come_in_time_order_and_never_from_the_future(rig):
    interval_s = rig.site.interval_s
    seen_s = []
    while rig.clock.now_s() < START_S + 8 * interval_s:
        rig.clock.sleep(interval_s)
        call = [s.time_s for s in rig.source.collect(rig.clock.now_s())]
        assert all(time_s <= rig.clock.now_s() for time_s in call) and call == sorted(call)
        seen_s.extend(call)
    assert seen_s == sorted(seen_s)


def test_silence_stays_silence_and_ends(rig):
    interval_s = rig.site.interval_s
    begin_s, end_s = START_S + 5 * interval_s, START_S + 15 * interval_s
    rig.site.silent["m1"] = (begin_s, end_s)
    calls = rig.run(20 * interval_s, poll_s=interval_s)
    times = [time_s for time_s, _ in of(calls, "m1")]
    assert not [time_s for time_s in times if begin_s <= time_s < end_s]
    assert len([t for t in times if t < begin_s]) >= 4 and len([t for t in times if t >= end_s]) >= 4
    assert len(of(calls, "m0")) >= 19


def test_a_silent_site_is_no_error(rig):
    rig.site.silent = dict.fromkeys(MACHINES, (START_S, math.inf))
    assert not any(rig.run(4 * rig.site.interval_s, poll_s=rig.site.interval_s))


def test_counters_are_rates(rig):
    calls = rig.run(6 * rig.site.interval_s, poll_s=rig.site.interval_s)
    for machine in MACHINES:
        rates = of(calls, machine, RATE)
        assert len(rates) >= 4 and [rate for _, rate in rates] == pytest.approx([5.0] * len(rates), rel=1e-3)
