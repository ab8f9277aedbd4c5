"""Batches that a job leaves out, ordered over the API. The job's controller does the rest."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from minder.model.batch_ranges import BatchRangesError
from minder.model.errors import BadInputError
from minder.record.api.access import Caller
from minder.record.api.fields import JobName
from minder.record.api.incidents import Recorded
from minder.record.api.jobs import SkipRequest
from minder.record.incidents import kinds
from minder.record.incidents.skips import SKIP_KINDS, fold_skips, new_skip, plan_skip
from minder.record.store.events import EventQuery
from serve.access import Operator
from serve.actions import Act, Planned
from serve.problems import refuse
from serve.routes.updates import demand_launched
from serve.state import Service, service_of

__all__ = ["plan_skips", "router"]

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
Name = Annotated[JobName, Path(max_length=63, description="Name of the job.")]


@router.post("/{name}/skips", status_code=201, response_model=Recorded)
def skip_batches(request: Request, caller: Operator, name: Name, body: SkipRequest, act: Act) -> object:
    """Leave batches out of a running job, or train on them again. Its next generation goes on from a checkpoint from before them."""
    return act.perform(lambda: plan_skips(service_of(request), caller, name, body))


def plan_skips(service: Service, caller: Caller, name: str, body: SkipRequest) -> tuple[list[Planned], str]:
    """404 where no such job runs, 409 where it is only watched, or nothing would change, 422 for a text that names no batches."""
    demand_launched(service, caller, name)
    found = fold_skips(service.events.select(EventQuery(job=name, kinds=SKIP_KINDS)))
    try:
        payload = plan_skip(found, name, body.batches, body.undo, body.reason)
    except BatchRangesError as error:
        raise refuse(422, str(error)) from error
    except BadInputError as error:
        raise refuse(409, str(error)) from error
    what = "trains on" if body.undo else "leaves out"
    detail = f"the next generation of {name} {what} {payload['batches']}, if a checkpoint from before is there"
    return [Planned(kinds.SKIP_ASKED, payload, name, None, operation_id := new_skip())], f"{operation_id}: {detail}"
