"""The adoption report for people, and for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from minder.model.clock import format_time
from minder.offline.adoption.report import Adoption, TriedAgain, WouldBe
from minder.record.incidents.brief import as_it_is

__all__ = ["adoption_json", "adoption_text"]

_ANSWERS = {"yes": "right", "no": "wrong: no fault was found", "": "no answer yet"}


def adoption_text(found: Adoption, place: Callable[[str], str] = as_it_is) -> str:
    """Sentences first, then each would-be eviction with its evidence, then what the settings that were tried make of them. place: makes of
    a command one that works where the reader is."""
    return "\n".join([*_summary(found), *_listed(found, place), *_again(found)]) + "\n"


def adoption_json(found: Adoption) -> dict[str, Any]:
    """The same as one document. Times are UTC, ISO 8601; GPU-seconds; `answer` is "yes", "no" or "" where there is no answer yet."""
    return {
        "since": format_time(found.since_s),
        "until": format_time(found.until_s),
        "jobs": list(found.jobs),
        "saved_gpu_seconds": found.saved_gpu_s,
        "right": found.answered("yes"),
        "wrong": found.answered("no"),
        "not_told": found.answered(""),
        "would_evict": [_item(item) for item in found.would],
        "held_back": [_item(item) for item in found.held],
        "tried_again": [_tried_row(item) for item in found.tried],
    }


def _item(item: WouldBe) -> dict[str, Any]:
    row = asdict(item)
    since_s, time_s = row.pop("since_s"), row.pop("time_s")
    return {"incident": row.pop("incident"), "time": format_time(time_s), "since": format_time(since_s), **row}


def _tried_row(tried: TriedAgain) -> dict[str, Any]:
    row = asdict(tried)
    changes = [{"incident": name, "what": what} for name, what in tried.changes]
    return row | {"untold": row.pop("unanswered"), "changes": changes}  # the document's key


def _summary(found: Adoption) -> Iterator[str]:
    period = f"From {format_time(found.since_s)[:16]}Z to {format_time(found.until_s)[:16]}Z"
    if not found.jobs:
        yield f"{period} no decision stands in the ledger: nothing was watched, or nothing was wrong."
        return
    machines = len({(item.job, name) for item in found.would for name in item.machines})  # each once, however often it was accused
    yield f"{period} minder would have evicted {_count(machines, 'machine')} in {_count(len(found.would), 'incident')}."
    unpriced = sum(item.saved_gpu_s is None and item.answer != "no" for item in found.would)
    if found.would:
        yield f"That would have saved {_hours(found.saved_gpu_s)}" + (f"; of {unpriced} it is not known." if unpriced else ".")
        right, wrong, unanswered = found.answered("yes"), found.answered("no"), found.answered("")
        yield f"Right: {right}, wrong: {wrong}, no answer yet: {unanswered}."
    if found.held:
        yield f"{_count(len(found.held), 'more eviction')} asked for would have been held back, dry run or not (below, with the reason)."


def _listed(found: Adoption, place: Callable[[str], str]) -> Iterator[str]:
    for item in sorted((*found.would, *found.held), key=lambda item: item.time_s):
        yield ""
        held = f", held back: {item.detail}" if item.stopped_by else ""
        yield f"{item.incident}  {format_time(item.time_s)}  {', '.join(item.machines)} of {item.job}{held}"
        yield f"    {item.cause} since {format_time(item.since_s)}, confidence {item.confidence:.2f}"
        yield from (f"    because {line}" for line in item.evidence)
        yield f"    {_worth(item)}"
        ask = place(f"minder report --adoption --yes {item.incident}")
        yield f"    {_ANSWERS[item.answer]}" + ("" if item.answer else f": {ask} (or --no)")


def _worth(item: WouldBe) -> str:
    if item.answer == "no":
        return "it would have cost " + ("an unknown sum" if item.cost_gpu_s is None else _hours(item.cost_gpu_s)) + " for nothing"
    if item.saved_gpu_s is None:
        return "what it would have saved is not known: the trouble is open still, or the size of the job is not in the ledger"
    how = "from how long the trouble lasted" if item.measured else "as the policy estimates it"
    if item.saved_gpu_s < 0:
        return f"it would have cost {_hours(-item.saved_gpu_s)} more than waiting did, {how}"
    return f"it would have saved {_hours(item.saved_gpu_s)}, {how}"


def _again(found: Adoption) -> Iterator[str]:
    for tried in found.tried:
        yield ""
        yield from _tried(tried)


def _tried(tried: TriedAgain) -> Iterator[str]:
    evicted = tried.right + tried.wrong + tried.unanswered
    asked = ", each after an operator's yes" if tried.asked and evicted else ""
    yield (
        f"{tried.job} with --act and the settings that were tried: {_count(evicted, 'eviction')}{asked}, "
        f"right: {tried.right}, wrong: {tried.wrong}, no answer yet: {tried.unanswered}."
    )
    if tried.missed or tried.spared:
        yield f"    of those that this dry run names, {tried.missed} right and {tried.spared} wrong ones would not be evicted any more"
    yield from (f"    {incident}: {what}" for incident, what in tried.changes)
    if tried.unanswered:
        yield "    answer yes or no to the rest before you switch --act on"
    elif tried.wrong:
        first = "" if tried.asked else ', or set policy.approval = "required" first'
        yield f"    {_count(tried.wrong, 'wrong eviction')}: look at the evidence{first}"
    elif evicted:
        yield "    every eviction would have been right"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _hours(gpu_s: float) -> str:
    hours = gpu_s / 3600.0
    return f"{hours:.0f} GPU-hours" if abs(hours) >= 10 else f"{hours:.1f} GPU-hours"
