"""The rules of a job whose agents and launchers are heard: live, and in a replay of what a controller saw."""

from __future__ import annotations

from collections.abc import Mapping

from minder.signals.xid import XidRule
from minder.topology import Parallelism
from minder.types import Rule
from minder.verdicts.absence import AbsenceRule
from minder.verdicts.captures import CapturesRule
from minder.verdicts.crash import CrashRule
from minder.verdicts.hang import HangRule
from minder.verdicts.links import LinkLimits
from minder.verdicts.numeric import NumericRule
from minder.verdicts.progress import Progress
from minder.verdicts.ras import RasRule
from minder.verdicts.reports import ReportRule
from minder.verdicts.signals import SignalRule
from minder.verdicts.slowdown import SlowdownRule
from minder.verdicts.spikes import SpikeRule
from minder.verdicts.stall import StallRule
from minder.verdicts.start import StartRule
from minder.verdicts.trigger import TriggerRule
from minder.verdicts.unmanned import UnmannedRule
from minder.verdicts.vanished import VanishedRule
from minder.verdicts.votes import VotesRule

__all__ = ["live_rules"]

_WAIT_FOR_CAPTURES_S = 8.0  # for one capture of whom the connections name


def live_rules(
    progress: Progress, telemetry: Rule, xid_rules: Mapping[int, XidRule], interval_s: float, parallelism: Parallelism | None = None,
    links: LinkLimits | None = None,
) -> list[Rule]:  # fmt: skip
    """All rules, `telemetry` among them. progress: shared, and updated before every tick; interval_s: how often agents sample.
    parallelism: which ranks share a group, so that several machines that fail together are named as theirs.
    links: when links that flap or stay down call a person."""
    stall = StallRule(progress, wait_for_captures_s=_WAIT_FOR_CAPTURES_S, parallelism=parallelism)
    signals = SignalRule(xid_rules, workers=False, progress=progress, links=links)
    rules: list[Rule] = [CrashRule(), NumericRule(), SpikeRule(interval_s), AbsenceRule(progress), stall, SlowdownRule(progress)]
    rules += [StartRule(progress), signals, RasRule(signals.halt), VanishedRule(interval_s, progress), telemetry, ReportRule()]
    rules.append(HangRule(progress))
    return [*rules, UnmannedRule(), CapturesRule(progress, asks=True), VotesRule(progress, parallelism), TriggerRule(progress)]
