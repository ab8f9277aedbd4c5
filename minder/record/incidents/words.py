"""Verdicts and decisions in plain words, for the console and for pages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from minder.model.decision import Decision
from minder.model.evidence import Verdict

__all__ = [
    "TIERS",
    "action_words",
    "cause_words",
    "ranks_words",
    "size_words",
    "sources_of",
    "tier_words",
    "verdict_words",
    "what_was_decided",
]

TIERS = {"evict": "evict (high confidence)", "page": "page (a person should look)", "watch": "watch (noted)"}
_MACHINE = {
    "stall": "stands still",
    "slowdown": "holds the others up",
    "absence": "is gone",
    "explicit": "reports a fault of its own",
    "numeric": "computes wrong numbers",
    "unknown": "behaves unlike its peers",
}
_JOB = {
    "stall": "stands still",
    "slowdown": "is slow",
    "absence": "is not heard",
    "explicit": "reports a fault",
    "numeric": "computes wrong numbers",
    "unknown": "behaves unlike before",
}
# What no machine reported: an order, or a test, says it. The first that a verdict rests on counts.
_SAID_OF_MACHINE = {
    "order": "is to go by an operator's order",
    "replay": "fails in the replays of the job",
    "pairs": "is slow or faulty in pair tests",
    "probes": "fails its tests",
}
_SAID_OF_JOB = {
    "order": "is to start again by an operator's order",
    "grow": "is to grow again",
    "update": "is to run another version of its code",
    "skip": "is to leave batches out",
}
_MOST_NAMED = 3  # who stands out, in one line
_WHOLE = {
    "restart": "the job is started again in place",
    "diagnose": "the job is diagnosed: its machines are tested while it stands",
    "replay": "the job is replayed on groups of its machines while it stands",
}
_DONE = {"evict": "is evicted", "trial": "goes on trial", "page": "needs a person to look", "none": "stays: nothing is done"}


def cause_words(cause: str | None, machine: bool = True, sources: Iterable[str] = ()) -> str:
    """What a machine (or else the job) did, to follow its name; a newer version's word as it is. sources: that the verdict rests on.

    >>> cause_words("slowdown"), cause_words("slowdown", machine=False), cause_words("explicit", sources=["probes"])
    ('holds the others up', 'is slow', 'fails its tests')
    """
    named, said = frozenset(sources), _SAID_OF_MACHINE if machine else _SAID_OF_JOB
    if cause == "explicit" and (source := next((name for name in said if name in named), None)):
        return said[source]
    return (_MACHINE if machine else _JOB).get(cause or "unknown", str(cause))


def sources_of(verdict: Verdict) -> frozenset[str]:
    """The rules and the kinds of evidence that it rests on."""
    return frozenset((*verdict.sources, *(item.source for item in verdict.evidence)))


def action_words(action: str) -> str:
    """A decision's action, to stand before the machines and the reason.

    >>> action_words("none"), action_words("evict")
    ('nothing is done', 'evict')
    """
    return "nothing is done" if action == "none" else action


def ranks_words(machines: Iterable[str], rank_machine: Mapping[int, str]) -> str:
    """Machines with the ranks that run there.

    >>> ranks_words(["m1", "s1"], {0: "m0", 1: "m1", 2: "m1", 3: "m1", 5: "m1"})
    'm1 (ranks 1-3, 5), s1'
    """
    return ", ".join(f"{machine}{_ranks([rank for rank, name in rank_machine.items() if name == machine])}" for machine in machines)


def _ranks(ranks: Sequence[int]) -> str:
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f" (rank{'' if len(ranks) == 1 else 's'} {text})" if spans else ""


def tier_words(tier: str, names_machine: bool) -> str:
    """What a verdict's tier asks for. One that names no machine evicts none: the job is started again.

    >>> tier_words("evict", True), tier_words("evict", False)
    ('evict (high confidence)', 'restart (no machine is to blame)')
    """
    return "restart (no machine is to blame)" if tier == "evict" and not names_machine else TIERS.get(tier, tier)


def verdict_words(verdict: Verdict, rank_machine: Mapping[int, str]) -> str:
    """Who, what and why, in one line."""
    who = ranks_words(verdict.machines, rank_machine) or "the job"
    if verdict.kind == "recovered":
        return f"{who} has recovered"
    why = _why(verdict)
    if "update" in verdict.sources:
        return f"the job is to run another version of its code: {why}"
    what = f"{who} {cause_words(verdict.cause, bool(verdict.machines), sources_of(verdict))}{f': {why}' if why else ''}"
    return f"{what}; {tier_words(verdict.tier, bool(verdict.machines))}, confidence {verdict.confidence:.2f}"


def _why(verdict: Verdict) -> str:
    """The first reason; of a verdict that names no machine also who stands out, which is where a person looks first."""
    found = [item for item in verdict.evidence if item.message]
    out = [item.message for item in found[1:] if item.machine is not None and not verdict.machines]
    first = [item.message for item in found[:1]]
    return "; ".join(dict.fromkeys([*first, *out[:_MOST_NAMED]]))  # two agents of one host read the same kernel line


def what_was_decided(decision: Decision, incidents: Sequence[str]) -> str:
    """What follows, with the incident to look it up by. Who and why was said with the verdict; here is why it is done or not."""
    who = ", ".join(decision.machines) or "the job"
    action = _WHOLE.get(decision.action) or f"{who} {_DONE.get(decision.action, decision.action)}"
    if decision.action == "restart" and decision.update is not None:
        action = f"the job goes back to update {decision.update} of its code"
    elif decision.action == "restart" and decision.skip:
        action = f"the job goes back, and leaves batch {decision.skip} out"
    action += size_words(decision)
    why = "" if decision.reason == "act" else f" ({decision.detail or decision.reason.replace('_', ' ')})"
    return f"{f'incident {incidents[0]}: ' if incidents else ''}{action}{why}"


def size_words(decision: Decision) -> str:
    """What becomes of the job's size, to follow what is done; "" where it stays."""
    if decision.size is None:
        return ""
    joined = f"{', '.join(decision.joins)} in, " if decision.joins else ""
    would = "would go" if decision.reason == "dry_run" else "goes"
    return f"; {joined}the job {would}{decision.size.words.removeprefix('goes')}"
