"""An incident in three sentences, for a person who was woken by it: now, in the morning, and how to undo what was done. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minder.model.clock import format_time
from minder.model.history import Approval
from minder.record.incidents.endings import ENDS
from minder.record.incidents.outlook import Outlook, outlook
from minder.record.incidents.record import Incident
from minder.record.incidents.words import cause_words, size_words, sources_of

__all__ = ["RETURN", "Brief", "Undo", "as_it_is", "brief", "place_command", "returned_by", "undo_steps"]

RETURN = "minder machine return "
_TIMEOUTS = {"page": "a person is paged and nothing is done", "reject": "it is rejected", "approve": "it is carried out"}


@dataclass(frozen=True, slots=True)
class Undo:
    """One command that takes something back, as it can be pasted, and what it does."""

    command: str
    does: str


@dataclass(frozen=True, slots=True)
class Brief:
    """Three sentences, and the commands that the third one is about."""

    now: str
    morning: str
    undo: str
    steps: tuple[Undo, ...] = ()


def as_it_is(command: str) -> str:
    """Where the ledger is found without being named."""
    return command


def place_command(command: str, server: str | None = None, ledger: str | None = None, token_file: str | None = None) -> str:
    """A command of minder's for where it is pasted; another program's is left alone.

    >>> place_command("minder machine return m2", server="https://minder.example.org")
    'minder --server https://minder.example.org machine return m2'
    >>> place_command("minder machine return m2", ledger="/var/l.db")
    'minder machine return m2 --ledger /var/l.db'
    """
    import shlex

    if not command.startswith("minder "):
        return command
    before = f" --server {shlex.quote(server)}" if server else ""
    before += f" --token-file {shlex.quote(token_file)}" if server and token_file else ""
    after = f" --ledger {shlex.quote(ledger)}" if ledger and not server else ""
    return f"minder{before} {command.removeprefix('minder ')}{after}"


def returned_by(command: str) -> str | None:
    """The machine that a command gives back; None for another command.

    >>> returned_by('minder machine return m2 --note "undoes llm-1"'), returned_by("scontrol update x")
    ('m2', None)
    """
    return command.removeprefix(RETURN).split(" ", 1)[0] if command.startswith(RETURN) else None


def undo_steps(incident: Incident, place: Callable[[str], str] = as_it_is) -> tuple[Undo, ...]:
    """What takes back what was done, in order."""
    steps = []
    for command in incident.undo:
        machine, note = returned_by(command), f' --note "undoes {incident.id}"'
        whole = command if machine is None or "--note" in command else command + note
        does = f"lets {machine} work again: it waits as a standby, and the job is not stopped" if machine else "undoes it in the scheduler"
        steps.append(Undo(place(whole), does))
    return tuple(steps)


def brief(
    incident: Incident, follows: Outlook | None = None, approvals: Sequence[Approval] = (), place: Callable[[str], str] = as_it_is
) -> Brief:
    """follows: what happens next, as minder.record.incidents.outlook says. approvals: what operators were asked about it."""
    steps = undo_steps(incident, place)
    commands = "; ".join(f"{step.command} ({step.does})" for step in steps)
    undo = commands or ("Nothing is left that could be undone." if incident.evicted else "Nothing was done that could be undone.")
    return Brief(_now(incident, follows or outlook(incident), approvals), _morning(incident, approvals, place), undo, steps)


def _now(incident: Incident, follows: Outlook, approvals: Sequence[Approval]) -> str:
    who = ", ".join(incident.machines) or "the job"
    if incident.state == "closed":
        if not incident.evicted:
            return f"It is over, by {incident.closed_by}: no machine was evicted."
        instead = f"; {', '.join(incident.replacements)} took over" if incident.replacements else ""
        instead += size_words(incident.decision) if incident.decision is not None else ""
        return f"{', '.join(incident.evicted)} is out{instead}. It is over, by {incident.closed_by}."
    for item in approvals:
        if item.state == "waiting":
            return f"An operator is asked whether to evict {', '.join(item.decision.machines)}: nothing is done before the answer."
        if item.state == "approved" and not item.closed:
            return f"The eviction of {', '.join(item.decision.machines)} is approved by {item.by}, not yet carried out."
    cause = "is in trouble"
    if incident.verdict:
        cause = cause_words(incident.verdict.cause, bool(incident.machines), sources_of(incident.verdict))
    return f"{who if incident.machines else 'The job'} {cause}. {follows.what}"


def _accused(incident: Incident) -> bool:
    """Whether it was sure enough to evict, so that its end alone acquits no machine."""
    return incident.verdict is not None and incident.verdict.tier == "evict"


def _morning(incident: Incident, approvals: Sequence[Approval], place: Callable[[str], str]) -> str:
    waiting = next((item for item in approvals if item.state == "waiting" and incident.state != "closed"), None)
    if waiting is not None:
        then = _TIMEOUTS.get(waiting.on_timeout, waiting.on_timeout)
        return f"Without an answer by {format_time(waiting.until_s)[:19]}Z {then}."
    unexamined = [machine for machine in incident.evicted if machine not in incident.outcomes]
    if unexamined:
        command = place(f"minder machine outcome {unexamined[0]} confirmed")
        return f"Examine {', '.join(unexamined)}, then say what was found: {command} (or no-fault-found)."
    stays = [machine for machine in incident.machines if machine not in incident.evicted]
    if incident.state == "closed" and incident.closed_by == ENDS["given_up"]:
        return f"The job was given up: mend what ended it{', look at ' + ', '.join(stays) if stays else ''}, then start it again."
    if incident.state == "closed":
        unseen = [machine for machine in stays if machine not in incident.outcomes] if _accused(incident) else []
        return f"Look at {', '.join(unseen)}: accused, and still used." if unseen else "Nothing is left to do."
    return f"Look at {', '.join(stays)}: still in the job." if stays else "Look at the job: no machine is to blame."
