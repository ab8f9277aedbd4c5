"""The agent's HTTP endpoints (Starlette): metrics, signals, captures, dumps, step traces, tests, health; a bearer token guards them."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from minder import __version__
from minder.edge.agent.capture import capture, parse_request
from minder.edge.agent.dumps import collect_dumps, parse_deadline
from minder.edge.agent.exposition import render
from minder.edge.agent.kernel import KernelFollower
from minder.edge.agent.options import AgentOptions
from minder.edge.agent.ras import ask_ras, ras_signal
from minder.edge.agent.retest import Retests, parse_retest
from minder.edge.agent.ring import SignalRing
from minder.edge.agent.sampling import Sampler
from minder.edge.exporters.reading import Reading
from minder.edge.probes.orders import Probing, parse_probes
from minder.edge.signals.traced_steps import TraceFollower, trace_folder
from minder.model.errors import BadInputError
from minder.model.evidence import Signal
from minder.model.log import event
from minder.wire.codec import to_json
from minder.wire.contact_log import RefusedCallers
from minder.wire.guard import TokenGuard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Service", "build_application"]

_log = logging.getLogger("minder.agent")
_LONGEST_WAIT_S = 60.0
_RAS_S = 8.0
_PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Service:
    """The endpoints, with what they share."""

    def __init__(self, options: AgentOptions) -> None:
        self.options = options
        self.started_s = time.time()
        self.ring = SignalRing()
        self._last_killed: int | None = None
        self._ras: asyncio.Future[None] | None = None
        self._evidence: dict[str, int] = {"captures": 0, "dumps": 0}
        self.sampler = Sampler(options, self.ring)
        self.step_traces = TraceFollower(trace_folder(os.environ, options.run_dir))
        folder = {} if options.probe_folder is None else {"folder": str(options.probe_folder)}
        self.probing = Probing(folder, occupied=lambda: self.retests.busy)
        self.retests = Retests(options.retest, options.retest_deadline_s, options.retest_probes, self.probing)
        self.kernel = KernelFollower(options.machine, self.publish, self.belongs, options.kernel_log)

    async def metrics(self, request: Request) -> Response:
        reading = self._about()
        reading.merge(self.sampler.latest() or Reading())
        self.sampler.scraped()
        return Response(render(reading), media_type=_PROMETHEUS_TEXT)

    def _about(self) -> Reading:
        """The agent's own part: reported also when its sampling hangs and there are no values."""
        reading = Reading(info=[("agent_info", {"version": __version__})])
        reading.gauge("agent_start_time_seconds", self.started_s)
        reading.gauge("agent_sample_age_seconds", self.sampler.age_s())
        for what, count in self._evidence.items():
            reading.counter(f"agent_{what}", count)
        return reading

    async def signals(self, request: Request) -> Response:
        try:
            since = int(request.query_params.get("since", "0"))
            wait_s = min(_LONGEST_WAIT_S, max(0.0, float(request.query_params.get("wait", "0"))))
        except ValueError:
            return PlainTextResponse("since must be a whole number and wait a number of seconds\n", 400)
        found = await self.ring.wait(max(0, since), wait_s)
        answer = self._identity() | {"now_s": time.time(), "next": found.next, "signals": [to_json(item) for item in found.signals]}
        if found.dropped:
            answer["dropped"] = found.dropped
        processes = self.sampler.describe()
        if processes is not None:
            answer |= {"jobs": sorted({row["job"] for row in processes}), "processes": processes}
        return JSONResponse(_finite(answer))

    async def capture(self, request: Request) -> Response:
        try:
            wanted = parse_request(await request.json())
        except BadInputError as error:
            return PlainTextResponse(f"{error}\n", 400)
        except ValueError:
            return PlainTextResponse("the body is not JSON\n", 400)
        self._evidence["captures"] += 1
        event(_log, logging.INFO, "capture asked", what=wanted.what)
        show_states = "processes_stopped" not in self.options.hidden
        processes = self.sampler.table.read(time.time())
        if "stacks" in wanted.what and any(process.rank == 0 for process in processes):
            self._ask_ras()
        return JSONResponse(await capture(self.options.machine, processes, wanted, self.options.kernel_log, show_states))

    def _ask_ras(self) -> None:
        """A caller that wants stacks wants to know why the job stands. RAS speaks for all of the job, so one machine asks, one question
        at a time; the answer goes with the signals."""
        if self._ras is None or self._ras.done():
            self._ras = asyncio.ensure_future(self._hear_ras())

    async def _hear_ras(self) -> None:
        self.ring.append([ras_signal(self.options.machine, await ask_ras(_RAS_S))])

    async def dumps(self, request: Request) -> Response:
        try:
            deadline_s = parse_deadline(await request.json())
        except BadInputError as error:
            return PlainTextResponse(f"{error}\n", 400)
        except ValueError:
            return PlainTextResponse("the body is not JSON\n", 400)
        self._evidence["dumps"] += 1
        event(_log, logging.INFO, "dumps asked")
        processes = self.sampler.table.read(time.time())
        found = await collect_dumps(self.options.run_dir, processes, deadline_s)
        return JSONResponse({"machine": self.options.machine, "time_s": time.time(), "dumps": found})

    async def traces(self, request: Request) -> Response:
        """Traced steps of jobs that no launcher of ours runs."""
        try:
            since = max(0, int(request.query_params.get("since", "0")))
        except ValueError:
            return PlainTextResponse("since must be a whole number\n", 400)
        jobs = {process.pid: process.job for process in self.sampler.table.read(time.time())}
        answer = await asyncio.to_thread(self.step_traces.answer, since, jobs)
        return JSONResponse(self._identity() | {"now_s": time.time()} | answer)

    async def retest(self, request: Request) -> Response:
        """Runs the site's own test of this machine, once per operation."""
        try:
            wanted = parse_retest(await request.json())
        except BadInputError as error:
            return PlainTextResponse(f"{error}\n", 400)
        except ValueError:
            return PlainTextResponse("the body is not JSON\n", 400)
        training = any(process.rank is not None for process in self.sampler.table.read(time.time()))  # a standby's idle workers do not mind
        return JSONResponse({"machine": self.options.machine} | await self.retests.ask(wanted, training))

    async def probes(self, request: Request) -> Response:
        """Runs probes that this package ships, ordered by id and hash, once per operation."""
        received_s = time.time()
        try:
            wanted = parse_probes(await request.json())
        except BadInputError as error:
            return PlainTextResponse(f"{error}\n", 400)
        except ValueError:
            return PlainTextResponse("the body is not JSON\n", 400)
        answer = {"machine": self.options.machine} | await self.probing.ask(wanted, self._training(), received_s)
        return JSONResponse(_finite(answer))

    def _training(self) -> str:
        """Whom a test would disturb, "" for none; a standby's idle workers do not mind."""
        found = [process for process in self.sampler.table.read(time.time()) if process.rank is not None]
        if not found:
            return ""
        ranks = ", ".join(str(process.rank) for process in found[:8])
        return f"training processes of {found[0].job} run on this machine (ranks {ranks})"

    async def health(self, request: Request) -> Response:
        return JSONResponse(self._identity() | {"now_s": time.time(), "logs": self.sampler.logs.describe()})

    def _identity(self) -> dict[str, Any]:
        return {"machine": self.options.machine, "version": __version__, "started_s": self.started_s}

    def publish(self, signals: list[Signal]) -> None:
        """Kernel signals, with the kernel's PCI addresses of GPUs turned into the names that their metrics carry."""
        names, memory = self.sampler.gpu_names, self.sampler.memory
        for item in signals:
            event(_log, logging.INFO, "kernel signal", kind=item.kind, device=item.device, detail=item.message[:300])
        self.ring.append(memory.explain(replace(item, device=names.get(item.device or "", item.device))) for item in signals)

    def belongs(self, signal: Signal) -> bool:
        """On a shared host an out-of-memory kill is of the machine whose cgroup or process it was, any other line that names a process
        of the machine of that process, and a link of none: the kernel's names are the host's (a machine's own links are watched in its
        namespace)."""
        whole_host = self.options.cgroup is None and self.options.processes_of is None
        if signal.kind == "link":
            return whole_host
        if signal.data.get("what") != "oom":
            return whole_host or signal.pid is None or signal.pid in {process.pid for process in self.sampler.processes}
        if self.options.cgroup is not None:
            name = "/" + self.options.cgroup.strip("/")
            group = str(signal.data.get("cgroup") or "")
            return group == name or group.startswith(name + "/")
        if self.options.processes_of is not None:
            return signal.pid in {process.pid for process in self.sampler.processes}
        # Newer kernels write two lines per kill, and only the first knows the cgroup.
        repeated = not signal.data.get("cgroup") and signal.pid == self._last_killed
        self._last_killed = signal.pid
        return not repeated


def build_application(options: AgentOptions) -> ASGIApp:
    """The agent as an ASGI application; its sampling runs while the application does. Raises ConfigError."""
    service = Service(options)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.sampler.start()
        service.kernel.start()
        try:
            yield
        finally:
            await service.probing.close()
            service.kernel.stop()
            service.sampler.stop()

    routes = [
        Route("/metrics", service.metrics),
        Route("/v1/signals", service.signals),
        Route("/v1/capture", service.capture, methods=["POST"]),
        Route("/v1/dumps", service.dumps, methods=["POST"]),
        Route("/v1/traces", service.traces),
        Route("/v1/retest", service.retest, methods=["POST"]),
        Route("/v1/probes", service.probes, methods=["POST"]),
        Route("/v1/health", service.health),
    ]
    refusal = PlainTextResponse("wrong or missing token\n", 401, {"WWW-Authenticate": "Bearer"})
    app = Starlette(routes=routes, lifespan=lifespan)
    return TokenGuard(app, refusal, RefusedCallers(_log), options.token, options.metrics_token)


def _finite(value: Any) -> Any:
    """JSON has no NaN: a number that is none becomes null."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value
