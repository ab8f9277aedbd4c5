"""What waits for a person: answers, machines that were not examined, pools that are too small, jobs that are not heard."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from minder.record.api.access import Caller
from serve.access import sees
from serve.decisions import QuestionsWanted, questions_page
from serve.job_index import JobPast
from serve.job_status import controller_heard
from serve.routes.standbys import standbys_page
from serve.state import Service

__all__ = ["ActionItem", "action_items"]

_MOST_QUESTIONS = 200
_MOST_JOBS = 200
_OVER = ("finished", "failed")


@dataclass(frozen=True, slots=True)
class ActionItem:
    """kind: answer, carry out, examine, standbys or no data. what: in words. link: where to do it. urgent: the job waits for it."""

    kind: str
    what: str
    link: str
    urgent: bool = False


def action_items(service: Service, caller: Caller) -> list[ActionItem]:
    """The urgent ones first; as far as the caller may see."""
    pasts = {name: past for name, past in sorted(service.jobs.pasts().items()) if sees(caller, name)}
    found = [*_answers(service, caller), *_unheard(service, pasts), *_pools(service, caller, pasts), *_unexamined(service, caller)]
    return sorted(found, key=lambda item: not item.urgent)


def _answers(service: Service, caller: Caller) -> list[ActionItem]:
    found = []
    for item in questions_page(service, caller, QuestionsWanted(), _MOST_QUESTIONS).items:
        where = f"/incidents/{item.incidents[0]}#answer" if item.incidents else f"/jobs/{item.job}"
        who = ", ".join(item.machines)
        if item.open:
            found.append(ActionItem("waits for an answer", f"May {who} of {item.job} be evicted?", where, urgent=True))
        elif item.state == "approved" and item.controller == "silent":
            found.append(
                ActionItem("not carried out", f"{who} of {item.job}: approved, and no controller is there to do it", where, urgent=True)
            )
    return found


def _unheard(service: Service, pasts: dict[str, JobPast]) -> list[ActionItem]:
    """A job of which nothing is heard may be well or dead: that is not known."""
    alive = [name for name, past in pasts.items() if past.state.phase not in _OVER and (past.registered or past.watched)]
    silent = [name for name in alive[:_MOST_JOBS] if controller_heard(service, name).state == "silent"]
    return [
        ActionItem("no data", f"{name}: its controller is not heard, nothing watches it", f"/jobs/{name}", urgent=True) for name in silent
    ]


def _pools(service: Service, caller: Caller, pasts: dict[str, JobPast]) -> list[ActionItem]:
    """Fewer ready standbys than the job was planned with, not for want of a test only. Where no controller reports, that is no data, listed
    above."""
    pools: dict[str, Counter[str]] = {}
    for item in standbys_page(service, caller).items:
        pools.setdefault(item.job, Counter())[item.state] += 1
    found = []
    for name, states in pools.items():
        registered = pasts[name].registered
        planned = len((registered.payload if registered else {}).get("standbys") or ())
        if states["unknown"] == 0 and states["ready"] + states["untested"] < planned:
            what = f"{name}: {states['ready']} of {planned} standbys are ready"
            found.append(ActionItem("standbys below the plan", what, "/standbys", urgent=not states["ready"] + states["untested"]))
    return found


def _unexamined(service: Service, caller: Caller) -> list[ActionItem]:
    records = service.machines.records(caller.jobs).values()
    waiting = [item for item in records if item.barred_in and item.outcome is None and item.retest is None]
    waiting.sort(key=lambda item: (item.last_eviction_s or 0.0, item.machine))
    lines = [f"{item.machine}: kept out of {', '.join(item.barred_in)}, and no finding is recorded" for item in waiting]
    return [ActionItem("barred, not examined", what, f"/machines/{item.machine}") for item, what in zip(waiting, lines, strict=True)]
