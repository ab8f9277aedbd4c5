"""One incident, for a person who was woken by it: the first screen answers, what follows proves it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from minder.diagnose.stacks import analyse_captures, capture_from_agents
from minder.diagnose.stacks.finding import to_document
from minder.model.clock import format_time
from minder.model.errors import MinderError
from minder.model.evidence import Evidence
from minder.model.history import LedgerEvent
from minder.record.api.decisions import AnswerRequest, Question
from minder.record.api.fields import NAME, IncidentId
from minder.record.api.incidents import Capture, NoteRequest
from minder.record.api.machines import OutcomeRequest
from minder.record.incidents import Incident, kinds
from minder.record.incidents.approvals import Answer
from minder.record.incidents.brief import brief, place_command, returned_by
from minder.record.incidents.excerpts import TELEMETRY
from minder.record.incidents.outlook import cost_per_minute, outlook
from minder.record.incidents.pairs import PairRun, fold_pairs
from minder.record.incidents.places import find_gpus
from minder.record.incidents.replays import fold_replays
from minder.record.incidents.report import AFTERWARDS, describe_evidence, incident_report, left_to_a_person
from minder.record.store.events import EventQuery
from serve.bundles import places_of, registered_of
from serve.decisions import QuestionsWanted, give_answer, questions_page
from serve.pages.forms import action_of, body_of, carry_out, did, go_back
from serve.pages.render import fragment, show
from serve.pages.session import Seen, Sent, Visitor
from serve.pages.words import clock_words
from serve.pauses import maintenance_windows, pauses_in_force
from serve.problems import refuse
from serve.routes.incidents import captures_page, find_incident, incident_detail, plan_note, zipped
from serve.routes.machines import plan_outcome
from serve.state import Service, service_of

__all__ = ["Accused", "router"]

router = APIRouter(prefix="/incidents")
Id = Annotated[IncidentId, Path(pattern=NAME, max_length=255)]
_MOST_CAPTURES = 40
_MOST_QUESTIONS = 500
_MOST_PAIR_RUNS = 3


@dataclass(frozen=True, slots=True)
class Accused:
    """A machine to walk to. place: rack, switch, serial, ... as far as they are known. parts: its devices and ports that stand out."""

    name: str
    place: Mapping[str, str]
    devices: tuple[str, ...]
    ports: tuple[str, ...]
    evicted: bool


@router.get("/{incident}")
def show_incident(request: Request, visitor: Seen, incident: Id) -> Response:
    service = service_of(request)
    found = find_incident(service, visitor.caller, incident)
    values = _first_screen(request, visitor, found) | _rest(service, visitor, found)
    return show(request, visitor, "incident.html", said=did(request, visitor), **values)


@router.get("/{incident}/now")
def incident_now(request: Request, visitor: Seen, incident: Id) -> Response:
    """The first screen; polled."""
    service = service_of(request)
    return fragment(
        request, visitor, "parts/incident.html", **_first_screen(request, visitor, find_incident(service, visitor.caller, incident))
    )


@router.get("/{incident}/bundle")
def bundle(request: Request, visitor: Seen, incident: Id) -> Response:
    """For the vendor: what `minder incidents bundle` writes."""
    service = service_of(request)
    found = find_incident(service, visitor.caller, incident)
    return zipped(service, found)


@router.get("/{incident}/report.txt")
def report(request: Request, visitor: Seen, incident: Id) -> Response:
    """The incident as text, to forward."""
    found = find_incident(service_of(request), visitor.caller, incident)
    text = incident_report(found, stages=True, place=placed(request))
    return Response(text, headers={"Cache-Control": "no-store"}, media_type="text/plain; charset=utf-8")


@router.post("/{incident}/note")
def add_note(request: Request, sent: Sent, incident: Id) -> Response:
    body = body_of(NoteRequest, {"text": sent.fields.get("text")})
    return carry_out(request, sent, lambda: plan_note(service_of(request), sent.visitor.caller, incident, body))


@router.post("/{incident}/outcome")
def tell_outcome(request: Request, sent: Sent, incident: Id) -> Response:
    fields = {name: sent.fields.get(name) for name in ("outcome", "note")}
    body = body_of(OutcomeRequest, fields | {"incident": incident})
    machine = sent.fields.get("machine", "")
    return carry_out(request, sent, lambda: plan_outcome(service_of(request), sent.visitor.caller, machine, body))


@router.post("/{incident}/answer")
def answer(request: Request, sent: Sent, incident: Id) -> Response:
    """Approve or reject an eviction that waits."""
    fields, body = sent.fields, body_of(AnswerRequest, {"reason": sent.fields.get("reason")})
    if fields.get("answer") not in ("approved", "rejected"):
        raise refuse(422, "answer: choose to approve or to reject")
    given: Answer = "approved" if fields["answer"] == "approved" else "rejected"
    return go_back(sent, give_answer(action_of(request, sent), fields.get("decision", ""), given, body.reason))


def _first_screen(request: Request, visitor: Visitor, found: Incident) -> dict[str, Any]:
    service = service_of(request)
    places = places_of(service, found)
    names = tuple(dict.fromkeys((*found.machines, *found.evicted)))
    follows = outlook(found, pauses_in_force(service), maintenance_windows(service))
    asked = [item for item in service.questions.approvals() if found.id in item.incidents]
    said = brief(found, follows, asked, placed(request))
    return {
        "incident": found,
        "brief": said,
        "returnable": [machine for line in found.undo if (machine := returned_by(line)) is not None],
        "afterwards": AFTERWARDS,
        "detail": incident_detail(found),
        "accused": [_accused(name, places, found) for name in names],
        "evidence": [_said(item, found.opened_s) for item in found.evidence],
        "against": [_said(item, found.opened_s) for item in found.against],
        "left": left_to_a_person(found),
        "outlook": follows,
        "cost": cost_per_minute(found, find_gpus(registered_of(service, found))),
        "questions": _questions(service, visitor, found),
        "bundle_command": placed(request)(f"minder incidents bundle {found.id} -o {found.id.replace(':', '_')}.zip"),
    }


def placed(request: Request) -> Callable[[str], str]:
    """Makes of a command one that works on the reader's terminal: it names this service, as readers know it."""
    address = service_of(request).settings.file.public_url or str(request.base_url)
    return functools.partial(place_command, server=address.rstrip("/"))


