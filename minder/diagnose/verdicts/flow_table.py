"""The job's connections in Mycroft's state table, in words: evidence beside a suspicion, which `flows` and `stall` form.

One line for each direction between two machines; parallel connections in one state are one line with their sums. A line is told of a
machine on whose side the table sees something: of the sender, of the receiver, or of either. That a machine has nothing more to send
("device not ready") is so of everybody who waits, and told last.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from minder.diagnose.verdicts.flow_counters import SUSPICIONS, FlowCounters, FlowState, counters_of, flow_state
from minder.diagnose.verdicts.flows import Series, peers_of
from minder.model.evidence import Evidence

__all__ = ["FlowLine", "flow_lines", "lines_as_evidence"]

_MOST_LINES = 4  # of one machine: a ring has two neighbours
_RANK: dict[FlowState, int] = {"not read": 0, "not delivered": 1, "not transmitted": 2, "not started": 3, "device not ready": 4}
_WORDS: dict[FlowState, str] = {
    "not started": "not started",
    "not transmitted": "the network stalls, unsent",
    "not delivered": "the network stalls, unacknowledged",
    "not read": "the receiver does not read",
    "device not ready": "nothing more is ready",
}


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
        counters = counters_of(flow, newest.get((receiver, remote, local)))
        found.setdefault((sender, receiver, flow_state(counters)), []).append(counters)
    used = {place: counters for place, counters in found.items() if place[2] != "not started"} or found
    lines = [FlowLine(*place, _sum(counters), len(counters)) for place, counters in used.items()]
    return sorted(lines, key=lambda line: (_RANK[line.state], -line.stuck_bytes(), line.sender, line.receiver))


def lines_as_evidence(lines: Sequence[FlowLine], machines: Collection[str], since_s: float) -> list[Evidence]:
    """Of each of these machines, its worst lines; of the whole job, where nobody is named. observed: bytes that are stuck.

    A line between two of them is told once.
    """
    if not machines:
        return [Evidence("flows", None, line.message(), None, None, line.stuck_bytes(), 0.0, since_s) for line in lines[:_MOST_LINES]]
    rest, told = list(lines), list[Evidence]()
    for machine in machines:
        own = [line for line in rest if line.concerns(machine)][:_MOST_LINES]
        rest = [line for line in rest if line not in own]
        told += [Evidence("flows", machine, line.message(), None, None, line.stuck_bytes(), 0.0, since_s) for line in own]
    return told


def _sum(counters: Sequence[FlowCounters]) -> FlowCounters:
    unread = [item.unread_bytes for item in counters if item.unread_bytes is not None]
    return FlowCounters(
        sum(item.ready_bytes for item in counters),
        sum(item.transmitted_bytes for item in counters),
        sum(item.done_bytes for item in counters),
        sum(unread) if unread else None,
    )
