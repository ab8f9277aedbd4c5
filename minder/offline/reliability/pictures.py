"""Which figures an account and a plan have, as PNG."""

from __future__ import annotations

from collections.abc import Sequence

from minder.act.recovery.pool_size import DEFAULT_RATE, advise_standbys, given_rate
from minder.offline.plots.pool import draw_departures, draw_pool
from minder.offline.plots.reliability import HourLine, PlanPanel, draw_hours, draw_losses, draw_plan
from minder.offline.reliability.account import Account
from minder.offline.reliability.advice import rate_from_account
from minder.offline.reliability.failures import count_failures, find_departures
from minder.offline.reliability.plan import Outcome

__all__ = ["DEPARTURES", "HOURS", "LOSSES", "POOL", "account_pictures", "plan_picture"]

HOURS, LOSSES = "ETTR of a sliding hour", "Unproductive time by cause and phase"
DEPARTURES, POOL = "Machines that left a job, and what repair found", "Standbys that cover 99 days of 100"
_SIZES = (64, 128, 256, 512, 1024, 2048)


def account_pictures(account: Account) -> dict[str, bytes]:
    """Caption to picture; only those that have something to show."""
    found = {}
    lines = [HourLine(item.job, item.hour.times_E, item.hour.ettr_E) for item in account.jobs if len(item.hour.times_E)]
    if lines:
        found[HOURS] = draw_hours(lines, "ETTR of the hour before each moment, of the job's own running time")
    if account.by_cause:
        found[LOSSES] = draw_losses(account.by_cause, LOSSES)
    departures = find_departures(account.incidents)
    if departures:
        signs = [(item.machine, item.time_s, item.outcome) for item in departures]
        found[DEPARTURES] = draw_departures(signs, DEPARTURES, (account.since_s, account.until_s))
    if count_failures(departures, account).machine_days > 0:
        rate = rate_from_account(account).rate
        if rate.has_days:  # else no picture of pools as large as their jobs
            found[POOL] = draw_pool(advise_standbys(_SIZES, rate), advise_standbys(_SIZES, given_rate(DEFAULT_RATE)), POOL)
    return found


def plan_picture(outcomes: Sequence[Outcome]) -> bytes:
    """Every size a panel, every variant a bar."""
    panels = []
    for scale in dict.fromkeys(item.scale for item in outcomes):
        bars = tuple((item.variant, item.ettr, item.low, item.high, item.lost) for item in outcomes if item.scale == scale)
        panels.append(PlanPanel(f"{scale.gpus:,} GPUs, {scale.days:g} days, {scale.pool} standbys", bars))
    return draw_plan(panels, "Simulated: what each mechanism is worth")
