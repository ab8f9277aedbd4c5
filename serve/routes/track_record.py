"""How well minder did: five figures of a period."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from minder.model.clock import format_time
from minder.model.share import Share
from minder.record.api.access import Caller
from minder.record.api.fields import JobName
from minder.record.api.track_record import DetectionTimes, KnownShare, TrackRecordFigures
from minder.record.incidents.track_record import TrackRecord
from serve.access import Viewer, demand_job
from serve.answers import tagged
from serve.state import Service, service_of

__all__ = ["Days", "router", "track_record"]

router = APIRouter(prefix="/v1", tags=["track record"])
_DAY_S = 86_400.0
Days = Annotated[int, Query(ge=1, le=3660, description="Length of the period that ends now, in days.")]


@router.get("/track-record", response_model=TrackRecordFigures)
def show_track_record(
    request: Request,
    caller: Viewer,
    days: Days = 30,
    job: Annotated[JobName | None, Query(description="Only of this job.")] = None,
) -> Response:
    """Detection time, false isolations, recoveries, returns and lost signals. What is not known is null or counted apart."""
    return tagged(request, track_record(service_of(request), caller, days, job))


def track_record(service: Service, caller: Caller, days: int, job: str | None = None) -> TrackRecordFigures:
    """403 where the caller's token does not cover the job."""
    if job is not None:
        demand_job(caller, job)
    jobs = caller.jobs if job is None else (job,)
    until_s = service.clock.now_s()
    return _figures(service.track.record(until_s - days * _DAY_S, until_s, jobs))


def _figures(found: TrackRecord) -> TrackRecordFigures:
    times = DetectionTimes(
        median_s=found.detection_quantile(0.5),
        p95_s=found.detection_quantile(0.95),
        incidents=len(found.detection_s),
        undated=found.undated,
    )
    return TrackRecordFigures(
        since=format_time(found.since_s),
        until=format_time(found.until_s),
        detection=times,
        false_isolation=_known(found.isolation),
        false_by_test=_known(found.by_test),
        false_by_person=_known(found.by_person),
        recovery=_known(found.recovery),
        with_person=found.with_person,
        returned=_known(found.returned),
        returned_again=found.again,
        signals=_known(found.signals),
        lost=found.lost,
    )


def _known(share: Share) -> KnownShare:
    low, high = share.bounds
    return KnownShare(share=share.value, low=low, high=high, part=share.part, whole=share.whole, unknown=share.unknown)
