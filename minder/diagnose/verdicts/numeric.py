"""Numbers of the training that go wrong: a gradient or a loss that is not finite, or a spike of it.

Of one machine's own numbers: it may compute wrongly. Of all machines': the data or the code.

**Not finite** (`NumericRule`). A NaN in one machine's own gradient is found before the all-reduce spreads it: hardware that computes
wrongly, or that rank's data. Without a guard on the gradient, a loss of one rank alone that is not finite says the same, where other ranks
report theirs too. One look cannot tell the two apart, so the suspicion carries its rank and step: the policy exchanges the machine on
trial, and remembers whether the NaN follows the rank. Every machine at once is the data or the code (ByteRobust, arXiv 2509.16293): one
failure of sort "batch", by which the policy knows the same batch again; and where training goes on with it, the same again with tier evict,
which asks that the job goes back, and names no machine. Of losses alone even that is not sure, since a mean over all ranks
is not finite on all: the evidence says what would show it.

**Spikes** (`SpikeRule`). One machine's own gradient spikes while the others' show none; a spike of all of them, or of the job's loss or
gradient norm, is the data or the code. The trigger of five times is ByteRobust's, g squared over 5,000 v is SPAM's (arXiv 2501.06842), and
what one rank against all ranks points at is ours. One spike is no proof, since a batch that is odd on one rank looks like it: it pages.
What comes of a spike is its echo: a poisoned update makes every later loss and gradient jump, and an odd batch of all may throw some rank's
gradient over the threshold a few steps later.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from minder.edge.signals.spikes import GRADIENT_NORM, LOSS, OWN_GRADIENT, StepSpikes
from minder.model.evidence import SPOILT, Evidence, Failure, Signal, Suspect, Tier
from minder.model.observation import Observation, RuleResult

__all__ = ["NumericRule", "SpikeRule"]

_LASTS_STEPS = 2  # after the first one, before the weights count as spoilt
_LASTING = 0.9
_GRADIENT_SETTLE_S = 0.6
_LOSS_SETTLE_S = 3.0  # agents read losses once a second


_SAID = {
    "gradient": "own gradient not finite at step {step}, before the all-reduce",
    "loss": "loss not finite at step {step}",
}


class _Reported(NamedTuple):
    """When a rank reported, and of which step; None: it did not say."""

    time_s: float
    rank: int | None
    step: int | None


class NumericRule:
    """Reads `nonfinite` signals of the running generation (observation.Rule)."""

    name = "numeric"

    def __init__(self) -> None:
        self._generation = -1
        self._seen: dict[str, _Reported] = {}
        self._reported = False
        self._what = "gradient"
        self._loss_ranks: set[int | None] = set()  # ranks that reported a valid loss
        self._wrong_steps: dict[str, set[int]] = {}  # by machine: steps at which an own gradient of its ranks was not finite
        self._page: Suspect | None = None  # what was said of all ranks' own gradients, while they may be finite again

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        if job is None:
            return RuleResult()
        if job.generation != self._generation:
            self._generation, self._seen, self._reported, self._loss_ranks, self._what = job.generation, {}, False, set(), "gradient"
            self._wrong_steps, self._page = {}, None
        self._loss_ranks |= {item.rank for view in observation.fleet.values() for item in view.workers if item.loss is not None}
        for signal in observation.signals:
            current = signal.generation in (None, job.generation) and signal.time_s >= job.generation_start_s
            if signal.kind == "nonfinite" and signal.machine and current:
                what, step = str(signal.data.get("what") or "gradient"), signal.data.get("step")
                if what == "gradient" and isinstance(step, int):
                    self._wrong_steps.setdefault(signal.machine, set()).add(step)
                if what != self._what:
                    if self._seen and what == "loss":
                        continue  # the gradient is the nearer witness
                    self._what, self._seen = what, {}
                self._note(signal.machine, _Reported(signal.time_s, signal.rank, signal.data.get("step")))
        if self._reported:
            return RuleResult(self._lasting(observation))
        if not self._seen or observation.now_s - min(item.time_s for item in self._seen.values()) < self._settle_s:
            return RuleResult()
        self._reported = True
        found = self._suspect(observation)
        self._page = found if found.kind == "job" and self._what == "gradient" else None
        return RuleResult((found,))

    def _lasting(self, observation: Observation) -> tuple[Suspect, ...]:
        """The job trains on, and no own gradient is finite any more: the weights are spoilt, and every further step is in vain. A scaler
        of half precision has such a step now and then, and leaves it out by itself."""
        assert observation.job is not None
        if self._page is None or (first := self._page.failures[0].step) is None:
            return ()
        later = [{step for step in self._wrong_steps.get(name, ()) if step > first} for name in observation.job.machines]
        if any(len(steps) < _LASTS_STEPS for steps in later):
            return ()
        page, self._page = self._page, None
        newest = max(map(max, later))
        message = f"the job trains on with it: no own gradient is finite up to step {newest}, so its weights are spoilt since step {first}"
        evidence = (*page.evidence, Evidence(SPOILT, None, message))
        return (replace(page, time_s=observation.now_s, tier="evict", confidence=_LASTING, evidence=evidence),)

    @property
    def _settle_s(self) -> float:
        return _LOSS_SETTLE_S if self._what == "loss" else _GRADIENT_SETTLE_S

    def _alone(self) -> bool:
        """Whether no other rank reports a loss: of rank 0, which logs for all, a NaN names no machine."""
        return self._what == "loss" and not self._loss_ranks - {item.rank for item in self._seen.values()}

    def _note(self, machine: str, report: _Reported) -> None:
        """Of one generation only the earliest step counts: a step later the all-reduce has spread the NaN to everybody."""
        steps = [item.step for item in self._seen.values() if item.step is not None]
        first, step = min(steps, default=None), report.step
        if first is not None and step is not None and step != first:
            if step > first:
                return
            self._seen = {}
        self._seen.setdefault(machine, report)

    def _which(self, machines: int, of: int) -> Evidence:
        """One rank's hardware, or what all ranks share."""
        if self._what == "gradient":
            return Evidence("job", None, f"own gradients on {machines} of {of} machines at once, before the all-reduce: data or program")
        say = "cannot tell one rank from all: the loss may be the mean over all ranks"
        return Evidence("job", None, f"{say}; install_gradient_guard(model), or heartbeat(own_loss=...), would say which")

    def _suspect(self, observation: Observation) -> Suspect:
        since_s = min(item.time_s for item in self._seen.values())
        evidence = tuple(
            Evidence(self._what, machine, f"rank {rank}: {_SAID[self._what].format(step=step)}", since_s=time_s)
            for machine, (time_s, rank, step) in sorted(self._seen.items())
        )
        machines = tuple(sorted(self._seen))
        assert observation.job is not None
        said = f"own {self._what} not finite"
        failures = tuple(
            Failure(time_s, machine, (rank,), "nonfinite", step=step, generation=observation.job.generation, text=said)
            for machine, (time_s, rank, step) in self._seen.items()
            if rank is not None
        )
        everybody = len(machines) >= len(observation.job.machines)
        if everybody or self._alone() or len(machines) > max(1, len(observation.job.machines) // 2):
            whole = _of_all([(machine, self._seen[machine]) for machine in machines], observation.job.generation, f"{said} in all ranks")
            evidence = (*evidence[:_MOST], self._which(len(machines), len(observation.job.machines)))
            return Suspect(observation.now_s, self.name, "job", (), "numeric", 0.8, since_s, "page", evidence, failures=whole)
        if len(machines) > 1:
            return Suspect(observation.now_s, self.name, "group", machines, "numeric", 0.6, since_s, "page", evidence, failures=failures)
        return Suspect(observation.now_s, self.name, "machine", machines, "numeric", 0.95, since_s, "evict", evidence, failures=failures)


def _of_all(reports: Sequence[tuple[str, _Reported]], generation: int, text: str) -> tuple[Failure, ...]:
    """What the ranks of these machines reported, as one failure."""
    machine, first = min(reports, key=lambda item: item[1].time_s)
    ranks = tuple(sorted(item.rank for _, item in reports if item.rank is not None))
    return (Failure(first.time_s, machine, ranks, "batch", step=first.step, generation=generation, text=text),)


_MOST = 11  # lines of evidence of single ranks
_SPIKE_SETTLE_S = 4.0  # agents that sample every second have reported by then
_REPEATS = 3  # steps at which one machine alone spiked, after which it is no odd batch any more
_ECHO_STEPS = 32  # as long as the usual value takes to be another one
_FRESH_S = 10.0  # an agent that did not answer for so long cannot have reported a spike
_SINGLE, _REPEATED, _WHOLE_JOB = 0.6, 0.85, 0.6
_DATA = "look at the data of that step: roll back, and leave its batches out"
_HARDWARE = "an odd batch of that rank, or hardware that computes wrongly: test the machine when the job stops"


@dataclass(frozen=True, slots=True)
class _Report:
    """heard_s: by us; time_s: by the machine's clock. value: None if not finite."""

    heard_s: float
    time_s: float
    machine: str | None
    rank: int | None
    what: str
    step: int
    value: float | None
    usual: float | None


class SpikeRule:
    """Reads `spike` signals of the running generation, and `step` signals, whose losses it follows itself (observation.Rule).

    interval_s: how often agents sample. generations: whether signals count them as the job's view does; a recording does not say.
    """

    name = "spikes"

    def __init__(self, interval_s: float = 1.0, *, generations: bool = True) -> None:
        self._settle_s = max(_SPIKE_SETTLE_S, 2.0 * interval_s + 1.0)
        self._generations = generations
        self._generation: int | None = None
        self._series: dict[tuple[str | None, int | None], StepSpikes] = {}
        self._reports: list[_Report] = []
        self._alone: dict[str, list[_Report]] = {}
        self._judged: deque[int] = deque(maxlen=64)  # steps: a machine that reports one much later is not the only one
        self._alone_step = self._all_step = -math.inf  # of the newest spike of one machine, of all

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        if job is None:
            return RuleResult()
        if job.generation != self._generation:
            self._start(job.generation)
        for signal in observation.signals:
            if signal.kind == "spike" and self._is_current(signal, observation):
                self._note(signal, observation.now_s)
            elif signal.kind == "step":
                self._follow(signal, observation.now_s)
        ripe = self._take_ripe(observation.now_s)
        return RuleResult((*self._judge_own(ripe, observation), *self._judge_job(ripe, observation)))

    def _take_ripe(self, now_s: float) -> list[_Report]:
        """All of every step that was first heard of long enough ago, in the order of the steps: what an earlier one did is its echo,
        whichever agent was asked first."""
        first_s: dict[int, float] = {}
        for item in self._reports:
            first_s[item.step] = min(first_s.get(item.step, math.inf), item.heard_s)
        ripe = set(itertools.takewhile(lambda step: now_s - first_s[step] >= self._settle_s, sorted(first_s)))
        taken = [item for item in self._reports if item.step in ripe]
        self._reports = [item for item in self._reports if item.step not in ripe]
        return taken

    def _start(self, generation: int) -> None:
        self._generation, self._series, self._reports, self._alone = generation, {}, [], {}
        self._judged.clear()
        self._alone_step = self._all_step = -math.inf

    def _is_current(self, signal: Signal, observation: Observation) -> bool:
        job = observation.job
        assert job is not None
        if signal.machine not in job.machines or signal.time_s < job.generation_start_s:
            return False
        return not self._generations or signal.generation in (None, job.generation)

    def _note(self, signal: Signal, now_s: float) -> None:
        what, step = str(signal.data.get("what", "")), signal.data.get("step")
        if what in (LOSS, GRADIENT_NORM, OWN_GRADIENT) and isinstance(step, int):
            value, usual = (_number(signal.data.get(key)) for key in ("value", "usual"))
            self._reports.append(_Report(now_s, signal.time_s, signal.machine, signal.rank, what, step, value, usual))

    def _follow(self, signal: Signal, now_s: float) -> None:
        step = signal.data.get("step")
        if not isinstance(step, int):
            return
        series = self._series.setdefault((signal.machine, signal.rank), StepSpikes())
        for spike in series.read(step, _number(signal.data.get("loss")), _number(signal.data.get("grad_norm"))):
            self._reports.append(
                _Report(now_s, signal.time_s, None, None, spike.what, spike.step, _finite(spike.value), _finite(spike.usual))
            )

    def _judge_own(self, ripe: Sequence[_Report], observation: Observation) -> Iterator[Suspect]:
        assert observation.job is not None
        own = [item for item in ripe if item.what == OWN_GRADIENT]
        for step in sorted({item.step for item in own}):
            reports = [item for item in own if item.step == step]
            machines = tuple(sorted({item.machine for item in reports if item.machine is not None}))
            late, count = step in self._judged, len(observation.job.machines)
            self._judged.append(step)
            if late or 0 <= step - self._all_step <= _ECHO_STEPS:
                continue
            if len(machines) >= count or len(machines) > max(1, count // 2):
                if not 0 < step - self._alone_step <= _ECHO_STEPS:
                    self._all_step = max(self._all_step, step)
                    yield self._whole_job(reports[:8], observation.now_s, f"{len(machines)} of {count} machines at once; {_DATA}")
            elif not _others_answer(machines, observation):
                yield self._whole_job(reports[:8], observation.now_s, "most other machines' agents do not answer, so no machine is named")
            else:
                yield self._few(machines, reports, observation.now_s)

    def _few(self, machines: tuple[str, ...], reports: Sequence[_Report], now_s: float) -> Suspect:
        self._alone_step = max(self._alone_step, reports[0].step)
        failures = tuple(self._failure(item) for item in reports if item.machine is not None and item.rank is not None)
        if len(machines) > 1:
            evidence = tuple(_evidence(item, f"{len(machines)} machines at this step and the others not; {_HARDWARE}") for item in reports)
            return Suspect(now_s, self.name, "group", machines, "numeric", _SINGLE, _since(reports), "page", evidence, failures=failures)
        known = self._alone.setdefault(machines[0], [])
        known.append(reports[0])
        sure = len(known) >= _REPEATS
        tier: Tier = "evict" if sure else "page"
        why = f"no other machine's did, {len(known)} times now" if len(known) > 1 else f"no other machine's did; {_HARDWARE}"
        evidence = tuple(_evidence(item, why) for item in known[-_REPEATS:])
        confidence = _REPEATED if sure else _SINGLE
        return Suspect(now_s, self.name, "machine", machines, "numeric", confidence, _since(known), tier, evidence, failures=failures)

    def _failure(self, report: _Report) -> Failure:
        assert report.machine is not None and report.rank is not None
        text, generation = "own gradient spikes", self._generation or 0
        return Failure(report.time_s, report.machine, (report.rank,), "spike", step=report.step, generation=generation, text=text)

    def _judge_job(self, ripe: Sequence[_Report], observation: Observation) -> Iterator[Suspect]:
        """Loss and gradient norm: where several machines report theirs, a reduced one is the same on all. One rank's own loss is not
        the job's, and too noisy to page for."""
        found: list[_Report] = []
        for what in (LOSS, GRADIENT_NORM):
            reports = [item for item in ripe if item.what == what]
            with_loss = {name for name, view in observation.fleet.items() if any(worker.loss is not None for worker in view.workers)}
            spiked = {item.machine for item in reports}
            if reports and (None in spiked or 2 * len(spiked) >= len(with_loss)):
                found.append(min(reports, key=lambda item: (item.step, item.rank or 0)))
        found = [item for item in found if not 0 <= item.step - self._alone_step <= _ECHO_STEPS]
        if found:
            self._all_step = max(self._all_step, *(item.step for item in found))
            yield self._whole_job(found, observation.now_s, _DATA)

    def _whole_job(self, reports: Sequence[_Report], now_s: float, why: str) -> Suspect:
        evidence = tuple(_evidence(item, why) for item in reports)
        rows = [(item.machine or "", _Reported(item.time_s, item.rank, item.step)) for item in reports]
        failures = _of_all(rows, self._generation or 0, f"{reports[0].what} spikes in the whole job")
        return Suspect(now_s, self.name, "job", (), "numeric", _WHOLE_JOB, _since(reports), "page", evidence, failures=failures)


def _others_answer(machines: Sequence[str], observation: Observation) -> bool:
    """Whether most other machines would have reported a spike of theirs. A recording without views of the fleet is taken as it is."""
    assert observation.job is not None
    others = [observation.fleet.get(name) for name in observation.job.machines if name not in machines]
    answering = [view for view in others if view is not None and view.agent_age_s is not None and view.agent_age_s <= _FRESH_S]
    return not observation.fleet or 2 * len(answering) > len(others)


def _evidence(report: _Report, why: str) -> Evidence:
    whose = f"rank {report.rank}: own gradient, squared," if report.what == OWN_GRADIENT else f"the job's {report.what}"
    value = "not finite" if report.value is None else f"{report.value:.4g}"
    usual = "" if report.usual is None else f" (usually {report.usual:.4g})"
    machine = report.machine if report.what == OWN_GRADIENT else None
    message = f"{whose} is {value} at step {report.step}{usual}: {why}"
    return Evidence("gradient" if machine else "job", machine, message, observed=report.value, expected=report.usual, since_s=report.time_s)


def _since(reports: Sequence[_Report]) -> float:
    return min(item.time_s for item in reports)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
