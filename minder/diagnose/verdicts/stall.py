"""The job stands still: who holds it up? In a collective stall every machine looks silent; only one is not waiting.

The rule first asks for the job's connections (twice, some time apart: a single look cannot tell slow from stuck), then weighs
what each machine's flows, its worker's own liveness and its step say. Where a dead connection leaves open which end is cut off, it
asks the machines to reach one another. Several machines whose processes are held are named as the parallel group that they share.
Where no machine stands out it names none; after `page_after_s` it pages that the job hangs. Sources: ByteRobust
(arXiv 2509.16293, aggregation of stacks); Mycroft (arXiv 2509.03018, flow counters).

What connections and liveness say of a machine may be the program's doing: a rank in a collective of another group sends its peers
nothing, and one that holds the interpreter's lock does not tick. So live they name a machine at once, and its eviction waits for one
capture of the ranks' stacks, at most `wait_for_captures_s`:

| the capture | the machine |
|---|---|
| does not come in time, or names it as well | is evicted |
| shows the program at fault, or work that ends by itself | stays; the job is paged for |
| names other machines, and not this one | is paged |
| names none | is looked at a second time; then it is paged, unless neither its process runs nor its data are read |

Bytes that no kernel acknowledges, and an address that no peer reaches, are no program's doing: they wait for no capture.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.stacks.places import shared_group
from minder.diagnose.verdicts.captures import PASSES_S, Looks
from minder.diagnose.verdicts.flows import (
    FlowFinding,
    Series,
    data_flows,
    find_broken,
    find_cut_off,
    find_silent,
    find_unread,
    flow_lines,
    fuse_findings,
    lines_as_evidence,
)
from minder.model.evidence import Evidence, Suspect, Tier
from minder.model.observation import Observation, RequestKind, RuleResult
from minder.model.telemetry import ConnectivityProbe, Flow, Window
from minder.model.topology import Parallelism

__all__ = ["StallRule", "find_frozen"]

_NO_PROGRAMS = frozenset({"broken", "cut off"})
_FROZEN_S = 2.0
_SURE = 0.7
_PATIENCE_S = 10.0
_NEARLY_S = 5.0  # so long a second machine that may be freezing is waited for
_WAIT_FOR_FLOWS_S = 3.0


class StallRule:
    """Speaks while `JobTracker` says that the job stalls (observation.Rule).

    wait_for_captures_s: so long an eviction waits for stacks. Of a live job, whose agents can be asked for them; 0: of a recording.
    """

    name = "stall"

    def __init__(
        self,
        tracker: JobTracker,
        page_after_s: float = 60.0,
        wait_for_flows_s: float = _WAIT_FOR_FLOWS_S,
        wait_for_captures_s: float = 0.0,
        parallelism: Parallelism | None = None,
    ) -> None:
        self._tracker = tracker
        self._parallelism = parallelism
        self._wait_for_captures_s = wait_for_captures_s
        self._page_after_s = page_after_s
        self._wait_for_flows_s = wait_for_flows_s  # one witness more before anybody is named, where connections can be asked for
        self._flows: deque[Flow] = deque(maxlen=200_000)
        self._attempts: deque[ConnectivityProbe] = deque(maxlen=20_000)
        self._looks = Looks()  # what stacks and collectives have said of this stall
        self._noticed_s = math.nan  # when this stall was first noticed
        self._torn = False  # two ends share a dead connection, and nothing yet shows which of them is cut off
        self._named: tuple[Suspect, ...] = ()  # said again as long as this stall lasts: the job has not recovered
        self._stalled = False
        self._silence = tracker.silence_after(tracker.limits.gone_s)
        self._ages: dict[str, float] = {}  # seconds since each machine's training process ran, as telemetry says

    def observe(self, observation: Observation) -> RuleResult:
        if observation.window is not None:
            self._remember(observation.window, observation.job.machines if observation.job is not None else ())
        stalled_s = self._tracker.stalled_s(observation)
        if not stalled_s:
            self._stalled = False
            self._looks.clear()
            self._named = ()
            self._flows.clear()
            self._attempts.clear()
            return RuleResult()
        since_s = observation.now_s - stalled_s
        if not self._stalled:
            self._stalled, self._noticed_s = True, observation.now_s
        self._flows.extend(observation.flows)
        self._attempts.extend(observation.attempts)
        self._looks.hear(observation.statements, since_s)
        waited_s = self._waited_s(observation.now_s, stalled_s)
        if self._named:
            return RuleResult(tuple(replace(suspect, time_s=observation.now_s) for suspect in self._named))
        if not self._flows and waited_s < self._tracker.steps.stall_limit_s() + self._wait_for_flows_s:
            return RuleResult((), frozenset({"flows"}))  # one witness more before anybody is named
        suspects = self._name(observation, since_s, waited_s)
        settled = bool(suspects) and all(suspect.tier != "watch" for suspect in suspects)
        self._named = suspects if settled else ()
        requests: frozenset[RequestKind] = frozenset({"flows", "reach"}) if self._torn else frozenset({"flows"})
        if suspects and not settled:
            requests |= {"stacks"}
        return RuleResult(suspects, frozenset() if settled else requests)

    def _waited_s(self, now_s: float, stalled_s: float) -> float:
        """How long the stall has lasted for those who wait for witnesses. One that is known without steps is noticed late."""
        if self._tracker.steps.reads_steps:
            return stalled_s
        return min(stalled_s, self._tracker.steps.stall_limit_s() + now_s - self._noticed_s)

    def _name(self, observation: Observation, since_s: float, stalled_s: float) -> tuple[Suspect, ...]:
        if self._silence.silent(observation) and stalled_s <= self._page_after_s:
            return ()  # who waits for a machine that is gone looks like the culprit in every other way: the absence rule speaks first
        findings = [
            *self._from_flows(observation, stalled_s),
            *(find_frozen(observation) or self._from_telemetry(observation)),
            *_behind(self._tracker.steps.by_machine),
        ]
        held = {item.machine: item for item in findings if item.kind == "frozen"}
        if len(held) > 1:
            return self._several_at_once(list(held.values()), findings, observation, since_s)
        if held and stalled_s <= self._tracker.steps.stall_limit_s() + _NEARLY_S and _nearly_frozen(observation) - held.keys():
            return ()  # a second one, that froze a moment later
        ranked = fuse_findings(findings)
        if ranked and _distinct(ranked):
            machine, confidence = ranked[0]
            evidence = [_progress_evidence(self._tracker.steps.step, since_s, stalled_s)]
            evidence += [_as_evidence(item, since_s) for item in findings if item.machine == machine]
            evidence += self._table(observation, (machine,), since_s)
            against = tuple(_as_evidence(item, since_s) for item in findings if item.machine != machine)
            suspect = Suspect(
                observation.now_s, self.name, "machine", (machine,), "stall", confidence, since_s, "evict", tuple(evidence), against
            )
            own = {item.kind for item in findings if item.machine == machine}
            if confidence >= _SURE:
                judged = self._weigh(suspect, own, observation.now_s)
                if judged is not None:
                    return (judged,)
            elif stalled_s > self._patience_s and not self._looks.program:
                return (replace(suspect, tier="page"),)
        if stalled_s > self._patience_s:
            evidence = [
                _progress_evidence(self._tracker.steps.step, since_s, stalled_s),
                *(_as_evidence(item, since_s) for item in findings),
            ]
            evidence += [*self._table(observation, (), since_s), *self._looks.evidence]
            return (Suspect(observation.now_s, self.name, "job", (), "stall", 0.5, since_s, "page", tuple(evidence)),)
        return ()

    def _weigh(self, suspect: Suspect, kinds: Collection[str], now_s: float) -> Suspect | None:
        """What may be done about the machine that connections name, by the table above; None: it is not accused."""
        if not self._wait_for_captures_s or _NO_PROGRAMS & set(kinds):
            return suspect
        (machine,) = suspect.machines
        answer = self._looks.answer(machine, now_s, self._wait_for_captures_s)
        if answer == "program":
            return None
        if answer == "unknown" and {"unread", "frozen"} <= set(kinds):
            answer = "agrees"
        tiers: dict[str, Tier] = {"agrees": "evict", "waits": "watch", "another": "page", "unknown": "page"}
        evidence = (*suspect.evidence, *(item for item in self._looks.evidence if item.machine == machine))
        against = (*suspect.against, *(item for item in self._looks.evidence if item.machine != machine))
        return replace(suspect, tier=tiers[answer], evidence=evidence, against=against)

    @property
    def _patience_s(self) -> float:
        """After so long a person is paged, whether or not a machine can be named."""
        return max(self._page_after_s, PASSES_S) if self._looks.passes else self._page_after_s

    def _several_at_once(
        self, held: Sequence[FlowFinding], findings: Sequence[FlowFinding], observation: Observation, since_s: float
    ) -> tuple[Suspect, ...]:
        """None where stacks show that it is the program's doing; it waits for them as one machine does."""
        suspect = self._several(held, findings, observation, since_s)
        if not self._wait_for_captures_s or suspect.tier != "evict":
            return (suspect,)
        answers = {self._looks.answer(item.machine, observation.now_s, self._wait_for_captures_s) for item in held}
        if "program" in answers:
            return ()
        return (replace(suspect, tier="watch") if "waits" in answers else suspect,)

    def _several(self, held: Sequence[FlowFinding], findings: Sequence[FlowFinding], observation: Observation, since_s: float) -> Suspect:
        """Machines whose processes are all held, each by its own sign: the parallel group that they share, else they, for a person."""
        names = [item.machine for item in held]
        cover = shared_group(names, observation.job, self._parallelism)
        confidence = min(confidence for machine, confidence in fuse_findings(findings) if machine in names)
        evidence = [_progress_evidence(self._tracker.steps.step, since_s, observation.now_s - since_s)]
        evidence += [_as_evidence(item, since_s) for item in findings if item.machine in names]
        evidence += self._table(observation, names, since_s)
        if cover is not None:
            evidence.append(Evidence("steps", None, f"{', '.join(names)} share {cover[0]}", since_s=since_s))
        machines = tuple(names) if cover is None else cover[1]
        tier: Tier = "page" if cover is None else "evict"
        against = tuple(_as_evidence(item, since_s) for item in findings if item.machine not in names)
        return Suspect(observation.now_s, self.name, "group", machines, "stall", confidence, since_s, tier, tuple(evidence), against)

    def _from_telemetry(self, observation: Observation) -> list[FlowFinding]:
        """The machine whose training process has not run while its peers' have: from samples, where no launcher reports it."""
        ages = self._ages
        frozen = [machine for machine, age_s in ages.items() if age_s > _FROZEN_S]
        if len(ages) < 3 or len(frozen) * 2 > len(ages):
            return []
        others_s = float(np.median([age_s for machine, age_s in ages.items() if machine not in frozen]))
        message = "its training process has not run for {:.1f} s"
        return [FlowFinding(machine, "frozen", 0.8, message.format(ages[machine]), ages[machine], others_s) for machine in frozen]

    def _remember(self, window: Window, machines: Collection[str]) -> None:
        if "job_alive_age_seconds" in window.metrics:
            values_TM = window.values_TMK[:, :, window.metrics.index("job_alive_age_seconds")]
            newest_M = dict(zip(window.machines, values_TM[-1], strict=True))
            self._ages = {
                name: float(age_s) for name, age_s in newest_M.items() if np.isfinite(age_s) and (not machines or name in machines)
            }

    def _series(self, observation: Observation) -> Series:
        """The connections of the last seconds."""
        return data_flows(flow for flow in self._flows if flow.time_s > observation.now_s - 5.0)

    def _table(self, observation: Observation, machines: Collection[str], since_s: float) -> list[Evidence]:
        """The state of these machines' flows (none: of the job's), with their bytes: evidence only, they weigh in through the findings."""
        return lines_as_evidence(flow_lines(self._series(observation)), machines, since_s)

    def _from_flows(self, observation: Observation, stalled_s: float) -> list[FlowFinding]:
        series = self._series(observation)
        if not series:
            return []
        typical_s = self._tracker.steps.typical_s
        margin_s = max(0.05, 4 * observation.clock_error_s, 0.3 * typical_s if typical_s == typical_s else 0.0)
        # An evaluation that was not declared looks like this for a while, and a rank that waits for its own data loader does for ever.
        weight = 0.75 if stalled_s > _PATIENCE_S and not self._looks.program else 0.5
        silent = [replace(item, weight=weight) for item in find_silent(series, margin_s)]
        broken = find_broken(series)
        self._torn = len(broken) > 1
        return [*find_unread(series), *broken, *find_cut_off(self._attempts, series), *silent]


