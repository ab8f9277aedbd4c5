"""What a ladder would have done over the past, and what that would have cost, before it is switched on. Nothing is acted on.

Two pasts: a ledger, whose decisions are taken again one by one, and recordings, whose verdicts are played through a ledger in memory. In a
recording an eviction takes effect (the machine is out, a standby has its ranks); in a ledger the history stays as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.act.policy.ladder import OFFERED, WITH_LAUNCHERS
from minder.act.policy.limits import HANG
from minder.act.policy.policy import Policy
from minder.act.recovery.generation_plan import exchange_machines, replace_machines
from minder.model.decision import ActionResult, Decision
from minder.model.evidence import Failure, Verdict
from minder.model.history import LedgerEvent
from minder.model.observation import JobView
from minder.offline.adoption.redecide import MOST_DECISIONS, RESTART_S, decide_again
from minder.record.incidents import Ledger, kinds

__all__ = ["Cost", "Rehearsal", "Rehearsed", "RehearsedJob", "cost_of", "rehearse_ledger", "rehearse_recordings", "rehearse_verdicts"]

_SORTS = {"stall": "hang", "unknown": "hang", "slowdown": "slow"}
_TESTS = {"diagnose": "all tests passed, as is assumed", "replay": "the failure did not come back, as is assumed"}


@dataclass(frozen=True, slots=True)
class RehearsedJob:
    """A job as far as a rehearsal needs it. gpus: devices of the job. launched: launchers run it, so that its machines can be tested."""

    name: str
    machines: tuple[str, ...]
    standbys: tuple[str, ...] = ()
    gpus: int = 1
    rank_machine: Mapping[int, str] | None = None
    domains: Mapping[str, Mapping[str, str]] | None = None
    launched: bool = False


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """One verdict of the past. then: what was decided, None in a recording. where: the incident, or the recording. machines, gpus: how
    many the job has."""

    where: str
    then: Decision | None
    now: Decision
    machines: int = 1
    gpus: int = 1


@dataclass(frozen=True, slots=True)
class Cost:
    """machine_minutes: the job's machines times what each action costs of time (restart, and work since the last checkpoint)."""

    evictions: int
    machines_evicted: int
    trials: int
    restarts: int
    diagnoses: int
    pages: int
    machine_minutes: float
    replays: int = 0


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Oldest first. then: what the past decided really cost; None without a ledger. unknown: what was assumed."""

    items: tuple[Rehearsed, ...]
    now: Cost
    then: Cost | None
    unknown: tuple[str, ...]


_UNSAVED = "work since the last checkpoint: policy.assumed_unsaved_s"
_FOUND = "what the tests of a job would have found: no fault, so that the climb goes on"
_ASSUMED = (
    "which rungs of the ladder the site offers: those of this version, and tests while the job stands where launchers run it",
    _FOUND,
)
_TESTABLE = "which rungs of the ladder the site offers: those of this version, tests and replays too, since the configuration has launchers"
_UNTESTABLE = "which rungs of the ladder the site offers: those of this version, without tests and replays (no launchers are configured)"


def rehearse_ledger(events: Sequence[LedgerEvent], config: PolicyConfig, job: str | None = None) -> Rehearsal:
    """The newest decisions of each job (at most MOST_DECISIONS), taken again. events: of DRY_RUN_KINDS, of every job, in ledger order.
    job: only this one's."""
    config = replace(config, dry_run=False)
    names = sorted({event.job for event in events if event.kind == kinds.DECISION and event.job and job in (None, event.job)})
    items: list[Rehearsed] = []
    for name in names:
        machines, gpus = _sizes(name, events)
        for index, then, now in decide_again(name, events, config, machines_only=False):
            items.append(Rehearsed(events[index].incident or "", then, now, machines, gpus))
    items.sort(key=lambda item: item.now.time_s)
    past = cost_of([replace(item, now=item.then) for item in items if item.then is not None], config)
    unsaved = "what a restart costs: what each decision reckoned with then, else policy.assumed_unsaved_s"
    assumed = (
        unsaved,
        *_ASSUMED,
        f"what else would have changed: the history stays as it was; the newest {MOST_DECISIONS} decisions of a job",
    )
    return Rehearsal(tuple(items), cost_of(items, config), past, assumed)


