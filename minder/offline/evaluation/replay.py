"""A recording through the online pipeline: the same rules and the same judge as live, in time order, never looking ahead.

Each grid row is one observation; what the events say is known at the row after them. Cut the recording at a verdict's time and the
same verdict stands. A capture of the job's processes is an observation by itself, at its own time. A recording that our own controller
made has more to tell: see `sighted`.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from minder.diagnose.detectors.contract import Detector
from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.captures import CapturesRule
from minder.diagnose.verdicts.hang import StandingRule
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.numeric import SpikeRule
from minder.diagnose.verdicts.signals import RasRule, ReportRule, SignalRule
from minder.diagnose.verdicts.stall import StallRule
from minder.diagnose.verdicts.telemetry import PhasedRule, TelemetryRule
from minder.edge.signals.xid import load_xid_rules
from minder.ingest.sources.spoken import with_spoken
from minder.ingest.windows import align_columns, cut_rows, keep_machines, rows_of
from minder.model.evidence import Signal, Verdict
from minder.model.observation import JobView, Observation, Rule
from minder.model.telemetry import Window
from minder.model.topology import Topology
from minder.offline.evaluation.ahead import score_ahead
from minder.offline.evaluation.captures import CaptureReader
from minder.offline.evaluation.failures import FailedRules
from minder.offline.evaluation.judged import not_judged
from minder.offline.evaluation.lines import Episodes
from minder.offline.evaluation.sighted import replay_sightings

if TYPE_CHECKING:
    from minder.ingest.sources.recording import Recording

__all__ = ["MakeDetector", "align_whole", "build_judge", "peers_of", "replay", "replay_recording"]

_log = logging.getLogger(__name__)

Item = TypeVar("Item")
MakeDetector = Callable[[Mapping[str, object]], Detector]  # from each machine's pipeline stage(s)


def replay(path: str | Path, until_s: float | None = None, make: MakeDetector = DefaultDetector) -> Iterator[Verdict]:
    """Verdicts of one recording folder, in time order. until_s: only what was known then (inclusive). What could not be judged is logged.

    Raises RecordingError if the recording cannot be read.
    """
    from minder.ingest.sources.recording import read_recording

    recording = read_recording(path)
    if until_s is not None:
        recording = recording.until(until_s)
    for why in not_judged(recording):
        _log.warning("%s: %s", recording.name, why)
    return replay_recording(recording, until_s, make)


def build_judge(
    topology: Topology,
    tracker: JobTracker,
    make: MakeDetector = DefaultDetector,
    captured: bool = False,
    roles: Mapping[str, str] | None = None,
) -> Judge:
    """The rules that need nothing but a recording: telemetry, explicit signals, spikes, stalls. A phase that the job declares
    quiets telemetry and captures. tracker: shared, and updated before every observation. captured: there are captures of the processes.
    roles: by machine; only machines of one role and stage are peers.

    A recording has no connections to ask for, and its pauses may be undeclared: that the job stands, and no machine stands out, is found
    late, by StandingRule.
    """
    stages = peers_of(topology, roles or {})
    rules: list[Rule] = [
        PhasedRule(TelemetryRule(make(stages)), tracker),
        SignalRule(load_xid_rules(), tracker),
        SpikeRule(generations=False),
    ]
    rules += [ReportRule(), RasRule(tracker), StandingRule(tracker), StallRule(tracker, page_after_s=math.inf, wait_for_flows_s=0.0)]
    if captured:
        rules.append(PhasedRule(CapturesRule(tracker), tracker))
    return Judge(rules)


def peers_of(topology: Topology, roles: Mapping[str, str]) -> dict[str, object]:
    """Machine to what it has in common with its peers: its stage(s), and its role where the job has roles."""
    stages: dict[str, object] = {machine: topology.stages_of(machine) for machine in topology.machines}
    return {machine: (roles.get(machine), stage) for machine, stage in stages.items()} if roles else stages


def replay_recording(recording: Recording, until_s: float | None = None, make: MakeDetector = DefaultDetector) -> Iterator[Verdict]:
    """`replay` of a recording in memory. One line per episode: a page that grows into an evict is not shown again.

    Where our own controller recorded what it saw at every tick, the rules of a live job see it again.
    """
    if recording.sightings:
        stages = peers_of(recording.topology, recording.job.roles)
        yield from replay_sightings(recording, align_whole(recording), make(stages))
        return
    recording = with_spoken(recording)  # our own controller wrote what telemetry said among its events
    tracker = JobTracker()
    captures = CaptureReader(recording)
    whole = align_whole(recording)

    def make_ahead(stages: Mapping[str, object]) -> Detector:
        return score_ahead(make(stages), _stretches(recording, whole, until_s))

    judge = build_judge(recording.topology, tracker, make_ahead, bool(captures), recording.job.roles)
    members = _Members(recording.machines, recording.job.standbys)
    episodes, failed = Episodes(), FailedRules()
    for row, signals, now_s in _ticks(recording, whole, until_s, captures.times_s):
        members.follow(signals)
        window = None if row is None else keep_machines(row, members.machines)
        job = members.view(recording)
        statements = captures.until(now_s, job.rank_machine)
        observation = Observation(now_s=now_s, window=window, signals=signals, job=job, statements=statements)
        verdicts, _ = judge.judge(tracker.update(observation))
        failed.note(judge.failures)
        yield from filter(episodes.is_news, verdicts)
    failed.check()


def _stretches(recording: Recording, whole: Window, until_s: float | None) -> Iterator[Window]:
    """The rows that the judge is going to see, in one window as long as the job's machines stay the same."""
    members, first, count, machines = _Members(recording.machines, recording.job.standbys), 0, 0, recording.machines
    for row, signals, _ in _ticks(recording, whole, until_s):
        members.follow(signals)
        if row is None:
            continue
        if members.machines != machines:
            yield keep_machines(cut_rows(whole, first, count), machines)
            first, machines = count, members.machines
        count += 1
    yield keep_machines(cut_rows(whole, first, count), machines)


