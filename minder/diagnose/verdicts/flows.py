"""The job's TCP connections: between whom, in which state of a transfer that does not end, in words, and who holds the job up by them.

The states are Mycroft's (arXiv 2509.03018). A flow is one queue pair, or one TCP connection. Three counters at the sender: bytes ready,
handed to the network, acknowledged. Over TCP the kernel acknowledges for a process that does not run, so a fourth is needed at the
receiver: bytes that no process has read. The table says what may be wrong on either side of one connection; who holds the job up takes
all of them.

In words they are evidence beside a suspicion. One line for each direction between two machines; parallel connections in one state are one
line with their sums. A line stands under a machine on whose side the table sees something: the sender, the receiver, or either. That a
machine has nothing more to send ("device not ready") is so of every machine that waits, and comes last.

**Who holds it up** (`find_*`): a receiver that leaves bytes unread does not run. Bytes that are sent again and again, or cannot even
leave, have a dead path between their ends, and the end that all dead paths share is the one to blame; so is the end of all failed tries
to reach one another. In a collective, the machine that has sent nothing since its peers sent is the one that they wait for. None of these
reads the process state or any counter that belongs to a cause. After Mycroft's flow counters (arXiv 2509.03018), with the receiver's
unread bytes that TCP needs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from minder.model.evidence import Evidence
from minder.model.telemetry import ConnectivityProbe, Flow
from minder.wire.addresses import host_of

__all__ = [
    "ON_THE_NETWORK",
    "SUSPICIONS",
    "Connection",
    "FlowCounters",
    "FlowFinding",
    "FlowLine",
    "FlowState",
    "Series",
    "Suspicion",
    "counters_of",
    "data_flows",
    "find_backlog",
    "find_broken",
    "find_cut_off",
    "find_silent",
    "find_slow_paths",
    "find_unreached",
    "find_unread",
    "flow_lines",
    "flow_state",
    "fuse_findings",
    "lines_as_evidence",
    "peer_of",
    "peers_of",
]

FlowState = Literal["not started", "not transmitted", "not delivered", "device not ready", "not read"]
ON_THE_NETWORK: frozenset[FlowState] = frozenset({"not transmitted", "not delivered"})  # what is ready has not all arrived


class Connection(NamedTuple):
    """One end of a connection: the machine that has it, and both addresses as that machine names them."""

    machine: str
    local: str
    remote: str


Series = Mapping[Connection, Sequence[Flow]]
_MOST_LINES = 4  # of one machine: a ring has two neighbours
_RANK: dict[FlowState, int] = {"not read": 0, "not delivered": 1, "not transmitted": 2, "not started": 3, "device not ready": 4}
_WORDS: dict[FlowState, str] = {
    "not started": "not started",
    "not transmitted": "the network stalls, unsent",
    "not delivered": "the network stalls, unacknowledged",
    "not read": "the receiver does not read",
    "device not ready": "nothing more is ready",
}


def data_flows(flows: Iterable[Flow]) -> dict[Connection, list[Flow]]:
    """Connections between two machines of the job, samples in time order.

    The other end is known by its own row, or, where that machine does not answer, by an address seen before on the job's rows:
    a connection to a store or to a file server is none of ours.
    """
    rows = sorted(flows, key=lambda flow: flow.time_s)
    ends = {(flow.local, flow.remote): flow.machine for flow in rows}
    hosts: dict[str, set[str]] = defaultdict(set)
    for flow in rows:
        hosts[host_of(flow.local)].add(flow.machine)
    series: dict[Connection, list[Flow]] = defaultdict(list)
    for flow in rows:
        peer = ends.get((flow.remote, flow.local))
        known = peer is not None or (len(hosts.get(host_of(flow.remote), ())) == 1 and flow.machine not in hosts[host_of(flow.remote)])
        if known and peer != flow.machine:
            series[Connection(flow.machine, flow.local, flow.remote)].append(flow)
    return dict(series)


def peer_of(key: Connection, series: Series) -> str | None:
    """The machine at the other end of a connection."""
    return peers_of(series, (key,))[key]


def peers_of(series: Series, keys: Iterable[Connection]) -> dict[Connection, str | None]:
    """The same of many connections."""
    ends = {(remote, local): machine for machine, local, remote in [*series][::-1]}  # the first one that fits
    hosts = {host_of(local): machine for machine, local, _ in series}
    return {key: ends.get((key.local, key.remote)) or hosts.get(host_of(key.remote)) for key in keys}


@dataclass(frozen=True, slots=True)
class FlowCounters:
    """Bytes of one flow at one time; unread_bytes is None where the other end is not seen (RDMA, or a silent agent)."""

    ready_bytes: int
    transmitted_bytes: int
    done_bytes: int
    unread_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What may be wrong on either side of a flow in a state; empty: nothing."""

    local: str
    remote: str


SUSPICIONS: Mapping[FlowState, Suspicion] = {
    "not started": Suspicion("not initialised", "blocked upstream"),
    "not transmitted": Suspicion("network card", "receiver not ready"),
    "not delivered": Suspicion("network card", "receiver failed"),
    "device not ready": Suspicion("device or software", ""),
    "not read": Suspicion("", "receiver does not run"),
}


