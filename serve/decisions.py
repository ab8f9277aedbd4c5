"""Evictions that wait for an operator, as routes and pages show them."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from starlette.responses import Response

from minder.act.controller.lease import is_led
from minder.model.clock import format_time
from minder.model.errors import LedgerError
from minder.model.history import Approval
from minder.record.api.access import Caller
from minder.record.api.decisions import Question, QuestionDetail, QuestionState
from minder.record.api.fields import Page
from minder.record.incidents import kinds
from minder.record.incidents.approvals import Answer, answer_words, is_open, refusal
from minder.record.store.events import is_second
from serve.access import demand_job, sees
from serve.actions import Action, Planned
from serve.heard import Heard
from serve.job_status import controller_heard, is_dry_run
from serve.problems import refuse
from serve.state import Service

__all__ = ["QuestionsWanted", "detail_of", "find_question", "give_answer", "plan_answer", "question_of", "questions_page"]


@dataclass(frozen=True, slots=True)
class QuestionsWanted:
    """Which questions a list is about."""

    job: str | None = None
    state: QuestionState | None = None


def questions_page(
    service: Service, caller: Caller, wanted: QuestionsWanted, limit: int = 50, cursor: str | None = None
) -> Page[Question]:  # fmt: skip
    """Newest first; those that this caller may see. 422 for a cursor that is none of ours."""
    asked = _approvals(service, wanted.job)
    items = [item for item in reversed(asked) if sees(caller, item.job)]
    if cursor is not None:
        places = [number for number, item in enumerate(items) if item.decision.operation_id == cursor]
        if not places:
            raise refuse(422, "cursor is not one that this service gave: take it from `next` of the page before")
        items = items[places[0] + 1 :]
    meant = [item for item in items if wanted.state in (None, item.state)]
    shown = meant[:limit]
    last = shown[-1].decision.operation_id if len(meant) > limit else None
    return Page[Question](items=tuple(question_of(service, item) for item in shown), next=last)


def plan_answer(service: Service, caller: Caller, name: str, answer: Answer, reason: str) -> tuple[list[Planned], str]:
    """409 where no answer is taken any more."""
    found = find_question(service, caller, name)
    if (why := refusal(found, service.clock.now_s())) is not None:
        raise refuse(409, why)
    heard = controller_heard(service, found.job)
    state = is_led(service.settings.ledger, found.job) if heard.state == "unknown" else heard.state == "heard"
    last = "" if heard.last_s is None else format_time(heard.last_s)
    detail = answer_words(found, answer, state, last, dry_run=is_dry_run(service, found.job) is True)
    return [Planned(kinds.APPROVAL_SETTLED, {"answer": answer, "reason": reason}, found.job, found.incidents[0], name)], detail


def give_answer(act: Action, name: str, answer: Answer, reason: str) -> Response:
    """Once, also where others answer at the same moment. 404, 403 and 409 as of plan_answer."""
    plan = functools.partial(plan_answer, act.service, act.caller, name, answer, reason)
    try:
        return act.perform(plan)
    except LedgerError as error:
        if not is_second(error):
            raise
        plan()  # another answer came since we looked: it raises
        raise


def find_question(service: Service, caller: Caller, name: str) -> Approval:
    """404 where there is none, 403 where the caller's token does not cover its job."""
    found = next((item for item in _approvals(service) if item.decision.operation_id == name), None)
    if found is None:
        raise refuse(404, f'no decision "{name}" waits or waited for an operator: GET /v1/decisions lists all')
    demand_job(caller, found.job)
    return found


def _approvals(service: Service, job: str | None = None) -> list[Approval]:
    """Every question, oldest first."""
    return [item for item in service.questions.approvals() if job is None or item.job == job]


def question_of(service: Service, item: Approval) -> Question:
    """As lists show it."""
    return Question.model_validate(_fields(service, item))


def detail_of(service: Service, item: Approval) -> QuestionDetail:
    """With its evidence."""
    return QuestionDetail.model_validate(_fields(service, item) | {"generation": item.generation, "decision": item.decision})


def _fields(service: Service, item: Approval) -> dict[str, object]:
    verdict, pending = item.decision.verdict, is_open(item) and not item.closed
    heard = controller_heard(service, item.job) if pending else Heard("unknown")
    last_s = heard.last_s if heard.state == "silent" else None
    return {
        "id": item.decision.operation_id,
        "job": item.job,
        "incidents": item.incidents,
        "machines": item.decision.machines,
        "cause": verdict.cause,
        "confidence": verdict.confidence,
        "state": item.state,
        "open": refusal(item, service.clock.now_s()) is None,
        "asked": format_time(item.asked_s),
        "until": format_time(item.until_s),
        "on_timeout": item.on_timeout,
        "answered": None if item.settled_s is None else format_time(item.settled_s),
        "by": item.by,
        "note": item.note,
        "why": item.why,
        "controller": heard.state if pending else None,
        "last_heard": None if last_s is None else format_time(last_s),
        "dry_run": is_dry_run(service, item.job) if heard.state == "heard" else None,
    }
