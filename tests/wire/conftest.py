"""Real small agents and launchers: Starlette applications on loopback, in threads of their own."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from minder.model.evidence import Signal
from minder.wire.client import Endpoint, MachineEndpoints
from minder.wire.codec import to_json
from minder.wire.fleet import Fleet


class Peer:
    """One machine's agent or launcher. `fast_s`: how far its clock is ahead of ours."""

    def __init__(self, machine: str, *, token: str = "secret", fast_s: float = 0.0, delay_s: float = 0.0) -> None:
        self.machine, self.token, self.fast_s, self.delay_s = machine, token, fast_s, delay_s
        self.started_s = self.now_s()
        self.signals: list[Any] = []
        self.workers: list[Any] = []
        self.extra: dict[str, Any] = {}
        self.bodies: list[Any] = []
        self.shown: set[str] = set()  # tokens
        self.port = _free_port()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def now_s(self) -> float:
        return time.time() + self.fast_s

    def tell(self, kind: str, **more: Any) -> None:
        self.signals.append(to_json(Signal(self.now_s(), kind, self.machine, **more)))  # type: ignore[arg-type]

    def start(self) -> None:
        routes = [
            Route("/v1/signals", self._log),
            Route("/v1/events", self._log),
            Route("/v1/state", self._state),
            Route("/v1/health", self._health),
            Route("/v1/capture", self._capture, methods=["POST"]),
            Route("/v1/workers", self._workers, methods=["POST"]),
        ]
        config = uvicorn.Config(Starlette(routes=routes), host="127.0.0.1", port=self.port, log_level="error")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.force_exit = self._server.should_exit = True
            self._thread.join(10.0)
            self._server = None

    def restart(self) -> None:
        """A new process at the same address: its log begins anew."""
        self.stop()
        self.signals, self.started_s = [], self.now_s()
        self.start()

    async def _answer(self, request: Request, body: dict[str, Any]) -> JSONResponse:
        self.shown.add(request.headers.get("authorization", "").removeprefix("Bearer "))
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return JSONResponse({"error": "wrong or missing token"}, 401)
        if self.delay_s:
            import asyncio

            await asyncio.sleep(self.delay_s)
        about = {"machine": self.machine, "started_s": self.started_s, "now_s": self.now_s()}
        return JSONResponse({**about, **body, **self.extra})

    async def _log(self, request: Request) -> JSONResponse:
        import asyncio

        since, end_s = int(request.query_params["since"]), time.monotonic() + float(request.query_params["wait"])
        while len(self.signals) <= since and time.monotonic() < end_s:
            await asyncio.sleep(0.02)
        return await self._answer(request, {"signals": self.signals[since:], "next": len(self.signals)})

    async def _state(self, request: Request) -> JSONResponse:
        return await self._answer(request, {"workers": to_json(self.workers), "generation": 3, "slots": 1})

    async def _health(self, request: Request) -> JSONResponse:
        return await self._answer(request, {})

    async def _capture(self, request: Request) -> JSONResponse:
        self.bodies.append(await request.json())
        return await self._answer(request, {"logs": {"rank0": ["hello"]}})

    async def _workers(self, request: Request) -> JSONResponse:
        self.bodies.append(await request.json())
        return await self._answer(request, {"outcome": "done"})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def peer() -> Iterator[Callable[..., Peer]]:
    """peer("m0", fast_s=3.0)"""
    made: list[Peer] = []

    def make(machine: str, **options: Any) -> Peer:
        made.append(Peer(machine, **options))
        return made[-1]

    yield make
    for item in made:
        item.stop()


@pytest.fixture
def fleet() -> Iterator[Callable[..., Fleet]]:
    """fleet(agents=[...], launchers=[...]): a started Fleet of these peers (and dead addresses: {"m9": "http://..."})"""
    made: list[Fleet] = []

    def make(agents: list[Peer] | None = None, launchers: list[Peer] | None = None, *, token: str = "secret", **dead: str) -> Fleet:
        of_agent = {item.machine: Endpoint(item.url, token) for item in agents or []}
        of_launcher = {item.machine: Endpoint(item.url, token) for item in launchers or []}
        of_agent |= {machine: Endpoint(url, token) for machine, url in dead.items()}
        of_launcher |= {machine: Endpoint(url, token) for machine, url in dead.items()}
        names = dict.fromkeys([*of_agent, *of_launcher])
        made.append(Fleet([MachineEndpoints(name, of_agent.get(name), of_launcher.get(name)) for name in names]))
        made[-1].start()
        return made[-1]

    yield make
    for item in made:
        item.stop()


@pytest.fixture
def until() -> Callable[..., Any]:
    """until(lambda: condition): its first true value within some seconds; fails with what it was last"""

    def wait(what: Callable[[], Any], limit_s: float = 15.0) -> Any:
        end_s = time.monotonic() + limit_s
        while not (found := what()):
            assert time.monotonic() < end_s, f"never came true, last {found!r}"
            time.sleep(0.02)
        return found

    return wait
