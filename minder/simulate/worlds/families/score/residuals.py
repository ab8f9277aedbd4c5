"""What machines differ by: a hierarchy of lasting effects, common factors, memory with heavy tails, bursts and gaps. All in scores.

Legend: T scrapes, K metrics, U units, M machines, F common factors.
"""

from __future__ import annotations

import numpy as np

from minder.simulate.worlds.families.score.job import Job

__all__ = ["Residuals", "draw_residuals", "gaps"]

_GROUPS = "cnh"  # one common factor for compute, for congestion and for the host
_BURSTS = 240


class Residuals:
    """score_TKU: all residuals together. common_TK: the part that the common factors give, of which machines can come loose."""

    def __init__(self, score_TKU: np.ndarray, common_TK: np.ndarray) -> None:
        self.score_TKU = score_TKU
        self.common_TK = common_TK


def draw_residuals(seed: int, job: Job) -> Residuals:
    """Residuals of every unit at every scrape."""
    rng = np.random.default_rng([seed, 2])
    unlike, lively = float(np.exp(rng.normal(0, 0.35))), float(np.exp(rng.normal(0, 0.3)))
    scale_K = lively * np.array([level.noise for level in job.levels])
    tau_K = rng.uniform(30.0, 150.0, len(job.levels))
    score_TKU = _remembering(rng, (len(job.time_TU), len(job.levels), len(job.machine_U)), tau_K, job.interval_s)
    machine_scale_M = np.exp(rng.normal(0, 0.2, len(job.machines)))
    score_TKU *= (0.8 * scale_K[:, None] * machine_scale_M[job.machine_U]).astype(np.float32)
    score_TKU += (0.45 * scale_K[:, None]).astype(np.float32) * rng.standard_normal(score_TKU.shape, dtype=np.float32)
    common_TK = _common(rng, job, scale_K)
    score_TKU += common_TK[:, :, None]
    _add_groups(rng, job, scale_K, score_TKU)
    score_TKU += _lasting(rng, job, unlike).astype(np.float32)
    _add_bursts(rng, job, scale_K, score_TKU)
    return Residuals(score_TKU, common_TK)


def _remembering(rng: np.random.Generator, shape: tuple[int, int, int], tau_K: np.ndarray, interval_s: float) -> np.ndarray:
    """An autoregression of order one for each series, its innovations Student's t with five degrees of freedom, variance about one."""
    noise_TKU = rng.standard_normal(shape, dtype=np.float32)
    mixed_TKU = rng.standard_gamma(2.5, shape, dtype=np.float32)
    mixed_TKU += np.float32(1e-3)
    noise_TKU *= np.sqrt(np.float32(1.5) / mixed_TKU)  # t with five degrees of freedom has variance 5/3
    keep_K = np.exp(-interval_s / tau_K).astype(np.float32)[:, None]
    noise_TKU[1:] *= np.sqrt(1.0 - keep_K**2)
    for t in range(1, shape[0]):
        noise_TKU[t] += keep_K * noise_TKU[t - 1]
    return noise_TKU


def _common(rng: np.random.Generator, job: Job, scale_K: np.ndarray) -> np.ndarray:
    """(T, K): common factors times their loadings, those of a metric's own group about one and the others small."""
    own_KF = np.array([[level.group == group for group in _GROUPS] for level in job.levels], dtype=np.float64)
    loading_KF = own_KF * rng.normal(1.2, 0.3, own_KF.shape) + (1 - own_KF) * rng.normal(0, 0.25, own_KF.shape)
    factor_TF1 = _remembering(rng, (len(job.time_TU), len(_GROUPS), 1), rng.uniform(40, 120, len(_GROUPS)), job.interval_s)
    return np.asarray((factor_TF1[:, :, 0] @ loading_KF.T * scale_K).astype(np.float32))


