"""Versions of a job's code: received into the store beside the ledger, ordered, taken back. The job's controller does the rest."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Path, Request

from minder.model.errors import BadInputError, WireError
from minder.record.api.access import Caller
from minder.record.api.fields import JobName
from minder.record.api.incidents import Recorded
from minder.record.api.jobs import CodeFileEntry, CodeList, CodePiece, CodeState, RollbackRequest, UpdateRequest
from minder.record.incidents import kinds
from minder.record.incidents.location import code_folder
from minder.record.incidents.updates import UPDATE_KINDS, check_rollback, fold_updates, needed_code, new_update, update_payload
from minder.record.store.events import EventQuery
from minder.wire.code_store import CodeStore
from minder.wire.code_tree import CodeFile, tree_of
from serve.access import Operator, demand_job
from serve.actions import Act, Planned
from serve.problems import refuse
from serve.state import Service, service_of

__all__ = ["demand_launched", "plan_rollback", "plan_update", "router"]

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
Name = Annotated[JobName, Path(max_length=63, description="Name of the job.")]


@router.post("/{name}/code", response_model=CodeState)
def offer_code(request: Request, caller: Operator, name: Name, body: CodeList) -> CodeState:
    """Offer a version of a job's code: which of its contents are missing here. Once none is, an update can name it. Nothing runs of it."""
    store = _store(service_of(request), caller, name)
    try:
        tree = tree_of([item.model_dump() for item in body.files])
        missing = tuple(item.sha256 for item in store.missing(tree))
        if not missing:
            store.keep(tree)
    except WireError as error:
        raise refuse(422, str(error)) from error
    except OSError as error:
        raise refuse(503, f"the code cannot be kept: {error.strerror}") from error
    return CodeState(code=tree.digest, missing=missing)


@router.post("/{name}/code/pieces", response_model=CodeState)
def send_code_piece(request: Request, caller: Operator, name: Name, body: CodePiece) -> CodeState:
    """Send a piece of a file that is missing. With the last one its hash is checked."""
    store, item = _store(service_of(request), caller, name), _file(body.file)
    try:
        here = store.receive(item, body.offset, base64.b64decode(body.data, validate=True))
    except (WireError, binascii.Error) as error:
        raise refuse(422, str(error)) from error
    except OSError as error:
        raise refuse(503, f"the code cannot be kept: {error.strerror}") from error
    return CodeState(code="", missing=() if here == item.size_bytes else (item.sha256,))


@router.post("/{name}/updates", status_code=201, response_model=Recorded)
def update_job(request: Request, caller: Operator, name: Name, body: UpdateRequest, act: Act) -> object:
    """Give a running job another version. Its controller brings it to the launchers; the job's next generation runs it, if all take it."""
    return act.perform(lambda: plan_update(service_of(request), caller, name, body))


@router.post("/{name}/rollback", status_code=201, response_model=Recorded)
def roll_back_job(request: Request, caller: Operator, name: Name, body: RollbackRequest, act: Act) -> object:
    """Take the last update back, or go back to an earlier version, on the same path."""
    return act.perform(lambda: plan_rollback(service_of(request), caller, name, body))


def plan_update(service: Service, caller: Caller, name: str, body: UpdateRequest) -> tuple[list[Planned], str]:
    """404 where no such job runs, 409 where it is only watched, or its code is not whole here, 422 for an update that changes nothing."""
    demand_launched(service, caller, name)
    about, code = (0, 0), body.code or ""
    if code:
        store = _store(service, caller, name)
        try:
            tree = store.tree(code)
        except WireError as error:
            raise refuse(409, f"{error}: POST /v1/jobs/{name}/code says what is missing") from error
        about = (len(tree.files), tree.size_bytes)
        store.prune({code, *needed_code(service.events.select(EventQuery(kinds=(kinds.UPDATE_ASKED,))))})
    try:
        payload = update_payload(code, about, body.env, body.args, body.urgent, body.reason)
    except BadInputError as error:
        raise refuse(422, str(error)) from error
    detail = f"the controller of {name} brings the update to its launchers, and its next generation runs it"
    return [Planned(kinds.UPDATE_ASKED, payload, name, None, operation_id := new_update())], f"{operation_id}: {detail}"


def plan_rollback(service: Service, caller: Caller, name: str, body: RollbackRequest) -> tuple[list[Planned], str]:
    """404 where no such job runs, 409 where it is only watched, or there is nothing to take back."""
    demand_launched(service, caller, name)
    found = fold_updates(service.events.select(EventQuery(job=name, kinds=UPDATE_KINDS)))
    try:
        number = check_rollback(found, name, body.to)
    except BadInputError as error:
        raise refuse(409, str(error)) from error
    payload = {"to": number, "urgent": body.urgent, "note": body.reason[:400]}
    detail = f"the next generation of {name} runs version {number}"
    return [Planned(kinds.UPDATE_ASKED, payload, name, None, operation_id := new_update())], f"{operation_id}: {detail}"


def demand_launched(service: Service, caller: Caller, name: str) -> None:
    """404 where no such job runs, 409 where it is only watched."""
    demand_job(caller, name)
    past = service.jobs.pasts().get(name)
    if past is None or past.registered is None or past.state.phase in ("finished", "failed"):
        raise refuse(404, f'no job "{name}" with launchers runs: GET /v1/jobs lists those that the ledger knows')
    if past.watched is not None or "run" in past.registered.payload:
        raise refuse(409, f"job {name} is only watched: its owner changes its code")


def _store(service: Service, caller: Caller, name: str) -> CodeStore:
    """For a job that the caller may act on."""
    demand_launched(service, caller, name)
    return CodeStore(FilePath(code_folder(service.settings.ledger)))


def _file(item: CodeFileEntry) -> CodeFile:
    """422 for a path that leads out of its folder."""
    try:
        return tree_of([item.model_dump()]).files[0]
    except WireError as error:
        raise refuse(422, str(error)) from error
