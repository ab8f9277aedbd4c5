"""The account: how every rank spends each step, and from it the seconds and the work that its kernel has counted by any time.

A step ends for all at once. Within it a rank loads, works and receives (in `micro` cycles), waits for the last, sends, writes, waits on.
Legend: S steps, M machines, P ways to spend time, Q quantities (P ways, work done, sent), N reads, B steps of one block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minder.simulate.worlds.families.tally.acts import Act, level
from minder.simulate.worlds.families.tally.site import (
    BEFORE_S,
    BLOCK,
    DEAD,
    DRIFT_S,
    LINGER,
    LOAD,
    RECV,
    SEND,
    SPIN,
    WAYS,
    WORK,
    WRITE,
    Site,
)

__all__ = ["DONE", "SENT", "Ledger", "keep_account", "read_ledger"]

DONE, SENT = len(WAYS), len(WAYS) + 1
_BLOCK_S = 4.0  # acts are looked at so often, or once a step
_LONG_S = 30.0


@dataclass(frozen=True, slots=True)
class Ledger:
    """start_S: seconds since the recording began. spent_QSM: what each step adds; before_QSM: what there was at its start."""

    start_S: np.ndarray
    spent_QSM: np.ndarray
    before_QSM: np.ndarray


class _Keeper:
    """Goes through the recording block by block."""

    def __init__(self, site: Site, acts: Sequence[Act], seed: int) -> None:
        self.site = site
        self.paces = [act for act in acts if act.times or act.adds or act.more != 1.0]
        self.stalls = [act for act in acts if act.stall is not None]
        self.halts = [act for act in acts if act.halt is not None]
        rng = np.random.default_rng([seed, 2])
        kept = int(min(4096, (site.duration_s + BEFORE_S) / site.step_s + 8))
        jitter = 3.0 * site.jitter if site.mode == "expert" else site.jitter
        noise_BM = rng.normal(0.0, jitter, (kept, site.machines))
        self.noise_BM = np.exp(noise_BM + 4.0 * np.abs(noise_BM) * (rng.random(noise_BM.shape) < 0.01))
        self.noise_BM[:, site.rollout_M] *= np.exp(rng.normal(0.0, 0.1, (kept, int(site.rollout_M.sum()))))  # answers of unlike length
        self.all_B = np.exp(rng.normal(0.0, site.jitter, kept))  # batches differ, for all alike
        self.load_BM = np.exp(rng.normal(0.0, 0.4, (kept, site.machines)))
        self.step = 0
        self.next_write_s = site.first_write_s - BEFORE_S
        self.met: set[int] = set()

    def block(self, now_s: float) -> np.ndarray:
        """(Q, B, M) of the next steps: those of a halt or a stall, or ordinary ones."""
        for act in self.halts:
            if act.start_s <= now_s < act.end_s:
                return self._halted(act, min(act.end_s, self.site.duration_s + 60.0) - now_s)
        for number, act in enumerate(self.stalls):
            if act.start_s <= now_s and number not in self.met and now_s < act.end_s + _LONG_S:
                self.met.add(number)
                return self._stalled(act, max(act.end_s - now_s, min(act.end_s - act.start_s, _LONG_S)))
        writes = now_s >= self.next_write_s
        count = 1 if writes else max(1, round(_BLOCK_S / self.site.step_s))
        spent_QBM = self._ordinary(now_s, count, writes)
        if writes:
            self.next_write_s = now_s + self.site.write_every_s
        return spent_QBM

    def _halted(self, act: Act, length_s: float) -> np.ndarray:
        spent_QBM = np.zeros((SENT + 1, 1, self.site.machines))
        spent_QBM[DEAD if act.halt is None else act.halt] = max(length_s, 1.0)
        if act.halt == WORK:  # an evaluation: work without any exchange, waits of a few per cent
            wait_M = 0.03 + 0.05 * (self.noise_BM[self.step % len(self.noise_BM)] - 1.0).clip(-0.5, 1.0)
            spent_QBM[WORK, 0] *= 1.0 - wait_M
            spent_QBM[BLOCK, 0] = max(length_s, 1.0) * wait_M
            spent_QBM[DONE] = 0.55 * spent_QBM[WORK] / self._pace(act.start_s)[0][WORK]
        self.step += 1
        return spent_QBM

    def _stalled(self, act: Act, length_s: float) -> np.ndarray:
        """The others go as far as they get alone and wait in a collective; those that stall stay where they are."""
        site = self.site
        length_s = float(np.clip(length_s, 0.2, site.duration_s + 600.0))
        spent_QBM = np.zeros((SENT + 1, 1, site.machines))
        own_MP = site.cost_MP[:, [LOAD, WORK]] * min(1.0, 0.8 * length_s / site.step_s)
        spent_QBM[LOAD, 0], spent_QBM[WORK, 0], spent_QBM[DONE, 0] = own_MP[:, 0], own_MP[:, 1], own_MP[:, 1]
        hit = slice(None) if act.at is None else list(act.at)
        spent_QBM[:, 0, hit] = 0.0
        spent_QBM[WAYS[act.stall or 0], 0, hit] = length_s
        rest_M = np.maximum(length_s - spent_QBM[: SENT - 1, 0].sum(axis=0), 0.0)
        if site.stages > 1 and act.at is not None:  # the replica of a stalled machine waits to receive, the others for the all-reduce
            near_M = np.isin(np.arange(site.machines) // site.stages, np.asarray(act.at) // site.stages)
            spent_QBM[RECV, 0] += rest_M * near_M
            rest_M = rest_M * ~near_M
        spent_QBM[LINGER, 0] += rest_M
        self.step += 1
        return spent_QBM

    def _pace(self, now_s: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What acts do now: factors (P, M) of each way, factors (M,) of the work itself, seconds (P, M) that come on top."""
        slow_PM = np.ones(self.site.cost_MP.T.shape)
        more_M, added_PM = np.ones(self.site.machines), np.zeros_like(slow_PM)
        for act in self.paces:
            strength = float(level(act, now_s))
            if strength > 0.0:
                hit = slice(None) if act.at is None else list(act.at)
                more_M[hit] *= 1.0 + (act.more - 1.0) * strength
                for way, factor in act.times.items():
                    slow_PM[way, hit] *= 1.0 + (factor - 1.0) * strength
                for way, added_s in act.adds.items():
                    added_PM[way, hit] += added_s * strength
        return slow_PM, more_M, added_PM

    def _ordinary(self, now_s: float, count: int, writes: bool) -> np.ndarray:
        site = self.site
        at_B = (self.step + np.arange(count)) % len(self.noise_BM)
        self.step += count
        drift_M = site.drift_MG[:, int((now_s + BEFORE_S) / DRIFT_S) % site.drift_MG.shape[1]]
        cost_PM = site.cost_MP.T.copy()
        if writes:
            cost_PM[WRITE] = site.write_s * np.exp(0.2 * (self.load_BM[at_B[0]] - 1.0).clip(-0.9, 2.0))
        work_M = cost_PM[WORK] * np.exp(drift_M)
        slow_PM, more_M, added_PM = self._pace(now_s)
        cost_PM += added_PM
        spent_QBM = np.zeros((SENT + 1, count, site.machines))
        done_BM = work_M * more_M * self.noise_BM[at_B] * self.all_B[at_B][:, None]
        spent_QBM[LOAD] = cost_PM[LOAD] * slow_PM[LOAD] * self.load_BM[at_B]
        spent_QBM[WORK], spent_QBM[DONE] = done_BM * slow_PM[WORK], done_BM
        spent_QBM[SENT] = site.cost_MP[:, SEND]
        own_M = site.cost_MP[:, SEND] * slow_PM[SEND]
        spent_QBM[SEND] = own_M.max() if site.ring else own_M
        spent_QBM[WRITE] = cost_PM[WRITE] * slow_PM[WRITE]
        self._wait(spent_QBM)
        return spent_QBM

    def _wait(self, spent_QBM: np.ndarray) -> None:
        """Who is ready early waits: in the pipeline to receive, then for the slowest replica, then for the last to send and to write."""
        site = self.site
        ready_BM = spent_QBM[LOAD] + spent_QBM[WORK]
        if site.stages > 1:
            ready_BRM = ready_BM.reshape(len(ready_BM), -1, site.stages)
            bubble = (site.stages - 1) / (site.stages - 1 + max(8, 2 * site.micro))
            replica_BR = ready_BRM.max(axis=2) * (1.0 + bubble)
            spent_QBM[RECV] = (replica_BR[:, :, None] - ready_BRM).reshape(ready_BM.shape)
            ready_BM = ready_BM + spent_QBM[RECV]
        way_M = np.where(site.rollout_M, BLOCK, SPIN)
        late_BM = ready_BM.max(axis=1, keepdims=True) - ready_BM
        for way in (BLOCK, SPIN):
            spent_QBM[way][:, way_M == way] += late_BM[:, way_M == way]
        after_BM = spent_QBM[SEND] + spent_QBM[WRITE]
        spent_QBM[LINGER] = after_BM.max(axis=1, keepdims=True) - after_BM


