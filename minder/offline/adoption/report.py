"""What a dry run would have done: whom it would have evicted, when, on what evidence, what that would have saved, and was it right (pure).

Right or wrong is what a person said afterwards (OUTCOME); the policy is then tried again on the same decisions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from minder.act.policy.config import PolicyConfig
from minder.model.decision import Decision
from minder.model.errors import BadInputError
from minder.model.history import LedgerEvent
from minder.offline.adoption.redecide import DRY_RUN_KINDS, decide_again, would_evict
from minder.record.incidents import Incident, fold_incident, kinds
from minder.record.incidents.report import describe_evidence

__all__ = ["ADOPTION_KINDS", "Adoption", "Answer", "TriedAgain", "WouldBe", "build_adoption"]

ADOPTION_KINDS = tuple(dict.fromkeys((*DRY_RUN_KINDS, kinds.OUTCOME, kinds.CLOSED, kinds.NOTE, kinds.RECOVERY_PHASE, kinds.AMBIGUOUS)))
Answer = Literal["yes", "no", ""]
_EVIDENCE = 3
_RESTART_S = 30.0


@dataclass(frozen=True, slots=True)
class WouldBe:
    """One eviction that was wanted and did not happen. Times are unix seconds.

    stopped_by: "" where only the dry run kept it from happening; else the policy's reason, in `detail` in words.
    saved_gpu_s: what acting would have saved, less what it costs; None: not known. measured: from how long the trouble really lasted;
    else the policy's estimate of how long a person takes. cost_gpu_s: what it would have cost for nothing. answer: was it right?
    """

    incident: str
    job: str
    time_s: float
    since_s: float
    machines: tuple[str, ...]
    cause: str
    confidence: float
    evidence: tuple[str, ...]
    stopped_by: str
    detail: str
    saved_gpu_s: float | None
    measured: bool
    cost_gpu_s: float | None
    answer: Answer = ""


@dataclass(frozen=True, slots=True)
class TriedAgain:
    """The job's would-be evictions under the settings that were tried. right, wrong, unanswered: of those that would be evicted now.

    missed: right ones that would not be any more. spared: wrong ones that would not be. changes: (incident, what becomes of it, in words).
    asked: each of them would wait for an operator's yes.
    """

    job: str
    right: int
    wrong: int
    unanswered: int
    missed: int
    spared: int
    changes: tuple[tuple[str, str], ...]
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Adoption:
    """Of a period. would: what only the dry run kept from happening. held: what something else stopped too. Oldest first."""

    since_s: float
    until_s: float
    jobs: tuple[str, ...]
    would: tuple[WouldBe, ...]
    held: tuple[WouldBe, ...]
    tried: tuple[TriedAgain, ...]

    @property
    def saved_gpu_s(self) -> float:
        """Of all would-be evictions whose saving is known; one that was wrong costs what it costs."""
        return sum(_worth_s(item) for item in self.would)

    def answered(self, answer: Answer) -> int:
        return _answered(self.would, answer)


def build_adoption(
    events: Sequence[LedgerEvent], since_s: float, until_s: float, policies: Mapping[str, PolicyConfig], job: str | None = None
) -> Adoption:
    """events: of ADOPTION_KINDS, of every job, in ledger order, later ones too. policies: job to the settings to try; the defaults for
    any other. job: only this one's. Raises BadInputError for settings of a job that has decided nothing, where others have."""
    of_incident: dict[str, list[LedgerEvent]] = defaultdict(list)
    for event in events:
        if event.incident:
            of_incident[event.incident].append(event)
    names = sorted({event.job for event in events if event.kind == kinds.DECISION and event.job and job in (None, event.job)})
    if names and (unknown := sorted(policies.keys() - set(names))):
        raise BadInputError(
            f"the settings are those of {unknown[0]}, and the decisions are of {', '.join(names)}: give that job's job.toml"
        )
    found: list[WouldBe] = []
    tried: list[TriedAgain] = []
    for name in names:
        config = policies.get(name, PolicyConfig())
        again = decide_again(name, events, replace(config, dry_run=False))
        wanted = {
            (events[index].incident or "", then.verdict.machines): (then, now)
            for index, then, now in again
            if _is_wanted(then) and since_s <= then.time_s <= until_s
        }
        gpus = _gpus(name, events)
        costs_s = config.assumed_unsaved_s + _RESTART_S
        price = None if gpus is None else gpus * costs_s  # where the policy did not come to the price
        own = [_would_be(name, then, of_incident[incident], (gpus, price)) for (incident, _), (then, _) in wanted.items() if incident]
        found += own
        if own:
            again_of = {incident: now for (incident, _), (_, now) in wanted.items()}
            tried.append(replace(_tried(name, own, again_of), asked=config.approval == "required"))
    found.sort(key=lambda item: item.time_s)
    return Adoption(
        since_s,
        until_s,
        tuple(names),
        tuple(item for item in found if not item.stopped_by),
        tuple(item for item in found if item.stopped_by),
        tuple(tried),
    )