def flow_state(counters: FlowCounters) -> FlowState:
    """The row of the table that a flow is in while its collective does not end.

    A process that does not read closes the window in the end: then bytes wait at the sender too, and nothing is on its way.

    >>> flow_state(FlowCounters(ready_bytes=4096, transmitted_bytes=4096, done_bytes=1024))
    'not delivered'
    """
    on_the_way = counters.transmitted_bytes > counters.done_bytes
    if counters.unread_bytes and not on_the_way:
        return "not read"
    if counters.ready_bytes > counters.transmitted_bytes:
        return "not transmitted"
    if on_the_way:
        return "not delivered"
    return "not started" if counters.ready_bytes == 0 else "device not ready"


def counters_of(flow: Flow, receiver: Flow | None = None) -> FlowCounters:
    """Counters of a TCP connection from its two ends' kernel records.

    Of a kernel that does not tell how much is unsent: with no segment in flight, all that waits is.
    """
    waiting = flow.send_queue_bytes
    unsent = min(flow.unsent_bytes, waiting) or (0 if flow.unacked_segments > 0 else waiting)
    unread = None if receiver is None else receiver.receive_queue_bytes
    done = 0 if flow.bytes_acked == 1 else flow.bytes_acked  # the end that opened the connection has 1 before it sent anything: its SYN
    return FlowCounters(done + waiting, done + waiting - unsent, done, unread)


@dataclass(frozen=True, slots=True)
class FlowLine:
    """What the connections from one machine to another have in common now; counters are sums over `connections` of them."""

    sender: str
    receiver: str
    state: FlowState
    counters: FlowCounters
    connections: int

    def stuck_bytes(self) -> int:
        """Of this direction: unread, or not acknowledged."""
        return (self.counters.unread_bytes or 0) + self.counters.ready_bytes - self.counters.done_bytes

    def concerns(self, machine: str) -> bool:
        """Whether the table suspects anything on this machine's side."""
        suspicion = SUSPICIONS[self.state]
        return (machine == self.sender and bool(suspicion.local)) or (machine == self.receiver and bool(suspicion.remote))

    def message(self) -> str:
        counters, suspicion = self.counters, SUSPICIONS[self.state]
        sizes = f"ready {counters.ready_bytes:,} B, transmitted {counters.transmitted_bytes:,}, acknowledged {counters.done_bytes:,}"
        unread = "" if counters.unread_bytes is None else f", unread {counters.unread_bytes:,}"
        sides = [f"{what} at {where}" for what, where in ((suspicion.local, self.sender), (suspicion.remote, self.receiver)) if what]
        return f"{self.sender} to {self.receiver}: {_WORDS[self.state]} ({sizes}{unread}; {' or '.join(sides)})"


def flow_lines(series: Series) -> list[FlowLine]:
    """The newest look at every connection, by sender, receiver and state; the worst first.

    Connections that were opened and never used are left out of a job that has used others: no operation waits for them.
    """
    newest, peers = {key: samples[-1] for key, samples in series.items()}, peers_of(series, series)
    found: dict[tuple[str, str, FlowState], list[FlowCounters]] = {}
    for key, flow in newest.items():
        sender, local, remote = key
        receiver = peers[key]
        if receiver is None:
            continue
        counters = counters_of(flow, newest.get(Connection(receiver, remote, local)))
        found.setdefault((sender, receiver, flow_state(counters)), []).append(counters)
    used = {place: counters for place, counters in found.items() if place[2] != "not started"} or found
    lines = [FlowLine(*place, _sum(counters), len(counters)) for place, counters in used.items()]
    return sorted(lines, key=lambda line: (_RANK[line.state], -line.stuck_bytes(), line.sender, line.receiver))


def lines_as_evidence(lines: Sequence[FlowLine], machines: Collection[str], since_s: float) -> list[Evidence]:
    """Of each of these machines, its worst lines; of the whole job, where no machine is named. observed: bytes that are stuck.

    A line between two of them comes once.
    """
    if not machines:
        return [Evidence("flows", None, line.message(), None, None, line.stuck_bytes(), 0.0, since_s) for line in lines[:_MOST_LINES]]
    rest, found = list(lines), list[Evidence]()
    for machine in machines:
        own = [line for line in rest if line.concerns(machine)][:_MOST_LINES]
        rest = [line for line in rest if line not in own]
        found += [Evidence("flows", machine, line.message(), None, None, line.stuck_bytes(), 0.0, since_s) for line in own]
    return found


def _sum(counters: Sequence[FlowCounters]) -> FlowCounters:
    unread = [item.unread_bytes for item in counters if item.unread_bytes is not None]
    return FlowCounters(
        sum(item.ready_bytes for item in counters),
        sum(item.transmitted_bytes for item in counters),
        sum(item.done_bytes for item in counters),
        sum(unread) if unread else None,
    )


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
