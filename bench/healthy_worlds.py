"""How often the default detector accuses in jobs without a fault, family by family of worlds: python bench/healthy_worlds.py [--hours 2000]

Worlds are drawn without their faults (`minder/simulate/worlds`), with all their nuisances and job-wide causes, the families in turn, each
until it has its share of the hours; by default those that the detector's rules were not made on. After every 25 seeds, for each family and
all: accusations (pages and evictions) a job-day and in 10,000 machine-days with exact 95 % bounds; at the end also how often each nuisance
and cause came, and which worlds had an accusation. A count holds for one version of the detector.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from minder.diagnose.detectors.default import DefaultDetector
from minder.offline.evaluation.intervals import poisson_lower, poisson_upper
from minder.offline.evaluation.scoring import accusations
from minder.offline.worlds.trace import judge_said, trace_detector
from minder.offline.worlds.window import peer_groups, window_of
from minder.simulate.worlds.catalogue import TUNED_ON, family_names, load_family
from minder.simulate.worlds.world import NO_FAULT

_FEWEST = 8  # machines
_LISTEN_S = 30.0
_SAY_EVERY = 25


@dataclass(slots=True)
class Count:
    """Of one family. seconds and machine_seconds: judged; named: accusations, of which evictions."""

    worlds: int = 0
    seconds: float = 0.0
    machine_seconds: float = 0.0
    named: int = 0
    evictions: int = 0
    most_machines: int = 0
    met: Counter[str] = field(default_factory=Counter)
    false: list[str] = field(default_factory=list)

    def line(self, family: str) -> str:
        days, machine_days = self.seconds / 86_400.0, self.machine_seconds / 86_400.0
        jobs = f"{self.named / days:.2f} ({_bounds(self.named, days)})"
        machines = f"{1e4 * self.named / machine_days:.1f} ({_bounds(self.named, machine_days / 1e4)})"
        return (
            f"| {family} | {self.worlds} | {24.0 * days:.0f} | {machine_days:.0f} | {self.named} ({self.evictions}) | {jobs} | {machines} |"
        )


def _bounds(events: int, exposure: float) -> str:
    return f"{poisson_lower(events, 0.975) / exposure:.2f} to {poisson_upper(events, 0.975) / exposure:.2f}"


def watch(family: str, seed: int, count: Count) -> None:
    """Adds one world; one of fewer than eight machines is passed over."""
    world = load_family(family).draw(seed, fault=NO_FAULT)
    if len(world.machines) < _FEWEST:
        return
    window = window_of(world)
    said = [item for item in trace_detector(DefaultDetector(peer_groups(world)), window) if item.tier != "watch"]
    seconds = float(np.ptp(window.times_T))
    count.worlds, count.seconds = count.worlds + 1, count.seconds + seconds
    count.machine_seconds += seconds * len(world.machines)
    count.most_machines = max(count.most_machines, len(world.machines))
    count.met.update([*world.truth.nuisances, *([world.truth.cause] if world.truth.cause else [])])
    if said:
        listen = np.arange(window.times_T[0], window.times_T[-1] + _LISTEN_S, _LISTEN_S)
        moments = np.unique(np.concatenate([listen, [item.time_s for item in said]]))
        accused = accusations(judge_said(moments.tolist(), said))
        count.named += len(accused)
        count.evictions += sum(item.tier == "evict" for item in accused)
        count.false.append(f"{family}:{seed}")


def play(families: Sequence[str], hours: float, first: int) -> dict[str, Count]:
    """The families in turn, seed by seed, until each has its share of the hours."""
    counts, seed, began_s = {family: Count() for family in families}, first, time.process_time()
    while open_ones := [family for family in families if counts[family].seconds < 3600.0 * hours / len(families)]:
        for family in open_ones:
            watch(family, seed, counts[family])
        seed += 1
        if (seed - first) % _SAY_EVERY == 0:
            print(f"\n{time.process_time() - began_s:.0f} CPU s so far:")
            show({family: count for family, count in counts.items() if count.worlds})
    return counts


def show(counts: Mapping[str, Count]) -> None:
    print("| family | worlds | job-hours | machine-days | accusations (evictions) | a job-day | 10,000 machine-days |")
    print("|---|---|---|---|---|---|---|")
    for family, count in counts.items():
        print(count.line(family))
    every = Count(*(sum(getattr(item, name) for item in counts.values()) for name in Count.__slots__[:5]))
    print(every.line("all"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--families", nargs="+", default=[name for name in family_names() if name not in TUNED_ON])
    parser.add_argument("--hours", type=float, default=100.0, help="of healthy job time, all families together")
    parser.add_argument("--first-seed", type=int, default=300_000)
    arguments = parser.parse_args()
    counts = play(arguments.families, arguments.hours, arguments.first_seed)
    show(counts)
    met = sum((item.met for item in counts.values()), Counter[str]())
    print("met: " + ", ".join(f"{name} {times}" for name, times in met.most_common()))
    print("named in: " + ", ".join(name for item in counts.values() for name in item.false))
    print(f"machines: at most {max(item.most_machines for item in counts.values())}")


if __name__ == "__main__":
    main()
