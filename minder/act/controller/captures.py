"""What a rule wants to see of the job's processes is asked for here, beside the tick: connections in one thread, stacks and collectives
in two others. What they say is in a later observation; an answer about a generation that is over is thrown away.

Stacks are captured twice. What the first capture shows is handed out at once ("look"), for a rule that must not wait; what both show,
and whether any rank has moved between them, follows ("stacks").

Whether ranks stand where they stood a moment ago:

- A rank stands still while the thread that decides what it does is in the same functions, whatever the line: a loop that polls comes by
  several. One that polls with the help of a function of its own stands still too, so the innermost function alone may differ; but not
  where either capture shows it at a computation, whose outer functions are the same for as long as it lasts.
- In a job without GPUs a rank that runs inside a computation computes: nothing that it waits for looks like that. With one, it may be
  the launch of work for a device that stands.
- The job stands while no rank is seen to move. A rank of which one capture has no stack says nothing; where no rank says anything,
  it is unknown. So it is where a rank compiles, warms up, loads or prepares in both: that may take ten minutes in one place, also in the
  middle of a run.
"""

from __future__ import annotations

import base64
import binascii
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from minder.diagnose.flight_recorder.analyse import analyse as analyse_dumps
from minder.diagnose.flight_recorder.dumpfile import UnreadableDumpError, load_dump
from minder.diagnose.flight_recorder.folder import collect
from minder.diagnose.flight_recorder.records import RankDump, Signatures
from minder.diagnose.flight_recorder.suspects import suspects_from_collectives
from minder.diagnose.stacks import (
    Accused,
    Capture,
    Finding,
    Group,
    Process,
    analyse,
    analyse_captures,
    capture_from_agents,
    judge_round,
    place_ranks,
    suspects_from_stacks,
)
from minder.diagnose.stacks.places import topology_of
from minder.diagnose.stacks.reader import rows_in
from minder.model.errors import WireError
from minder.model.evidence import CaptureFinding, Suspect
from minder.model.log import event
from minder.model.observation import JobView, MachineView, Observation, RequestKind
from minder.model.telemetry import ConnectivityProbe, Flow
from minder.model.topology import Parallelism, Topology
from minder.wire.codec import from_json
from minder.wire.fleet import Fleet

__all__ = ["Captures", "Connections", "addresses_to_try", "judge_dumps", "name_ranks", "stands_still"]

T = TypeVar("T")
_log = logging.getLogger("minder.controller")
R = TypeVar("R", Flow, ConnectivityProbe)
_GAP_S = 2.0  # between two looks at the stacks: a job that moves stands elsewhere by then
_LOOK_S = 6.0
_PAUSE_S = 15.0  # a look takes its time from the machines, so not one after the other
_FLOW_LOOKS, _FLOW_GAP_S = 10, 0.1  # Mycroft's state log, while anything asks for connections
_MANY, _MANY_LOOKS, _MANY_GAP_S = 256, 4, 0.3  # of so many machines every look is many megabytes for one controller
_MOST_PEERS = 16  # addresses that every machine tries
_COMPUTES = "compute"
_Answers = Mapping[str, Mapping[str, Any] | WireError]


@dataclass(frozen=True, slots=True)
class Connections:
    """What the agents reported of connections."""

    flows: Sequence[Flow] = ()
    attempts: Sequence[ConnectivityProbe] = ()


@dataclass(slots=True)
class _Pending(Generic[T]):
    future: Future[T]
    generation: int


