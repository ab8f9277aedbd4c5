"""What agents are asked for beside the tick: two looks at the stacks, whose processes count, answers that come too late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from minder.act.controller.captures import Captures, Connections, addresses_to_try
from minder.model.errors import WireError
from minder.model.evidence import CaptureFinding
from minder.model.observation import JobView, MachineView, Observation, WorkerView
from minder.model.telemetry import ConnectivityProbe, Flow
from minder.model.topology import Parallelism
from minder.wire.codec import to_json

MACHINES = ("m0", "m1", "m2", "m3")
TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
IN_COLLECTIVE = [("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 2806), ("step", "train.py", 40), ("<module>", "train.py", 90)]
READING = [("read_file", "train.py", 20), ("main", "train.py", 71), ("<module>", "train.py", 88)]
LOCKED = [("wait", "/usr/lib/python3.11/threading.py", 320), ("guarded", "train.py", 12), ("<module>", "train.py", 88)]
Frames = list[tuple[str, str, int]]


def spy(pid: int, frames: Frames) -> dict[str, Any]:
    told = [{"name": name, "filename": file, "short_filename": file.removeprefix(f"{TORCH}/"), "line": line} for name, file, line in frames]
    thread = {"pid": pid, "thread_name": "MainThread", "os_thread_id": pid, "active": False, "frames": told}
    return {"pid": pid, "rank": None, "parent": None, "format": "py-spy-json", "data": [thread]}


class Agents:
    """A fleet whose machine i runs process 100 + i; `stands[machine]` is where it stands, everybody else waits in an all-reduce."""

    def __init__(self, stands: dict[str, Frames] | None = None) -> None:
        self.stands = stands or {}
        self.silent: set[str] = set()
        self.more: list[dict[str, Any]] = []  # other processes of every machine
        self.asked: list[tuple[tuple[str, ...], tuple[str, ...], bool]] = []
        self.gate = threading.Event()
        self.gate.set()

    def capture(self, machines: Iterable[str], what: list[str], deadline_s: float, **options: float) -> dict[str, Any]:
        names = tuple(machines)
        self.asked.append((names, tuple(what), bool(options.get("native"))))
        self.gate.wait(10.0)
        return {name: WireError("silent") if name in self.silent else self._answer(name) for name in names}

    def dumps(self, machines: Iterable[str], deadline_s: float) -> dict[str, Any]:
        return {name: WireError("HTTP 404") for name in machines}

    def _answer(self, name: str) -> dict[str, Any]:
        pid = 100 + MACHINES.index(name)
        rows = [spy(pid, self.stands.get(name, IN_COLLECTIVE)), *self.more]
        return {"machine": name, "time_s": time.time(), "stacks": rows, "processes": [{"pid": pid, "state": "S"}], "flows": []}


def observe(generation: int = 1) -> Observation:
    workers = {name: (WorkerView(0, 100 + rank, rank, "running", generation),) for rank, name in enumerate(MACHINES)}
    fleet = {name: MachineView(name, 0.1, 0.1, workers[name]) for name in MACHINES}
    job = JobView("llm", generation, "running", MACHINES, (), (), dict(enumerate(MACHINES)), 0.0, 0.0)
    return Observation(1000.0, job=job, fleet=fleet)


def statements(agents: Agents, *kinds: str, generation: int = 1) -> list[CaptureFinding]:
    """What comes of one request."""
    witnesses = Captures(agents, lambda: 1000.0, Parallelism(data=4), gap_s=0.0)  # type: ignore[arg-type]
    try:
        witnesses.request(frozenset(kinds), observe(), 990.0)  # type: ignore[arg-type]
        return [item for item in awaited(lambda: witnesses.take_statements(generation), witnesses) if item.source != "look"]
    finally:
        witnesses.close()


def awaited(take: Callable[[], Any], witnesses: Captures, limit_s: float = 10.0) -> Any:
    end_s, found = time.monotonic() + limit_s, list[Any]()
    while witnesses._looks is not None and time.monotonic() < end_s:
        found += take()
        if witnesses._looks is None:
            return found
        time.sleep(0.01)
    raise AssertionError("nothing came")


def test_stacks_are_looked_at_twice_and_the_suspects_compiled_frames_too() -> None:
    agents = Agents({"m2": READING})
    (said,) = statements(agents, "stacks")
    assert (said.source, [item.machines for item in said.suspects], said.suspects[0].tier) == ("stacks", [("m2",)], "evict")
    assert "reading a file" in said.suspects[0].evidence[0].message
    assert [(len(names), native) for names, _, native in agents.asked] == [(4, False), (3, False), (1, True)]


def test_a_machine_that_does_not_answer_leaves_the_others_stacks() -> None:
    agents = Agents({"m2": READING})
    agents.silent = {"m3"}
    assert [item.machines for item in statements(agents, "stacks")[0].suspects] == [("m2",)]


def test_where_all_wait_in_the_same_place_the_capture_names_nobody_and_is_still_an_answer() -> None:
    (said,) = statements(Agents(), "stacks")
    assert said.suspects == ()


def test_a_job_that_stands_elsewhere_at_the_second_look_names_nobody() -> None:
    agents = Agents({"m2": READING})
    capture = agents.capture

    def moves(machines: Iterable[str], what: list[str], deadline_s: float, **options: float) -> dict[str, Any]:
        answer = capture(machines, what, deadline_s, **options)
        agents.stands = dict.fromkeys(MACHINES, LOCKED)
        return answer

    agents.capture = moves  # type: ignore[method-assign]
    assert [item.tier for item in statements(agents, "stacks")[0].suspects if item.machines] in ([], ["watch"])


def test_another_jobs_processes_on_the_machine_do_not_count() -> None:
    agents = Agents()
    agents.more = [spy(900, READING), {**spy(901, READING), "parent": 900}]
    assert statements(agents, "stacks")[0].suspects == ()


def test_an_answer_about_a_former_generation_is_thrown_away() -> None:
    assert statements(Agents({"m2": READING}), "stacks", generation=2) == []


def test_agents_that_know_no_dumps_say_nothing_and_stacks_are_still_read() -> None:
    said = {item.source: item.suspects for item in statements(Agents({"m2": READING}), "stacks", "dumps")}
    assert said["collectives"] == () and [item.machines for item in said["stacks"]] == [("m2",)]


def test_connections_do_not_wait_for_stacks_and_looks_are_not_taken_one_after_the_other() -> None:
    agents = Agents()
    agents.gate.clear()
    witnesses = Captures(agents, lambda: 1000.0, gap_s=0.0)  # type: ignore[arg-type]
    try:
        witnesses.request(frozenset({"stacks"}), observe(), 990.0)
        witnesses.request(frozenset({"flows"}), observe(), 990.0)
        end_s = time.monotonic() + 10.0
        while len(agents.asked) < 2 and time.monotonic() < end_s:
            time.sleep(0.01)
        assert {what for _, what, _ in agents.asked} == {("stacks", "processes"), ("flows",)}
        agents.gate.set()
        awaited(lambda: witnesses.take_statements(1), witnesses)
        witnesses.request(frozenset({"stacks"}), observe(), 990.0)
        assert witnesses._looks is None, "the last look was just taken"
    finally:
        agents.gate.set()
        witnesses.close()


@pytest.mark.parametrize(("count", "samples", "interval_s"), [(4, 10, 0.1), (1000, 4, 0.3)])
def test_connections_are_looked_at_every_100_ms_and_less_often_in_a_job_of_many(count: int, samples: int, interval_s: float) -> None:
    agents, told = Agents(), list[dict[str, float]]()
    agents.capture = lambda machines, what, deadline_s, **options: told.append(options) or {}  # type: ignore[method-assign, func-returns-value]
    machines = tuple(f"m{index}" for index in range(count))
    job = JobView("llm", 1, "running", machines, (), (), dict(enumerate(machines)), 0.0, 0.0)
    witnesses = Captures(agents, lambda: 1000.0)  # type: ignore[arg-type]
    try:
        witnesses.request(frozenset({"flows"}), Observation(1000.0, job=job), 990.0)
        end_s = time.monotonic() + 10.0
        while not told and time.monotonic() < end_s:
            time.sleep(0.01)
        assert told == [{"samples": samples, "interval_s": interval_s}]
    finally:
        witnesses.close()


def test_what_goes_wrong_is_raised_where_the_answer_is_taken() -> None:
    agents = Agents()

    def fails(*unused: Any, **more: Any) -> dict[str, Any]:
        raise OSError("no file is left to open")

    agents.capture = fails  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no file"):
        statements(agents, "stacks")


def flow_of(machine: str, **more: Any) -> dict[str, Any]:
    flow = Flow(machine, 1000.0, 7, "10.0.0.1:1", "10.0.0.2:2", 65536, 0, 0, 0, 0, 1e-4, 9, 9, 9.0, 9.0)
    return {**to_json(flow), **more}


def connections(agents: Agents, told: dict[str, Any]) -> Connections:
    """What comes of asking for connections, where these machines answer this."""
    agents.capture = lambda machines, what, deadline_s, **options: told  # type: ignore[method-assign]
    witnesses = Captures(agents, lambda: 1000.0)  # type: ignore[arg-type]
    try:
        witnesses.request(frozenset({"reach"}), observe(), 990.0)
        end_s = time.monotonic() + 10.0
        while not (found := witnesses.take_flows(1)).flows and time.monotonic() < end_s:
            time.sleep(0.01)
        return found
    finally:
        witnesses.close()


def test_a_machine_that_somebody_took_over_tells_of_itself_only() -> None:
    """Its connections, its tries and its stacks are its own, whoever it says they are of."""
    reach = to_json(ConnectivityProbe("m2", 1000.0, "10.0.0.2", "10.0.0.3", False, 1.0))
    seen = connections(Agents(), {"m1": {"machine": "m2", "flows": [flow_of("m2")], "reach": [reach]}, "m2": {"flows": []}})
    assert {item.machine for item in (*seen.flows, *seen.attempts)} == {"m1"} and len(seen.attempts) == 1
    agents = Agents({"m1": READING})
    answer = agents._answer
    agents._answer = lambda name: answer(name) | ({"machine": "m2"} if name == "m1" else {})  # type: ignore[method-assign]
    assert [item.machines for item in statements(agents, "stacks")[0].suspects] == [("m1",)]


@pytest.mark.parametrize("nonsense", [5, [5], [{}], [{"machine": "m1"}], {"a": 1}, None], ids=repr)
def test_nonsense_from_one_machine_takes_nothing_from_what_the_others_tell(nonsense: Any) -> None:
    seen = connections(Agents(), {"m0": {"flows": [flow_of("m0")]}, "m1": {"flows": nonsense, "reach": nonsense}})
    assert [item.machine for item in seen.flows] == ["m0"] and seen.attempts == []
    agents = Agents({"m2": READING})
    answer = agents._answer
    agents._answer = lambda name: answer(name) | ({"stacks": nonsense} if name == "m1" else {})  # type: ignore[method-assign]
    assert [item.machines for item in statements(agents, "stacks")[0].suspects] == [("m2",)]


def rounds(agents: Agents, count: int = 1) -> list[CaptureFinding]:
    """What comes of so many requests, one after the other."""
    witnesses = Captures(agents, lambda: 1000.0, Parallelism(data=4), gap_s=60.0)  # type: ignore[arg-type]
    found: list[CaptureFinding] = []
    try:
        for _ in range(count):
            witnesses.request(frozenset({"round"}), observe(), 999.0)
            end_s = time.monotonic() + 10.0
            while witnesses._round is not None and time.monotonic() < end_s:
                found += witnesses.take_statements(1)
                time.sleep(0.01)
        return found
    finally:
        witnesses.close()


def test_a_round_is_one_look_at_all_machines_at_once_and_without_compiled_frames() -> None:
    agents = Agents({"m2": READING})
    (said,) = rounds(agents)
    assert (said.source, [(item.machines, item.tier) for item in said.suspects]) == ("round", [(("m2",), "evict")])
    assert agents.asked == [(MACHINES, ("stacks", "processes"), False)]


@pytest.mark.parametrize("stands", [{}, dict.fromkeys(MACHINES, READING)], ids=["all wait", "all read"])
def test_a_round_in_which_all_do_the_same_flags_nobody_and_is_still_an_answer(stands: dict[str, Frames]) -> None:
    found = rounds(Agents(stands), 2)
    assert [item.source for item in found] == ["round", "round"]
    assert [item for said in found for item in said.suspects if item.tier == "evict"] == []


def test_rounds_do_not_overlap_and_one_about_a_former_generation_is_thrown_away() -> None:
    agents = Agents({"m2": READING})
    agents.gate.clear()
    witnesses = Captures(agents, lambda: 1000.0)  # type: ignore[arg-type]
    try:
        for _ in range(3):
            witnesses.request(frozenset({"round"}), observe(), 999.0)
        assert list(witnesses.take_statements(1)) == []
        agents.gate.set()
        end_s = time.monotonic() + 10.0
        while witnesses._round is not None and time.monotonic() < end_s:
            assert list(witnesses.take_statements(2)) == []
            time.sleep(0.01)
        assert witnesses._round is None and len(agents.asked) == 1
    finally:
        agents.gate.set()
        witnesses.close()


def test_the_first_look_is_handed_out_before_the_second_is_taken() -> None:
    agents = Agents({"m2": READING})
    witnesses = Captures(agents, lambda: 1000.0, Parallelism(data=4), gap_s=30.0)  # type: ignore[arg-type]
    try:
        witnesses.request(frozenset({"stacks"}), observe(), 990.0)
        end_s, found = time.monotonic() + 10.0, list[CaptureFinding]()
        while not found and time.monotonic() < end_s:
            found += witnesses.take_statements(1)
            time.sleep(0.01)
        (look,) = found
        assert (look.source, look.stands, [item.machines for item in look.suspects]) == ("look", None, [("m2",)])
    finally:
        witnesses.close()


def test_ranks_that_stand_where_they_stood_are_told_from_ranks_that_moved() -> None:
    (stood,) = statements(Agents({"m2": READING}), "still")
    assert stood.stands is True
    agents = Agents({"m2": READING})
    capture = agents.capture

    def moves(machines: Iterable[str], what: list[str], deadline_s: float, **options: float) -> dict[str, Any]:
        answer = capture(machines, what, deadline_s, **options)
        agents.stands = {"m2": LOCKED}
        return answer

    agents.capture = moves  # type: ignore[method-assign]
    assert [item.stands for item in statements(agents, "still")] == [False]


XLA = [
    ("backend_compile", "/opt/venv/lib/python3.11/site-packages/jax/_src/compiler.py", 280),
    ("step", "train.py", 40),
    ("<module>", "train.py", 90),
]
FINDS, IMPORTS = "<frozen importlib._bootstrap>", "/usr/lib/python3.11/importlib/__init__.py"
IMPORTING = [("_find_spec", FINDS, 1080), ("import_module", IMPORTS, 126), ("<module>", "train.py", 3)]


@pytest.mark.parametrize("stands", [{"m2": XLA}, dict.fromkeys(MACHINES, XLA), {"m0": IMPORTING}], ids=["one", "all", "imports"])
def test_whether_a_job_stands_in_which_a_rank_compiles_is_unknown(stands: dict[str, Frames]) -> None:
    """A compilation in the middle of a run is given the time of a start, not the five minutes of a hang."""
    assert [item.stands for item in statements(Agents(stands), "still")] == [None]


def test_where_no_stack_can_be_read_whether_the_job_stands_is_unknown() -> None:
    agents = Agents()
    agents.silent = set(MACHINES)
    assert [item.stands for item in statements(agents, "still")] == [None]


def tries(*rows: tuple[str, str, str, bool]) -> list[ConnectivityProbe]:
    return [ConnectivityProbe(machine, 1.0, local, remote, reached, 0.1) for machine, local, remote, reached in rows]


def test_what_ranks_could_not_reach_and_their_own_addresses_are_tried_by_all_at_the_next_look() -> None:
    """All wait for the first machine, and none has tried another: a firewall would look the same."""
    first = tries(
        ("m1", "10.9.0.2", "10.9.0.1", False), ("m1", "172.16.0.2", "172.16.0.254", True), ("m2", "10.9.0.3", "10.9.0.1", False),
        ("m2", "172.16.0.3", "172.16.0.254", True), ("m0", "10.9.0.1", "10.9.0.1", True),
    )  # fmt: skip
    assert addresses_to_try(first) == ["10.9.0.1", "10.9.0.2", "10.9.0.3"], "not the store, nor what machines have towards it"
    assert addresses_to_try(tries(("m1", "10.9.0.2", "10.9.0.1", False))) == [], "whose address that is no machine has said"
    asked: list[Any] = []

    class Reaching(Agents):
        def capture(self, machines: Iterable[str], what: list[str], deadline_s: float, **options: Any) -> dict[str, Any]:
            asked.append(options.get("peers"))
            return {name: {"reach": [to_json(item) for item in first if item.machine == name]} for name in machines}

    captures = Captures(Reaching(), time.time)  # type: ignore[arg-type]
    for generation in (1, 1, 2):
        captures.request(frozenset({"reach"}), observe(generation), 0.0)
        end_s = time.monotonic() + 10.0
        while not captures.take_flows(generation).attempts and time.monotonic() < end_s:
            time.sleep(0.01)
    captures.close()
    assert asked == [None, ["10.9.0.1", "10.9.0.2", "10.9.0.3"], None], "another generation has other machines"
