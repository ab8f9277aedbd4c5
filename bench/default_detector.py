"""How good the default detector is on labelled telemetry: python bench/default_detector.py [SOURCE...] [--workers 2] [--json FILE]

SOURCE is KIND:FIRST-LAST, seeds of a family of minder/simulate/worlds (KIND is its name: classic, queue, ...) or of one of their kinds of
recording (plain, hard, skewed, barriers_plain; two of three recordings have a fault, of skewed one of three; FIRST-LAST/2 takes every
second seed), or a folder of
recordings with truth.json beside them (`minder simulate`); without any, plain:90-119 and hard:640-699. Each goes through the detector, its
rule and the judge row by row, as live. Prints precision, recall, F1 and median delay with 95 % bootstrap intervals (over recordings), the
same for grey faults and for those of several machines, accusations of machines not at fault with the evictions among them and how many
there are in a day of job time without a fault, the same per fault kind, per nuisance, and every wrong and every missed recording.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest

from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.ingest.sources.events import Truth
from minder.ingest.windows import align_columns, rows_of
from minder.model.evidence import Verdict
from minder.model.observation import Observation, Rule, RuleResult
from minder.model.telemetry import Window
from minder.offline.evaluation.scoring import LIMIT_S, Judged, accusations, judge_recording, summarise
from minder.offline.worlds.window import peer_groups, recorded_truth, window_of
from minder.simulate.worlds.catalogue import load_family

FAULTS = (
    "ecc_error", "cuda_execution_error", "gpu_execution_error", "hdfs_error", "nic_dropout", "gpu_card_drop", "hang",
    "machine_unreachable", "pcie_downgrade", "nvlink_error", "optical_cable", "slow_gpu", "thermal",
)  # fmt: skip
_SNAPSHOT_S = 120.0
# Kinds of recording that are not what `draw` of their family gives, by family.
KINDS = {
    "plain": "classic", "hard": "classic", "foreign": "foreign", "skewed": "foreign", "barriers": "barriers", "barriers_plain": "barriers",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One recording and what was said of it. verdicts: (seconds after the onset, machine, tier, cause, confidence, metrics). false:
    accusations of machines not at fault, evicted: evictions among them, early: those before anything was wrong, in calm_s seconds (NaN
    where the length is not known). grey: a weak or partial fault, None where the family does not say; several: of more than one machine.
    snapshots: every two minutes in which a machine is accused, (confidence, whether it is at fault, for how many seconds it is accused).
    """

    judged: Judged
    culprit: str | None
    machines: int
    nuisances: tuple[str, ...]
    verdicts: tuple[tuple[Any, ...], ...]
    seconds: float
    false: int
    evicted: int
    early: int
    calm_s: float
    grey: bool | None = None
    several: bool = False
    snapshots: tuple[tuple[float, bool, float], ...] = ()


class Made(NamedTuple):
    """A generated recording."""

    window: Window
    stages: dict[str, object]
    truth: Truth
    nuisances: tuple[str, ...]
    grey: bool | None


