"""Pair tests as they are ordered: both machines of a pair at once, one secret for each meeting, and what could not be run says nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from minder.app import pairing
from minder.app.pairing import PairMachine, PairOptions, job_address, pair_test, record_pairs
from minder.app.probe_tables import pair_rows
from minder.app.probing import ProbedMachine
from minder.diagnose.diagnostics.pair_sides import Side, join_sides
from minder.diagnose.diagnostics.pairs import PairTest
from minder.edge.probes.orders import parse_probes
from minder.edge.probes.pair_order import PairOrder
from minder.model.errors import BadInputError
from minder.model.probes import Measurement, ProbeResult, ProbeState
from minder.offline.plots.pair_graph import describe_pairs, draw_pairs
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.pairs import fold_pairs
from minder.record.incidents.timeline import describe
from minder.wire.client import Endpoint, MachineClient, MachineEndpoints

TEST = PairTest(("a", "b"), 1)


def heard(state: ProbeState = "measured", detail: str = "", send: float = 1e9, receive: float = 1e9) -> ProbeResult:
    return said("", send, receive, state, detail).results[0]


def said(machine: str, send: float = 1e9, receive: float = 1e9, state: ProbeState = "measured", detail: str = "") -> ProbedMachine:
    numbers = (("pair_send_bandwidth", send), ("pair_receive_bandwidth", receive), ("pair_send_latency", 1e-4))
    measures = tuple(Measurement(name, value, "B/s", "higher") for name, value in numbers) if state == "measured" else ()
    return ProbedMachine(machine, (ProbeResult("pair", 1, state, detail, measures),))


@pytest.mark.parametrize(
    ("listener", "caller", "passed", "words"),
    [
        (heard(), heard(), True, ""),
        (heard("failed", "no contact"), heard("failed", "refused"), False, "a: no contact; b: refused"),
        (heard("failed", "no contact"), "training processes run", None, "b: training"),
        (heard("failed", "no contact"), heard("not_judged", "it crashed"), None, "b: it crashed"),
        ("", heard(), None, "a: no answer"),
    ],
)
def test_a_side_that_took_no_part_makes_no_failure(listener: Side, caller: Side, passed: bool | None, words: str) -> None:
    found = join_sides(TEST, listener, caller)
    assert found.passed is passed and found.detail.startswith(words)


def test_the_slower_direction_counts() -> None:
    found = join_sides(TEST, heard(send=1e9, receive=1e7), heard(send=1e7, receive=1e9))
    assert (found.forward_bytes_per_s, found.backward_bytes_per_s, found.bandwidth_bytes_per_s) == (1e9, 1e7, 1e7)
    assert found.seconds == pytest.approx(8.39e6 / 1e7, rel=0.01) and found.sends_slower("b") is True and found.sends_slower("a") is False


class Fleet:
    """Machines m0.. whose links are as `rate` says; every order is kept."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, dead: frozenset[str] = frozenset(), slow: str = "", busy: frozenset[str] = frozenset()
    ) -> None:
        """busy: a pair whose first test meets a busy moment."""
        self._busy, self._met = busy, 0
        self.orders: list[tuple[str, PairOrder]] = []
        self._dead, self._slow = dead, slow
        monkeypatch.setattr(pairing, "ask_machine", self.ask)

    async def ask(self, client: MachineClient, orders: Sequence[Mapping[str, Any]], force: bool) -> ProbedMachine:
        (order,) = parse_probes({"operation": "x", "probes": list(orders)}).orders  # as an agent reads it
        assert order.pair is not None
        self.orders.append((client.machine, order.pair))
        peer = f"m{order.pair.peer.rpartition('.')[2]}"
        if {client.machine, peer} == self._dead:
            return said(client.machine, state="failed", detail="no contact")
        if {client.machine, peer} == self._busy and self._met < 2:
            self._met += 1
            return said(client.machine, 1e8, 1e8)
        rates = [1e7 if name == self._slow else 1e9 for name in (client.machine, peer)]
        return said(client.machine, *rates)


def machines(count: int) -> list[PairMachine]:
    names = [f"m{index}" for index in range(count)]
    return [PairMachine(MachineEndpoints(name, Endpoint("http://10.0.0.1:1", "x"), None), f"10.0.1.{name[1:]}") for name in names]


def test_both_machines_of_a_pair_get_one_secret_that_no_other_meeting_has(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch)
    graph = pair_test(machines(6), options=PairOptions(generation=7))
    assert all(node.state == "good" for node in graph.nodes) and len(graph.edges) == 3
    by_secret: dict[str, list[tuple[str, PairOrder]]] = {}
    for item in fleet.orders:
        by_secret.setdefault(item[1].secret, []).append(item)
    assert len(by_secret) == 3
    for (_, one), (_, other) in by_secret.values():
        assert {one.role, other.role} == {"listen", "connect"} and one.port == other.port and 20000 <= one.port < 30000
        assert (one.own, one.peer) == (other.peer, other.own) and one.generation == other.generation == 7


def test_a_dead_link_and_a_slow_direction_go_into_the_ledger_and_are_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Fleet(monkeypatch, dead=frozenset(("m0", "m1")), slow="m3")
    graph = pair_test(machines(6), options=PairOptions(port=29600))
    assert graph.links == (("m0", "m1"),) and graph.slow == ("m3",)
    with Ledger(tmp_path / "ledger.db") as ledger:
        record_pairs(ledger, graph, by="anna", why="diagnose", job="llm", note="after a hang")
        (event,) = ledger.events(kinds=[kinds.PAIRS])
    (run,) = fold_pairs([event])
    assert run.graph == graph and (run.by, run.why, run.note, run.job) == ("anna", "diagnose", "after a hang", "llm")
    assert describe(event) == "pair tests of 6 machines: m3 is slow; the link of m0 and m1 failed"
    assert describe_pairs(graph) == "6 machines in 7 tests; m3 is slow; the link between m0 and m1 is to blame"
    picture = draw_pairs(graph)
    assert picture.count("<line") == 7 and picture.count("round 1: failed") == 1 and "m3 (slow)" in picture and "style=" not in picture
    row = next(row for row in pair_rows(graph) if row[2] == "failed (link)")
    assert row[0] == "m0 -> m1" and "m0: no contact" in row[6]
    assert any(row[6] == "slow from m3 to m2 only" for row in pair_rows(graph))


def test_a_link_is_to_blame_that_is_bad_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch, busy=frozenset(("m2", "m3")))
    graph = pair_test(machines(6))
    assert graph.links == () and all(node.state == "good" for node in graph.nodes)
    assert len({order.secret for _, order in fleet.orders}) == 6, "three pairs, two tests of round two, one again"


def test_a_large_graph_shows_what_stands_out(monkeypatch: pytest.MonkeyPatch) -> None:
    Fleet(monkeypatch, slow="m3")
    picture = draw_pairs(pair_test(machines(60)))
    assert "m3 (slow)" in picture and 3 <= picture.count("<text") <= 8


def test_a_machine_is_met_on_the_network_of_the_job() -> None:
    item = MachineEndpoints("m0", Endpoint("http://127.0.0.5:1", "x"), Endpoint("http://127.0.0.6:2", "x"))
    assert job_address(item, None) == "127.0.0.6" and job_address(item, "10.9.9.9") == "10.9.9.9"
    with pytest.raises(BadInputError, match="give job_address"):
        job_address(item, "no-such-host.invalid")
    with pytest.raises(BadInputError, match="two machines or more"):
        pair_test(machines(1))