def _add_groups(rng: np.random.Generator, job: Job, scale_K: np.ndarray, score_TKU: np.ndarray) -> None:
    """Factors of racks, of groups of experts and of machines: metrics of a group move together within each."""
    of_K = np.array([_GROUPS.index(level.group) for level in job.levels])
    for group_M, share, tau_s in ((job.rack_M, 0.35, 90.0), (job.expert_M, 0.5, 150.0), (np.arange(len(job.machines)), 0.5, 60.0)):
        count = int(group_M.max()) + 1
        factor_TFX = _remembering(rng, (len(job.time_TU), len(_GROUPS), count), np.full(len(_GROUPS), tau_s), job.interval_s)
        if count == 1:
            continue
        for k in range(len(of_K)):
            score_TKU[:, k] += np.float32(share * scale_K[k]) * factor_TFX[:, of_K[k]][:, group_M[job.machine_U]]


def _lasting(rng: np.random.Generator, job: Job, unlike: float) -> np.ndarray:
    """(K, U): hall, rack, switch, stage, machine and device effects that stay for the whole recording."""
    count = len(job.machines)
    own_K = unlike * np.array([level.own for level in job.levels])
    slot_K = unlike * np.array([level.slot for level in job.levels])
    total_KM = rng.standard_t(6, (len(own_K), count)) * own_K[:, None]
    for group_M, share in ((np.arange(count) // 128, 0.5), (job.rack_M, 0.5), (job.switch_M, 0.25), (job.stage_M, 1.0)):
        effect_KX = rng.normal(0, share, (len(own_K), int(group_M.max()) + 1)) * own_K[:, None]
        total_KM += effect_KX[:, group_M]
    return np.asarray(total_KM[:, job.machine_U] + rng.normal(0, 1, (len(own_K), len(job.machine_U))) * slot_K[:, None])


def _add_bursts(rng: np.random.Generator, job: Job, scale_K: np.ndarray, score_TKU: np.ndarray) -> None:
    """Bursts of single machines by a Hawkes process: each may bring the next on the same machine within a minute."""
    hours = len(job.time_TU) * job.interval_s / 3600.0
    expected = float(rng.uniform(0.3, 2.5)) * hours * len(job.machine_U)
    parents = int(min(rng.poisson(min(expected, 1e6)), _BURSTS))
    pending = [
        (float(s), int(u)) for s, u in zip(rng.uniform(0, hours * 3600, parents), rng.integers(0, len(job.machine_U), parents), strict=True)
    ]
    branching, done = float(rng.uniform(0.2, 0.6)), 0
    while pending and done < 2 * _BURSTS:
        second, u = pending.pop()
        done += 1
        pending += [(second + float(rng.exponential(25.0)), u) for _ in range(int(rng.poisson(branching)))]
        group, tau_s, size = str(rng.choice(list("cnhh"))), float(rng.uniform(5, 40)), float(rng.uniform(1.5, 5.0))
        first = int(second / job.interval_s)
        t = np.arange(first, min(len(job.time_TU), first + int(4 * tau_s / job.interval_s) + 1))
        fade_T = np.exp(-(t - first) * job.interval_s / tau_s) * (-size if group == "c" else size)
        for k, level in enumerate(job.levels):
            if level.group == group and level.link != "linear":
                score_TKU[t, k, u] += (fade_T * scale_K[k]).astype(np.float32)


def gaps(seed: int, job: Job) -> tuple[np.ndarray, np.ndarray]:
    """(T, M) scrapes that are lost, alone or in bursts, and (T, K, U) single cells that are (empty without any)."""
    rng = np.random.default_rng([seed, 3])
    shape = (len(job.time_TU), len(job.machines))
    lost_TM = rng.random(shape) < float(rng.choice([0.0, 0.003, 0.02]))
    for _ in range(min(200, int(rng.poisson(shape[0] * job.interval_s * shape[1] / float(rng.choice([4e3, 2e4, 1e5])))))):
        first, length, m = int(rng.integers(0, shape[0])), int(rng.exponential(25.0) / job.interval_s) + 1, int(rng.integers(0, shape[1]))
        lost_TM[first : first + length, m] |= rng.random(len(lost_TM[first : first + length])) < 0.7
    cells = (*shape[:1], len(job.levels), len(job.machine_U))
    rate = float(rng.choice([0.0, 0.0, 0.01]))
    return lost_TM, (rng.random(cells, dtype=np.float32) < rate) if rate else np.zeros((0, 0, 0), dtype=bool)
