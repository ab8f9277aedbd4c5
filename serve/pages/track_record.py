"""The track record: five figures of a period, with what is not known of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from minder.record.api.track_record import DEFINITIONS
from serve.pages.render import show
from serve.pages.session import Seen
from serve.routes.jobs import jobs_page
from serve.routes.track_record import Days, track_record
from serve.state import service_of

__all__ = ["router"]

router = APIRouter()
_MOST_JOBS = 200


@router.get("/track-record")
def show_figures(request: Request, visitor: Seen, days: Days = 30, job: Annotated[str, Query(max_length=63)] = "") -> Response:
    service = service_of(request)
    found = track_record(service, visitor.caller, days, job or None)
    jobs = [item.name for item in jobs_page(service, visitor.caller, _MOST_JOBS).items]
    return show(request, visitor, "track_record.html", found=found, jobs=jobs, job=job, days=days, definitions=DEFINITIONS)
