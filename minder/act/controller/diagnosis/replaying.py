"""The rung `replay`: groups of a job's machines replay it side by side while it stands; the faulty machine is where failing groups cross.

The order of things, each in the ledger before the next: the intent; the job is suspended (minder.act.controller.recover ended its workers);
each group of a phase with its generation; the launchers run it; what became of each group; the next phase, as
minder.diagnose.diagnostics.replay says; the result; a verdict on each machine that was found. Then what was found is decided on like
everything else, and where nothing else starts the job again this operation does.

Every launcher knows a phase by its name, the groups of a phase follow from the job's placement and the phases before, and their
generations are in the ledger. So a controller that takes over asks for the same groups at the same stores, and starts nothing twice.
`policy.replay_limit_s` ends it whatever is missing; a person's pause, or order to restart, does at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from minder.act.controller.backlog import Item
from minder.act.controller.diagnosis.held import Held, HeldJob, Hold, Suspends
from minder.act.recovery.generation_plan import GenerationPlan, machine_order
from minder.diagnose.diagnostics.replay import ReplayFinding, ReplayPhase, advance, usual_order
from minder.diagnose.diagnostics.replay_layout import ReplayGroup, ReplayLayout, fewer_layers, lay_out
from minder.diagnose.diagnostics.replay_runs import GroupOutcome, join_runs, judge_phase
from minder.edge.probes.contract import find_program
from minder.model.decision import Decision
from minder.model.errors import BadInputError, WireError
from minder.model.evidence import Evidence, Verdict
from minder.model.history import LedgerEvent
from minder.model.probes import ProbeResult
from minder.model.replay import RankRun
from minder.model.topology import Parallelism, Topology
from minder.record.incidents import kinds
from minder.record.incidents.replays import ReplayedGroup, ReplayRecord, fold_replays, replay_payload
from minder.wire.codec import from_json
from minder.wire.fleet import Fleet

__all__ = ["SOURCE", "ReplaySettings", "Replaying", "can_replay", "layout_of"]

SOURCE = "replay"  # of verdicts
_PATIENCE_S = 20.0  # so long may a launcher be silent, or refuse because ranks still run
_LATE_S = 15.0  # so long after a phase's time its answers are waited for
_LEAST_PHASE_S = 10.0
_SURE = 0.5  # of a finding: below this a person is called, and no machine goes


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """What a group runs. program: the reference model, or the launchers' own script. steps: of each run. runs: of each group, in each
    phase. seed: of weights and data. layers: of the job's model, of which one a stage is left; 0: not known."""

    program: Literal["reference", "script"] = "reference"
    steps: int = 100
    runs: int = 2
    seed: int = 0
    layers: int = 0

    @property
    def meetings(self) -> int:
        """Stores for each group: a script's ranks meet anew in each run."""
        return self.runs if self.program == "script" else 1


def layout_of(parallelism: Parallelism, rank_machine: Mapping[int, str]) -> ReplayLayout:
    """Of the job as it is placed now. Raises BadInputError where its machines make no groups."""
    machines = machine_order(rank_machine)
    ranks = len(rank_machine) // max(1, len(machines))
    return lay_out(Topology(machines, ranks, parallelism.sized(len(rank_machine)), rank_machine=dict(rank_machine)))


def can_replay(parallelism: Parallelism, rank_machine: Mapping[int, str]) -> bool:
    """Whether the job's machines make groups that show anything: not one machine, and not the machines of a single replica."""
    try:
        layout = layout_of(parallelism, rank_machine)
        return advance(layout, [], order=usual_order(layout)).next is not None and len(layout.machines) > 1
    except BadInputError:
        return False


@dataclass(slots=True)
class _Phase:
    """One that runs. plans: group to a plan for each of its meetings. answers: machine to its result; silent: of which nothing came back,
    and why. troubled_s: since when a launcher has not answered or refused."""

    asked: ReplayPhase
    plans: Mapping[str, Sequence[GenerationPlan]]
    begun_s: float
    limit_s: float
    answers: dict[str, ProbeResult] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    troubled_s: dict[str, float] = field(default_factory=dict)

    @property
    def machines(self) -> tuple[str, ...]:
        return tuple(name for group in self.asked.groups for name in group.machines)


