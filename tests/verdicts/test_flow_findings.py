"""Which machine the job's connections blame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minder.diagnose.verdicts.flows import data_flows, find_broken, find_cut_off, find_silent, find_slow_paths, find_unread, peer_of
from minder.model.telemetry import ConnectivityProbe, Flow

Make = Callable[..., Any]
Change = Callable[[str, str], Mapping[str, Any]]


def looks(scene: Any, change: Change, times: int = 4, apart_s: float = 0.3) -> list[Flow]:
    return [flow for index in range(times) for flow in scene.ring(10.0 + index * apart_s, change)]


def unread_at(machine: str) -> Change:
    return lambda one, two: {"receive_queue_bytes": 5000} if one == machine else {"unacked_segments": 0}


def broken_at(machine: str) -> Change:
    """Packets to and from it vanish: its peers, and it itself, send again and hear nothing."""
    dead = {"unacked_segments": 3, "backoff": 2, "send_queue_bytes": 9000}
    return lambda one, two: dead if machine in (one, two) else {}


def test_unread_bytes_name_the_machine_that_does_not_run(scene: Any) -> None:
    findings = find_unread(data_flows(looks(scene, unread_at("m2"))))
    assert [item.machine for item in findings] == ["m2"]


def test_a_queue_that_empties_or_is_seen_once_only_says_nothing(scene: Any) -> None:
    once = data_flows(scene.ring(10.0, unread_at("m2")))
    assert find_unread(once) == []
    draining = [
        flow for index in range(4) for flow in scene.ring(10 + index * 0.3, lambda one, two, n=index: {"receive_queue_bytes": 900 - n})
    ]
    assert find_unread(data_flows(draining)) == []


def test_who_retransmits_itself_is_stuck_behind_somebody_else(scene: Any) -> None:
    def change(one: str, two: str) -> Mapping[str, Any]:
        if one == "m1":
            return {"receive_queue_bytes": 4000, "unacked_segments": 2, "backoff": 1, "send_queue_bytes": 100}
        return {"receive_queue_bytes": 4000} if one == "m2" else {}

    assert [item.machine for item in find_unread(data_flows(looks(scene, change)))] == ["m2"]


def test_the_common_end_of_broken_connections_is_named(make_scene: Make) -> None:
    scene = make_scene(count=6)
    (finding,) = find_broken(data_flows(looks(scene, broken_at("m4"))))
    assert finding.machine == "m4" and finding.weight > 0.8


def test_its_peers_alone_are_enough_where_it_does_not_answer(make_scene: Make) -> None:
    """The lost machine's own rows are missing: its address is known from before."""
    scene = make_scene(count=6)
    before = scene.ring(9.0, lambda one, two: {})
    now = [flow for flow in looks(scene, broken_at("m4")) if flow.machine != "m4"]
    (finding,) = find_broken(data_flows([*before, *now]))
    assert finding.machine == "m4"


def test_bytes_that_its_own_host_does_not_let_out_are_a_broken_connection_too(make_scene: Make) -> None:
    """Seen: the dead machine has nothing in flight, only probes without an answer; one peer sends again, the other only waits."""
    held = {"send_queue_bytes": 192, "backoff": 4, "unanswered_probes": 4}
    again = {"send_queue_bytes": 192, "backoff": 4, "unacked_segments": 1}

    def change(one: str, two: str) -> Mapping[str, Any]:
        return held if one == "m2" else again if (one, two) == ("m1", "m2") else {}

    (finding,) = find_broken(data_flows(looks(make_scene(count=6), change)))
    assert finding.machine == "m2" and finding.weight > 0.8


def test_a_receiver_without_room_answers_its_probes(make_scene: Make) -> None:
    waiting = {"send_queue_bytes": 90_000, "backoff": 5, "unanswered_probes": 1}
    flows = looks(make_scene(count=6), lambda one, two: waiting if two == "m2" else {})
    assert find_broken(data_flows(flows)) == []


def tries(scene: Any, reached: Callable[[str, str], bool], at_s: float = 12.0) -> list[ConnectivityProbe]:
    """Every machine of a ring tries its two neighbours."""
    series = data_flows(scene.ring(10.0, lambda one, two: {}))
    host = {machine: local.rsplit(":", 1)[0] for machine, local, _ in series}
    ring = [(key[0], peer) for key in series if (peer := peer_of(key, series)) is not None]
    return [ConnectivityProbe(one, at_s, host[one], host[two], reached(one, two), 0.001) for one, two in ring]


def test_the_common_end_of_failed_tries_is_cut_off(make_scene: Make) -> None:
    scene = make_scene(count=6)
    series = data_flows(scene.ring(10.0, lambda one, two: {}))
    (finding,) = find_cut_off(tries(scene, lambda one, two: "m4" not in (one, two)), series)
    assert (finding.machine, finding.observed) == ("m4", 2.0) and finding.weight > 0.8


