"""Whether a machine is to blame for a slow job, or one that hangs: what pair tests say of a suspicion, and what counts as a proof. Pure.

The newest pair tests of the job (minder.diagnose.diagnostics.pairs), if they are of the last hour, weigh a suspicion of such a job:

| the pair tests | the suspicion |
|---|---|
| name one of its machines: slow or faulty with two others | evicts that machine, whatever the tier was; of a group, no other |
| say that its machines are good, and name another machine or a link | is a page at most, and says which |
| say nothing of them, or that all machines and links are good | stands as it is: a slow processor shows in no exchange of data |

A slow machine is proven by what-if that names its worker, by pair tests, or by its own probes. `slow_machines = "prove"` of the ladder asks
for one of them before a machine goes. Source: the straggler study (arXiv 2505.05713), where few workers explained 1.7 % of the slow jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from minder.act.policy.blame import Blame
from minder.act.policy.ladder import LadderConfig, Rung
from minder.model.decision import PassedOver
from minder.model.evidence import TIER_ORDER, Evidence, Verdict
from minder.model.history import History
from minder.model.pairs import PairWord

__all__ = ["SOURCE", "is_proven", "unproven", "weigh"]

SOURCE = "pairs"  # of a verdict that rests on pair tests
_PROOFS = frozenset({"whatif", SOURCE, "probes", "replay", "order"})
_FRESH_S = 3600.0
_OF = ("slowdown", "stall", "unknown")  # causes: what a slow or dead link can look like
_SURE = 0.95


def weigh(verdict: Verdict, history: History, now_s: float) -> Verdict:
    """The verdict as the newest pair tests change it, by the table above; the same object where they change nothing."""
    if verdict.kind not in ("machine", "group") or verdict.cause not in _OF or not verdict.machines or SOURCE in verdict.sources:
        return verdict
    words = {name: word for name, word in history.paired.items() if now_s - word.time_s <= _FRESH_S}
    named = tuple(name for name in verdict.machines if name in words and words[name].names_it)
    if named:
        return _raised(verdict, named, words)
    return _lowered(verdict, words) if _are_good(verdict.machines, words) and not is_proven(verdict) else verdict


def is_proven(verdict: Verdict) -> bool:
    """Whether more than a rule's suspicion says that a machine of it costs the time."""
    studied = any(item.source == "whatif" and item.machine in verdict.machines for item in verdict.evidence)
    return studied or not _PROOFS.isdisjoint(verdict.sources)


def unproven(item: Rung, blame: Blame, verdict: Verdict, ladder: LadderConfig) -> PassedOver | None:
    """Why a slow machine is not evicted on a suspicion alone, or why what is proven is not tested again; None where the rung is open."""
    if blame.trouble != "slow" or item.rung not in ("diagnose", "evict", "over_evict"):
        return None
    proven = is_proven(verdict)
    if item.rung == "diagnose":
        said = "steps or tests have shown already whose the time is"
        return PassedOver(item.rung, "not_available", said) if proven else None
    if proven or ladder.slow_machines != "prove":
        return None
    said = 'neither the traced steps nor tests say that the machine costs the time (slow_machines = "prove")'
    return PassedOver(item.rung, "unproven", said)


def _raised(verdict: Verdict, named: tuple[str, ...], words: Mapping[str, PairWord]) -> Verdict:
    evidence = tuple(Evidence(SOURCE, name, f"pair tests: {words[name].reason}", since_s=words[name].time_s) for name in named)
    return replace(
        verdict,
        kind="machine" if len(named) == 1 else verdict.kind,
        machines=named,
        tier="evict",
        confidence=max(verdict.confidence, _SURE),
        evidence=(*evidence, *verdict.evidence),
        sources=(*verdict.sources, SOURCE),
    )


def _are_good(machines: Iterable[str], words: Mapping[str, PairWord]) -> bool:
    return all(name in words and words[name].state == "good" for name in machines)


def _lowered(verdict: Verdict, words: Mapping[str, PairWord]) -> Verdict:
    """A page at most, where the tests found the trouble elsewhere."""
    others = [Evidence(SOURCE, name, f"pair tests: {word.reason}") for name, word in words.items() if word.names_it]
    links = sorted({tuple(sorted((name, peer))) for name, word in words.items() for peer in word.peers})
    found = [*others, *(Evidence(SOURCE, None, f"pair tests: the link between {' and '.join(link)} is to blame") for link in links)]
    if not found:
        return verdict
    tier = verdict.tier if TIER_ORDER[verdict.tier] < TIER_ORDER["page"] else "page"
    return replace(verdict, tier=tier, against=(*verdict.against, *found))
