"""Which figures an account and a plan have, as PNG."""

from __future__ import annotations

from collections.abc import Sequence

from minder.plots.reliability import HourLine, PlanPanel, draw_hours, draw_losses, draw_plan
from minder.reliability.account import Account
from minder.reliability.plan import Outcome

__all__ = ["account_pictures", "plan_picture"]


def account_pictures(account: Account) -> dict[str, bytes]:
    """Caption to picture; only those that have something to show."""
    found = {}
    lines = [HourLine(item.job, item.hour.times_E, item.hour.ettr_E) for item in account.jobs if len(item.hour.times_E)]
    if lines:
        found["ETTR of a sliding hour"] = draw_hours(lines, "ETTR of the hour before each moment, of the job's own running time")
    if account.by_cause:
        found["Unproductive time by cause and phase"] = draw_losses(account.by_cause, "Unproductive time by cause and phase")
    return found


def plan_picture(outcomes: Sequence[Outcome]) -> bytes:
    """Every size a panel, every variant a bar."""
    panels = []
    for scale in dict.fromkeys(item.scale for item in outcomes):
        bars = tuple((item.variant, item.ettr, item.low, item.high, item.lost) for item in outcomes if item.scale == scale)
        panels.append(PlanPanel(f"{scale.gpus:,} GPUs, {scale.days:g} days, {scale.pool} standbys", bars))
    return draw_plan(panels, "Simulated from published times: what each mechanism is worth")