@dataclass(slots=True)
class _Members:
    """Who belongs to the job, as its membership events tell."""

    machines: tuple[str, ...]
    standbys: tuple[str, ...]

    def follow(self, signals: Sequence[Signal]) -> None:
        for signal in signals:
            if signal.kind != "membership":
                continue
            left = _names(signal.data, "left")
            joined = [name for name in _names(signal.data, "joined") if name not in self.machines]
            self.machines = (*(name for name in self.machines if name not in left), *joined)
            self.standbys = tuple(name for name in self.standbys if name not in joined)

    def view(self, recording: Recording) -> JobView:
        return JobView(
            name=recording.job.name,
            generation=0,
            phase="running",
            machines=self.machines,
            standbys=self.standbys,
            barred=(),
            rank_machine=recording.topology.rank_machine,
            quiet_until_s=-math.inf,
            generation_start_s=-math.inf,
        )


def _names(data: Mapping[str, object], key: str) -> list[str]:
    found = data.get(key)
    return [str(name) for name in found] if isinstance(found, (list, tuple)) else []


def _ticks(
    recording: Recording, whole: Window, until_s: float | None, captured_s: Sequence[float] = ()
) -> Iterator[tuple[Window | None, tuple[Signal, ...], float]]:
    """(row, signals since the last one, now) in time order; captures, and signals after the last row, come as ticks of their own."""
    signals, moments = _Queue(recording.signals, [signal.time_s for signal in recording.signals]), _Queue(captured_s, captured_s)
    for row in rows_of(whole):
        now_s = float(row.times_T[0])
        for moment_s in moments.take(now_s - 1e-6):
            yield None, signals.take(moment_s), moment_s
        if until_s is not None and now_s > until_s + 1e-6:
            return
        moments.take(now_s)
        yield row, signals.take(now_s), now_s
    rest: list[tuple[float, tuple[Signal, ...]]] = [(signal.time_s, (signal,)) for signal in signals.take(math.inf)]
    rest += [(moment_s, ()) for moment_s in moments.take(math.inf)]
    for time_s, new in sorted(rest, key=lambda item: item[0]):
        if until_s is None or time_s <= until_s + 1e-3:
            yield None, new, time_s


class _Queue(Generic[Item]):
    """Items in time order, each handed out once."""

    def __init__(self, items: Sequence[Item], times_s: Sequence[float]) -> None:
        self._items, self._times_s, self._next = items, times_s, 0

    def take(self, now_s: float) -> tuple[Item, ...]:
        """All up to now_s that were not taken."""
        begin, self._next = self._next, max(self._next, bisect_right(self._times_s, now_s))
        return tuple(self._items[begin : self._next])


def align_whole(recording: Recording) -> Window:
    """All rows, the last one included that ends the newest sample's interval: a machine's samples lie between the rows."""
    frames, step_s = recording.frames, recording.interval_s
    if not len(frames.times_N):
        return align_columns(frames, step_s)
    end_s = math.ceil(float(frames.times_N.max()) / step_s - 1e-6) * step_s
    return align_columns(frames, step_s, end_s=end_s)
