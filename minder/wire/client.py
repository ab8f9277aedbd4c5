"""HTTP calls to one machine's agent and launcher. Every failure is a WireError with one line that names the machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from minder.errors import WireError
from minder.wire.tls import explain_tls

__all__ = ["Endpoint", "MachineClient", "MachineEndpoints"]

_CONNECT_S = 1.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one process of ours listens, and the token that it wants."""

    url: str
    token: str


@dataclass(frozen=True, slots=True)
class MachineEndpoints:
    """A machine's agent and launcher; a machine that we only watch has no launcher."""

    machine: str
    agent: Endpoint | None
    launcher: Endpoint | None


class MachineClient:
    """Asynchronous calls to one machine. Shares the caller's connection pool."""

    def __init__(self, endpoints: MachineEndpoints, http: httpx.AsyncClient) -> None:
        self.machine = endpoints.machine
        self._endpoints = endpoints
        self._http = http

    @property
    def has_agent(self) -> bool:
        return self._endpoints.agent is not None

    @property
    def has_launcher(self) -> bool:
        return self._endpoints.launcher is not None

    async def signals(self, since: int, wait_s: float) -> Mapping[str, Any]:
        return await self._call("agent", "GET", "/v1/signals", wait_s + 2.0, params={"since": since, "wait": wait_s})

    async def health(self, timeout_s: float) -> Mapping[str, Any]:
        """The agent's answer at once: a long poll says nothing of how far apart the clocks are."""
        return await self._call("agent", "GET", "/v1/health", timeout_s)

    async def capture(self, what: list[str], deadline_s: float, **options: float) -> Mapping[str, Any]:
        """options: samples and interval_s of connections, native for stacks with compiled frames."""
        return await self._call("agent", "POST", "/v1/capture", deadline_s + 1.0, json={"what": what, "deadline_s": deadline_s, **options})

    async def dumps(self, deadline_s: float) -> Mapping[str, Any]:
        """Flight Recorder dumps of the machine's training processes."""
        return await self._call("agent", "POST", "/v1/dumps", deadline_s + 1.0, json={"deadline_s": deadline_s})

    async def retest(self, operation: str, wait_s: float) -> Mapping[str, Any]:
        """The site's test of the machine: started, or what came of it (minder.agent.retest)."""
        return await self._call("agent", "POST", "/v1/retest", wait_s + 2.0, json={"operation": operation, "wait_s": wait_s})

    async def state(self, timeout_s: float) -> Mapping[str, Any]:
        return await self._call("launcher", "GET", "/v1/state", timeout_s)

    async def events(self, since: int, wait_s: float) -> Mapping[str, Any]:
        return await self._call("launcher", "GET", "/v1/events", wait_s + 2.0, params={"since": since, "wait": wait_s})

    async def workers(self, body: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        return await self._call("launcher", "POST", "/v1/workers", timeout_s, json=body)

    async def _call(self, part: str, method: str, path: str, timeout_s: float, **arguments: Any) -> Mapping[str, Any]:
        endpoint = self._endpoints.agent if part == "agent" else self._endpoints.launcher
        if endpoint is None:
            raise WireError(f"{self.machine} has no {part} configured")
        headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}  # a header that ends in a space is refused
        timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S))
        started_s = time.monotonic()
        try:
            answer = await self._http.request(method, endpoint.url + path, headers=headers, timeout=timeout, **arguments)
        except httpx.HTTPError as error:
            where, told = f"{part} of {self.machine} at {endpoint.url}", explain_tls(error, endpoint.url)
            if told is not None:
                raise WireError(f"{where}: {told[0]}") from told[1]  # it answers, but not us: no silence
            raise WireError(f"{where}: {type(error).__name__} {error}".rstrip()) from error
        if answer.status_code != 200:
            raise WireError(f"{part} of {self.machine}: HTTP {answer.status_code} on {path}: {answer.text[:200]}")
        try:
            found = answer.json()
        except ValueError as error:
            raise WireError(f"{part} of {self.machine}: {path} did not answer JSON") from error
        if not isinstance(found, dict):
            raise WireError(f"{part} of {self.machine}: {path} answered {type(found).__name__}, not an object")
        received_s = time.time()  # the way there is counted back from it: nobody can set the clock in between
        found["_sent_s"], found["_received_s"] = received_s - (time.monotonic() - started_s), received_s
        return found
