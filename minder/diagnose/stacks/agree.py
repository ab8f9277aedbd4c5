"""Several captures of one job: what stands in all of them, and, for a slow job, what stands out most often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from minder.diagnose.stacks.blame import analyse
from minder.diagnose.stacks.finding import Accused, Finding
from minder.diagnose.stacks.places import Places
from minder.diagnose.stacks.records import Capture
from minder.model.topology import Topology

__all__ = ["ROUNDS", "analyse_captures", "vote"]

ROUNDS = 5  # of captures 10 s apart (ByteRobust, arXiv 2509.16293)
_WINDOW_S = 120.0  # older captures show the job before the stall
_GROUP_SHARE = 0.5


def analyse_captures(captures: Sequence[Capture], topology: Topology | None = None) -> Finding:
    """One finding for all captures, oldest first. A suspect that a later capture does not confirm is dropped, and its eviction with it."""
    recent = _recent(captures)
    findings = [analyse(capture, topology) for capture in recent]
    last = replace(findings[-1], captures=len(findings))
    if len(findings) == 1:
        return last
    if _stands(findings):
        findings = [analyse(capture, topology, stands=True) for capture in recent]
        last = replace(findings[-1], captures=len(findings))
    agreed = _agreed(findings, last)
    if agreed.evict and _is_moving(findings[0], last):
        slow = "most processes stand elsewhere than in the first capture: the job moves, so it does not hang"
        agreed = replace(agreed, evict=(), group=None, blame="unknown", because=slow)
    if agreed.evict or len(findings) < ROUNDS:
        return agreed
    voted = vote([tuple(dict.fromkeys(s.machine for s in f.suspects)) for f in findings], Places.of(recent[-1].processes, topology))
    return _voted(agreed, voted, findings) if voted is not None else agreed


def _recent(captures: Sequence[Capture]) -> list[Capture]:
    last_s = captures[-1].time_s
    if last_s is None:
        return list(captures)
    return [capture for capture in captures if capture.time_s is None or last_s - capture.time_s <= _WINDOW_S]


def _agreed(findings: Sequence[Finding], last: Finding) -> Finding:
    named = [{suspect.machine for suspect in finding.suspects} for finding in findings]
    stable = set.intersection(*named)
    suspects = tuple(_surer(suspect, findings) for suspect in last.suspects if suspect.machine in stable)
    if all(set(finding.evict) == set(last.evict) and finding.group == last.group for finding in findings):
        return replace(last, suspects=suspects)
    if _is_explained(findings, last):
        return replace(last, suspects=suspects)
    both = f"{len(findings)} captures do not agree on whom to evict"
    return replace(last, suspects=suspects, evict=(), group=None, blame="unknown", because=both)


def _is_explained(findings: Sequence[Finding], last: Finding) -> bool:
    """The last look shows what holds the very machines that were accused before, such as a lock in compiled code: no machine."""
    named = {suspect.machine for suspect in last.suspects}
    before = {machine for finding in findings[:-1] for machine in finding.evict}
    return last.blame in ("software", "workload") and not last.evict and bool(before) and before <= named


def _stands(findings: Sequence[Finding]) -> bool:
    """Nobody has left its place between the first capture and the last."""
    places = [{process.name: group.frames for group in finding.groups for process in group.processes} for finding in findings]
    return all(place == places[0] for place in places)


def _is_moving(first: Finding, last: Finding) -> bool:
    """More than half of the processes have changed their group: a hang with progress is no hang."""
    before = {process.name: group.frames for group in first.groups for process in group.processes}
    after = {process.name: group.frames for group in last.groups for process in group.processes}
    both = before.keys() & after.keys()
    return sum(before[name] != after[name] for name in both) * 2 > len(both)


def _surer(suspect: Accused, findings: Sequence[Finding]) -> Accused:
    """Agreement takes away a third of the doubt for every further capture."""
    doubt = (1 - suspect.confidence) * (2 / 3) ** (len(findings) - 1)
    return replace(suspect, confidence=round(min(0.99, 1 - doubt), 2))


def vote(outliers_by_round: Sequence[Sequence[str]], places: Places) -> tuple[str | None, tuple[str, ...], int] | None:
    """Fail-slow voting (ByteRobust, arXiv 2509.16293): each round flags its outliers' machine or group; who has most flags after 5 rounds.

    outliers_by_round: machines that stood out, round by round. Returns (group name or None, machines, flags); None where no round
    flags anybody, where the most flagged has not half of the rounds, or where two have equally many.
    """
    flags: Counter[tuple[str | None, tuple[str, ...]]] = Counter()
    for machines in outliers_by_round:
        if len(set(machines)) == 1:
            flags[(None, (machines[0],))] += 1
        elif machines and (cover := places.smallest_group(machines)) is not None and len(cover[1]) <= _GROUP_SHARE * len(places.machines):
            flags[cover] += 1
    ranking = flags.most_common(2)
    if len(outliers_by_round) < ROUNDS or not ranking or ranking[0][1] * 2 <= len(outliers_by_round):
        return None
    if len(ranking) > 1 and ranking[1][1] == ranking[0][1]:
        return None
    (name, machines), count = ranking[0]
    return name, machines, count


def _voted(agreed: Finding, voted: tuple[str | None, tuple[str, ...], int], findings: Sequence[Finding]) -> Finding:
    name, machines, count = voted
    because = f"flagged in {count} of {len(findings)} captures"
    flagged = [suspect for finding in findings for suspect in finding.suspects if suspect.machine in machines]
    one_each = {(suspect.machine, suspect.pid, suspect.rank): suspect for suspect in flagged}
    suspects = tuple(
        replace(s, confidence=round(0.5 + 0.4 * count / len(findings), 2), reason=f"{because}: {s.reason}") for s in one_each.values()
    )
    evicting = [finding for finding in findings if finding.evict and set(finding.evict) <= set(machines)]
    if len(evicting) * 2 <= len(findings):  # what stood out was the job's own code
        return replace(agreed, suspects=suspects, because=because)
    return replace(agreed, suspects=suspects, evict=machines, group=name, blame="machine", because=because)