def _distinct(ranked: Sequence[tuple[str, float]]) -> bool:
    return len(ranked) == 1 or (1 - ranked[0][1]) < 0.5 * (1 - ranked[1][1])


def find_frozen(observation: Observation) -> list[FlowFinding]:
    """Machines whose launcher answers but whose training process's own background thread no longer ticks."""
    ages = _ages(observation)
    frozen = [machine for machine, age_s in ages.items() if age_s > _FROZEN_S]
    if not frozen or len(frozen) * 2 > len(ages):
        return []
    others_s = max((age for machine, age in ages.items() if machine not in frozen), default=0.0)
    return [
        FlowFinding(machine, "frozen", 0.8, f"its training process has not run for {ages[machine]:.1f} s", ages[machine], others_s)
        for machine in frozen
    ]


def _nearly_frozen(observation: Observation) -> set[str]:
    return {machine for machine, age_s in _ages(observation).items() if age_s > 0.5 * _FROZEN_S}


def _ages(observation: Observation) -> dict[str, float]:
    """Seconds since the training process of each machine whose launcher answers ran at all."""
    ages: dict[str, float] = {}
    machines = observation.job.machines if observation.job is not None else tuple(observation.fleet)
    for machine in machines:
        view = observation.fleet.get(machine)
        if view is None or view.launcher_age_s is None or view.launcher_age_s > 2.0:
            continue
        for worker in view.workers:
            if worker.state == "running" and worker.alive_time_s:
                age_s = observation.now_s - view.launcher_age_s - worker.alive_time_s
                ages[machine] = max(ages.get(machine, 0.0), age_s)
    return ages


def _behind(steps: Mapping[str, float]) -> list[FlowFinding]:
    """One machine is steps behind all the others, which agree."""
    if len(steps) < 3:
        return []
    order = sorted(steps, key=lambda machine: steps[machine])
    rest = {steps[machine] for machine in order[1:]}
    if steps[order[0]] <= min(rest) - 2:
        message = f"is at step {steps[order[0]]:.0f}, its peers at {min(rest):.0f}"
        return [FlowFinding(order[0], "behind", 0.6, message, steps[order[0]], min(rest))]
    return []


def _as_evidence(item: FlowFinding, since_s: float) -> Evidence:
    source = "liveness" if item.kind == "frozen" else "steps" if item.kind == "behind" else "flows"
    return Evidence(source, item.machine, item.message, None, None, item.observed, item.expected, since_s)


def _progress_evidence(step: float, since_s: float, stalled_s: float) -> Evidence:
    """step: the last that any rank reported; infinite where none was."""
    message = f"no rank has stepped for {stalled_s:.1f} s"
    return Evidence("steps", None, message, "steps_total", None, step if math.isfinite(step) else None, None, since_s)