def rehearse_recordings(played: Iterable[Rehearsed], config: PolicyConfig, launched: bool = False) -> Rehearsal:
    """What `rehearse_verdicts` found in each of several recordings, as one. launched: as of each of its jobs."""
    items = tuple(played)
    right = "whether a machine that was evicted in a recording was at fault"
    assumed = (_UNSAVED, _TESTABLE, _FOUND, right) if launched else (_UNSAVED, _UNTESTABLE, right)
    return Rehearsal(items, cost_of(items, config), None, assumed)


def rehearse_verdicts(job: RehearsedJob, verdicts: Iterable[Verdict], config: PolicyConfig, where: str = "") -> list[Rehearsed]:
    """A recording's verdicts, in time order, through the policy and a ledger in memory. Raises whatever reading the verdicts raises."""
    with Ledger(":memory:") as ledger:
        stage = _Stage(job, ledger, replace(config, dry_run=False))
        return [Rehearsed(where, None, decision, len(job.machines), job.gpus) for verdict in verdicts for decision in stage.play(verdict)]


def cost_of(items: Iterable[Rehearsed], config: PolicyConfig) -> Cost:
    """Of what each item decides now. An operation counts once, and a machine goes once in an incident or recording: a ledger has
    what it did afterwards because it was still there."""
    found: Counter[str] = Counter()
    minutes, seen, gone = 0.0, set[tuple[str, str, str]](), set[tuple[str, str]]()
    for item in items:
        decision = item.now
        key = (item.where, decision.operation_id, decision.action)
        leaving = {(item.where, machine) for machine in decision.machines} if decision.action == "evict" else set()
        if key in seen or (leaving and leaving <= gone):
            continue
        seen.add(key)
        gone |= leaving
        found[decision.action] += 1
        found["machines"] += len(decision.machines) if decision.action == "evict" else 0
        if decision.action in kinds.ACTS:
            minutes += item.machines * _seconds(decision, item.gpus, config) / 60
    return Cost(
        found["evict"],
        found["machines"],
        found["trial"],
        found["restart"],
        found["diagnose"],
        found["page"],
        round(minutes, 1),
        found["replay"],
    )


def _seconds(decision: Decision, gpus: int, config: PolicyConfig) -> float:
    """That the whole job loses by one action."""
    return RESTART_S + config.assumed_unsaved_s if decision.price is None else decision.price.acting_gpu_s / max(1, gpus)


def _sizes(job: str, events: Sequence[LedgerEvent]) -> tuple[int, int]:
    """(machines, devices) of the job, as it registered them or as a watch found them."""
    for event in reversed(events):
        if event.job != job or event.kind not in (kinds.NOTE, kinds.JOB_REGISTERED):
            continue
        facts = event.payload.get("attached") if event.kind == kinds.NOTE else event.payload
        if isinstance(facts, Mapping) and facts.get("machines"):
            return len(facts["machines"]), int(facts.get("gpus") or len(facts["machines"]))
    return 1, 1


