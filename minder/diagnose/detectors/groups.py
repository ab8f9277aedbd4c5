"""Who stands apart, alone or together with others, and for how long. One `group` verdict for a page.

Members of a group hide one another where machines are compared one by one: each contests the other's lead, and in a stage that fails
as a whole none differs from its peers. So other questions are asked of each row, and each machine's seconds are counted:

- `causes`: who stands apart in a cause of slowness, from all machines, by a gap that no other machine fills;
- `standing`: who stopped a job that stands;
- `hosts`: who waits for its host, or whose host is full;
- `together`: who turned odd, or silent, at about the same time and about equally, and far more than any other (asked in `accumulate`).

A group is a reason to look, never to evict: a person knows what its machines share. C causes, K metrics, M machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.causes import Causes, CausesNumbers
from minder.diagnose.detectors.group_state import GroupState
from minder.diagnose.detectors.hosts import Hosts
from minder.diagnose.detectors.minutes import Minutes
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.standing import Standing
from minder.diagnose.detectors.traits import KEPT

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Layout, Row

__all__ = ["CauseGroups"]


@dataclass(frozen=True, slots=True)
class GroupsNumbers:
    """Section [groups] of detector.toml: what each number is stands there."""

    step_s: float
    forget_s: float
    most_s: float
    forgotten_s: float
    most_step_s: float
    leaked_s: float


_N = numbers("groups", GroupsNumbers)
_CAUSES = numbers("causes", CausesNumbers)


class CauseGroups(Stage):
    """Machines that stand apart, alone or together, and for how many seconds."""

    minutes: Minutes
    causes: Causes
    hosts: Hosts
    standing: Standing
    state: GroupState

    def update(self, row: Row) -> None:
        phase, status, traits = row.phase, row.status, row.traits
        waited_s = self.state.group_waited_s + status.gap_s
        self.state.group_waited_s = 0.0 if waited_s >= _N.step_s else waited_s
        if waited_s < _N.step_s or status.outage or not len(row.raw_KM):  # what lasts for minutes need not be asked for every second
            return
        grouped_s_M, k_M = self.state.grouped_s_M, self.state.grouped_k_M
        apart_M, asked = np.zeros(len(grouped_s_M), dtype=bool), []
        all_causes = np.flatnonzero((traits.causes_K1[:, 0] | traits.hosts_K) & np.isfinite(traits.reach_K1[:, 0]))
        jams_K = traits.jams_K
        # after a rest a clock is back with the work, traffic comes later
        rests_K = ((phase.idle or phase.grace) & jams_K) | (phase.idle & ~traits.errs_K & ~traits.hosts_K)
        # what moves in a rest says nothing of work
        moves_K = rests_K & ~jams_K & (np.abs(phase.shift_K) > _CAUSES.stays * traits.reach_K1[:, 0])
        causes = all_causes[~moves_K[all_causes]]
        power, works = self.standing.of_power(row)
        watched = np.concatenate([causes, power])
        learns_C = np.concatenate([~rests_K[causes], np.full(len(power), works)])
        away_CM = self.causes.observe(traits, watched, row.raw_KM[watched], (waited_s, status.interval_s), learns_C)
        shows_C = self.causes.shows_C(traits, causes, status.interval_s)
        busy_M, leaks_M = np.zeros_like(apart_M), self.minutes.leaks_M()
        for c in np.argsort(jams_K[causes] + 2 * traits.hosts_K[causes], kind="stable").tolist():
            k = int(causes[c])
            if jams_K[k] and (rests_K[k] or phase.moving or apart_M.any()):
                continue  # nor does congestion, which spreads, too, from who has errors, or is slow, to its neighbours
            asked.append(k)
            if not shows_C[c]:
                continue
            members_M = self.causes.of_cause(row, k, away_CM[c], bool(rests_K[k]))
            if traits.hosts_K[k] and traits.metrics[k] not in KEPT:
                busy_M |= members_M
                members_M = self.hosts.slow_M(row, members_M) & ~apart_M.any()
            k_M = np.where(members_M & ~apart_M, float(k), k_M)
            apart_M |= members_M
        standing, hosts = self.standing, self.hosts
        for k, members_M in chain(standing.of_standing(row), hosts.of_full(row, leaks_M), standing.of_camps(row), hosts.of_waiting(row)):
            k_M = np.where(members_M & ~apart_M, float(k), k_M)
            apart_M |= members_M
        grouped_s_M = np.where(leaks_M, np.maximum(grouped_s_M, _N.leaked_s), grouped_s_M)  # it has for minutes
        row.apart_M = apart_M
        hosts.note_busy(row, busy_M)
        if apart_M.any() or grouped_s_M.any():
            asked_M = np.isnan(k_M) | np.isin(k_M, asked) | (phase.steady & ~np.isin(k_M, all_causes))
            kept_s_M = np.where(asked_M, grouped_s_M * np.exp(-waited_s / _N.forget_s), grouped_s_M)
            longer_s_M = np.minimum(grouped_s_M + min(waited_s, _N.most_step_s), self.config.slower * _N.most_s)
            self.state.grouped_s_M = np.where(apart_M, longer_s_M, np.where(kept_s_M > _N.forgotten_s, kept_s_M, 0.0))
            self.state.grouped_k_M = np.where(self.state.grouped_s_M > 0.0, k_M, np.nan)

    def follow(self, layout: Layout) -> None:
        if layout.renamed:  # metrics stand under other numbers now
            self.state.forget("grouped_k_M")
