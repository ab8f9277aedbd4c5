"""What the job's TCP connections say about who holds it up (pure functions over minder.model.telemetry.Flow).

A receiver that leaves bytes unread does not run. Bytes that are sent again and again, or cannot even leave, have a dead path between their
ends, and the end that all dead paths share is the one to blame; so is the end of all failed tries to reach one another. In a collective,
the machine that has sent nothing since its peers sent is the one that they wait for. None of these reads the process state or any counter
that belongs to a cause. After Mycroft's flow counters (arXiv 2509.03018), with the receiver's unread bytes that TCP needs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from minder.diagnose.verdicts.flows import ON_THE_NETWORK, Connection, Series, counters_of, flow_state, peer_of
from minder.model.telemetry import ConnectivityProbe, Flow
from minder.wire.addresses import host_of

__all__ = [
    "FlowFinding",
    "find_backlog",
    "find_broken",
    "find_cut_off",
    "find_silent",
    "find_slow_paths",
    "find_unreached",
    "find_unread",
    "fuse_findings",
]

_SLOW_TRIP_S = 0.004
_BACKLOG_BYTES = 4096
_PROBES = 2  # one may be on its way


@dataclass(frozen=True, slots=True)
class FlowFinding:
    """One statement about one machine. weight: how far it alone would convince, 0..1."""

    machine: str
    kind: str
    weight: float
    message: str
    observed: float
    expected: float


def fuse_findings(findings: Sequence[FlowFinding]) -> list[tuple[str, float]]:
    """(machine, confidence), surest first: independent findings about one machine add up, 1 - prod(1 - weight)."""
    doubt: dict[str, float] = defaultdict(lambda: 1.0)
    for item in findings:
        doubt[item.machine] *= 1.0 - item.weight
    return sorted(((machine, min(0.99, 1.0 - rest)) for machine, rest in doubt.items()), key=lambda pair: -pair[1])


def find_unread(series: Series, held_s: float = 0.5) -> list[FlowFinding]:
    """Machines whose receive queues keep unread bytes for `held_s` or longer while nothing is read.

    Not those that retransmit themselves: they are stuck behind another machine, and that backs up to their own senders.
    """
    unread: dict[str, float] = defaultdict(float)
    behind = {key.machine for key, samples in series.items() if _unanswered(samples[-1])}
    for (machine, _, _), samples in series.items():
        first, last = samples[0], samples[-1]
        stuck = all(flow.receive_queue_bytes > 0 for flow in samples) and last.receive_queue_bytes >= first.receive_queue_bytes
        if stuck and machine not in behind and last.time_s - first.time_s >= held_s:
            unread[machine] += last.receive_queue_bytes
    message = "leaves {:.0f} B of its peers' data unread"
    return [FlowFinding(machine, "unread", 0.85, message.format(size), size, 0.0) for machine, size in unread.items()]


def find_broken(series: Series) -> list[FlowFinding]:
    """The end that all connections share whose bytes are not acknowledged; none where only one such connection is seen."""
    edges: set[frozenset[str]] = set()
    worst: Counter[str] = Counter()
    for key, samples in series.items():
        last = samples[-1]
        peer = peer_of(key, series)
        if _unanswered(last) and peer is not None and flow_state(counters_of(last)) in ON_THE_NETWORK:
            edges.add(frozenset((key.machine, peer)))
            worst[key.machine] = max(worst[key.machine], last.backoff)
            worst[peer] = max(worst[peer], last.backoff)
    degrees = Counter(machine for edge in edges for machine in edge)
    if not degrees:
        return []
    top, count = degrees.most_common(1)[0]
    tied = [machine for machine, degree in degrees.items() if degree == count]
    if len(tied) > 1 or count < 2:
        weight = 0.3
    else:
        weight = 0.9 if count == len(edges) else 0.6
        tied = [top]
    return [
        FlowFinding(
            machine, "broken", weight, f"{degrees[machine]} of {len(edges)} connections whose bytes are not acknowledged end here",
            float(degrees[machine]), 0.0,
        )
        for machine in tied
    ]  # fmt: skip


def find_cut_off(attempts: Iterable[ConnectivityProbe], series: Series) -> list[FlowFinding]:
    """The end that all failed tries share, where other tries succeed; none where tries fail between others too.

    Where nothing at all can be reached, a firewall is the reason and no machine stands out. A pair counts by its newest try.
    """
    newest = _newest_tries(attempts, series)
    failed = {frozenset(pair) for pair, attempt in newest.items() if not attempt.reached}
    degrees = Counter(machine for edge in failed for machine in edge)
    if not failed:
        return []
    top, count = degrees.most_common(1)[0]
    whole = all(top in edge for edge in failed) and not any(attempt.reached for pair, attempt in newest.items() if top in pair)
    if count < 2 or not whole or not any(attempt.reached for attempt in newest.values()):
        return []
    message = f"neither reaches its peers nor is reached by them: {count} of {count} tries, while theirs to others succeed"
    return [FlowFinding(top, "cut off", 0.9, message, float(count), 0.0)]


def find_unreached(machine: str, attempts: Iterable[ConnectivityProbe], series: Series) -> list[FlowFinding]:
    """The machine itself, where no try from it or to it succeeds, and a peer that it does not reach is reached by others.

    For one machine that is suspected already: a ring has a single connection to it, and one failed try has two ends.
    """
    newest = _newest_tries(attempts, series)
    mine = {pair: attempt for pair, attempt in newest.items() if machine in pair}
    reached = {name for pair, attempt in newest.items() if attempt.reached for name in pair}
    peers = {name for pair in mine for name in pair if name != machine}
    if not mine or machine in reached or not peers & reached:
        return []
    message = f"neither reaches its peers nor is reached by them: {len(mine)} of {len(mine)} tries, while theirs to others succeed"
    return [FlowFinding(machine, "cut off", 0.8, message, float(len(mine)), 0.0)]


def _newest_tries(attempts: Iterable[ConnectivityProbe], series: Series) -> dict[tuple[str, str], ConnectivityProbe]:
    """(who tried, whom) to the newest try, between machines whose addresses are known. A machine's try of its own says whose it is."""
    attempts = sorted(attempts, key=lambda item: item.time_s)
    hosts = {attempt.local: attempt.machine for attempt in attempts} | {host_of(local): machine for machine, local, _ in series}
    found: dict[tuple[str, str], ConnectivityProbe] = {}
    for attempt in attempts:
        peer = hosts.get(attempt.remote)
        if peer is not None and peer != attempt.machine and attempt.local != attempt.remote:
            found[(attempt.machine, peer)] = attempt
    return found


