"""The rules of a job whose agents and launchers are heard: live, and in a replay of what a controller saw."""

from __future__ import annotations

from collections.abc import Mapping

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.absence import AbsenceRule, UnmannedRule, VanishedRule
from minder.diagnose.verdicts.captures import CapturesRule
from minder.diagnose.verdicts.crash import CrashRule
from minder.diagnose.verdicts.fail_slow import DeclineRule, VotesRule
from minder.diagnose.verdicts.hang import HangRule
from minder.diagnose.verdicts.numeric import NumericRule, SpikeRule
from minder.diagnose.verdicts.signals import LinkLimits, RasRule, ReportRule, SignalRule
from minder.diagnose.verdicts.slowdown import SlowdownRule
from minder.diagnose.verdicts.stall import StallRule
from minder.diagnose.verdicts.start import StartRule
from minder.diagnose.verdicts.trigger import TriggerRule
from minder.diagnose.verdicts.whatif import WhatIfRule
from minder.edge.signals.xid import XidRule
from minder.model.observation import Rule
from minder.model.topology import Parallelism

__all__ = ["live_rules"]

_WAIT_FOR_CAPTURES_S = 8.0  # for one capture of whom the connections name


def live_rules(
    tracker: JobTracker, telemetry: Rule, xid_rules: Mapping[int, XidRule], interval_s: float, parallelism: Parallelism | None = None,
    links: LinkLimits | None = None,
) -> list[Rule]:  # fmt: skip
    """All rules, `telemetry` among them. tracker: shared, and updated before every tick; interval_s: how often agents sample.
    parallelism: which ranks share a group, so that several machines that fail together are named as theirs.
    links: when links that flap or stay down call a person."""
    stall = StallRule(tracker, wait_for_captures_s=_WAIT_FOR_CAPTURES_S, parallelism=parallelism)
    signals = SignalRule(xid_rules, tracker, workers=False, links=links)
    rules: list[Rule] = [WhatIfRule(tracker), CrashRule(), NumericRule(), SpikeRule(interval_s), AbsenceRule(tracker), stall]
    rules.append(SlowdownRule(tracker))
    rules += [StartRule(tracker), signals, RasRule(tracker), VanishedRule(tracker, interval_s), telemetry, ReportRule()]
    decline = DeclineRule(tracker)
    rules += [HangRule(tracker), UnmannedRule(), CapturesRule(tracker, asks=True), decline, VotesRule(tracker, parallelism, decline)]
    return [*rules, TriggerRule(tracker)]