class Captures:
    """`request` starts what is asked for and returns at once; `take_flows` and `take_statements` hand out what has come.

    now_s: the clock. parallelism: the job's axes, for its parallel groups. gap_s: between the two looks at the stacks.
    """

    def __init__(self, fleet: Fleet, now_s: Callable[[], float], parallelism: Parallelism | None = None, gap_s: float = _GAP_S) -> None:
        self._fleet, self._now_s, self._parallelism, self._gap_s = fleet, now_s, parallelism, gap_s
        self.gpus = True  # whether the job may compute on any: the controller says what it knows
        self._threads = ThreadPoolExecutor(3, thread_name_prefix="minder-capture")
        self._closing = threading.Event()
        self._flows: _Pending[Connections] | None = None
        self._peers: list[str] = []
        self._peers_of = -1  # the generation whose machines have them
        self._looks: _Pending[list[CaptureFinding]] | None = None
        self._looked_s = float("-inf")
        self._first: queue.SimpleQueue[tuple[int, CaptureFinding]] = queue.SimpleQueue()
        self._round: _Pending[list[CaptureFinding]] | None = None

    def request(self, requests: frozenset[RequestKind], observation: Observation, since_s: float) -> None:
        """Ask the job's agents. since_s: when the job last moved; a dump from before says nothing of what it waits for."""
        job = observation.job
        if job is None:
            return
        if requests & {"flows", "reach"} and self._flows is None:
            what = ["flows", "reach"] if "reach" in requests else ["flows"]
            peers = self._peers if self._peers_of == job.generation and "reach" in requests else []
            self._flows = _Pending(self._threads.submit(self._ask_flows, job.machines, what, peers), job.generation)
        wanted = requests & {"stacks", "dumps", "still"}
        if wanted and self._looks is None and not 0.0 <= observation.now_s - self._looked_s < _PAUSE_S:
            self._looked_s = observation.now_s
            event(_log, logging.INFO, "capture asked", job=job.name, what=wanted, machines=len(job.machines), generation=job.generation)
            self._looks = _Pending(self._threads.submit(self._look, wanted, job, observation.fleet, since_s), job.generation)
        if "round" in requests and self._round is None:
            event(_log, logging.DEBUG, "capture asked", job=job.name, what="round", machines=len(job.machines))
            self._round = _Pending(self._threads.submit(self._look_once, job, observation.fleet), job.generation)

    def take_flows(self, generation: int) -> Connections:
        """Connections that came since the last call. Raises whatever went wrong while they were asked for."""
        pending = self._flows
        if pending is None or not pending.future.done():
            return Connections()
        self._flows = None
        if pending.generation != generation:
            return Connections()
        found = pending.future.result()
        if found.attempts:
            self._peers, self._peers_of = addresses_to_try(found.attempts), generation
        return found

    def take_statements(self, generation: int) -> Sequence[CaptureFinding]:
        """As `take_flows`, of stacks and collectives."""
        found: list[CaptureFinding] = []
        while not self._first.empty():
            asked, statement = self._first.get()
            found += [statement] if asked == generation else []
        looks, once = self._looks, self._round
        if looks is not None and looks.future.done():
            self._looks = None
            event(_log, logging.INFO, "capture answered", generation=looks.generation, late=looks.generation != generation)
            found += looks.future.result() if looks.generation == generation else []
        if once is not None and once.future.done():
            self._round = None
            found += once.future.result() if once.generation == generation else []
        return found

    def close(self) -> None:
        """What still runs is left to end by itself."""
        self._closing.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ask_flows(self, machines: Sequence[str], what: list[str], peers: list[str]) -> Connections:
        """peers: addresses that the last tries were about. An agent alone knows those that its own ranks speak to."""
        more = {"peers": peers} if peers else {}
        samples, interval_s = (_FLOW_LOOKS, _FLOW_GAP_S) if len(machines) <= _MANY else (_MANY_LOOKS, _MANY_GAP_S)
        answers = self._fleet.capture(machines, what, 3.0, samples=samples, interval_s=interval_s, **more)
        return Connections(_records(Flow, answers, "flows"), _records(ConnectivityProbe, answers, "reach"))

    def _look(
        self, wanted: frozenset[RequestKind], job: JobView, fleet: Mapping[str, MachineView], since_s: float
    ) -> list[CaptureFinding]:  # fmt: skip
        """Stacks twice, the second time with compiled frames where the first look accuses a machine: a wait in C looks like the line of
        the script that it is called from. Dumps are asked for in between."""
        topology, found = topology_of(job, self._parallelism), list[CaptureFinding]()
        axes = self._parallelism if topology is None else topology.parallelism
        stacks, ends_s = bool(wanted & {"stacks", "still"}), time.monotonic()
        captures: list[Capture] = []
        if stacks:
            taken_s = self._now_s()
            captures, ends_s = [self._capture(job.machines, (), fleet, topology)], time.monotonic() + self._gap_s
            first = analyse_captures(captures, topology)
            self._first.put((job.generation, CaptureFinding(taken_s, "look", name_ranks(suspects_from_stacks(first, taken_s), first))))
        if "dumps" in wanted:
            asked_s = self._now_s()
            suspects = judge_dumps(self._fleet.dumps(job.machines, _LOOK_S / 2), job.rank_machine, axes, since_s, asked_s)
            found.append(CaptureFinding(asked_s, "collectives", suspects))
        if stacks:
            self._closing.wait(max(0.0, ends_s - time.monotonic()))
            taken_s, accused = self._now_s(), [suspect.machine for suspect in first.suspects]
            captures.append(self._capture(job.machines, accused, fleet, topology))
            both = analyse_captures(captures, topology)
            said = name_ranks(suspects_from_stacks(both, taken_s), both)
            found.append(CaptureFinding(taken_s, "stacks", said, stands_still(captures[0], captures[1], topology, self.gpus)))
        return found

    def _look_once(self, job: JobView, fleet: Mapping[str, MachineView]) -> list[CaptureFinding]:
        """One round of a job that moves: all machines at once and nothing twice, since a moment later they stand elsewhere."""
        topology = topology_of(job, self._parallelism)
        taken_s = self._now_s()
        finding = judge_round(self._capture(job.machines, (), fleet, topology), topology)
        return [CaptureFinding(taken_s, "round", suspects_from_stacks(finding, taken_s))]

    def _capture(
        self, machines: Sequence[str], native: Sequence[str], fleet: Mapping[str, MachineView], topology: Topology | None
    ) -> Capture:  # fmt: skip
        what = ["stacks", "processes"]
        plain = [machine for machine in machines if machine not in native]
        answers = self._fleet.capture(plain, what, _LOOK_S) if plain else {}
        if native:
            answers |= self._fleet.capture([machine for machine in machines if machine in native], what, _LOOK_S, native=True)
        answered = [
            _of_the_job(machine, answer, fleet.get(machine)) for machine, answer in answers.items() if not isinstance(answer, WireError)
        ]
        (capture,) = place_ranks([capture_from_agents(answered)], topology, {})
        return capture