@dataclass(slots=True)
class _Run(Held):
    """One replay. at: the phase that runs."""

    at: _Phase | None = None


class _Recovers(Suspends, Protocol):
    """Opens stores for groups besides."""

    def open_groups(
        self, operation_id: str, groups: Mapping[str, Mapping[int, str]], after: int, runs: int
    ) -> Mapping[str, Sequence[GenerationPlan]]: ...

    def close_groups(self, generations: Sequence[int]) -> None: ...


class Replaying(Hold[_Run]):
    """Groups of the job's machines train alone while it stands. Every method raises LedgerError."""

    action: Literal["replay"] = "replay"
    part = "replay"  # of a tick

    def __init__(
        self, held: HeldJob, fleet: Fleet, recovery: _Recovers, parallelism: Parallelism, settings: ReplaySettings | None = None
    ) -> None:
        super().__init__(held, recovery, "replay")
        self._fleet, self._groups, self._parallelism = fleet, recovery, parallelism
        self._settings = settings or ReplaySettings()

    @property
    def limit_s(self) -> float:
        return self._config.replay_limit_s

    def _new_run(self, decision: Decision, items: list[Item], incident: str, intent: LedgerEvent, begun_s: float) -> _Run:
        machines = machine_order(self._state.rank_machine)
        return _Run(decision, incident, items, machines, self._state.generation, intent.id, intent.time_s, begun_s)

    def _left_s(self, run: _Run) -> float:
        return self._config.replay_limit_s - self._passed_s(run)

    def _record(self, run: _Run) -> ReplayRecord:
        found = fold_replays(self._held.own(run, kinds.REPLAY))
        return found[0] if found else ReplayRecord(run.operation_id, run.since_s)

    def _look(self, run: _Run) -> ReplayFinding:
        """What the phases that are over say, and what is to run next."""
        try:
            layout = layout_of(self._parallelism, self._state.rank_machine)
        except BadInputError as error:
            return ReplayFinding("not_judged", str(error))
        phases = [phase for _, phase in sorted(self._record(run).phases.items()) if phase.is_over]
        history = [[_outcome(group) for group in phase.groups.values()] for phase in phases]
        return advance(layout, history, order=usual_order(layout))

    def _go_on(self, run: _Run) -> None:
        if run.at is not None:
            self._ask(run, run.at)
        elif self._state.phase == "replaying" or not self._held.still_runs(self._fleet, run.machines, self._passed_s(run)):
            self._advance(run)

    def _settle_again(self, run: _Run) -> None:
        self._settle(run, self._look(run))

    def _advance(self, run: _Run) -> None:
        """The next phase, or the end."""
        self._held.phase(run, "suspend", "end")
        self._held.phase(run, "replay", "begin", f"{self._settings.runs} runs of {self._settings.steps} steps of each group")
        self._state.phase = "replaying"
        finding = self._look(run)
        if finding.next is None:
            self._settle(run, finding)
            return
        run.at = self._begin_phase(run, finding.next)
        limit_s, groups = run.at.limit_s, finding.next.groups
        self.on_say(f"replaying {self._state.name}, phase {finding.next.number}: {len(groups)} groups, {limit_s:.0f} s at most")
        self._ask(run, run.at)

    def _begin_phase(self, run: _Run, phase: ReplayPhase) -> _Phase:
        """Each group is in the ledger, with its generations, before any of its machines is asked. Half of the time that is left is its."""
        stands = self._record(run).phases.get(phase.number)
        begun = {} if stands is None else stands.groups
        known = [int(self._fleet.launcher_state(name).get("generation") or 0) for name in run.machines]
        after = max([self._state.generation, self._state.lent_generation, *known])
        if begun:  # an earlier controller wrote the first of them down, at least
            after = min(group.generations[0] for group in begun.values()) - 1
        count, meetings = len(phase.groups), self._settings.meetings
        for index, group in enumerate(phase.groups, 1):
            own = (after + index, after + index + (meetings - 1) * count)
            if group.name not in begun:
                self._held.append(
                    run, kinds.REPLAY, replay_payload(phase.number, phase.kind, ReplayedGroup(group.name, group.machines, own))
                )
            self._state.lent_generation = max(self._state.lent_generation, own[1])
        placed = {group.name: group.rank_machine for group in phase.groups}
        plans = self._groups.open_groups(f"{run.operation_id}/{phase.number}", placed, after, meetings)
        return _Phase(phase, plans, self._clock.monotonic_s(), max(_LEAST_PHASE_S, self._left_s(run) / 2))

    def _ask(self, run: _Run, at: _Phase) -> None:
        if self._clock.monotonic_s() - at.begun_s > at.limit_s + _LATE_S:
            left = [name for name in at.machines if name not in at.answers]
            at.silent |= {name: f"nothing came back within {at.limit_s:.0f} s" for name in left if name not in at.silent}
        else:
            self._ledger.check_fence()
            for machine, answer in self._fleet.probes(self._orders(run, at)).items():
                self._hear(at, machine, answer)
        if at.silent or all(name in at.answers for name in at.machines):
            self._judge(run, at)

    def _orders(self, run: _Run, at: _Phase) -> dict[str, dict[str, Any]]:
        """For each machine that has not answered: its ranks, and where they meet."""
        program, operation = find_program("replay"), f"{run.operation_id}/{at.asked.number}"
        found = {}
        for group in at.asked.groups:
            for machine in group.machines:
                if machine not in at.answers and machine not in at.silent:
                    order = self._order(group, at.plans[group.name], machine)
                    probe = {"id": "replay", "sha256": program.sha256, "limit_s": at.limit_s, "replay": order}
                    found[machine] = {"operation": operation, "probes": [probe]}
        return found

    def _order(self, group: ReplayGroup, plans: Sequence[GenerationPlan], machine: str) -> dict[str, Any]:
        settings = self._settings
        layers = fewer_layers(settings.layers or group.parallelism.pipeline, group.parallelism.pipeline)
        return {
            "group": group.name,
            "program": settings.program,
            "ranks": [item["env"] for item in plans[0].request_for(machine, 0.0)["assignments"]],
            "meetings": [{"generation": plan.generation, "port": plan.master_port} for plan in plans],
            "parallelism": asdict(group.parallelism),
            "steps": settings.steps,
            "runs": settings.runs,
            "seed": settings.seed,
            "layers": layers,
        }

    def _hear(self, at: _Phase, machine: str, answer: Mapping[str, Any] | WireError) -> None:
        why = str(answer) if isinstance(answer, WireError) else ""
        if not isinstance(answer, WireError) and answer.get("state") == "refused":
            why = str(answer.get("detail") or "its launcher refuses")
        if why:
            since_s = at.troubled_s.setdefault(machine, self._clock.monotonic_s())
            if self._clock.monotonic_s() - since_s > _PATIENCE_S:
                at.silent[machine] = why
            return
        at.troubled_s.pop(machine, None)
        if isinstance(answer, WireError) or answer.get("state") != "done":
            return
        try:
            (result,) = from_json(tuple[ProbeResult, ...], answer.get("results") or ())
        except (WireError, ValueError) as error:
            at.silent[machine] = f"its result cannot be read: {error}"
            return
        if result.state == "measured":
            at.answers[machine] = result
        else:
            at.silent[machine] = result.detail or result.state.replace("_", " ")

    def _judge(self, run: _Run, at: _Phase) -> None:
        """What became of each group goes into the ledger, once; then the next phase."""
        outcomes = _judged(at, self._settings.runs)
        stands = self._record(run).phases[at.asked.number].groups
        for outcome in outcomes:
            group = stands[outcome.group]
            if not group.outcome:
                ended = ReplayedGroup(
                    outcome.group, outcome.machines, group.generations, outcome.state, outcome.reason, outcome.runs, outcome.failed
                )
                self._held.append(run, kinds.REPLAY, replay_payload(at.asked.number, at.asked.kind, ended))
        run.at = None
        self._groups.close_groups([plan.generation for plans in at.plans.values() for plan in plans])
        self._go_on(run)

    def _end(self, run: _Run, why: str) -> None:
        finding = self._look(run)
        late = f"not done within {self._config.replay_limit_s:.0f} s"
        self._settle(run, finding if finding.next is None else ReplayFinding("not_judged", why or late), why)

    def _settle(self, run: _Run, finding: ReplayFinding, why: str = "") -> None:
        """why: what ended it before its time. A controller that takes over comes to the same from what is in the ledger."""
        for phase in ("suspend", "replay"):
            self._held.phase(run, phase, "end")
        detail = f"ended before its time: {why}" if why else self._words(run, finding)
        self._held.complete(run, "failed" if why else "done", detail)
        verdicts = _verdicts(finding, self._record(run), self._clock.now_s(), run.since_s)
        self._held.say_verdicts(run, verdicts, SOURCE)
        if verdicts or why:  # the person that ends it ends the climb: only what was found by then is decided on
            run.items = [(verdict, run.incident) for verdict in verdicts]
        run.at, run.over, self._state.phase = None, True, "suspended"
        self.on_say(f"replay of {self._state.name}: {detail}")

    def _words(self, run: _Run, finding: ReplayFinding) -> str:
        record, took_s = self._record(run), self._passed_s(run)
        groups = sum(len(phase.groups) for phase in record.phases.values())
        cost = f"{len(record.phases)} phases, {groups} groups, {took_s:.0f} s of {len(run.machines)} machines"
        sure = f", confidence {finding.confidence:.2f}" if finding.state == "found" else ""
        return f"{'found' if finding.state == 'found' else 'not judged'}: {finding.reason}{sure} ({cost})"


