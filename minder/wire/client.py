"""HTTP calls to one machine's agent and launcher. Every failure is a WireError with one line that names the machine."""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from minder.model.errors import NoAnswerError, WireError
from minder.wire.answers import Answer
from minder.wire.asking import Asker
from minder.wire.plain import PlainHttp
from minder.wire.tls import explain_tls
from minder.wire.token_files import Token, tokens_of

__all__ = ["Endpoint", "MachineClient", "MachineEndpoints"]

_CONNECT_S = 1.0
# Bytes; asked every few seconds, so that a large one costs every few seconds.
_LARGEST = {"/v1/state": 2**20, "/v1/health": 2**16, "/v1/traces": 2**24}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one process of ours listens, and what it wants: a token, or a file whose token may change."""

    url: str
    secret: Token = field(repr=False)

    @property
    def token(self) -> str:
        """As it is now."""
        return tokens_of(self.secret)[0]


@dataclass(frozen=True, slots=True)
class MachineEndpoints:
    """A machine's agent and launcher; a machine that we only watch has no launcher."""

    machine: str
    agent: Endpoint | None
    launcher: Endpoint | None


class MachineClient:
    """Asynchronous calls to one machine. Shares the caller's connections."""

    def __init__(self, endpoints: MachineEndpoints, http: PlainHttp) -> None:
        self.machine = endpoints.machine
        self._endpoints = endpoints
        self._http = http
        self._askers: dict[str, Asker] = {}

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

    async def capture(self, what: list[str], deadline_s: float, **options: Any) -> Mapping[str, Any]:
        """options: samples and interval_s of connections, native for stacks with compiled frames, peers to be reached too."""
        return await self._call("agent", "POST", "/v1/capture", deadline_s + 1.0, body={"what": what, "deadline_s": deadline_s, **options})

    async def dumps(self, deadline_s: float) -> Mapping[str, Any]:
        """Flight Recorder dumps of the machine's training processes."""
        return await self._call("agent", "POST", "/v1/dumps", deadline_s + 1.0, body={"deadline_s": deadline_s})

    async def retest(self, operation: str, wait_s: float) -> Mapping[str, Any]:
        """The site's test of the machine: started, or what came of it (minder.edge.agent.retest)."""
        return await self._call("agent", "POST", "/v1/retest", wait_s + 2.0, body={"operation": operation, "wait_s": wait_s})

    async def probes(self, body: Mapping[str, Any], wait_s: float, part: Literal["agent", "launcher", ""] = "") -> Mapping[str, Any]:
        """Probes of the machine: begun, or what came of them so far (minder.edge.probes.orders). wait_s: the answer comes by then. part:
        which of the two is asked; if not given the agent, or the launcher where only that is known."""
        part = part or ("agent" if self.has_agent else "launcher")
        return await self._call(part, "POST", "/v1/probes", wait_s + 3.0, body={**body, "wait_s": wait_s})

    async def traces(self, since: int, timeout_s: float) -> Mapping[str, Any]:
        """Traced steps from number `since` on, of the launcher, which shares the workers' user; of the agent where there is no launcher."""
        return await self._call("launcher" if self.has_launcher else "agent", "GET", "/v1/traces", timeout_s, params={"since": since})

    async def state(self, timeout_s: float) -> Mapping[str, Any]:
        return await self._call("launcher", "GET", "/v1/state", timeout_s)

    async def events(self, since: int, wait_s: float) -> Mapping[str, Any]:
        return await self._call("launcher", "GET", "/v1/events", wait_s + 2.0, params={"since": since, "wait": wait_s})

    async def workers(self, body: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        return await self._call("launcher", "POST", "/v1/workers", timeout_s, body=body)

    async def offer_update(self, body: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """A version of the job's code: laid out by the launcher, or which contents it misses (minder.edge.launcher.updates)."""
        return await self._call("launcher", "POST", "/v1/updates", timeout_s, body=body)

    async def send_piece(self, body: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """One piece of a file that the launcher misses."""
        return await self._call("launcher", "POST", "/v1/updates/pieces", timeout_s, body=body)

    async def warm_update(self, body: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """Processes of a version that the launcher has, beside its workers; whether they wait at their barrier."""
        return await self._call("launcher", "POST", "/v1/updates/warm", timeout_s, body=body)

    async def _call(
        self, part: str, method: str, path: str, timeout_s: float, params: Mapping[str, float] | None = None, body: Any = None
    ) -> Mapping[str, Any]:
        endpoint = self._endpoints.agent if part == "agent" else self._endpoints.launcher
        if endpoint is None:
            raise WireError(f"{self.machine} has no {part} configured")
        asked = f"{path}?{urllib.parse.urlencode(params)}" if params else path
        started_s = time.monotonic()
        try:
            answer = await self._ask(part, endpoint, (method, asked, body), timeout_s)
        except NoAnswerError as error:
            where, refusal = f"{part} of {self.machine} at {endpoint.url}", explain_tls(error, endpoint.url)
            if refusal is not None and refusal[1] is not error:
                raise WireError(f"{where}: {refusal[0]}") from refusal[1]  # it answers, but not us: no silence
            raise NoAnswerError(f"{where}: {error if refusal is None else refusal[0]}") from error
        if answer.status != 200:
            text = answer.body[:200].decode("utf-8", "replace").strip()
            said = f": {text}" if text else ""
            raise WireError(f"{part} of {self.machine} at {endpoint.url}: HTTP {answer.status} on {path}{said}")
        if len(answer.body) > _LARGEST.get(path, len(answer.body)):
            raise WireError(f"{part} of {self.machine}: {path} answered {len(answer.body)} bytes: {_LARGEST[path]} are read at most")
        found = _object(answer, f"{part} of {self.machine}", path)
        found["_bytes"] = len(answer.body)
        received_s = time.time()  # the way there is counted back from it: no one can set that clock in between
        found["_sent_s"], found["_received_s"] = received_s - (time.monotonic() - started_s), received_s
        return found

    async def _ask(self, part: str, endpoint: Endpoint, what: tuple[str, str, Any], timeout_s: float) -> Answer:
        asker = self._askers.get(part)
        if asker is None:
            asker = self._askers[part] = Asker(endpoint.url, endpoint.secret)
        method, path, body = what
        connect_s = min(timeout_s, _CONNECT_S)
        if method == "GET":
            return await asker.get(self._http, path, timeout_s, connect_s)
        return await asker.post(self._http, path, json.dumps(body).encode(), timeout_s, connect_s)


def _object(answer: Answer, whose: str, path: str) -> dict[str, Any]:
    try:
        found = json.loads(answer.body)
    except ValueError as error:  # also what is no UTF-8
        raise WireError(f"{whose}: {path} did not answer JSON") from error
    if not isinstance(found, dict):
        raise WireError(f"{whose}: {path} answered {type(found).__name__}, not an object")
    return found
