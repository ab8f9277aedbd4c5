"""Two machines exchange data: both directions are measured, a wrong byte is seen, a caller without the secret learns nothing."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from minder.edge.probes.contract import Finding, find_program
from minder.edge.probes.orders import Probing, parse_probes
from minder.edge.probes.pair import measure
from minder.edge.probes.pair_order import parse_pair
from minder.model.errors import BadInputError

LISTENER, CALLER = "127.0.0.1", "127.0.0.2"
SECRET = "5e" * 32


def free_port() -> int:
    with socket.socket() as free:
        free.bind((LISTENER, 0))
        return int(free.getsockname()[1])


def sides(port: int, **of_caller: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    both = {"port": port, "generation": 3, "secret": SECRET, "collective": False}
    return (
        {"own": LISTENER, "peer": CALLER, "role": "listen", **both},
        {"own": CALLER, "peer": LISTENER, "role": "connect", **both, **of_caller},
    )


def play(listener: dict[str, Any], caller: dict[str, Any]) -> tuple[Finding, Finding]:
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(measure, {"block_bytes": 1 << 16, "contact_s": 0.4, **options}) for options in (listener, caller)]
        first, second = (item.result(30.0) for item in both)
    return first, second


def values(found: Finding) -> dict[str, float]:
    return {item.name: item.value for item in found.measures}


def test_each_direction_is_measured_once_and_both_sides_say_the_same_of_it() -> None:
    listener, caller = sides(free_port())
    one, other = play({"pair": listener, "contact_s": 10.0}, {"pair": caller, "contact_s": 10.0})
    assert (one.state, other.state) == ("measured", "measured"), (one.detail, other.detail)
    mine, theirs = values(one), values(other)
    assert len(mine) == 4 and all(value > 0 for value in mine.values())
    assert {name.replace("send", "x").replace("receive", "send").replace("x", "receive"): value for name, value in mine.items()} == theirs
    assert {item.unit for item in one.measures} == {"B/s", "s"}


def test_an_all_gather_for_gpus_only_costs_a_machine_without_them_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minder.edge.probes.pair._has_gpus", lambda: False)
    gather = {"collective": True, "gpus_only": True}
    one, _ = play(*({"pair": {**side, **gather}, "contact_s": 10.0} for side in sides(free_port())))
    assert one.state == "measured" and "pair_all_gather_bandwidth" not in values(one)


@pytest.mark.parametrize("wrong", ["listener", "caller"])
def test_one_flipped_bit_is_seen_by_who_receives_it_and_both_fail(wrong: str) -> None:
    listener, caller = ({"pair": item, "contact_s": 10.0} for item in sides(free_port()))
    (listener if wrong == "listener" else caller)["corrupt"] = True
    one, other = play(listener, caller)
    assert one.state == other.state == "failed"
    receiver = other if wrong == "listener" else one
    assert receiver.detail.startswith(f"what came from {LISTENER if wrong == 'listener' else CALLER} is not what was sent")


@pytest.mark.parametrize("foreign", [{"secret": "0" * 64}, {"generation": 2}])
def test_a_caller_with_another_secret_or_generation_is_turned_away(foreign: dict[str, Any]) -> None:
    """Whether the peer would have come is not known then: the place was taken from it."""
    listener, caller = sides(free_port(), **foreign)
    one, other = play({"pair": listener}, {"pair": caller})
    assert one.state == "not_judged" and "did not prove that they have this order's secret" in one.detail
    assert other.state == "failed" and "no contact" in other.detail and not one.measures and not other.measures


def test_a_caller_that_is_turned_away_does_not_take_the_peers_place() -> None:
    port = free_port()
    listener, caller = sides(port)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(measure, {"pair": listener, "contact_s": 10.0, "block_bytes": 1 << 16})
        while True:
            try:
                with socket.create_connection((LISTENER, port), 1.0) as foreign:
                    foreign.recv(4096)
                    foreign.sendall(b"\x00\x00\x00\x02{}")
                    assert foreign.recv(4096) == b"", "closed, and nothing is said"
                break
            except ConnectionRefusedError:
                continue
        other = measure({"pair": caller, "contact_s": 10.0, "block_bytes": 1 << 16})
        assert waits.result(30.0).state == other.state == "measured"


def test_a_peer_that_never_comes_is_a_failure_of_the_contact_and_an_address_that_is_not_ours_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("minder.edge.probes.pair.thread_starved_s", lambda: 0.0)
    listener, caller = sides(free_port())
    assert measure({"pair": listener, "contact_s": 0.1}).detail.startswith("no contact within 0.1 s: 127.0.0.2 did not connect")
    assert measure({"pair": caller, "contact_s": 0.1}).state == "failed"
    for role in (listener, caller):
        found = measure({"pair": {**role, "own": "203.0.113.7"}, "contact_s": 0.1})
        assert found.state == "not_judged" and "cannot use 203.0.113.7" in found.detail
    with socket.create_server((LISTENER, listener["port"])):
        assert measure({"pair": listener, "contact_s": 0.1}).state == "not_judged", "the port is taken"
    assert measure({}).state == "not_applicable"


def test_a_machine_that_kept_the_test_waiting_says_nothing_of_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = itertools.count(step=60.0)
    monkeypatch.setattr("minder.edge.probes.pair.thread_starved_s", lambda: next(waits))
    listener, _ = sides(free_port())
    found = measure({"pair": listener, "contact_s": 0.1})
    assert found.state == "not_judged" and "waited 60 s for a processor; no contact within 0.1 s" in found.detail


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("own", "0.0.0.0"), ("own", "host"), ("peer", "224.0.0.1"), ("peer", "::1"), ("port", 80), ("port", "29600"), ("port", True),
        ("role", "both"), ("generation", -1), ("secret", "short"), ("secret", None), ("collective", 1), ("gpus_only", 1),
    ],
)  # fmt: skip
def test_an_order_that_is_not_whole_is_refused_by_the_name_of_the_field(name: str, value: Any) -> None:
    good = sides(29600)[0]
    assert parse_pair(good).options() == {"gpus_only": False, **good} and SECRET not in repr(parse_pair(good))
    with pytest.raises(BadInputError, match=f"pair.{'own' if value == '::1' else name}"):
        parse_pair({**good, name: value})


def test_only_the_probe_pair_has_a_peer() -> None:
    def body(name: str, **more: Any) -> dict[str, Any]:
        return {"operation": "x", "probes": [{"id": name, "sha256": "0" * 64, **more}]}

    for wrong in (body("pair"), body("disk", pair=sides(29600)[0])):
        with pytest.raises(BadInputError, match="belongs to the probe pair"):
            parse_probes(wrong)


def test_the_secret_is_not_on_the_command_line_of_the_program(tmp_path: Any) -> None:
    program = find_program("pair")
    listener = sides(free_port())[0]
    wanted = {"operation": "x", "probes": [{"id": "pair", "sha256": program.sha256, "pair": listener}], "wait_s": 0}

    async def look() -> str:
        probing = Probing(programs={"pair": program})
        await probing.ask(parse_probes(wanted), "", 0.0)
        await asyncio.sleep(0.1)
        lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        await probing.close()
        return lines

    lines = asyncio.run(look())
    assert "edge/probes/pair.py" in lines and SECRET not in lines


@pytest.mark.release
def test_with_torch_on_both_sides_an_all_gather_follows() -> None:
    shared = {"collective": True, "secret": secrets.token_hex(32)}
    options = [{"pair": {**side, **shared}, "block_bytes": 1 << 16, "contact_s": 30.0} for side in sides(free_port())]
    command = [sys.executable, "-m", "minder.edge.probes.pair", "--json", "--options", "-"]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in options]
    for child, given in zip(both, options, strict=True):
        assert child.stdin is not None
        child.stdin.write(json.dumps(given))
        child.stdin.close()
    for child in both:
        assert child.stdout is not None
        found = json.loads(child.stdout.read())
        child.wait()
        assert found["state"] == "measured" and found["facts"]["backend"] == "gloo", found
        assert {item["name"] for item in found["measures"]} >= {"pair_all_gather_bandwidth"}
