"""Per-flow counters and what they say of a transfer that does not end (Mycroft, arXiv 2509.03018).

A flow is one queue pair, or one TCP connection. Three counters at the sender: bytes ready, handed to the network, acknowledged.
Over TCP the kernel acknowledges for a process that does not run, so a fourth is needed at the receiver: bytes that nobody has read.
The table says what may be wrong on either side; who is to blame takes the flows of the whole job (minder.diagnose.verdicts.flows).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from minder.model.telemetry import Flow

__all__ = ["ON_THE_NETWORK", "SUSPICIONS", "FlowCounters", "FlowState", "Suspicion", "counters_of", "flow_state"]

FlowState = Literal["not started", "not transmitted", "not delivered", "device not ready", "not read"]
ON_THE_NETWORK: frozenset[FlowState] = frozenset({"not transmitted", "not delivered"})  # what is ready has not all arrived


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

    Who does not read closes the window in the end: then bytes wait at the sender too, and nothing is on its way.

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
    done = 0 if flow.bytes_acked == 1 else flow.bytes_acked  # whoever opened the connection has 1 before it sent anything: its SYN
    return FlowCounters(done + waiting, done + waiting - unsent, done, unread)
