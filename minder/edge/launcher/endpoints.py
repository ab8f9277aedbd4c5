"""The launcher's HTTP: GET /v1/state, /v1/events, /v1/traces, /metrics, POST /v1/workers, /v1/probes, /v1/updates, /v1/updates/pieces,
/v1/updates/warm; a bearer token on all of them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from minder.edge.launcher.metrics import CONTENT_TYPE, render
from minder.edge.launcher.requests import parse_request, refused_ranks
from minder.edge.launcher.settings import LaunchSettings
from minder.edge.launcher.supervisor import StaleGenerationError, Supervisor
from minder.edge.probes.contract import OF_LAUNCHERS, find_programs
from minder.edge.probes.orders import ProbeRequest, Probing, parse_probes
from minder.edge.signals.traced_steps import TraceFollower, trace_folder
from minder.model.errors import BadInputError, WireError
from minder.model.log import event
from minder.wire.codec import to_json
from minder.wire.contact_log import RefusedCallers
from minder.wire.guard import TokenGuard
from minder.wire.token_files import Token

__all__ = ["build_endpoints"]

_log = logging.getLogger("minder.launcher")
_LONGEST_WAIT_S = 60.0
_LARGEST_BODY_BYTES = 1 << 20
_LARGEST_LIST_BYTES = 4 << 20  # of an update's files
Answer = Callable[[Request], Awaitable[Response]]


def build_endpoints(supervisor: Supervisor, token: Token | None, metrics_token: Token | None = None) -> ASGIApp:
    """The ASGI application. metrics_token: opens /metrics and nothing else. Errors are {"error": one line} with 400, 401, 409 or 413."""
    settings = supervisor.settings
    traces = TraceFollower(trace_folder({**os.environ, **settings.env}, settings.run_dir))
    probing = Probing(_probe_options(settings), find_programs(OF_LAUNCHERS), alone=lambda: supervisor.vacated())

    def about() -> dict[str, Any]:
        return {"machine": settings.machine, "job": settings.job, "now_s": time.time(), "started_s": supervisor.started_s}

    async def state(request: Request) -> JSONResponse:
        workers = to_json(supervisor.views())
        found = {"slots": settings.slots, "generation": supervisor.generation, "workers": workers}
        offers = ["probes", "probes beside", "replay", *(["updates", "warm updates"] if supervisor.updates.offered else [])]
        offers += ["skips"] if supervisor.skips else []
        found |= {"update": supervisor.update, **supervisor.kept_steps()}
        return JSONResponse({**about(), **found, "next": supervisor.events.next, "offers": offers})

    async def events(request: Request) -> JSONResponse:
        since, wait_s = int(_number(request, "since")), min(_number(request, "wait"), _LONGEST_WAIT_S)
        await supervisor.events.wait_for_news(since, wait_s)
        signals, dropped = supervisor.events.since(since)
        return JSONResponse({**about(), "next": supervisor.events.next, "dropped": dropped, "signals": to_json(signals)})

    async def traced(request: Request) -> JSONResponse:
        since = int(_number(request, "since"))
        pids = {view.pid: settings.job for view in supervisor.views() if view.pid is not None}
        return JSONResponse({**about(), **await asyncio.to_thread(traces.answer, since, pids)})

    async def workers(request: Request) -> JSONResponse:
        body = await request.body()
        if len(body) > _LARGEST_BODY_BYTES:
            return JSONResponse({"error": f"the body has {len(body)} bytes: at most {_LARGEST_BODY_BYTES}"}, 413)
        try:
            wanted = parse_request(json.loads(body), settings.slots, settings.allow_env)
        except ValueError as error:
            raise WireError(f"the body is no JSON: {error}") from error
        if wanted.desired != "ended":
            await probing.give_way()  # the job goes on: a test of its machine does not hold it up
        try:
            outcome = supervisor.apply(wanted)
        except StaleGenerationError:
            supervisor.tally.requests["stale"] += 1
            event(_log, logging.WARNING, "request refused", job=settings.job, operation=wanted.operation_id, generation=wanted.generation)
            raise
        supervisor.tally.requests[outcome] += 1
        event(
            _log, logging.DEBUG if outcome == "already_done" else logging.INFO, "workers asked", job=settings.job, desired=wanted.desired,
            operation=wanted.operation_id, generation=wanted.generation, outcome=outcome,
        )  # fmt: skip
        return JSONResponse({"outcome": outcome, "generation": supervisor.generation})

    async def probes(request: Request) -> JSONResponse:
        received_s, wanted = time.time(), _order(await request.body())
        _check_ranks(wanted, settings)
        return JSONResponse({**about(), **await probing.ask(wanted, supervisor.ranks_here(), received_s)})

    async def metrics(request: Request) -> Response:
        return Response(render(supervisor.figures()), media_type=CONTENT_TYPE)

    app = Starlette(
        routes=[
            Route("/v1/state", _answered(state), methods=["GET"]),
            Route("/v1/events", _answered(events), methods=["GET"]),
            Route("/v1/traces", _answered(traced), methods=["GET"]),
            Route("/v1/workers", _answered(workers), methods=["POST"]),
            Route("/v1/probes", _answered(probes), methods=["POST"]),
            *_update_routes(supervisor),
            Route("/metrics", _answered(metrics), methods=["GET"]),
        ]
    )
    refusal = JSONResponse({"error": "wrong or missing token: send Authorization: Bearer TOKEN"}, 401)
    return TokenGuard(app, refusal, RefusedCallers(_log), token, metrics_token)


def _update_routes(supervisor: Supervisor) -> list[Route]:
    """Versions of the job's code: offered, and what is missing of them in pieces."""
    settings, found = supervisor.settings, supervisor.updates

    async def updates(request: Request) -> JSONResponse:
        body = _json(await request.body(), _LARGEST_LIST_BYTES)
        answer = await asyncio.to_thread(found.prepare, body)
        if answer["ready"]:
            event(_log, logging.INFO, "update ready", job=settings.job, update=body.get("update"), code=str(body.get("code"))[:12])
        return JSONResponse({"machine": settings.machine, "job": settings.job, **answer})

    async def warm(request: Request) -> JSONResponse:
        return JSONResponse(supervisor.warm(_json(await request.body(), _LARGEST_BODY_BYTES)))

    async def pieces(request: Request) -> JSONResponse:
        return JSONResponse(await asyncio.to_thread(found.receive, _json(await request.body(), _LARGEST_BODY_BYTES)))

    return [
        Route("/v1/updates", _answered(updates), methods=["POST"]),
        Route("/v1/updates/warm", _answered(warm), methods=["POST"]),
        Route("/v1/updates/pieces", _answered(pieces), methods=["POST"]),
    ]


