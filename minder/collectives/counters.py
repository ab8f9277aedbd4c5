"""Per-flow counters and what they say of a transfer that does not end (Mycroft, seed-systems.md section 1.1).

A flow is one queue pair, or one TCP connection. Three counters at the sender: bytes ready, handed to the network, acknowledged.
Over TCP the kernel acknowledges for a process that does not run, so a fourth is needed at the receiver: bytes that nobody has read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from minder.types import Flow

__all__ = ["SUSPICIONS", "FlowCounters", "FlowState", "Suspicion", "counters_of", "flow_state", "judge_flow"]

FlowState = Literal["not started", "not transmitted", "not delivered", "device not ready", "not read"]
Side = Literal["local", "remote"]


@dataclass(frozen=True, slots=True)
class FlowCounters:
    """Bytes of one flow at one time; unread_bytes is None where the other end is not seen (RDMA, or a silent agent)."""

    time_s: float
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

    >>> flow_state(FlowCounters(0.0, ready_bytes=4096, transmitted_bytes=4096, done_bytes=1024))
    'not delivered'
    """
    if counters.ready_bytes > counters.transmitted_bytes:
        return "not transmitted"
    if counters.transmitted_bytes > counters.done_bytes:
        return "not delivered"
    if counters.unread_bytes:
        return "not read"
    return "not started" if counters.ready_bytes == 0 else "device not ready"


def judge_flow(sender: FlowCounters, receiver: FlowCounters | None) -> tuple[Side | None, str]:
    """Which side of a stuck flow is suspect, by both ends: (None, reason) where the counters do not decide.

    A sender whose bytes are not acknowledged, while the receiver's own sends all are, points at the receiver.
    """
    state = flow_state(sender)
    suspicion = SUSPICIONS[state]
    if state == "not read":
        return "remote", suspicion.remote
    if state == "device not ready":
        return "local", suspicion.local
    if state == "not delivered" and receiver is not None:
        if flow_state(receiver) in ("device not ready", "not started"):
            return "remote", suspicion.remote
        return "local", suspicion.local
    return None, f"{suspicion.local} here, or {suspicion.remote} there"


def counters_of(flow: Flow, receiver: Flow | None = None) -> FlowCounters:
    """Counters of a TCP connection from its two ends' kernel records.

    The kernel record has no separate count of bytes not yet sent: with no segment in flight, all that waits is unsent.
    """
    waiting = flow.send_queue_bytes
    on_the_way = waiting if flow.unacked_segments > 0 else 0
    unread = None if receiver is None else receiver.receive_queue_bytes
    return FlowCounters(flow.time_s, flow.bytes_acked + waiting, flow.bytes_acked + on_the_way, flow.bytes_acked, unread)
