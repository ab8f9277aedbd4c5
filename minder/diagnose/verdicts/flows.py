"""The job's TCP connections: between whom, in which state of a transfer that does not end, and in words.

The states are Mycroft's (arXiv 2509.03018). A flow is one queue pair, or one TCP connection. Three counters at the sender: bytes ready,
handed to the network, acknowledged. Over TCP the kernel acknowledges for a process that does not run, so a fourth is needed at the
receiver: bytes that no process has read. The table says what may be wrong on either side of one connection; who holds the job up takes
all of them (minder.diagnose.verdicts.flow_findings).

In words they are evidence beside a suspicion. One line for each direction between two machines; parallel connections in one state are one
line with their sums. A line stands under a machine on whose side the table sees something: the sender, the receiver, or either. That a
machine has nothing more to send ("device not ready") is so of every machine that waits, and comes last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from minder.model.evidence import Evidence
from minder.model.telemetry import Flow
from minder.wire.addresses import host_of

__all__ = [
    "ON_THE_NETWORK",
    "SUSPICIONS",
    "Connection",
    "FlowCounters",
    "FlowLine",
    "FlowState",
    "Series",
    "Suspicion",
    "counters_of",
    "data_flows",
    "flow_lines",
    "flow_state",
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
