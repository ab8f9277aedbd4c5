"""ETTR of the same job by two simulators: `minder plan ettr`'s and AIReSim (MIT licence, karthikp-ubc/airesim on GitHub, needs simpy).

    python bench/airesim.py [--airesim CLONE] [--python PYTHON-WITH-SIMPY] [--gpus 9600] [--days 90] [--repeats 20] [--seed 0]

AIReSim knows one sort of failure, of one server, with one time to recover. So each case gives both the same failure rate, standbys and
time until a used standby is replaced, and AIReSim the mean time that a failure costs in ours, without what it does not have: manual
restarts, the policy's limits and the cost of checkpoints. Agreement says that arrivals, overlaps and pools are counted alike; of the
times themselves it says nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from minder.act.policy.config import PolicyConfig
from minder.offline.reliability.mix import IncidentRate, Published, load_published
from minder.offline.reliability.months import Mechanisms, Month, Scale, draw_faults, simulate
from minder.offline.reliability.plan import make_scale
from minder.offline.reliability.saving import best_save_every
from minder.offline.reliability.times import with_site_times

_UNBOUND = PolicyConfig(max_evictions_per_job=10**6, max_evictions_per_hour=10**6, max_machines_per_hour=10**6, breaker_share=1.0)
_THEIRS = """
import json, statistics, sys
sys.path.insert(0, sys.argv[1])
from airesim.params import Params
from airesim.simulator import Simulator
asked = json.loads(sys.argv[2])
params = Params(**asked["params"])
shares = []
for seed in range(asked["seed"], asked["seed"] + asked["repeats"]):
    found = Simulator(params, seed=seed).run()
    shares.append(found.total_compute_time / found.total_training_time)
print(json.dumps(shares))
"""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    symptoms: tuple[str, ...]
    mechanisms: Mechanisms
    pool: int
    rate: float = 1.0  # times the published one


def main() -> int:
    arguments = _parse()
    if arguments.airesim is None:
        print("bench/airesim.py: AIReSim is not measured: give a clone of github.com/karthikp-ubc/airesim with --airesim, and simpy")
        return 0
    published = load_published()
    scale = make_scale(published, arguments.gpus, 8, arguments.days, "byterobust")
    every = best_save_every(published, scale.rate, scale.machines)  # what a failure costs rests on it; the saves themselves are left out
    published = replace(published, times=with_site_times(published.times, ["save_share=0", f"save_every={every}"]))
    whole = tuple(item.name for item in published.symptoms if item.category != "manual")
    cases = (
        Case("one machine, by evidence", ("InfiniBand error",), Mechanisms(), scale.pool),
        Case("the same, ten times as often", ("InfiniBand error",), Mechanisms(), scale.pool, 10.0),
        Case("the same, without standbys", ("InfiniBand error",), Mechanisms().without("standbys", "shrink"), 0),
        Case("the published mix", whole, Mechanisms(), scale.pool),
        Case("the published mix, ten times as often", whole, Mechanisms(), scale.pool, 10.0),
    )
    print("| case | failures | a failure costs, s | minder | AIReSim | difference, points |\n|---|---|---|---|---|---|")
    for case in cases:
        print(_row(case, published, scale, arguments), flush=True)
    return 0


def _row(case: Case, published: Published, scale: Scale, arguments: argparse.Namespace) -> str:
    rate = IncidentRate(scale.rate.per_machine_day * case.rate, 0.0, "bench/airesim.py")
    scale = replace(scale, pool=case.pool, rate=rate)
    chosen = replace(
        published, symptoms=tuple(item for item in published.symptoms if item.name in case.symptoms or item.category == "manual")
    )
    months = []
    for repeat in range(arguments.repeats):
        faults = draw_faults(scale, chosen, np.random.default_rng([arguments.seed, repeat]))
        months.append(simulate(scale, case.mechanisms, faults, chosen, _UNBOUND))
    cost_s = _cost_s(months)
    theirs = _airesim(scale, cost_s, published, arguments)
    ours = float(np.mean([month.ettr for month in months]))
    failures = float(np.mean([month.incidents for month in months]))
    mean = float(np.mean(theirs))
    return f"| {case.name} | {failures:.0f} | {cost_s:.0f} | {ours:.4f} | {mean:.4f} | {100 * (ours - mean):+.2f} |"


def _cost_s(months: Sequence[Month]) -> float:
    """Mean seconds of one failure."""
    return sum(sum(month.lost.values()) for month in months) / max(1, sum(month.incidents for month in months))


def _airesim(scale: Scale, cost_s: float, published: Published, arguments: argparse.Namespace) -> list[float]:
    """Share of the time in which the job computed, of each repeat."""
    spare = scale.machines // 4
    params = {
        "random_failure_rate": scale.rate.per_machine_day / 1440.0,
        "systematic_failure_fraction": 0.0,
        "recovery_time": cost_s / 60.0,
        "host_selection_time": 0.0,
        "job_size": scale.machines,
        "job_length": scale.days * 1440.0,
        "warm_standbys": scale.pool,
        "working_pool_size": scale.machines + scale.pool + spare,
        "spare_pool_size": 0,
        "auto_repair_time": published.assumed["refill_s"] / 60.0,
        "prob_auto_to_manual": 0.0,
        "auto_repair_fail_prob": 0.0,
    }
    asked = json.dumps({"params": params, "repeats": arguments.repeats, "seed": arguments.seed})
    command = [arguments.python, "-c", _THEIRS, str(arguments.airesim), asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode:
        sys.exit(f"bench/airesim.py: AIReSim did not run: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    return [float(share) for share in json.loads(done.stdout.strip().splitlines()[-1])]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--airesim", type=Path, help="a clone of AIReSim; without one nothing is compared")
    parser.add_argument("--python", default=sys.executable, help="a Python that has simpy")
    parser.add_argument("--gpus", type=int, default=9600)
    parser.add_argument("--days", type=float, default=90.0)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
