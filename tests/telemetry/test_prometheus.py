"""Prometheus as a source: bad answers, outages, look-back, and (marked `server`) a real Prometheus."""

from __future__ import annotations

import base64
import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from minder.ingest.sources.access import Access
from minder.ingest.sources.exposition import parse_exposition
from minder.ingest.sources.identity import MachineMap
from minder.ingest.sources.mapping import load_mapping
from minder.ingest.sources.prometheus import PrometheusOptions, PrometheusSource
from minder.ingest.sources.settings import PrometheusSettings
from minder.ingest.sources.translate import RawSeries, Translator
from minder.model.errors import IdentityError, SourceError


def matrix(*points, **labels):
    metric = {"__name__": "minder_cpu_usage_ratio", "machine": "m0", "instance": "m0:9400", **labels}
    result = [{"metric": metric, "values": [[t, str(v)] for t, v in points]}]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def source(site, **options):
    options.setdefault("timeout_s", 5.0)
    return PrometheusSource(PrometheusOptions(site.url, **options))


def lookback_s(site):
    query = urllib.parse.parse_qs(urllib.parse.urlparse(site.requests[-1][0]).query)["query"][0]
    return int(re.search(r"\[(\d+)s\]$", query)[1])


def test_it_asks_for_raw_samples_of_all_series_at_once(site):
    site.answer = lambda request: (200, matrix((1000, 0.5)))
    source(site, selector='job="minder"', access=Access(tenant="team")).collect(1000.0)
    (path, headers), *others = site.requests
    query = urllib.parse.parse_qs(urllib.parse.urlparse(path).query)["query"][0]
    assert not others and path.startswith("/api/v1/query?")
    assert query.startswith('{__name__=~"') and query.endswith(',job="minder"}[30s]')
    assert headers["X-Scope-OrgID"] == "team"


@pytest.mark.parametrize(("interval_s", "expected"), [(1.0, 30), (15.0, 38), (30.0, 75)])
def test_the_look_back_covers_two_scrapes_and_a_half(site, interval_s, expected):
    site.answer = lambda request: (200, matrix())
    source(site, interval_s=interval_s).collect(1000.0)
    assert lookback_s(site) == expected


def half(request):
    body = matrix((1000, 0.5))
    request.send_response(200)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body[: len(body) // 2])


def half_without_length(request):
    request.send_response(200)
    request.end_headers()
    request.wfile.write(matrix((1000, 0.5))[:-20])


@pytest.mark.parametrize(
    "answer",
    [
        half,
        half_without_length,
        lambda request: (503, b"starting up"),
        lambda request: (200, b"<html>a proxy</html>"),
        lambda request: (200, b'{"status": "success"}'),
        lambda request: (200, b'{"status": "success", "data": {"resultType": "scalar", "result": "x"}}'),
        lambda request: (200, b'{"status": "success", "data": {"result": [{"metric": {}, "values": []}]}}'),
        lambda request: (200, b"[]"),
    ],
)
def test_a_bad_answer_is_an_error_and_loses_nothing(site, answer):
    prometheus = source(site)
    site.answer = lambda request: (200, matrix((999, 0.1), (1000, 0.2)))
    assert len(prometheus.collect(1000.0)) == 2
    site.answer = answer
    for second in range(1, 60, 20):
        with pytest.raises(SourceError, match="Prometheus"):
            prometheus.collect(1000.0 + second)
    site.answer = lambda request: (200, matrix(*((1000 + n, 0.3) for n in range(61))))
    assert [sample.time_s for sample in prometheus.collect(1060.0)] == [1001.0 + n for n in range(60)]
    assert lookback_s(site) == 62


def test_the_look_back_after_an_outage_is_bounded(site):
    site.answer = lambda request: (200, matrix())
    prometheus = source(site)
    prometheus.collect(1000.0)
    prometheus.collect(90_000.0)
    assert lookback_s(site) == 300


@pytest.mark.parametrize("drip", [False, True])
def test_a_slow_answer_is_an_error_in_time_and_is_not_asked_twice(site, drip):
    release = threading.Event()

    def answer(request):
        if drip:
            request.send_response(200)
            request.end_headers()
        while not release.wait(0.1):
            if drip:
                request.wfile.write(b" ")
        return None if drip else (200, matrix())

    site.answer = answer
    prometheus = source(site, timeout_s=0.3)
    with pytest.raises(SourceError):
        prometheus.collect(1000.0)
    if drip:
        with pytest.raises(SourceError, match="still not answered"):
            prometheus.collect(1001.0)
    assert len(site.requests) == 1
    release.set()


def test_nobody_there_is_one_line_that_names_the_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(SourceError) as caught:
        PrometheusSource(PrometheusOptions(url)).collect(1000.0)
    assert url in str(caught.value) and "\n" not in str(caught.value)


def test_a_target_without_machine_is_named(site):
    site.answer = lambda request: (200, matrix((1000, 0.5), machine="", instance="10.0.0.9:9400"))
    with pytest.raises(IdentityError, match=r"10\.0\.0\.9:9400"):
        source(site).collect(1000.0)


def asked(request):
    return urllib.parse.parse_qs(urllib.parse.urlparse(request.path).query)["query"][0]


def test_series_that_cannot_be_placed_are_left_out_counted_and_said_once(site, caplog):
    placed, lost = json.loads(matrix((1000, 0.5))), json.loads(matrix((1000, 0.5), machine="", instance="10.0.0.9:9400"))
    placed["data"]["result"] += lost["data"]["result"]
    site.answer = lambda request: (200, json.dumps(placed).encode())
    prometheus = source(site)
    assert [sample.machine for sample in prometheus.collect(1000.0)] == ["m0"]
    prometheus.collect(1001.0)
    assert prometheus.unplaced == {"10.0.0.9:9400": 1}
    assert [record.message.count("10.0.0.9:9400") for record in caplog.records] == [1]


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for(what, limit_s=40.0):
    """What `what` returns as soon as it is true; fails after the limit."""
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        found = what()
        if found:
            return found
        time.sleep(0.1)
    pytest.fail("waited too long")


class RealPrometheus:
    """A Prometheus on loopback that scrapes one target every second."""

    def __init__(self, folder, target, token):
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s}\n"
            "scrape_configs:\n"
            "- job_name: minder\n"
            f"  authorization: {{credentials: {token}}}\n"
            f'  static_configs: [{{targets: ["{target}"], labels: {{machine: m0}}}}]\n'
        )
        self.process = None

    def start(self):
        command = [
            "prometheus", f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]  # fmt: skip
        with open(self.folder / "log", "a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(self._is_ready)

    def _is_ready(self):
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2.0) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus on the PATH")
needs_node_exporter = pytest.mark.skipif(shutil.which("prometheus-node-exporter") is None, reason="no prometheus-node-exporter on the PATH")


