"""What each stage and each rule of the default detector is for: python bench/ablation.py [SOURCE...] [--rules Forerunner] [--json FILE]

SOURCE as in bench/default_detector.py. Every recording goes through the detector once as it is and once for each rule that is left out: a
stage of OPTIONAL, or a number of detector.toml at the value at which it does nothing. Prints, paired over the recordings: how many came
out otherwise without it, the difference in F1 with its 95 % bootstrap interval, in wrong and found ones, and in the mean delay, a miss
counted as 420 s. A rule whose absence moves nothing goes, unless a test of a promise names it. MINDER_BENCH_CACHE keeps recordings.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from default_detector import generated, jobs_of

from minder.diagnose.detectors.default import OPTIONAL, DefaultConfig, DefaultDetector
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.ingest.windows import rows_of
from minder.model.observation import Observation
from minder.offline.evaluation.scoring import Judged, judge_recording, summarise

NEVER = float("inf")
MISSED_S = 420.0


@dataclass(frozen=True)
class Rule:
    """What is left out. numbers: "module.number" of detector.toml; config: of its section [default]."""

    without: tuple[type[Stage], ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    config: Mapping[str, float] = field(default_factory=dict)


RULES: dict[str, Rule] = {
    **{kind.__name__: Rule((kind,)) for kind in OPTIONAL if kind.__name__ != "Convicting"},
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
    "frozen gauges": Rule(numbers={"presence.frozen_s": NEVER}),
    "stuck sensors": Rule(numbers={"presence.proof": 1e-300}),
    "slower exporters": Rule(numbers={"presence.seldom_rows": NEVER}),
    "what echoes is over": Rule(numbers={"phases.echoes_s": -1.0}),
    "more work is no fault": Rule(numbers={"deviants.harms": -NEVER}),
    "less work must be far less": Rule(numbers={"deviants.unfelt": 1.0}),
    "alone in its stage must have changed": Rule(numbers={"deviants.own": 0.0}),
    "an old cause is no witness": Rule(numbers={"coupling.old_s": NEVER}),
    "who is odd for long contests only such": Rule(numbers={"evidence.old_s": NEVER}),
    "machines exchanged": Rule(numbers={"absence.exchange_s": -NEVER}),
    "older silence pages": Rule(numbers={"absence.stands_s": NEVER}),
    "some work on": Rule(numbers={"absence.few_at_work": NEVER}),
    "computes on": Rule(numbers={"absence.as_ever": NEVER}),
    "one far below all": Rule(numbers={"groups.far_below": NEVER, "groups.errs": NEVER}),
    "going first is usual": Rule(numbers={"forerunner.usual": NEVER}),
    "one sample teaches little": Rule(numbers={"reference.one_sample_z": 1e9}),
}


@contextmanager
def left_out(rule: Rule) -> Iterator[None]:
    """The numbers of a rule, for as long as it lasts."""
    kept = []
    for name, value in rule.numbers.items():
        section, number = name.split(".")
        module = importlib.import_module(f"minder.diagnose.detectors.{section}")
        kept.append((module, module._N))
        module._N = replace(module._N, **{number: value})  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module, numbers in reversed(kept):
            module._N = numbers  # type: ignore[attr-defined]


def judge(made: Any, rule: Rule) -> Judged:
    window, stages, truth, _ = made
    with left_out(rule):
        watching = Judge([TelemetryRule(DefaultDetector(stages, DefaultConfig(**rule.config), rule.without))])
        said = [verdict for row in rows_of(window) for verdict in watching.judge(Observation(float(row.times_T[0]), row))[0]]
    return judge_recording(truth, said)


def ablate(job: tuple[str, int], rules: Sequence[str] = ()) -> dict[str, Judged]:
    """Rule to what came of the recording without it; "" with all."""
    made = generated(*job)
    return {"": judge(made, Rule())} | {name: judge(made, RULES[name]) for name in rules or RULES}


def _ablate(job: tuple[tuple[str, int], tuple[str, ...]]) -> dict[str, Judged]:
    return ablate(*job)


def report(found: Sequence[Mapping[str, Judged]]) -> list[dict[str, Any]]:
    """One row a rule, the one that matters most first."""
    rows = []
    for name in [name for name in found[0] if name]:
        plain, without = [item[""] for item in found], [item[name] for item in found]
        changed = sum((a.outcome, a.delay_s) != (b.outcome, b.delay_s) for a, b in zip(plain, without, strict=True))
        rng, gains = np.random.default_rng(0), []
        for _ in range(400 if changed else 0):
            drawn = rng.integers(len(plain), size=len(plain))
            gains.append(summarise([without[i] for i in drawn]).f1 - summarise([plain[i] for i in drawn]).f1)
        low, high = np.nanpercentile(gains, [2.5, 97.5]) if gains else (0.0, 0.0)
        a, b = summarise(plain), summarise(without)
        late_s = [_delay_s(y) - _delay_s(x) for x, y in zip(plain, without, strict=True) if x.fault is not None]
        rows.append(
            {"rule": name, "changed": changed, "f1": b.f1 - a.f1, "low": float(low), "high": float(high), "wrong": b.wrong - a.wrong,
             "found": b.found - a.found, "delay_s": float(np.mean(late_s)) if late_s else 0.0}
        )  # fmt: skip
    return sorted(rows, key=lambda row: (row["f1"], -row["changed"]))


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
    print(f"{'rule':<44} {'changed':>7} {'F1':>7} {'95 %':>17} {'wrong':>6} {'found':>6} {'delay':>7}")
    for row in rows:
        span = f"{row['low']:+.3f} to {row['high']:+.3f}"
        counts = f"{row['changed']:>7} {row['f1']:>+7.3f} {span:>17} {row['wrong']:>+6} {row['found']:>+6} {row['delay_s']:>+7.1f}"
        print(f"{row['rule']:<44} {counts}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
