"""The ladder and the standing of the rules, for people and for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minder.act.policy.config import PolicyConfig
from minder.act.policy.ladder import ACTION_OF, TROUBLES, WITH_LAUNCHERS, WITH_SKIPS, WITH_UPDATES, Rung
from minder.act.policy.trust import Standing, demoted_since, standing_of
from minder.model.clock import format_time
from minder.model.history import RuleRecord

__all__ = ["ladder_json", "ladder_rows", "rule_json", "rule_rows"]

_DOES = {
    "reattempt": "restart the job in place",
    "diagnose": "test all machines while the job stands",
    "trial": "give the suspect's ranks to another machine",
    "rollback": "take the last update of the job's code back",
    "skip_batch": "go back to before the batch, and leave it out",
    "replay": "replay the job on groups that cross",
    "over_evict": "evict the whole parallel group",
    "evict": "evict the machine",
    "page": "call a person",
}


def ladder_json(config: PolicyConfig) -> dict[str, Any]:
    """One document: the settings, the rungs in order with their ranks, and for each kind of trouble its climb."""
    ladder = config.ladder
    return {
        "order": ladder.order if ladder.rungs is None else "own",
        "network_alerts": ladder.network_alerts,
        "slow_machines": ladder.slow_machines,
        "window_seconds": ladder.window_s,
        "distrust_evictions": ladder.distrust_evictions,
        "distrust_window_seconds": ladder.distrust_window_s,
        "demote_below": ladder.demote_below,
        "rungs": [_rung(rank, item, config) for rank, item in enumerate(ladder.steps, 1)],
        "troubles": [
            {"trouble": name, "meaning": meaning, "climb": [item.rung for _, item in ladder.climb(name)]}
            for name, meaning in TROUBLES.items()
        ],
    }


def _rung(rank: int, item: Rung, config: PolicyConfig) -> dict[str, Any]:
    """on: as the settings have it, network_alerts among them."""
    used = [name for name in item.on if rank in [place for place, _ in config.ladder.climb(name)]]
    return {
        "rank": rank,
        "rung": item.rung,
        "does": _DOES[item.rung],
        "on": used,
        "times": item.times,
        "after": item.after,
        "beside": list(item.beside),
        "available": item.rung in ACTION_OF,
        "needs": "launchers" if item.rung in WITH_LAUNCHERS else _needs_setting(item.rung, config),
    }


def _needs_setting(rung: str, config: PolicyConfig) -> str | None:
    if rung in WITH_UPDATES:
        return "updates" if config.rollback == "auto" else 'rollback = "auto"'
    if rung in WITH_SKIPS:
        return "a loader that skips" if config.skip_batches == "auto" else 'skip_batches = "auto"'
    return None


def ladder_rows(config: PolicyConfig) -> list[tuple[str, ...]]:
    """The rungs as a table, header first."""
    return [("rank", "rung", "what is done", "for", "how often", "available"), *(_row(item) for item in ladder_json(config)["rungs"])]


def _row(item: dict[str, Any]) -> tuple[str, ...]:
    often = "as limits allow" if item["times"] is None else f"{item['times']} for one trouble"
    if item["rung"] == "page":
        often = "always"  # neither a budget nor a pause holds a page back
    if item["after"]:
        often += ", once it came back" + (f" {item['after']} times" if item["after"] > 1 else "")
    troubles = "every trouble" if item["rung"] == "page" else ", ".join(item["on"])
    available = (f"with {item['needs']}" if item["needs"] else "yes") if item["available"] else "not available"
    available += "".join(f"; {name} with launchers" for name in item["beside"] if name in WITH_LAUNCHERS)
    does = item["does"] + (f", {', '.join(item['beside'])} beside it" if item["beside"] else "")
    return (str(item["rank"]), item["rung"], does, troubles, often, available)


def rule_json(records: Iterable[RuleRecord], config: PolicyConfig) -> list[dict[str, Any]]:
    """Every rule of which anything is known. confirmed_rate is the posterior's mean with its 95 % interval."""
    below = config.ladder.demote_below
    return [_standing(standing_of(record, below), demoted_since(record, below)) for record in records]


def _standing(item: Standing, since_s: float | None) -> dict[str, Any]:
    record = item.record
    return {
        "rule": record.rule,
        "tier": record.tier,
        "evictions": record.evictions,
        "confirmed": record.confirmed,
        "no_fault_found": record.no_fault_found,
        "confirmed_rate": round(item.rate.mean, 3),
        "low": round(item.rate.low, 3),
        "high": round(item.rate.high, 3),
        "demoted": item.demoted,
        "demoted_since": None if since_s is None else format_time(since_s),
        "restored": None if record.restored_s is None else format_time(record.restored_s),
    }


def rule_rows(records: Iterable[RuleRecord], config: PolicyConfig) -> list[tuple[str, ...]]:
    """The same as a table, header first."""
    header = ("rule", "tier", "evictions", "confirmed", "no fault found", "confirmed rate", "evicts")
    return [header, *(_rule_row(item) for item in rule_json(records, config))]


def _rule_row(item: dict[str, Any]) -> tuple[str, ...]:
    rate = f"{item['confirmed_rate']:.2f} ({item['low']:.2f} to {item['high']:.2f})"
    evicts = f"demoted to page since {item['demoted_since'] or '?'}" if item["demoted"] else "yes" if item["tier"] == "evict" else "-"
    return (item["rule"], item["tier"], *(str(item[key]) for key in ("evictions", "confirmed", "no_fault_found")), rate, evicts)
