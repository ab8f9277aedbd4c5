"""Mycroft's table: which side of a flow is suspect."""

from __future__ import annotations

import pytest

from minder.collectives.counters import FlowCounters, counters_of, flow_state, judge_flow
from minder.types import Flow


def counters(ready: int, sent: int, done: int, unread: int | None = None) -> FlowCounters:
    return FlowCounters(0.0, ready, sent, done, unread)


@pytest.mark.parametrize(
    ("sender", "state"),
    [
        (counters(0, 0, 0), "not started"),
        (counters(9, 5, 5), "not transmitted"),
        (counters(9, 9, 5), "not delivered"),
        (counters(9, 9, 9), "device not ready"),
        (counters(9, 9, 9, unread=0), "device not ready"),
        (counters(9, 9, 9, unread=4), "not read"),
    ],
)
def test_rows_of_the_table(sender: FlowCounters, state: str) -> None:
    assert flow_state(sender) == state


def test_both_ends_decide_who_is_suspect() -> None:
    assert judge_flow(counters(9, 9, 5), counters(7, 7, 7))[0] == "remote"
    assert judge_flow(counters(9, 9, 5), counters(7, 7, 3))[0] == "local"
    assert judge_flow(counters(9, 9, 9, unread=4), None)[0] == "remote"
    assert judge_flow(counters(9, 9, 9), None)[0] == "local"
    assert judge_flow(counters(0, 0, 0), None)[0] is None
    assert judge_flow(counters(9, 5, 5), None)[0] is None


def flow(queue: int, unacked: int, acked: int, unread: int = 0) -> Flow:
    return Flow("m0", 1.0, 1, "a:1", "b:2", unread, queue, unacked, 0, 0, 0.001, acked, 0, 0.0, 0.0)


def test_a_stopped_receiver_shows_only_in_its_unread_bytes() -> None:
    """The kernel acknowledges for a process that does not run: all three counters are equal."""
    assert flow_state(counters_of(flow(0, 0, 500))) == "device not ready"
    assert flow_state(counters_of(flow(0, 0, 500), flow(0, 0, 0, unread=96))) == "not read"
    assert flow_state(counters_of(flow(10, 1, 500))) == "not delivered"
    assert flow_state(counters_of(flow(10, 0, 500))) == "not transmitted"
