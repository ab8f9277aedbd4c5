"""What goes over the wire, and what the answers are taken for: Kubernetes' own client against a server that says what it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from minder.act.actuators.kubernetes.calls import KubernetesCalls
from minder.model.errors import ActuatorError, EngineRefusalError, EngineUnavailableError

pytestmark = pytest.mark.package("kubernetes")


class Server(ThreadingHTTPServer):
    """`said`: status and body of every answer; `heard`: method, path, type, token and body of every request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.said: tuple[int, bytes] = (200, b"{}")
        self.heard: list[tuple[str, str, str | None, str | None, Any]] = []
        self.silent = threading.Event()

    def handle_error(self, *unused: object) -> None:
        """Whoever asked has gone away."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        heard = (self.command, self.path, self.headers["Content-Type"], self.headers["Authorization"], json.loads(body or b"null"))
        self.server.heard.append(heard)
        if self.server.silent.is_set():
            self.server.silent.wait()
            threading.Event().wait(1.5)
        status, said = self.server.said
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = do_PATCH = _answer

    def log_message(self, *unused: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def calls(server: Server, tmp_path: Path) -> KubernetesCalls:
    path = tmp_path / "config"
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}
    user = {"name": "u", "user": {"token": "a-token"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    told = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [user], "contexts": [context], "current-context": "x"}
    path.write_text(json.dumps(told))
    return KubernetesCalls(0.5, str(path))


def status(code: int, message: str, *causes: str) -> tuple[int, bytes]:
    details = {"causes": [{"reason": cause} for cause in causes]}
    return code, json.dumps({"kind": "Status", "message": message, "code": code, "details": details}).encode()


def test_a_write_is_a_merge_patch_under_the_token(server: Server, calls: KubernetesCalls) -> None:
    server.said = (200, b'{"metadata": {"name": "n1"}}')
    body = {"metadata": {"annotations": {"minder/why": None}}, "spec": {"taints": []}}
    assert calls.call("PATCH", "/api/v1/nodes/n1", body, {"fieldManager": "minder"}) == {"metadata": {"name": "n1"}}
    assert server.heard == [("PATCH", "/api/v1/nodes/n1?fieldManager=minder", "application/merge-patch+json", "Bearer a-token", body)], (
        "None takes an annotation away: it must go over the wire"
    )


def test_lists_and_watches(server: Server, calls: KubernetesCalls) -> None:
    calls.call("GET", "/api/v1/nodes", None, {"limit": 500, "labelSelector": "pool=train"})
    server.said = (200, b'{"type": "ADDED", "object": {}}\n{"type": "BOOKMARK", "object": {}}\n')
    assert [event["type"] for event in calls.watch("/api/v1/nodes", {"resourceVersion": "7"})] == ["ADDED", "BOOKMARK"]
    assert [path for _, path, _, _, _ in server.heard] == [
        "/api/v1/nodes?limit=500&labelSelector=pool%3Dtrain",
        "/api/v1/nodes?resourceVersion=7&watch=true&timeoutSeconds=1",
    ]


@pytest.mark.parametrize(
    ("said", "error", "told"),
    [
        (status(404, "not there"), EngineRefusalError, "refused GET /x: not there"),
        (status(403, "forbidden"), EngineRefusalError, r"forbidden \(its rights: .*rbac\.yaml\)"),
        (status(409, "modified"), EngineRefusalError, "modified"),
        (status(410, "too old"), EngineRefusalError, "too old"),
        (status(429, "budget", "DisruptionBudget"), EngineRefusalError, "budget"),
        (status(429, "too many requests"), EngineUnavailableError, "429 too many requests"),
        (status(500, "This pod has more than one PodDisruptionBudget"), EngineRefusalError, "more than one"),
        (status(503, "etcd is gone"), EngineUnavailableError, "503 etcd is gone"),
        ((502, b"<html>a proxy's word</html>"), EngineUnavailableError, "502 <html>"),
        ((200, b"[]"), EngineUnavailableError, "cannot be read"),
        ((200, b"<html>a login page</html>"), EngineUnavailableError, "cannot be read"),
    ],
)
def test_what_an_answer_is_taken_for(
    server: Server, calls: KubernetesCalls, said: tuple[int, bytes], error: type[ActuatorError], told: str
) -> None:
    server.said = said
    with pytest.raises(error, match=told) as raised:
        calls.call("GET", "/x")
    assert type(raised.value) is error
    if isinstance(raised.value, EngineRefusalError):
        assert raised.value.status == said[0]


def test_a_server_that_does_not_answer_is_told_in_time(server: Server, calls: KubernetesCalls) -> None:
    server.silent.set()
    with pytest.raises(EngineUnavailableError, match=r"did not answer GET /x within 0\.5 s"):
        calls.call("GET", "/x")
    assert len(server.heard) == 1, "one call is one request"


def test_nobody_there_and_no_configuration_are_one_clear_line(server: Server, calls: KubernetesCalls, tmp_path: Path) -> None:
    server.shutdown()
    server.server_close()
    with pytest.raises(EngineUnavailableError, match="did not answer"):
        calls.call("GET", "/x")
    with pytest.raises(ActuatorError, match=r"no way to Kubernetes.*engine\.kubeconfig"):
        KubernetesCalls(0.5, str(tmp_path / "none")).call("GET", "/x")