def columns_of(kind: str, seed: int) -> tuple[Any, tuple[str, ...]]:
    """(samples with their truth, nuisances) of a kind of recording; two of three seeds have a fault, in turn."""
    family: Any = load_family(KINDS[kind])
    if family.NAME == "classic":
        fault = FAULTS[seed // 3 * 2 % len(FAULTS) if seed % 3 == 0 else (seed // 3 * 2 + 1) % len(FAULTS)] if seed % 3 else None
        recipe = getattr(family, kind)(seed, fault)
    else:
        recipe = getattr(family, kind)(seed)
    return family.generate(recipe), recipe.nuisances


def judge_generated(job: tuple[str, int]) -> Case:
    kind, seed = job
    made = generated(kind, seed)
    window, started = made.window, time.process_time()
    rule = Followed(TelemetryRule(DefaultDetector(made.stages)), made.truth)
    judge = Judge([rule])
    found = [verdict for row in rows_of(window) for verdict in judge.judge(Observation(float(row.times_T[0]), row))[0]]
    span_s = (float(window.times_T[0]), float(window.times_T[-1]))
    case = _case(made.truth, found, len(window.machines), made.nuisances, started, span_s)
    return replace(case, grey=made.grey, snapshots=tuple(rule.snapshots))


class Followed:
    """A rule whose suspects are looked at every two minutes."""

    name = "telemetry"

    def __init__(self, rule: Rule, truth: Truth) -> None:
        self._rule, self._truth = rule, truth
        self._next_s = -np.inf
        self._named: tuple[tuple[str, ...], float] = ((), 0.0)  # who is accused, and since when
        self.snapshots: list[tuple[float, bool, float]] = []

    def observe(self, observation: Observation) -> RuleResult:
        result, now_s = self._rule.observe(observation), observation.now_s
        machines = result.suspects[0].machines if result.suspects else ()
        if machines != self._named[0]:
            self._named = (machines, now_s)
        if now_s >= self._next_s:
            self._next_s = now_s + _SNAPSHOT_S
            right = {*self._truth.machines, self._truth.machine} if now_s >= (self._truth.onset_s or np.inf) else set()
            stands_s = now_s - self._named[1]
            self.snapshots += [(item.confidence, not right.isdisjoint(item.machines), stands_s) for item in result.suspects[:1]]
        return result


def generated(kind: str, seed: int) -> Made:
    """One generated recording, from the folder in MINDER_BENCH_CACHE if it was made before."""
    folder = os.environ.get("MINDER_BENCH_CACHE")
    path = Path(folder) / f"{kind}-{seed}.made" if folder else None
    if path is not None and path.exists():
        return Made(*pickle.loads(path.read_bytes()))
    if kind in KINDS:
        columns, nuisances = columns_of(kind, seed)
        truth = Truth(f"{kind}:{seed}", columns.fault, columns.culprit, columns.onset_s, (), None)
        made = Made(align_columns(columns, columns.interval_s), dict(columns.stages), truth, nuisances, None)
    else:
        world = load_family(kind).draw(seed)
        made = Made(window_of(world), peer_groups(world), recorded_truth(world), world.truth.nuisances, world.truth.grey)
    if path is not None:
        path.write_bytes(pickle.dumps(tuple(made)))
    return made


def judge_folder(job: tuple[str, Truth]) -> Case:
    from minder.ingest.sources.recording import read_recording
    from minder.offline.evaluation.replay import replay_recording

    path, truth = job
    started = time.process_time()
    recording = read_recording(path)
    found = list(replay_recording(recording))
    recipe = Path(path) / "recipe.json"
    nuisances = tuple(json.loads(recipe.read_text()).get("nuisances", ())) if recipe.exists() else ()
    return _case(truth, found, len(recording.machines), nuisances, started)


def _case(
    truth: Truth, found: Sequence[Verdict], machines: int, nuisances: tuple[str, ...], started: float,
    span_s: tuple[float, float] = (np.nan, np.nan),
) -> Case:  # fmt: skip
    onset_s = truth.onset_s if truth.onset_s is not None else 0.0
    begun_s, right = np.inf if truth.onset_s is None else truth.onset_s, {*truth.machines, truth.machine}
    named = tuple(
        (round(v.time_s - onset_s, 1), ",".join(v.machines), v.tier, v.cause, round(v.confidence, 3), [e.metric for e in v.evidence[:3]])
        for v in accusations(found)
    )
    false = [v for v in accusations(found) if v.time_s < begun_s or not right.issuperset(v.machines)]
    counts = (len(false), sum(v.tier == "evict" for v in false), sum(v.time_s < begun_s for v in false))
    calm_s = max(min(begun_s, span_s[1]) - span_s[0], 0.0)
    seconds = time.process_time() - started
    several = len(truth.machines) > 1
    return Case(judge_recording(truth, found), truth.machine, machines, tuple(nuisances), named, seconds, *counts, calm_s, several=several)


def jobs_of(source: str) -> tuple[Callable[[Any], Case], list[Any]]:
    kind, _, seeds = source.partition(":")
    if seeds:
        span, _, step = seeds.partition("/")
        first, _, last = span.partition("-")
        return judge_generated, [(kind, seed) for seed in range(int(first), int(last or first) + 1, int(step or 1))]
    from minder.ingest.sources.events import read_truths

    folder = Path(source)
    return judge_folder, [(str(folder / truth.recording), truth) for truth in read_truths(folder / "truth.json")]


def bootstrap(cases: Sequence[Case], rounds: int = 1000) -> dict[str, tuple[float, float]]:
    """95 % intervals over recordings drawn with replacement."""
    rng = np.random.default_rng(0)
    judged = [case.judged for case in cases]
    drawn = [asdict(summarise([judged[i] for i in rng.integers(len(judged), size=len(judged))])) for _ in range(rounds)]
    names = ("precision", "recall", "f1", "median_delay_s")
    return {name: tuple(np.nanpercentile([item[name] for item in drawn], [2.5, 97.5]).tolist()) for name in names}


def report(cases: Sequence[Case]) -> None:
    summary = summarise([case.judged for case in cases])
    print(f"{len(cases)} recordings: found {summary.found}, wrong {summary.wrong}, missed {summary.missed}, quiet {summary.quiet}")
    spans = bootstrap(cases)
    for name in ("precision", "recall", "f1", "median_delay_s"):
        print(f"  {name:<16} {getattr(summary, name):8.3f}   ({spans[name][0]:.3f} to {spans[name][1]:.3f})")
    faulty = [case.judged for case in cases if case.judged.fault is not None]
    delays = [LIMIT_S if item.outcome != "found" or item.delay_s is None else item.delay_s for item in faulty]
    print(f"  mean delay, what is not found as {LIMIT_S:.0f} s: {np.mean(delays) if delays else np.nan:.0f}")
    early, days = sum(case.early for case in cases), sum(case.calm_s for case in cases) / 86_400
    false, evicted = sum(case.false for case in cases), sum(case.evicted for case in cases)
    print(f"  of machines not at fault: {false} accusations, {evicted} of them evictions")
    print(f"  while nothing was wrong: {early} accusations in {days:.2f} days of job time, {early / days if days else np.nan:.1f} a day")
    print(f"  seconds a recording {np.mean([case.seconds for case in cases]):.2f}")
    _shares("grey faults", [case for case in cases if case.grey and case.judged.fault is not None])
    _shares("of several machines", [case for case in cases if case.several])
    _table("fault", cases, lambda case: [case.judged.fault or "none"])
    _table("nuisance", cases, lambda case: case.nuisances or ["none"])
    for outcome in ("wrong", "missed"):
        for case in cases:
            if case.judged.outcome == outcome:
                print(_line(case))


def _shares(title: str, cases: Sequence[Case]) -> None:
    """How many are found, and how many of the names are right, with exact intervals."""
    if cases:
        outcomes = [case.judged.outcome for case in cases]
        found, wrong = outcomes.count("found"), outcomes.count("wrong")
        right = f"{_exact(found, found + wrong)} of {found + wrong} named are right" if found + wrong else "none is named"
        print(
            f"  {title}: {_exact(found, len(cases))} of {len(cases)} are found, {right}, F1 {2 * found / (len(cases) + found + wrong):.2f}"
        )


def _exact(count: int, of: int) -> str:
    span = binomtest(count, of).proportion_ci(method="exact")
    return f"{count / of:.2f} ({span.low:.2f} to {span.high:.2f})"


def _line(case: Case) -> str:
    who = f"{case.judged.outcome:<7} {case.judged.recording:<14} {case.judged.fault or '-':<22} culprit {case.culprit} of {case.machines}"
    return f"{who} {','.join(case.nuisances)} {[list(item) for item in case.verdicts[:2]]}"


def _table(title: str, cases: Sequence[Case], keys: Callable[[Case], Sequence[str]]) -> None:
    print(f"{title:<24} {'n':>4} {'found':>6} {'wrong':>6} {'missed':>6} {'quiet':>6} {'delay':>7}")
    for key in sorted({key for case in cases for key in keys(case)}):
        s = summarise([case.judged for case in cases if key in keys(case)])
        total = s.found + s.wrong + s.missed + s.quiet
        print(f"{key:<24} {total:>4} {s.found:>6} {s.wrong:>6} {s.missed:>6} {s.quiet:>6} {s.median_delay_s:>7.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("source", nargs="*", default=["plain:90-119", "hard:640-699"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--follow", action="store_true", help="print each recording as it is done")
    arguments = parser.parse_args()
    cases: list[Case] = []
    for source in arguments.source:
        work, jobs = jobs_of(source)
        with ProcessPoolExecutor(arguments.workers) as pool:
            found = []
            for case in pool.map(work, jobs, chunksize=1):
                found.append(case)
                if arguments.follow:
                    print(_line(case), flush=True)
        cases += found
        print(f"== {source}")
        report(found)
    if len(arguments.source) > 1:
        print("== all")
        report(cases)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(case) for case in cases]))


if __name__ == "__main__":
    main()
