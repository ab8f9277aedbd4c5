"""What each stage and each rule of the default detector is for: python bench/ablation.py [SOURCE...] [--rules FirstMover] [--json FILE]

SOURCE as in bench/default_detector.py. Every recording goes through the detector once as it is and once for each rule that is left out: a
stage of OPTIONAL, or a number of detector.toml at the value at which it does nothing; not where the rule has nothing to say in it. Prints,
paired over the recordings: in how many the rule spoke, how many came out otherwise without it, how many with other verdicts (another
second, a page that became an eviction), the difference in F1 with its 95 % bootstrap interval, in wrong and found ones, and in the mean
delay, a miss counted as 420 s. A rule whose absence moves nothing goes, unless a test of a promise names it. MINDER_BENCH_CACHE keeps
recordings.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from default_detector import Made, generated, jobs_of

from minder.diagnose.detectors.absence import Absence
from minder.diagnose.detectors.accumulate import Convicting
from minder.diagnose.detectors.baseline_reset import BaselineReset
from minder.diagnose.detectors.clocks import Clocks
from minder.diagnose.detectors.contradiction import Contradiction
from minder.diagnose.detectors.coupling import Coupling
from minder.diagnose.detectors.default import OPTIONAL, DefaultConfig, DefaultDetector
from minder.diagnose.detectors.first_mover import FirstMover
from minder.diagnose.detectors.groups import CauseGroups
from minder.diagnose.detectors.large_clock_offsets import LargeClockOffsets
from minder.diagnose.detectors.onset import Onset
from minder.diagnose.detectors.persistence import Persistence
from minder.diagnose.detectors.recurrence import Recurrence
from minder.diagnose.detectors.restart_grace import RestartGrace
from minder.diagnose.detectors.row import Row
from minder.diagnose.detectors.skew_correction import SkewCorrection
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.standstill import Standstill
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.ingest.windows import rows_of
from minder.model.observation import Observation
from minder.model.telemetry import Window
from minder.offline.evaluation.scoring import Judged, judge_recording, summarise

NEVER = float("inf")
MISSED_S = 420.0


Speaks = Callable[[Mapping[type[Stage], Any], Row], bool]


def _silent(_: Any, row: Row) -> bool:
    return bool(row.status.silent_M.any())


def _apart(at: Any, _: Row) -> bool:
    return bool(at[CauseGroups].state.grouped_s_M.any())


def _first(at: Any, row: Row) -> bool:
    return bool(row.phase.stalled and at[FirstMover].state.strength_M.any())


# In which rows a stage may say anything; where a stage is not listed, in all.
SPEAKS: dict[type[Stage], Speaks] = {
    BaselineReset: lambda _, row: row.phase.picks_up,
    LargeClockOffsets: lambda _, row: bool(row.far_off),
    Clocks: lambda at, _: bool(at[Clocks].state.off_M.any()),
    Standstill: lambda _, row: row.standstill_KM is not None and bool(row.standstill_KM.any()),
    Contradiction: lambda at, _: bool(at[Contradiction].state.contradicted),
    Onset: lambda _, row: row.afterwards_X is not None and bool(row.afterwards_X.any()),
    Absence: _silent,
    FirstMover: _first,
    CauseGroups: _apart,
    Recurrence: lambda _, row: len(row.recurring_x) > 0,
    Coupling: lambda at, row: bool(row.strength.held_M.any() or at[Coupling].state.passed_M.any()),
    RestartGrace: lambda at, _: bool(at[RestartGrace].state.waits_M.any() or at[RestartGrace].state.rests_on_M.any()),
    SkewCorrection: lambda at, row: bool(at[SkewCorrection].state.late_by_M.any() or (row.skewed_M is not None and row.skewed_M.any())),
    Persistence: lambda at, _: bool((at[Persistence].state.persistence_s_M >= at[Persistence].config.lasting_s).any()),
}


@dataclass(frozen=True)
class Rule:
    """What is left out. numbers: "module.number" of detector.toml; config: of its section [default]; speaks: in which rows it may say
    anything, None: in all."""

    without: tuple[type[Stage], ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    config: Mapping[str, float] = field(default_factory=dict)
    speaks: Speaks | None = None


RULES: dict[str, Rule] = {
    **{kind.__name__: Rule((kind,), speaks=SPEAKS.get(kind)) for kind in OPTIONAL if kind is not Convicting},
    "who stayed counts less": Rule(config={"stayed": 1.0}),
    "who came back counts less": Rule(config={"came_back": 1.0}),
    "first before all moved is mostly forgotten": Rule(config={"kept": 1.0}),
    "eager while slowed": Rule(config={"eager_z": 0.0}),
    "weighs more while slowed": Rule(config={"effect_boost": 1.0}),
    "two rows convict at slow scrapes": Rule(config={"sure_at_once": 0.4}),
    "one family alone needs samples": Rule(config={"lone_samples": 0.0}),
    "links need 25 s": Rule(config={"links_least_s": 10.0}),
    "one metric needs 25 s": Rule(config={"lone_least_s": 10.0}),
    "hit together": Rule(config={"group_pace": 0.0}),
    "far off is learned at last": Rule(config={"relearn_s": NEVER}),
    "frozen gauges": Rule(numbers={"presence.frozen_s": NEVER}, speaks=lambda _, row: bool(row.status.frozen_M.any())),
    "stuck sensors": Rule(numbers={"presence.proof": 1e-300}, speaks=lambda _, row: row.status.usable_KM is not None),
    "slower exporters": Rule(
        numbers={"presence.seldom_rows": NEVER},
        speaks=lambda _, row: bool((row.strength.since_update_s_M == row.strength.since_update_s_M).any()),
    ),
    "what echoes is over": Rule(numbers={"phases.echoes_s": -1.0}, speaks=lambda _, row: row.phase.over),
    "more work is no fault": Rule(numbers={"outliers.harms": -NEVER}),
    "less work must be far less": Rule(numbers={"outliers.unfelt": 1.0}),
    "alone in its stage must have changed": Rule(numbers={"outliers.own": 0.0}),
    "an old cause is no witness": Rule(numbers={"coupling.old_s": NEVER}, speaks=lambda at, _: bool(at[Coupling].state.witness_s_M.any())),
    "who is odd for long contests only such": Rule(numbers={"evidence.old_s": NEVER}),
    "machines exchanged": Rule(numbers={"absence.exchange_s": -NEVER}, speaks=_silent),
    "older silence pages": Rule(numbers={"absence.stands_s": NEVER}, speaks=_silent),
    "some work on": Rule(numbers={"absence.few_at_work": NEVER}, speaks=_silent),
    "computes on": Rule(numbers={"absence.as_ever": NEVER}, speaks=_silent),
    "one far below all": Rule(numbers={"groups.far_below": NEVER, "groups.errs": NEVER}, speaks=_apart),
    "going first is usual": Rule(numbers={"first_mover.usual": NEVER}, speaks=_first),
    "one sample teaches little": Rule(numbers={"baseline.one_sample_z": 1e9}),
}


@contextmanager
def left_out(rule: Rule) -> Iterator[None]:
    """The numbers of a rule, for as long as it lasts: in the records themselves, which all modules share."""
    kept = []
    for name, value in rule.numbers.items():
        section, number = name.split(".")
        record = importlib.import_module(f"minder.diagnose.detectors.{section}")._N
        kept.append((record, number, getattr(record, number)))
        object.__setattr__(record, number, value)
    try:
        yield
    finally:
        for record, number, value in reversed(kept):
            object.__setattr__(record, number, value)


class Watched(DefaultDetector):
    """Notes which rules may have said anything."""

    def __init__(self, stages: Mapping[str, object]) -> None:
        super().__init__(stages)
        self.at, self.spoke = {type(step): step for step in self._all}, {name for name, rule in RULES.items() if rule.speaks is None}

    def _score_row(self, window: Window, t: int, raw_KM: np.ndarray) -> Row:
        row = super()._score_row(window, t, raw_KM)
        self.spoke |= {name for name, rule in RULES.items() if name not in self.spoke and rule.speaks and rule.speaks(self.at, row)}
        return row


@dataclass(frozen=True)
class Came:
    """What came of a recording. said: (seconds, machines, tier) of each verdict but a watch."""

    judged: Judged
    said: tuple[tuple[float, tuple[str, ...], str], ...]


def judge(made: Made, detector: DefaultDetector) -> Came:
    watching = Judge([TelemetryRule(detector)])
    said = [verdict for row in rows_of(made.window) for verdict in watching.judge(Observation(float(row.times_T[0]), row))[0]]
    return Came(judge_recording(made.truth, said), tuple((v.time_s, v.machines, v.tier) for v in said if v.tier != "watch"))


def ablate(job: tuple[str, int], rules: Sequence[str] = ()) -> dict[str, Came | None]:
    """Rule to what came of the recording without it, None where it had nothing to say; "" with all."""
    made = generated(*job)
    watched = Watched(made.stages)
    found: dict[str, Came | None] = {"": judge(made, watched)}
    for name in rules or RULES:
        rule = RULES[name]
        with left_out(rule):
            found[name] = (
                judge(made, DefaultDetector(made.stages, DefaultConfig(**rule.config), rule.without)) if name in watched.spoke else None
            )
    return found


def _ablate(job: tuple[tuple[str, int], tuple[str, ...]]) -> dict[str, Came | None]:
    return ablate(*job)


def report(found: Sequence[Mapping[str, Came | None]]) -> list[dict[str, Any]]:
    """One row a rule, the one that matters most first."""
    rows = []
    for name in [name for name in found[0] if name]:
        pairs = [(item[""], item[name] or item[""]) for item in found]
        plain, without = [a.judged for a, _ in pairs if a], [b.judged for _, b in pairs if b]
        changed = sum((a.outcome, a.delay_s) != (b.outcome, b.delay_s) for a, b in zip(plain, without, strict=True))
        rng, gains = np.random.default_rng(0), []
        for _ in range(400 if changed else 0):
            drawn = rng.integers(len(plain), size=len(plain))
            gains.append(_f1([without[i] for i in drawn]) - _f1([plain[i] for i in drawn]))
        low, high = np.percentile(gains, [2.5, 97.5]) if gains else (0.0, 0.0)
        a, b = summarise(plain), summarise(without)
        late_s = [_delay_s(y) - _delay_s(x) for x, y in zip(plain, without, strict=True) if x.fault is not None]
        rows.append(
            {"rule": name, "spoke": sum(item[name] is not None for item in found), "changed": changed,
             "said": sum(a is not None and b is not None and a.said != b.said for a, b in pairs), "f1": _f1(without) - _f1(plain),
             "low": float(low), "high": float(high), "wrong": b.wrong - a.wrong, "found": b.found - a.found,
             "delay_s": float(np.mean(late_s)) if late_s else 0.0}
        )  # fmt: skip
    return sorted(rows, key=lambda row: (row["f1"], -row["changed"]))


def _f1(judged: Sequence[Judged]) -> float:
    """0 where there was something to find, or to accuse, and nothing is found; 1 where there was nothing and none is accused."""
    counted = summarise(judged)
    if counted.found:
        return counted.f1
    return 0.0 if counted.wrong or counted.missed else 1.0


def _delay_s(judged: Judged) -> float:
    return judged.delay_s if judged.outcome == "found" and judged.delay_s is not None else MISSED_S


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("source", nargs="*", default=["plain:90-99", "hard:640-659", "foreign:1-39/2", "barriers:120-139", "queue:0-27"])
    parser.add_argument("--rules", nargs="*", default=[], choices=[[], *RULES])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    jobs = [(job, tuple(arguments.rules)) for source in arguments.source for job in jobs_of(source)[1]]
    with ProcessPoolExecutor(arguments.workers) as pool:
        rows = report(list(pool.map(_ablate, jobs, chunksize=1)))
    print(f"{len(jobs)} recordings; the difference that leaving a rule out makes")
    print(f"{'rule':<44} {'spoke':>6} {'changed':>7} {'said':>5} {'F1':>7} {'95 %':>17} {'wrong':>6} {'found':>6} {'delay':>7}")
    for row in rows:
        span = f"{row['low']:+.3f} to {row['high']:+.3f}"
        counts = f"{row['spoke']:>6} {row['changed']:>7} {row['said']:>5} {row['f1']:>+7.3f} {span:>17}"
        print(f"{row['rule']:<44} {counts} {row['wrong']:>+6} {row['found']:>+6} {row['delay_s']:>+7.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
