"""The state table of a whole job's connections, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from minder.diagnose.verdicts.flows import FlowLine, data_flows, flow_lines, lines_as_evidence
from minder.model.telemetry import Flow

Change = Callable[[str, str], Mapping[str, Any]]


def lines_of(scene: Any, change: Change) -> list[FlowLine]:
    return flow_lines(data_flows(scene.ring(10.0, change)))


def test_a_receiver_that_does_not_read_is_told_of_by_both_its_neighbours(scene: Any) -> None:
    lines = lines_of(scene, lambda one, two: {"receive_queue_bytes": 96} if one == "m2" else {})
    assert [(line.sender, line.receiver, line.state) for line in lines[:2]] == [("m1", "m2", "not read"), ("m3", "m2", "not read")]
    assert lines[0].message() == (
        "m1 to m2: the receiver does not read "
        "(ready 1,000 B, transmitted 1,000, acknowledged 1,000, unread 96; receiver does not run at m2)"
    )
    told = lines_as_evidence(lines, ("m2",), 5.0)
    assert [(item.machine, item.observed) for item in told[:2]] == [("m2", 96), ("m2", 96)]
    assert not [item for item in lines_as_evidence(lines, ("m1",), 5.0) if "does not read" in item.message]


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"send_queue_bytes": 300, "unacked_segments": 1}, "not delivered"),
        ({"send_queue_bytes": 300}, "not transmitted"),
        ({"send_queue_bytes": 300, "unacked_segments": 1, "unsent_bytes": 200}, "not transmitted"),
        ({}, "device not ready"),
    ],
)
def test_each_state_is_found_and_both_suspicions_told(scene: Any, change: Mapping[str, Any], state: str) -> None:
    (line,) = [
        item
        for item in lines_of(scene, lambda one, two: change if (one, two) == ("m0", "m1") else {})
        if item.sender == "m0" and item.receiver == "m1"
    ]
    assert line.state == state
    assert line.stuck_bytes() == change.get("send_queue_bytes", 0)
    assert line.concerns("m0") and line.concerns("m1") == (state != "device not ready") and not line.concerns("m2")


def test_the_worst_come_first_and_parallel_connections_add_up(scene: Any) -> None:
    def other(flow: Flow) -> Flow:
        moved = {"local": flow.local[:-2] + "99", "remote": flow.remote[:-2] + "99"}
        return Flow(**{**{name: getattr(flow, name) for name in Flow.__slots__}, **moved})

    flows = scene.ring(10.0, lambda one, two: {"send_queue_bytes": 300, "unacked_segments": 1} if one == "m3" and two == "m0" else {})
    lines = flow_lines(data_flows([*flows, *map(other, flows)]))
    assert (lines[0].sender, lines[0].receiver, lines[0].connections, lines[0].counters.ready_bytes) == ("m3", "m0", 2, 2600)


def test_a_machine_has_four_lines_at_most_and_the_job_too(make_scene: Callable[..., Any]) -> None:
    scene = make_scene(count=8)
    flows = [scene.flow(one, two, 10.0, receive_queue_bytes=9) for one in scene.machines for two in scene.machines if one != two]
    lines = flow_lines(data_flows(flows))
    assert len(lines) == 56
    assert len(lines_as_evidence(lines, ("m0",), 0.0)) == len(lines_as_evidence(lines, (), 0.0)) == 4
    assert {item.machine for item in lines_as_evidence(lines, (), 0.0)} == {None}


def test_a_job_of_a_thousand_machines_is_read_at_once(make_scene: Callable[..., Any]) -> None:
    """Connections are joined with their other ends by one look-up each."""
    import time

    scene = make_scene(count=250)
    flows = [scene.flow(scene.machines[one], scene.machines[(one + off) % 250], 10.0) for one in range(250) for off in range(-8, 9) if off]
    series = data_flows(flows)
    begun_s = time.process_time()
    assert flow_lines(series)
    assert time.process_time() - begun_s < 1.0


def test_connections_that_were_never_used_are_told_only_where_none_was(scene: Any) -> None:
    fresh = {"bytes_acked": 1}
    lines = lines_of(scene, lambda one, two: fresh if "m0" in (one, two) else {})
    assert lines and not [line for line in lines if "m0" in (line.sender, line.receiver)]
    lines = lines_of(scene, lambda one, two: fresh)
    assert {line.state for line in lines} == {"not started"} and lines[0].concerns(lines[0].receiver)
