"""Mycroft's table: in which state a flow is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minder.diagnose.verdicts.flows import FlowCounters, counters_of, flow_state
from minder.model.telemetry import Flow


def counters(ready: int, sent: int, done: int, unread: int | None = None) -> FlowCounters:
    return FlowCounters(ready, sent, done, unread)


@pytest.mark.parametrize(
    ("sender", "state"),
    [
        (counters(0, 0, 0), "not started"),
        (counters(9, 5, 5), "not transmitted"),
        (counters(9, 9, 5), "not delivered"),
        (counters(9, 9, 9), "device not ready"),
        (counters(9, 9, 9, unread=0), "device not ready"),
        (counters(9, 9, 9, unread=4), "not read"),
        (counters(9, 5, 5, unread=4), "not read"),  # its window is closed
        (counters(9, 7, 5, unread=4), "not transmitted"),
    ],
)
def test_rows_of_the_table(sender: FlowCounters, state: str) -> None:
    assert flow_state(sender) == state


def flow(queue: int, unacked: int, acked: int, unread: int = 0) -> Flow:
    return Flow("m0", 1.0, 1, "a:1", "b:2", unread, queue, unacked, 0, 0, 0.001, acked, 0, 0.0, 0.0)


def test_a_stopped_receiver_shows_only_in_its_unread_bytes() -> None:
    """The kernel acknowledges for a process that does not run: all three counters are equal."""
    assert flow_state(counters_of(flow(0, 0, 500))) == "device not ready"
    assert flow_state(counters_of(flow(0, 0, 500), flow(0, 0, 0, unread=96))) == "not read"
    assert flow_state(counters_of(flow(10, 1, 500))) == "not delivered"
    assert flow_state(counters_of(flow(10, 0, 500))) == "not transmitted"


def test_the_kernels_own_count_of_what_is_unsent_goes_before_the_guess() -> None:
    both = replace(flow(10, 1, 500), unsent_bytes=4)
    assert counters_of(both) == FlowCounters(510, 506, 500)
    assert flow_state(counters_of(both)) == "not transmitted"


def test_the_syn_of_who_opened_the_connection_is_no_data() -> None:
    assert flow_state(counters_of(flow(0, 0, 1))) == "not started"
