"""Is it alive, can it answer, what does it measure, who am I."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from minder import __version__
from minder.record.api.access import Caller
from minder.record.api.fields import Answer
from serve.access import AnyCaller, Viewer, sees
from serve.gauges import render_gauges
from serve.metrics import CONTENT_TYPE
from serve.problems import refuse
from serve.state import service_of

__all__ = ["Health", "router"]

router = APIRouter(prefix="/v1", tags=["service"])


class Health(Answer):
    """The process answers."""

    status: str = Field(description='"ok": anything else is no answer of this route.')
    version: str = Field(description="Version of minder.")


@router.get("/health")
async def get_health() -> Health:
    """The process answers. It says nothing of the ledger: see readiness. Needs no token."""
    return Health(status="ok", version=__version__)


@router.get("/ready")
def get_readiness(request: Request) -> Health:
    """The ledger can be read, and its past has been; 503 until then. Needs no token."""
    service = service_of(request)
    service.events.last_id()
    if service.reading_past:
        raise refuse(503, "the service has just begun and reads the ledger's past: ask again in some seconds")
    return Health(status="ok", version=__version__)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def get_metrics(request: Request, caller: Viewer) -> Response:
    """The service's own metrics, in Prometheus' text format; of single jobs only those that the token covers."""
    service = service_of(request)
    gauges = render_gauges(service, lambda job: sees(caller, job))
    return Response(service.metrics.exposition() + gauges, media_type=CONTENT_TYPE)


@router.get("/whoami")
def get_caller(caller: AnyCaller) -> Caller:
    """Whom this token speaks for."""
    return caller