def _outcome(group: ReplayedGroup) -> GroupOutcome:
    return GroupOutcome(group.name, group.machines, group.outcome, group.reason, group.runs, group.failed)  # type: ignore[arg-type]


def _judged(at: _Phase, runs: int) -> tuple[GroupOutcome, ...]:
    """Out of what the machines of each group answered."""
    found, hardware = {}, {}
    for group in at.asked.groups:
        ranks: dict[int, tuple[RankRun, ...]] = {}
        silent = {name: at.silent.get(name, "the search ended before it was done") for name in group.machines if name not in at.answers}
        for name in (name for name in group.machines if name in at.answers):
            try:
                own = from_json(dict[str, tuple[RankRun, ...]], at.answers[name].data.get("ranks") or {})
                ranks |= {int(rank): tuple(rows) for rank, rows in own.items()}
            except (WireError, ValueError) as error:
                silent[name] = f"its runs cannot be read: {error}"
        found[group.name] = join_runs(group, runs, ranks, silent)
    for name, result in at.answers.items():
        hardware[name] = json.dumps(dict(result.facts), sort_keys=True)
    return judge_phase(at.asked.groups, found, hardware)


def _verdicts(finding: ReplayFinding, record: ReplayRecord, now_s: float, since_s: float) -> list[Verdict]:
    """On each machine that was found. One that a search names with doubt is for a person to look at."""
    if finding.state != "found":
        return []
    tier: Literal["evict", "page"] = "evict" if finding.confidence >= _SURE else "page"
    found = []
    for name in finding.machines:
        said = [f"{group.name}: {group.reason}" for group in record.failing if name in group.machines]
        text = f"replay: every group with {name} fails ({'; '.join(said)}), and no other group"
        evidence = (Evidence("replay", name, text, since_s=since_s),)
        found.append(Verdict(now_s, "machine", tier, (name,), "numeric", finding.confidence, since_s, evidence, (), (SOURCE,)))
    return found