@pytest.mark.parametrize(
    "reached",
    [
        lambda one, two: True,
        lambda one, two: False,  # a firewall, not a machine
        lambda one, two: {one, two} != {"m3", "m4"},  # one path
        lambda one, two: "m4" not in (one, two) and "m1" not in (one, two),  # two at once
        lambda one, two: two != "m4",  # it refuses to be reached, but reaches others
    ],
    ids=["all", "none", "one path", "two machines", "one way only"],
)
def test_tries_that_single_out_nobody_name_nobody(make_scene: Make, reached: Callable[[str, str], bool]) -> None:
    scene = make_scene(count=6)
    assert find_cut_off(tries(scene, reached), data_flows(scene.ring(10.0, lambda one, two: {}))) == []


def test_a_pair_counts_by_its_newest_try(make_scene: Make) -> None:
    scene = make_scene(count=6)
    flaky = [*tries(scene, lambda one, two: "m4" not in (one, two)), *tries(scene, lambda one, two: True, at_s=15.0)]
    assert find_cut_off(flaky, data_flows(scene.ring(10.0, lambda one, two: {}))) == []


def test_one_broken_connection_cannot_tell_which_end(scene: Any) -> None:
    dead = {"unacked_segments": 3, "backoff": 2, "send_queue_bytes": 9000}
    findings = find_broken(data_flows(looks(scene, lambda one, two: dead if (one, two) == ("m0", "m1") else {})))
    assert {item.machine for item in findings} == {"m0", "m1"}
    assert all(item.weight < 0.5 for item in findings)


def test_the_silent_one_in_the_collective_is_named(scene: Any) -> None:
    ages = {"m0": 4.0, "m1": 4.1, "m2": 5.0, "m3": 4.05}
    change: Change = lambda one, two: {"last_send_age_s": ages[one]}  # noqa: E731
    (finding,) = find_silent(data_flows(scene.ring(10.0, change)), 0.3)
    assert finding.machine == "m2" and finding.observed == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize(
    "ages", [(4.0, 4.0, 4.0, 4.0), (4.0, 4.4, 4.7, 5.0), (4.0, 6.0, 6.1, 6.2)], ids=["alike", "a staircase", "one ahead"]
)
def test_nobody_is_the_silent_one_where_all_look_alike(scene: Any, ages: tuple[float, ...]) -> None:
    change: Change = lambda one, two: {"last_send_age_s": ages[int(one[1])]}  # noqa: E731
    assert find_silent(data_flows(scene.ring(10.0, change)), 0.25) == []


def test_two_machines_cannot_say_who_is_silent(make_scene: Make) -> None:
    scene = make_scene(count=2)
    change: Change = lambda one, two: {"last_send_age_s": 9.0 if one == "m1" else 1.0}  # noqa: E731
    assert find_silent(data_flows(scene.ring(10.0, change)), 0.3) == []


def test_a_slow_machine_has_only_slow_connections_its_neighbours_one(make_scene: Make) -> None:
    scene = make_scene(count=6)

    def at(index: int) -> Change:
        return lambda one, two: {"round_trip_s": 0.2 if "m3" in (one, two) else 0.0003, "bytes_acked": 1000 * (index + 1)}

    flows = [flow for index in range(4) for flow in scene.ring(10 + index * 0.3, at(index))]
    (finding,) = find_slow_paths(data_flows(flows))
    assert finding.machine == "m3"


def test_all_slow_together_is_nobody(make_scene: Make) -> None:
    scene = make_scene(count=6)
    flows = [
        flow
        for index in range(4)
        for flow in scene.ring(10 + index * 0.3, lambda one, two, n=index: {"round_trip_s": 0.3, "bytes_acked": 1000 * (n + 1)})
    ]
    assert find_slow_paths(data_flows(flows)) == []


def test_a_connection_to_a_file_server_is_none_of_the_jobs(scene: Any) -> None:
    server = scene.flow("m1", "m2", 10.0, remote="192.168.7.7:2049", receive_queue_bytes=100)
    assert all(key[2] != "192.168.7.7:2049" for key in data_flows([server, *scene.ring(10.0, lambda one, two: {})]))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(guilty=st.integers(0, 5), shuffle=st.randoms(), kind=st.sampled_from(["unread", "broken", "silent"]))
def test_neither_names_nor_the_order_of_rows_change_who_is_found(make_scene: Make, guilty: int, shuffle: Any, kind: str) -> None:
    scene, who = make_scene(count=6), f"m{guilty}"
    silent: Change = lambda one, two: {"last_send_age_s": 6.0 if one == who else 4.0}  # noqa: E731
    change = {"unread": unread_at(who), "broken": broken_at(who), "silent": silent}[kind]
    flows = looks(scene, change)
    shuffle.shuffle(flows)
    series = data_flows(flows)
    found = {"unread": find_unread, "broken": find_broken, "silent": lambda rows: find_silent(rows, 0.3)}[kind](series)
    assert [item.machine for item in found] == [who]
