"""A site whose answer is too large for one piece is asked in portions, and says the same."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from minder.doctor.portions import Portion
from minder.doctor.series import Server
from minder.model.errors import SourceError

Labels = dict[str, str]
_MATCHER = re.compile(r'(\w+)=~?"((?:[^"\\]|\\.)*)"')


class Site:
    """Answers as a Prometheus does; `most`: series of an answer that it gives."""

    def __init__(self) -> None:
        self.series: list[Labels] = []
        self.most: int | None = None
        self.asked: list[tuple[str, str]] = []
        self.stamps: list[float] = []

    def matching(self, text: str) -> list[Labels]:
        matchers = [(name, value.replace("\\\\", "\\").replace('\\"', '"')) for name, value in _MATCHER.findall(text)]
        return [item for item in self.series if all(re.fullmatch(value, item.get(name, "")) for name, value in matchers)]

    def answer(self, path: str, given: dict[str, list[str]]) -> tuple[int, object]:
        found = self.matching(given.get("query", given.get("match[]", [""]))[0])
        if path.endswith("/labels"):
            return 200, {"status": "success", "data": sorted({name for item in found for name in item})}
        if path.endswith("/values"):
            label = path.split("/")[-2]
            return 200, {"status": "success", "data": sorted({item[label] for item in found if label in item})}
        if self.most is not None and len(found) > self.most:
            return 422, {"status": "error", "errorType": "execution", "error": "the query exceeded the maximum number of series"}
        if given.get("query", [""])[0].endswith("[10m]"):
            rows = [{"metric": item, "values": [[time_s, "1"] for time_s in self.stamps]} for item in found]
            return 200, {"status": "success", "data": {"resultType": "matrix", "result": rows}}
        return 200, {"status": "success", "data": {"result": [{"metric": item, "value": [1000.0, "1"]} for item in found]}}


@pytest.fixture
def site() -> Iterator[tuple[Site, str]]:
    site = Site()

    class Page(http.server.BaseHTTPRequestHandler):
        def _serve(self, given: dict[str, list[str]], method: str) -> None:
            path = urlsplit(self.path).path
            site.asked.append((method, path))
            status, body = site.answer(path, given)
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            try:
                self.wfile.write(text)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it has read enough

        def do_GET(self) -> None:
            self._serve(parse_qs(urlsplit(self.path).query), "GET")

        def do_POST(self) -> None:
            self._serve(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()), "POST")

        def log_message(self, *unused: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield site, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("stamps", "expected"),
    [([0.0, 5.0, 10.1, 30.0, 35.0], 5.0), ([0.0, 60.0, 120.0], 60.0), ([0.0, 5.0], None), ([], None)],
    ids=["one scrape is missing", "a minute", "too few", "none"],
)
def test_the_interval_of_a_recorded_series_is_measured_by_its_samples(
    site: tuple[Site, str], stamps: list[float], expected: float | None
) -> None:
    site[0].series = [{"__name__": "node:power", "node": 'a"b'}, {"__name__": "node:power", "node": "c"}]
    site[0].stamps = stamps
    server = Server(site[1])
    (found,) = [item for item in server.series("node:power") if item.labels["node"] == 'a"b']
    assert server.gap_s(found) == pytest.approx(expected, abs=0.2)


def many_names() -> list[Labels]:
    return [{"__name__": f"DCGM_FI_{name}", "instance": "collector:9400"} for name in range(24)]


def many_machines() -> list[Labels]:
    return [{"__name__": "DCGM_FI_DEV_GPU_TEMP", "instance": f"10.0.{n // 250}.{n % 250}:9400", "job": "dcgm"} for n in range(24)]


def one_collector() -> list[Labels]:
    """One collector in front of all: the instance is always the same, and a machine's name holds what a pattern must not read."""
    return [{"__name__": "DCGM_FI_DEV_GPU_TEMP", "instance": "hub:1", "Hostname": f'gpu+{n}."a"\\x'} for n in range(24)]


def without_the_label() -> list[Labels]:
    return [{"__name__": "DCGM_FI_DEV_GPU_TEMP", "gpu": str(n)} | ({"pod": f"p{n}"} if n % 3 else {}) for n in range(24)]


@pytest.mark.parametrize("shape", [many_names, many_machines, one_collector, without_the_label])
@pytest.mark.parametrize("bound", ["bytes", "series"])
def test_what_is_too_large_for_one_answer_is_read_in_portions(
    site: tuple[Site, str], monkeypatch: pytest.MonkeyPatch, shape: object, bound: str
) -> None:
    served, url = site
    served.series = [*shape(), {"__name__": "other", "instance": "x"}]  # type: ignore[operator]
    if bound == "bytes":
        monkeypatch.setattr("minder.doctor.series._LARGEST", 2000)
    else:
        served.most = 7
    found = Server(url).series("DCGM_.*")
    key = lambda labels: sorted(labels.items())  # noqa: E731
    assert sorted(key({"__name__": item.name, **item.labels}) for item in found) == sorted(map(key, served.series[:-1]))
    if shape is many_machines:
        assert len(Server(url).highest("DCGM_FI_DEV_GPU_TEMP")) == 24


def test_one_series_that_is_too_large_is_an_error_with_its_remedy(site: tuple[Site, str], monkeypatch: pytest.MonkeyPatch) -> None:
    served, url = site
    served.series = [{"__name__": "up", "instance": "x" * 3000}, {"__name__": "up", "instance": "y"}]
    monkeypatch.setattr("minder.doctor.series._LARGEST", 2000)
    with pytest.raises(SourceError, match="narrow it with --selector"):
        Server(url).series("up")


def test_a_long_question_is_posted(site: tuple[Site, str]) -> None:
    served, url = site
    served.series = many_machines()
    Server(url).giving([item["instance"] for item in served.series] * 20)
    assert served.asked == [("POST", "/api/v1/query")]


def test_a_selector_stays_in_every_portion() -> None:
    halves = Portion("a|b").of_names(("a", "b.c")).by_names()
    assert [part.matchers('cluster="x"') for part in halves] == ['{__name__=~"a",cluster="x"}', '{__name__=~"b\\\\.c",cluster="x"}']
    assert Portion("a", ("a",)).by_label("pod", ["p1", "p2", "p3"])[0].only == (("pod", ("", "p1")),)
