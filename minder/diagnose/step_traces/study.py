"""The straggler study's figures for one trace (arXiv 2505.05713, sections 3 and 4).

Shape legend: N operations of one pipeline, T steps, D data-parallel ranks, P pipeline stages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from minder.diagnose.step_traces.scenarios import Costs, replay_kept, replay_one_rank_each

__all__ = ["Study", "study"]

_WORST_SHARE = 0.03
_NOTHING = 1e-9  # relative: less than this between real and ideal is nothing to explain


@dataclass(frozen=True, slots=True)
class Study:
    """Step times in seconds, slowdowns as ratios to the ideal.

    by_*: all fixed except that one; worker_PD: the lesser of its stage's and its rank's (the study's shortcut).
    worst_workers_share: M_W, the share of the slowdown that goes if only the worst 3 % of workers are fixed; last_stage_share: M_S.
    """

    recorded_T: np.ndarray
    simulated_T: np.ndarray
    ideal_s: float
    by_dp_rank: dict[int, float]
    by_stage: dict[int, float]
    by_kind: dict[str, float]
    worker_PD: np.ndarray
    worst_workers_share: float
    last_stage_share: float

    @property
    def slowdown(self) -> float:
        return float(self.simulated_T.mean()) / self.ideal_s

    @property
    def replay_error(self) -> float:
        """How much longer the recorded steps are than the replayed ones, as a share of these."""
        return float(self.recorded_T.mean() / self.simulated_T.mean()) - 1.0

    @property
    def waste(self) -> float:
        return 1.0 - 1.0 / self.slowdown

    def share(self, fixed_s: float) -> float:
        """Which part of the slowdown is gone at this mean step time; 0 where there is no slowdown to explain."""
        real_s = float(self.simulated_T.mean())
        return (real_s - fixed_s) / (real_s - self.ideal_s) if abs(real_s - self.ideal_s) > _NOTHING * self.ideal_s else 0.0


def study(costs: Costs) -> Study:
    """Replay all questions of the study: about D + P + 15 replays of the whole trace, vectorised."""
    trace, stage_N = costs.trace, costs.stage_N
    stages, kinds = range(trace.layout.pp_size), sorted(set(costs.kind_N))
    every_N1 = np.ones((len(stage_N), 1), dtype=bool)
    keep = [every_N1, ~every_N1]
    keep += [(stage_N == stage)[:, None] for stage in stages]
    keep += [(costs.kind_N == kind)[:, None] for kind in kinds]
    mean_S = replay_kept(costs, keep)
    simulated_T, ideal_s = mean_S[0], float(mean_S[1].mean())
    ratio_S = mean_S.mean(axis=1) / ideal_s
    stage_P = ratio_S[2 : 2 + len(stages)]
    rank_D = replay_one_rank_each(costs).mean(axis=1) / ideal_s
    found = Study(
        recorded_T=(trace.start_NTD + trace.duration_NTD).max(axis=(0, 2)),
        simulated_T=simulated_T,
        ideal_s=ideal_s,
        by_dp_rank={rank: float(value) for rank, value in enumerate(rank_D)},
        by_stage={stage: float(stage_P[stage]) for stage in stages},
        by_kind={str(kind): float(value) for kind, value in zip(kinds, ratio_S[2 + len(stages) :], strict=True)},
        worker_PD=np.minimum(stage_P[:, None], rank_D[None, :]),
        worst_workers_share=0.0,
        last_stage_share=0.0,
    )
    return _with_shares(costs, found)


def _with_shares(costs: Costs, found: Study) -> Study:
    stage_N, stages = costs.stage_N, costs.trace.layout.pp_size
    worst_PD = _worst_workers(found.worker_PD, costs.trace.rank_PD)
    fixed_ST = replay_kept(costs, [~worst_PD[stage_N], (stage_N != stages - 1)[:, None]])
    worst_share, last_share = (found.share(float(fixed_T.mean())) for fixed_T in fixed_ST)
    figures = {name: getattr(found, name) for name in Study.__dataclass_fields__}
    return Study(**{**figures, "worst_workers_share": worst_share, "last_stage_share": last_share if stages > 1 else 0.0})


def _worst_workers(worker_PD: np.ndarray, rank_PD: np.ndarray) -> np.ndarray:
    """PD, True for the worst 3 %, rounded up; ties go to the lower global rank."""
    count = math.ceil(_WORST_SHARE * worker_PD.size)
    order = np.lexsort((rank_PD.ravel(), -worker_PD.ravel()))
    worst = np.zeros(worker_PD.size, dtype=bool)
    worst[order[:count]] = True
    return worst.reshape(worker_PD.shape)