def _is_wanted(decision: Decision) -> bool:
    """An eviction that was asked for and not carried out: what was restarted, tried or done is no would-be."""
    asked = decision.verdict.tier == "evict" and decision.verdict.kind in ("machine", "group")
    return asked and decision.action in ("page", "none") and decision.operation_id.startswith("evict-")


def _would_be(job: str, decision: Decision, events: Sequence[LedgerEvent], known: tuple[int | None, float | None]) -> WouldBe:
    """known: the job's GPUs, and what acting is taken to cost where the policy did not price it."""
    incident, verdict = fold_incident(events), decision.verdict
    cost_gpu_s = known[1] if decision.price is None else decision.price.acting_gpu_s
    saved_gpu_s, measured = _saved(decision, incident, known[0], cost_gpu_s)
    return WouldBe(
        incident=incident.id,
        job=job,
        time_s=decision.time_s,
        since_s=verdict.since_s,
        machines=verdict.machines,
        cause=verdict.cause,
        confidence=verdict.confidence,
        evidence=tuple(describe_evidence(item) for item in verdict.evidence[:_EVIDENCE]),
        stopped_by="" if would_evict(decision) else decision.reason,
        detail=decision.detail,
        saved_gpu_s=saved_gpu_s,
        measured=measured,
        cost_gpu_s=cost_gpu_s,
        answer=_answer(verdict.machines, incident.outcomes),
    )


def _saved(decision: Decision, incident: Incident, gpus: int | None, cost_gpu_s: float | None) -> tuple[float | None, bool]:
    """(GPU-seconds, whether they were measured). A job that stood is charged for as long as it really did; for a slow one
    the policy's own estimate stands, since its pace was not measured all the time."""
    ended_s, price = incident.closed_s, decision.price
    if gpus and cost_gpu_s is not None and ended_s is not None and decision.verdict.cause not in ("slowdown", "unknown"):
        return gpus * max(0.0, ended_s - decision.time_s) - cost_gpu_s, True
    return (None if price is None else price.waiting_gpu_s - price.acting_gpu_s), False


def _gpus(job: str, events: Sequence[LedgerEvent]) -> int | None:
    """As the job registered them, as a watch found them, or as its last first step says."""
    for event in reversed(events):
        if event.job == job:
            attached = event.payload.get("attached")
            gpus = attached.get("gpus") if isinstance(attached, Mapping) else event.payload.get("gpus")
            if isinstance(gpus, int) and gpus > 0:
                return gpus
    return None


def _answer(machines: Sequence[str], outcomes: Mapping[str, str]) -> Answer:
    """A group was right only if all of it was."""
    found = [outcomes.get(machine) for machine in machines]
    if "no-fault-found" in found:
        return "no"
    return "yes" if found and all(item == "confirmed" for item in found) else ""


def _worth_s(item: WouldBe) -> float:
    return -(item.cost_gpu_s or 0.0) if item.answer == "no" else item.saved_gpu_s or 0.0


def _tried(job: str, wanted: Sequence[WouldBe], now: Mapping[str, Decision]) -> TriedAgain:
    evicted = [item for item in wanted if now[item.incident].action == "evict"]
    left = [item for item in wanted if now[item.incident].action != "evict" and not item.stopped_by]
    changes = [(item.incident, f"would not be evicted: {now[item.incident].detail}") for item in left]
    changes += [(item.incident, f"would be evicted; then {item.stopped_by} stopped it") for item in evicted if item.stopped_by]
    return TriedAgain(
        job,
        _answered(evicted, "yes"),
        _answered(evicted, "no"),
        _answered(evicted, ""),
        _answered(left, "yes"),
        _answered(left, "no"),
        tuple(changes),
    )


def _answered(items: Sequence[WouldBe], answer: Answer) -> int:
    return sum(item.answer == answer for item in items)