def _records(kind: type[R], answers: Mapping[str, Mapping[str, Any] | WireError], part: str) -> list[R]:
    """What the machines reported of themselves. The answer does not decide which machine it is about: a machine in an
    attacker's hands could accuse another one. What is no record is left out, and the other machines' words count."""
    found: list[R] = []
    for machine, answer in answers.items():
        for row in () if isinstance(answer, WireError) else rows_in(answer, part):
            with suppress(WireError):
                found.append(from_json(kind, {**row, "machine": machine}))
    return found


def addresses_to_try(attempts: Sequence[ConnectivityProbe]) -> list[str]:
    """Of the network over which the job's machines speak to one another: both ends of tries between two of them, those that were not
    reached first. The store's address, and those that machines have towards it, are none of them."""
    hosts = {item.local for item in attempts}
    between = [item for item in attempts if item.remote in hosts]
    failed = Counter(item.remote for item in between if not item.reached)
    others = dict.fromkeys(host for item in between for host in (item.remote, item.local))
    return list(dict.fromkeys([*(host for host, _ in failed.most_common()), *others]))[:_MOST_PEERS]


def _of_the_job(machine: str, answer: Mapping[str, Any], view: MachineView | None) -> Mapping[str, Any]:
    """Another job's processes on the machine are none of ours; and the rank that the controller knows goes before what the agent saw."""
    ranks = {worker.pid: worker.rank for worker in view.workers if worker.pid is not None} if view is not None else {}
    if not ranks:
        return {**answer, "machine": machine}
    rows = [(row, row.get("parent") if row.get("parent") is not None else row.get("pid")) for row in rows_in(answer, "stacks")]
    return {
        **answer,
        "machine": machine,
        "stacks": [{**row, "rank": ranks[own]} for row, own in rows if isinstance(own, int) and own in ranks],
    }