@pytest.fixture
def real(tmp_path, site):
    """An exporter that counts its scrapes, behind a token, and a real Prometheus that scrapes it."""
    count = iter(range(10**6))

    def answer(request):
        if request.headers.get("Authorization") != "Bearer open-sesame":
            return 401, b"who?"
        number = next(count)
        return 200, f"minder_steps_total {number}\nminder_cpu_usage_ratio 0.5\nminder_tcp_retransmits_total {10 * number}\n".encode()

    site.answer = answer
    server = RealPrometheus(tmp_path, site.url.removeprefix("http://"), "open-sesame")
    server.start()
    yield server, site
    server.stop()


@pytest.mark.server
@needs_prometheus
def test_a_real_prometheus_is_read_without_repeats_through_death_and_restart(real):
    server, site = real
    prometheus = PrometheusSource(PrometheusOptions(server.url, selector='job="minder"'))
    seen = []

    def enough():
        try:
            seen.extend(prometheus.collect(time.time()))
        except SourceError:
            return False
        return len(seen) >= 4

    wait_for(enough)
    assert [sample.values["steps_total"] for sample in seen] == [float(n) for n in range(len(seen))]
    assert seen[-1].values["tcp_retransmits_per_second"] == pytest.approx(10.0, rel=0.2)

    server.stop()
    with pytest.raises(SourceError):
        prometheus.collect(time.time())
    server.start()
    before = len(seen)
    wait_for(lambda: enough() and len(seen) >= before + 3)
    steps = [sample.values["steps_total"] for sample in seen if "steps_total" in sample.values]
    assert steps == sorted(set(steps)) and len({sample.time_s for sample in seen}) == len(seen)

    site.answer = lambda request: (503, b"")  # the exporter dies: its last value must not come again
    time.sleep(1.5)
    prometheus.collect(time.time())
    for _ in range(3):
        time.sleep(1.0)
        assert prometheus.collect(time.time()) == []


@pytest.mark.server
@needs_node_exporter
def test_the_mapping_of_node_exporter_fits_a_real_one():
    port = free_port()
    process = subprocess.Popen(
        ["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        translator = Translator(load_mapping("node"), MachineMap("instance"))

        def scrape():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5.0) as answer:
                    text, now_s = answer.read().decode(), time.time()
            except (urllib.error.URLError, OSError):
                return None
            found = parse_exposition(text)
            labels = {"instance": f"127.0.0.1:{port}"}
            return translator.translate(RawSeries(name, {**own, **labels}, ((now_s, value),)) for name, own, value in found)

        wait_for(scrape)
        time.sleep(1.0)
        samples = scrape()
    finally:
        process.kill()
        process.wait()
    (machine,) = [sample.values for sample in samples if sample.device is None]
    for name in ("cpu_usage_ratio", "memory_usage_ratio"):
        assert 0.0 < machine[name] <= 1.0
    assert 0.0 <= machine["disk_usage_ratio"] <= 1.0 and machine["tcp_retransmits_per_second"] >= 0.0


@pytest.mark.parametrize("kind", ["bearer_token_file", "password_file"])
def test_a_secret_that_rotates_is_read_anew(site, tmp_path, kind):
    file = tmp_path / "secret"
    made = {"bearer_token_file": lambda secret: f"Bearer {secret}", "password_file": lambda secret: basic("obs", secret)}[kind]
    valid = ["one"]

    def answer(request):
        known = request.headers.get("Authorization") == made(valid[0])
        return (200, matrix((1000, 0.5))) if known else (401, b"Unauthorized")

    def write(secret):
        file.write_text(secret)
        file.chmod(0o600)

    write("one")
    site.answer = answer
    settings = PrometheusSettings(url=site.url, **{kind: str(file)}, **({"username": "obs"} if kind == "password_file" else {}))
    live = PrometheusSource(settings.options(timeout_s=5.0))
    assert len(live.collect(1000.0)) == 1
    valid[0] = "two"
    with pytest.raises(SourceError, match="401"):
        live.collect(1001.0)
    assert len(site.requests) == 2  # nothing else to say: not asked again
    write("two")
    live.collect(1002.0)
    assert len(site.requests) == 4


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