def find_silent(series: Series, margin_s: float) -> list[FlowFinding]:
    """The machine whose newest send to any peer is older than everybody else's by `margin_s`: it has not entered the collective."""
    newest: dict[str, float] = {}
    for (machine, _, _), samples in series.items():
        sent_s = max(flow.time_s - flow.last_send_age_s for flow in samples)
        newest[machine] = max(newest.get(machine, -np.inf), sent_s)
    if len(newest) < 3:
        return []
    order = sorted(newest, key=lambda machine: newest[machine])
    first, second = order[0], order[1]
    gap_s = newest[second] - newest[first]
    spread_s = newest[order[-1]] - newest[second]
    if gap_s < margin_s or gap_s < spread_s / 2:
        return []
    message = f"sent nothing to its peers for {gap_s:.2f} s after the last of them had sent"
    return [FlowFinding(first, "silent", 0.75, message, gap_s, spread_s)]


def find_slow_paths(series: Series) -> list[FlowFinding]:
    """The machine all of whose busy connections have a round trip far above everybody else's.

    A neighbour of a slow machine has one slow connection among fast ones; the slow machine has only slow ones. A connection is
    busy if it carries a fifth or more of what the machine's busiest one carries: an idle one keeps the round trip of better days.
    """
    fastest: dict[str, float] = {}
    for (machine, _, _), samples in _busy(series).items():
        trip_s = float(np.median([flow.round_trip_s for flow in samples]))
        fastest[machine] = min(fastest.get(machine, np.inf), trip_s)
    if len(fastest) < 3:
        return []
    order = sorted(fastest, key=lambda machine: -fastest[machine])
    top, rest = order[0], [fastest[machine] for machine in order[1:]]
    expected_s = float(np.median(rest))
    if fastest[top] < max(_SLOW_TRIP_S, 5 * expected_s, 2 * max(rest)):
        return []
    message = f"even its fastest busy connection takes {fastest[top] * 1000:.1f} ms a round trip, its peers' {expected_s * 1000:.2f} ms"
    return [FlowFinding(top, "slow path", 0.8, message, fastest[top], expected_s)]


def find_backlog(series: Series) -> list[FlowFinding]:
    """The common end of the connections that mostly hold bytes which they cannot get rid of, if there are two or more of them."""
    edges: set[frozenset[str]] = set()
    held: dict[str, float] = defaultdict(float)
    for key, samples in _busy(series).items():
        sizes = [flow.send_queue_bytes for flow in samples]
        peer = peer_of(key, series)
        if len(sizes) >= 4 and peer is not None and np.mean([size > _BACKLOG_BYTES for size in sizes]) >= 0.4:
            edges.add(frozenset((key.machine, peer)))
            for machine in (key.machine, peer):
                held[machine] = max(held[machine], float(np.mean(sizes)))
    degrees = Counter(machine for edge in edges for machine in edge)
    if not degrees:
        return []
    top, count = degrees.most_common(1)[0]
    if count < 2 or count < len(edges) or list(degrees.values()).count(count) > 1:
        return []
    message = f"all {count} connections that cannot send what they hold end here"
    return [FlowFinding(top, "backlog", 0.7, message, held[top], 0.0)]


def _busy(series: Series) -> dict[Connection, Sequence[Flow]]:
    moved = {}
    for key, samples in series.items():
        first, last = samples[0], samples[-1]
        moved[key] = max(last.bytes_acked - first.bytes_acked, 0) + max(last.bytes_received - first.bytes_received, 0)
    most: dict[str, int] = defaultdict(int)
    for (machine, _, _), size in moved.items():
        most[machine] = max(most[machine], size)
    return {key: samples for key, samples in series.items() if moved[key] > 0 and moved[key] >= 0.2 * most[key.machine]}


def _unanswered(flow: Flow) -> bool:
    """Its bytes are sent again, or are held back by its own host and probed for, and no acknowledgement comes.

    What a host may not send counts as not sent: its link is dead, nothing is in flight, and only the probes are counted. A
    receiver without room answers each probe.
    """
    return (flow.unacked_segments > 0 and flow.backoff > 0) or flow.unanswered_probes >= _PROBES