def stands_still(first: Capture, second: Capture, topology: Topology | None = None, gpus: bool = True) -> bool | None:
    """Whether no rank has moved between the two; None where no rank can be compared, and where one compiles or prepares in both.
    gpus: whether the job may compute on any."""
    before, after = _places(first, topology), _places(second, topology)
    both = [name for name in before if name in after]
    if not both:
        return None
    if any(_moves(before[name], after[name], gpus) for name in both):
        return False
    return None if any(before[name][0].starts and after[name][0].starts for name in both) else True


def _places(capture: Capture, topology: Topology | None) -> dict[str, tuple[Group, Process]]:
    """Where each training process stands, by its name; helpers and processes without a stack are left out."""
    groups = analyse(capture, topology).groups
    return {process.name: (group, process) for group in groups for process in group.processes if not process.child and group.frames}


def _moves(before: tuple[Group, Process], after: tuple[Group, Process], gpus: bool) -> bool:
    one, other = before[0].frames, after[0].frames
    if one == other:
        return not gpus and before[0].kind == _COMPUTES and before[1].state[:1] == after[1].state[:1] == "R"
    if _COMPUTES in (before[0].kind, after[0].kind):
        return True
    return not (one[1:] == other or one == other[1:] or one[1:] == other[1:])


def name_ranks(suspects: Sequence[Suspect], finding: Finding) -> tuple[Suspect, ...]:
    """The suspects, each piece of evidence with the rank that it is about: of one machine's ranks only that distinguishes them."""
    words = {(accused.machine, accused.reason): _who(accused) for accused in finding.suspects}
    return tuple(
        replace(
            suspect,
            evidence=tuple(
                replace(item, message=f"{words[item.machine or '', item.message]}: {item.message}")
                if words.get((item.machine or "", item.message))
                else item
                for item in suspect.evidence
            ),
        )
        for suspect in suspects
    )


def _who(accused: Accused) -> str:
    if accused.rank is not None:
        return f"rank {accused.rank}"
    return f"process {accused.pid}" if accused.pid is not None else ""


def judge_dumps(
    answers: _Answers, rank_machine: Mapping[int, str], parallelism: Parallelism | None, since_s: float, time_s: float
) -> tuple[Suspect, ...]:  # fmt: skip
    """What the dumps of all machines say together; no machine where fewer than two ranks left one.

    since_s: when the job last moved. A dump from before that was not asked for in vain: its rank is missing, since what it has
    launched afterwards is not in it. Ranks on machines that do not answer are missing as well.
    """
    signatures = Signatures()
    dumps: dict[int, RankDump] = {}
    missing = dict.fromkeys(rank_machine, "no dump")
    for machine, answer in answers.items():
        if isinstance(answer, WireError):
            continue
        ahead_s = float(answer.get("time_s", 0.0)) - float(answer.get("_received_s", answer.get("time_s", 0.0)))  # of that machine's clock
        for row in answer.get("dumps", ()):
            rank = row.get("rank")
            if rank_machine.get(rank) != machine or rank in dumps:
                continue
            try:
                dumps[rank] = _read(row, rank, signatures, since_s + ahead_s)
                missing.pop(rank, None)
            except UnreadableDumpError as error:
                missing[rank] = str(error)
    if len(dumps) < 2:
        return ()
    collection = collect(dumps.values(), signatures, missing, parallelism)
    return suspects_from_collectives(collection, analyse_dumps(collection), time_s, rank_machine)


def _read(row: Mapping[str, Any], rank: int, signatures: Signatures, since_s: float) -> RankDump:
    if row.get("format") != "fr-pickle":
        raise UnreadableDumpError(str(row.get("data") or "no dump")[:160])
    if float(row.get("time_s") or 0.0) < since_s:
        raise UnreadableDumpError("it did not answer; its last dump is older than the stall")
    try:
        data = base64.b64decode(str(row.get("data")), validate=True)
    except binascii.Error as error:
        raise UnreadableDumpError("the agent sent something that is no dump") from error
    return load_dump(data, rank, signatures, f"rank {rank}", float(row.get("since_s") or 0.0))