def _answered(answer: Answer) -> Answer:
    """Errors that we raise on purpose are answers."""

    async def answering(request: Request) -> Response:
        try:
            return await answer(request)
        except StaleGenerationError as error:
            return JSONResponse({"error": str(error)}, 409)
        except WireError as error:
            return JSONResponse({"error": str(error)}, 400)

    return answering


def _json(body: bytes, most_bytes: int) -> Any:
    """Raises WireError."""
    if len(body) > most_bytes:
        raise WireError(f"the body has {len(body)} bytes: at most {most_bytes}")
    try:
        return json.loads(body)
    except ValueError as error:
        raise WireError(f"the body is no JSON: {error}") from error


def _order(body: bytes) -> ProbeRequest:
    """Raises WireError."""
    try:
        return parse_probes(json.loads(body))
    except (ValueError, BadInputError) as error:
        raise WireError(f"the body is no order of probes: {error}") from error


def _probe_options(settings: LaunchSettings) -> dict[str, Any]:
    """folder: where the disk probe writes. script, environment: what a replay runs, where the script is ordered."""
    folder = {} if settings.probe_folder is None else {"folder": str(settings.probe_folder)}
    return {**folder, "script": list(settings.command), "environment": {**settings.env, "MINDER_MACHINE": settings.machine}}


def _check_ranks(wanted: ProbeRequest, settings: LaunchSettings) -> None:
    """The ranks of a replay get what workers may get. Raises WireError."""
    for order in wanted.orders:
        if order.replay is not None and (why := refused_ranks(order.replay.ranks, settings.slots, settings.allow_env)):
            raise WireError(f"the group {order.replay.group}: {why}")


def _number(request: Request, name: str) -> float:
    text = request.query_params.get(name, "0")
    try:
        value = float(text)
    except ValueError:
        raise WireError(f"{name} is {text!r}: expected a number") from None
    if not 0.0 <= value < 1e15:
        raise WireError(f"{name} is {text}: expected 0 or more")
    return value