def keep_account(site: Site, acts: Sequence[Act], seed: int) -> Ledger:
    """All steps from BEFORE_S before the recording to its end."""
    keeper = _Keeper(site, acts, seed)
    now_s = -BEFORE_S
    starts, blocks = [], []
    while now_s < site.duration_s:
        spent_QBM = keeper.block(now_s)
        length_B = spent_QBM[: SENT - 1].sum(axis=0).max(axis=1)
        until_B = now_s + np.cumsum(length_B)
        starts.append(until_B - length_B)
        blocks.append(spent_QBM)
        now_s = float(until_B[-1])
    spent_QSM = np.concatenate(blocks, axis=1)
    before_QSM = np.cumsum(spent_QSM, axis=1) - spent_QSM
    return Ledger(np.concatenate(starts), spent_QSM, before_QSM)


def read_ledger(ledger: Ledger, micro: int, times_NM: np.ndarray) -> np.ndarray:
    """(Q, N, M): the counters of machine m at times_NM[:, m], in seconds since the recording began."""
    machines = times_NM.shape[1]
    step_NM = np.clip(np.searchsorted(ledger.start_S, times_NM, side="right") - 1, 0, len(ledger.start_S) - 1)
    flat_NM = step_NM * machines + np.arange(machines)
    since_NM = np.maximum(times_NM - ledger.start_S[step_NM], 0.0)
    spent_QNM = ledger.spent_QSM.reshape(SENT + 1, -1)[:, flat_NM]
    read_QNM = ledger.before_QSM.reshape(SENT + 1, -1)[:, flat_NM]
    cycle_NM = np.maximum(spent_QNM[: RECV + 1].sum(axis=0) / micro, 1e-9)
    inner_NM = np.minimum(since_NM, cycle_NM * micro)
    whole_NM = np.floor(inner_NM / cycle_NM)
    left_NM = inner_NM - whole_NM * cycle_NM
    after_NM = since_NM - inner_NM
    share_QNM = np.zeros((2, *times_NM.shape))
    for way in WAYS:
        each_NM = spent_QNM[way] / micro if way <= RECV else spent_QNM[way]
        left = left_NM if way <= RECV else after_NM
        part_NM = np.clip(left, 0.0, each_NM)
        left -= part_NM
        if way <= RECV:
            part_NM = part_NM + whole_NM * each_NM
        read_QNM[way] += part_NM
        if way in (WORK, SEND):
            share_QNM[int(way == SEND)] = part_NM / np.maximum(spent_QNM[way], 1e-12)
    read_QNM[DONE:] += spent_QNM[DONE:] * share_QNM
    return read_QNM