class _Stage:
    """A job that is not there: `play` one verdict after the other."""

    def __init__(self, job: RehearsedJob, ledger: Ledger, config: PolicyConfig) -> None:
        self._job, self._ledger, self._policy = job, ledger, Policy(config)
        self._placed = dict(job.rank_machine or dict(enumerate(job.machines)))
        self._generation, self._begun_s = 1, float("-inf")
        ledger.append(kinds.JOB_REGISTERED, {"machines": list(job.machines), "standbys": list(job.standbys)}, job=job.name, time_s=0.0)

    def play(self, verdict: Verdict) -> Iterator[Decision]:
        """What would have been decided; it is carried out in the ledger."""
        now_s, name = verdict.time_s, self._job.name
        verdict = self._with_failures(verdict)
        incident = self._ledger.open_incident(verdict, job=name, time_s=now_s)
        if verdict.kind == "recovered":
            return
        decided = self._decide(verdict, now_s)
        for decision in decided:
            self._ledger.append(
                kinds.DECISION, decision, job=name, incident=incident, operation_id=decision.operation_id, time_s=now_s
            )  # fmt: skip
            if decision.action in kinds.ACTS:
                self._carry_out(decision, incident)
            if decision.action in _TESTS:  # it found nothing, so the job waits for the next rung
                decided += self._decide(verdict, now_s, suspended=True)
            yield decision

    def _decide(self, verdict: Verdict, now_s: float, suspended: bool = False) -> list[Decision]:
        history, context = self._ledger.history(self._job.name, now_s), self._context(verdict, now_s)
        return self._policy.decide([verdict], history, replace(context, workers_dead=context.workers_dead or suspended))

    def _with_failures(self, verdict: Verdict) -> Verdict:
        """As the controller gives a hang or a slowness its ranks, for the memory of blame."""
        if verdict.failures or verdict.kind not in ("machine", "group") or verdict.cause not in _SORTS:
            return verdict
        ranks = {name: tuple(rank for rank, other in self._placed.items() if other == name) for name in verdict.machines}
        sort = _SORTS[verdict.cause]
        failures = tuple(Failure(verdict.since_s, name, ranks[name], sort, generation=self._generation) for name in verdict.machines)
        return replace(verdict, failures=failures)

    def _context(self, verdict: Verdict, now_s: float) -> PolicyContext:
        inside = tuple(dict.fromkeys(self._placed.values()))
        ready = tuple(name for name in self._job.standbys if name not in inside)
        begun_s = 0.0 if self._begun_s == float("-inf") else self._begun_s
        view = JobView(self._job.name, self._generation, "running", inside, ready, (), dict(self._placed), 0.0, begun_s)
        return PolicyContext(
            now_s=now_s,
            job=view,
            standbys_ready=ready,
            domains=self._job.domains or {},
            gpus=self._job.gpus,
            since_checkpoint_s=self._policy.config.assumed_unsaved_s,
            answering=frozenset((*inside, *ready)),
            workers_dead=verdict.cause == "explicit" and verdict.kind == "job",
            hangs=HANG in verdict.sources,
            offers=OFFERED | (WITH_LAUNCHERS if self._job.launched else frozenset()),
        )

    def _carry_out(self, decision: Decision, incident: str) -> None:
        name, time_s, operation = self._job.name, decision.time_s, decision.operation_id
        if not self._ledger.intend(operation, decision, job=name, incident=incident, time_s=time_s).first:
            return
        if decision.action in _TESTS:
            found = _TESTS[decision.action]
            self._ledger.complete(operation, ActionResult(operation, time_s, "done", found), time_s=time_s)
            return
        if decision.action == "evict":
            self._placed = replace_machines(self._placed, decision.machines, decision.replacements)
            for machine in decision.machines:
                payload = {"machine": machine, "reason": decision.detail}
                self._ledger.append(kinds.BARRED, payload, job=name, incident=incident, operation_id=operation, time_s=time_s)
        elif decision.action == "trial":
            self._placed = exchange_machines(self._placed, decision.machines[0], decision.replacements[0])
        self._generation, self._begun_s = self._generation + 1, time_s
        placed = {str(rank): machine for rank, machine in self._placed.items()}
        begun = {"generation": self._generation, "rank_machine": placed}
        self._ledger.append(kinds.GENERATION_STARTED, begun, job=name, incident=incident, operation_id=operation, time_s=time_s)
        self._ledger.complete(operation, ActionResult(operation, time_s, "done", "rehearsed"), time_s=time_s)