def _said(item: Evidence, opened_s: float) -> str:
    """Without the date where it is the incident's own: the line is read on a phone."""
    line = describe_evidence(item)
    if item.since_s is None:
        return line
    whole = format_time(item.since_s)
    short = f"{whole[11:19]} UTC" if whole[:10] == format_time(opened_s)[:10] else clock_words(item.since_s)
    return line.replace(f"since {whole}", f"since {short}")


def _questions(service: Service, visitor: Visitor, found: Incident) -> list[Question]:
    """What operators were asked about it, newest first."""
    asked = questions_page(service, visitor.caller, QuestionsWanted(found.job), _MOST_QUESTIONS).items
    return [item for item in asked if found.id in item.incidents]


def _accused(name: str, places: Mapping[str, Mapping[str, str]], found: Incident) -> Accused:
    devices = dict.fromkeys(item.device for item in found.evidence if item.machine == name and item.device)
    cards = tuple(item for item in devices if item.startswith("gpu"))
    ports = tuple(item for item in devices if not item.startswith("gpu"))
    return Accused(name, places.get(name, {}), cards, ports, name in found.evicted)


def _rest(service: Service, visitor: Visitor, found: Incident) -> dict[str, Any]:
    captured = captures_page(service, visitor.caller, found.id, _MOST_CAPTURES, None)
    collectives: Sequence[Evidence] = [item for item in (*found.evidence, *found.against) if item.source == "collectives"]
    return {
        "captures": [item for item in captured.items if item.what != TELEMETRY],
        "more_captures": captured.next is not None,
        "stacks": _stack_groups(captured.items),
        "collectives": [describe_evidence(item) for item in collectives],
        "people": _people(service, found),
        "pair_runs": _pair_runs(service, found),
        "replays": fold_replays(service.events.select(EventQuery(incident=found.id, kinds=(kinds.REPLAY,)))),
    }


def _pair_runs(service: Service, found: Incident) -> list[PairRun]:
    """Pair tests that were done for it, newest first."""
    return fold_pairs(service.events.select(EventQuery(incident=found.id, kinds=(kinds.PAIRS,), newest_first=True, limit=_MOST_PAIR_RUNS)))


def _stack_groups(captures: Sequence[Capture]) -> dict[str, Any] | None:
    """Who stood where, out of what was captured; None where there were no stacks."""
    answers = [{**item.data, "machine": item.machine} for item in captures if isinstance(item.data, Mapping) and item.data.get("stacks")]
    if not answers:
        return None
    try:
        return to_document(analyse_captures([capture_from_agents(answers)]))
    except MinderError:
        return None


def _people(service: Service, found: Incident) -> list[LedgerEvent]:
    """What people did about it, with their names."""
    events = service.events.select(EventQuery(incident=found.id, without_kinds=(kinds.EVIDENCE,)))
    return [event for event in events if event.payload.get("by")]
