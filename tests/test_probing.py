"""Probes asked of machines' agents: every machine has an answer or a reason, and all are judged beside each other and the past."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from minder.app.probe_tables import judgement_rows, matrix_rows, reasons
from minder.app.probing import ProbedMachine, ask_machines, chosen_probes, find_endpoint, judge_all, ranks_that_run, run_here
from minder.edge.probes.contract import ALONE, find_program
from minder.model.errors import BadInputError
from minder.model.history import LedgerEvent
from minder.model.probes import Measurement, ProbeResult
from minder.wire.client import Endpoint, MachineEndpoints

Answer = Callable[[str, dict[str, Any]], tuple[int, Any]]


@contextmanager
def agent(machine: str, answer: Answer) -> Iterator[MachineEndpoints]:
    """Something that answers as an agent does: health, and what `answer` says to (path, body)."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = {"now_s": time.time()} if self.path == "/v1/health" else answer(self.path.partition("?")[0], {})[1]
            self._say(200, found)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._say(*answer(self.path, body))

        def _say(self, status: int, found: Any) -> None:
            text = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield MachineEndpoints(machine, Endpoint(f"http://127.0.0.1:{server.server_address[1]}", "x"), None)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


RESULT = {
    "probe": "disk",
    "version": 1,
    "state": "measured",
    "measures": [{"name": "disk_write", "value": 5, "unit": "B/s", "better": "higher"}],
}


def test_an_order_names_each_probe_by_its_hash_and_carries_the_controllers_time() -> None:
    seen: list[dict[str, Any]] = []

    def answer(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        seen.append(body)
        return 200, {"state": "running" if len(seen) == 1 else "done", "results": [RESULT]}

    with agent("m0", answer) as endpoint:
        found = ask_machines([endpoint], ("disk",))["m0"]
    assert found.results[0].measures[0].value == 5.0 and not found.refused
    assert {body["operation"] for body in seen} == {seen[0]["operation"]} and len(seen) == 2, "the same operation is asked for again"
    assert seen[0]["probes"] == [{"id": "disk", "sha256": find_program("disk").sha256}] and seen[0]["force"] is False
    assert abs(seen[0]["controller_time_s"] - time.time()) < 60.0 and 0.0 <= seen[0]["round_trip_s"] < 10.0


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ((200, {"state": "refused", "detail": "training processes of llm run"}), "training processes of llm run"),
        ((404, "Not Found"), "HTTP 404 on /v1/probes"),
        ((401, "wrong or missing token"), "HTTP 401"),
        ((200, {"state": "done", "results": [{"probe": 3}]}), "expected str"),
    ],
)
def test_a_machine_without_results_has_a_reason(said: tuple[int, Any], why: str) -> None:
    with agent("m0", lambda path, body: said) as endpoint:
        found = ask_machines([endpoint, MachineEndpoints("m1", Endpoint("http://127.0.0.1:9", "x"), None)], ("disk",))
    assert found["m0"].results == () and why in found["m0"].refused and "\n" not in found["m0"].refused
    assert found["m1"].results == () and "no connection" in found["m1"].refused


def test_ranks_of_the_job_are_seen_where_they_run() -> None:
    rows = [{"job": "llm", "rank": 1}, {"job": "llm", "rank": 0}, {"job": "llm", "rank": None}, {"job": "other", "rank": 7}]
    quiet: dict[str, Any] = {"next": 0, "signals": []}
    with agent("m0", lambda path, body: (200, {**quiet, "processes": rows})) as busy, agent("m1", lambda path, body: (200, quiet)) as idle:
        assert ranks_that_run([busy, idle], "llm") == {"m0": [0, 1]}


def test_probes_are_chosen_by_name() -> None:
    assert chosen_probes(None) == ALONE and chosen_probes("disk, gemm,disk") == ("disk", "gemm")
    with pytest.raises(BadInputError, match="needs two machines"):
        chosen_probes("pair")
    with pytest.raises(BadInputError, match='no probe "fan"'):
        chosen_probes("disk,fan")


def test_an_agent_is_where_the_newest_job_registered_it() -> None:
    def registered(number: int, kind: str, job: str, payload: dict[str, Any]) -> LedgerEvent:
        return LedgerEvent(number, 0.0, kind, job, None, None, payload)

    events = [
        registered(1, "job_registered", "old", {"agents": {"m0": "http://a:1", "m9": "http://a:9"}}),
        registered(2, "job_registered", "new", {"agents": {"m0": "http://b:1"}}),
        registered(3, "standby_added", "new", {"machine": "m5", "agent": "http://b:5"}),
    ]
    found = {name: find_endpoint(events, name, lambda job: f"token of {job}").agent for name in ("m0", "m5", "m9")}
    new, old = "token of new", "token of old"
    assert found == {"m0": Endpoint("http://b:1", new), "m5": Endpoint("http://b:5", new), "m9": Endpoint("http://a:9", old)}
    with pytest.raises(BadInputError, match='has a machine "m7"'):
        find_endpoint(events, "m7", str)


def test_this_machine_is_tested_without_an_agent() -> None:
    said: list[str] = []
    found = run_here(("links", "clock"), done=lambda result: said.append(result.probe))
    assert said == ["links", "clock"] == [result.probe for result in found.results] and found.machine
    assert found.results[1].state == "not_applicable"


def measured(**values: float) -> dict[str, ProbedMachine]:
    return {
        machine: ProbedMachine(
            machine, (ProbeResult("disk", 1, "measured", "", (Measurement("disk_write", value, "B/s", "higher"),), started_s=9.0),)
        )
        for machine, value in values.items()
    }


def test_machines_are_judged_beside_each_other_and_shown_side_by_side() -> None:
    found = {**measured(m0=1e9, m1=1e9, m2=3e8, m3=1e9, m4=1e9, m5=1e9), "m6": ProbedMachine("m6", refused="no connection")}
    judged = judge_all(found, ())
    rows = matrix_rows(found, judged)
    assert (
        rows[0] == ("machine", "disk")
        and rows[3] == ("m2", "slow 300 MB/s")
        and rows[1] == ("m0", "pass 1 GB/s")
        and rows[7] == ("m6", "-")
    )
    assert list(reasons(found, judged)) == [
        "m6: not tested: no connection", "m2: disk slow: disk_write is 3e+08 B/s, 1e+09 on 5 equal machines",
    ]  # fmt: skip
    rows = judgement_rows(judged["m2"])
    assert rows[1][:6] == ("disk", "slow", "disk_write", "300 MB/s", "1 GB/s", "900 MB/s")


def test_what_several_machines_lack_is_said_once() -> None:
    found = measured(m0=1.0, m1=1.0)
    (line,) = reasons(found, judge_all(found, ()))
    assert line.startswith("m0, m1: disk not judged: 1 equal machines (4 are needed)")
