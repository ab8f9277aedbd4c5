"""Stages and questions of trust: in rules that were wrong too often, in machines that were evicted again and again, and in a failure that
the same code produces wherever it runs. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minder.act.policy.beta import Rate, rate_of
from minder.act.policy.case import Case, Ruling, passes, stops
from minder.act.policy.config import PolicyConfig
from minder.model.evidence import Failure
from minder.model.history import History, RuleRecord
from minder.record.incidents.trust import distrust_because

__all__ = ["Standing", "demoted_since", "distrusted", "everywhere", "rules_stand", "standing_of"]

_MACHINES = 3  # the same failure of the same code on so many of them is not theirs; in a smaller job, on all of it
_ORDER = "order"


@dataclass(frozen=True, slots=True)
class Standing:
    """A rule's record, its confirmed rate, and whether it is demoted from evict to page."""

    record: RuleRecord
    rate: Rate
    demoted: bool


def standing_of(record: RuleRecord, demote_below: float) -> Standing:
    """A rule of which nothing was found out yet is not demoted: its interval reaches up to 1."""
    rate = rate_of(record.confirmed, record.no_fault_found)
    return Standing(record, rate, record.tier == "evict" and rate.high < demote_below)


def demoted_since(record: RuleRecord, demote_below: float) -> float | None:
    """When the outcome came with which the rule was demoted; None where it is not."""
    judged = sorted([*((time_s, True) for time_s in record.confirmed_s), *((time_s, False) for time_s in record.no_fault_s)])
    since_s = None
    for count in range(len(judged), 0, -1):
        right = sum(confirmed for _, confirmed in judged[:count])
        if record.tier != "evict" or rate_of(right, count - right).high >= demote_below:
            break
        since_s = judged[count - 1][0]
    return since_s


def rules_stand(case: Case) -> Ruling:
    """A verdict that rests on demoted rules alone evicts no machine. A person's order is no rule."""
    sources = set(case.verdict.sources)
    if not sources or _ORDER in sources:
        return passes()
    below = case.config.ladder.demote_below
    standings = [standing_of(record, below) for record in case.history.rules if record.rule in sources]
    demoted = {item.record.rule: item for item in standings if item.demoted}
    if not demoted or sources - set(demoted):
        return passes(f"pass, {', '.join(sorted(demoted))} is demoted, but does not stand alone" if demoted else "pass")
    said = "; ".join(
        f"{name} was right about {item.record.confirmed} of {item.record.confirmed + item.record.no_fault_found} machines"
        for name, item in sorted(demoted.items())
    )
    return stops("page", "rule_demoted", f"{said}: it pages instead of evicting; `minder policy restore` undoes that")


def everywhere(case: Case) -> Ruling:
    """What the same code does on machine after machine is the code's, or that of something they share, whatever one of them looks like."""
    if _ORDER in case.verdict.sources:
        return passes()
    for failure in case.verdict.failures:
        alike = _same(failure, (*case.history.failures, *case.verdict.failures))
        seen = sorted({item.machine for item in alike})
        whole = len(seen) > 1 and set(case.context.job.machines) <= set(seen)
        if len(seen) >= _MACHINES or whole:
            return stops("page", "everywhere", f"{failure.fingerprint} was seen on {', '.join(seen[:5])}: it is not one machine's")
    return passes()


def distrusted(history: History, config: PolicyConfig, now_s: float) -> dict[str, str]:
    """Machine to why it is given no ranks before it has passed an offline test."""
    ladder = config.ladder
    asked = (
        (name, distrust_because(name, times, now_s, ladder.distrust_evictions, ladder.distrust_window_s))
        for name, times in history.evicted_s.items()
    )
    return {name: why for name, why in asked if why is not None}


def _same(failure: Failure, known: Iterable[Failure]) -> list[Failure]:
    """With the same fingerprint, of the same code as far as both are known."""
    return [item for item in known if item.fingerprint == failure.fingerprint != "" and item.is_same_code(failure)]
