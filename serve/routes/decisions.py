"""Evictions that wait for an operator: shown with their evidence, approved, rejected. The job's controller takes the answer up."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from minder.record.api.decisions import AnswerRequest, Question, QuestionDetail, QuestionState
from minder.record.api.fields import NAME, IncidentId, JobName, Page
from minder.record.api.incidents import Recorded
from serve.access import Operator, Viewer
from serve.actions import Act
from serve.answers import tagged
from serve.decisions import QuestionsWanted, detail_of, find_question, give_answer, questions_page
from serve.routes.incidents import Limit
from serve.state import service_of

__all__ = ["router"]

router = APIRouter(prefix="/v1/decisions", tags=["decisions"])
Id = Annotated[IncidentId, Path(pattern=NAME, max_length=255, description="Id of the decision.")]
State = Annotated[QuestionState | None, Query(description='"waiting": an answer is taken, or was not given in time.')]


@router.get("", response_model=Page[Question])
def list_decisions(
    request: Request,
    caller: Viewer,
    job: Annotated[JobName | None, Query(description="Only of this job.")] = None,
    state: State = None,
    limit: Limit = 50,
    cursor: Annotated[IncidentId | None, Query(description="`next` of the page before.")] = None,
) -> Response:
    """The evictions that operators were asked about, newest first. A page stays the same when new ones are asked about."""
    return tagged(request, questions_page(service_of(request), caller, QuestionsWanted(job, state), limit, cursor))


@router.get("/{name}", response_model=QuestionDetail)
def show_decision(request: Request, caller: Viewer, name: Id) -> Response:
    """One of them, with the evidence for and against, its price, and the stages that it passed."""
    service = service_of(request)
    return tagged(request, detail_of(service, find_question(service, caller, name)))


@router.post("/{name}/approve", status_code=201, response_model=Recorded)
def approve_decision(request: Request, caller: Operator, name: Id, body: AnswerRequest, act: Act) -> Response:
    """Let the controller carry it out at its next tick, if it still holds then."""
    return give_answer(act, name, "approved", body.reason)


@router.post("/{name}/reject", status_code=201, response_model=Recorded)
def reject_decision(request: Request, caller: Operator, name: Id, body: AnswerRequest, act: Act) -> Response:
    """Keep the machine in the job. The same trouble is not asked about again until the job's next restart."""
    return give_answer(act, name, "rejected", body.reason)
