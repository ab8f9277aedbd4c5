"""What a rule wants to see of the job's processes is asked for here, beside the tick: connections in one thread, stacks and collectives
in two others. What they say is in a later observation; an answer about a generation that is over is thrown away.

Stacks are captured twice. What the first capture shows is handed out at once ("look"), for a rule that must not wait; what both show,
and whether any rank has moved between them, follows ("stacks").
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from minder.act.controller.dumps import judge_dumps
from minder.act.controller.stillness import name_ranks, stands_still
from minder.diagnose.stacks import Capture, analyse_captures, capture_from_agents, judge_round, place_ranks, suspects_from_stacks
from minder.diagnose.stacks.places import topology_of
from minder.model.errors import WireError
from minder.model.evidence import Statement
from minder.model.log import event
from minder.model.observation import JobView, MachineView, Observation, RequestKind
from minder.model.telemetry import Attempt, Flow
from minder.model.topology import Parallelism, Topology
from minder.wire.codec import from_json
from minder.wire.fleet import Fleet

__all__ = ["Seen", "Witnesses"]

T = TypeVar("T")
_log = logging.getLogger("minder.controller")
R = TypeVar("R", Flow, Attempt)
_GAP_S = 2.0  # between two looks at the stacks: a job that moves stands elsewhere by then
_LOOK_S = 6.0
_PAUSE_S = 15.0  # a look takes its time from the machines, so not one after the other
_FLOW_LOOKS, _FLOW_GAP_S = 10, 0.1  # Mycroft's state log, while anything asks for connections
_MANY, _MANY_LOOKS, _MANY_GAP_S = 256, 4, 0.3  # of so many machines every look is many megabytes for one controller


@dataclass(frozen=True, slots=True)
class Seen:
    """What the agents told of connections."""

    flows: Sequence[Flow] = ()
    attempts: Sequence[Attempt] = ()


@dataclass(slots=True)
class _Pending(Generic[T]):
    future: Future[T]
    generation: int


class Witnesses:
    """`request` starts what is asked for and returns at once; `take_flows` and `take_statements` hand out what has come.

    now_s: the clock. parallelism: the job's axes, for its parallel groups. gap_s: between the two looks at the stacks.
    """

    def __init__(self, fleet: Fleet, now_s: Callable[[], float], parallelism: Parallelism | None = None, gap_s: float = _GAP_S) -> None:
        self._fleet, self._now_s, self._parallelism, self._gap_s = fleet, now_s, parallelism, gap_s
        self.gpus = True  # whether the job may compute on any: the controller says what it knows
        self._threads = ThreadPoolExecutor(3, thread_name_prefix="minder-capture")
        self._closing = threading.Event()
        self._flows: _Pending[Seen] | None = None
        self._looks: _Pending[list[Statement]] | None = None
        self._looked_s = float("-inf")
        self._first: queue.SimpleQueue[tuple[int, Statement]] = queue.SimpleQueue()
        self._round: _Pending[list[Statement]] | None = None

    def request(self, requests: frozenset[RequestKind], observation: Observation, since_s: float) -> None:
        """Ask the job's agents. since_s: when the job last moved; a dump from before tells nothing of what it waits for."""
        job = observation.job
        if job is None:
            return
        if requests & {"flows", "reach"} and self._flows is None:
            what = ["flows", "reach"] if "reach" in requests else ["flows"]
            self._flows = _Pending(self._threads.submit(self._ask_flows, job.machines, what), job.generation)
        wanted = requests & {"stacks", "dumps", "still"}
        if wanted and self._looks is None and not 0.0 <= observation.now_s - self._looked_s < _PAUSE_S:
            self._looked_s = observation.now_s
            event(_log, logging.INFO, "capture asked", job=job.name, what=wanted, machines=len(job.machines), generation=job.generation)
            self._looks = _Pending(self._threads.submit(self._look, wanted, job, observation.fleet, since_s), job.generation)
        if "round" in requests and self._round is None:
            event(_log, logging.DEBUG, "capture asked", job=job.name, what="round", machines=len(job.machines))
            self._round = _Pending(self._threads.submit(self._look_once, job, observation.fleet), job.generation)

    def take_flows(self, generation: int) -> Seen:
        """Connections that came since the last call. Raises whatever went wrong while they were asked for."""
        pending = self._flows
        if pending is None or not pending.future.done():
            return Seen()
        self._flows = None
        return pending.future.result() if pending.generation == generation else Seen()

    def take_statements(self, generation: int) -> Sequence[Statement]:
        """As `take_flows`, of stacks and collectives."""
        found: list[Statement] = []
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

    def _ask_flows(self, machines: Sequence[str], what: list[str]) -> Seen:
        samples, interval_s = (_FLOW_LOOKS, _FLOW_GAP_S) if len(machines) <= _MANY else (_MANY_LOOKS, _MANY_GAP_S)
        answers = self._fleet.capture(machines, what, 3.0, samples=samples, interval_s=interval_s)
        return Seen(_records(Flow, answers, "flows"), _records(Attempt, answers, "reach"))

    def _look(
        self, wanted: frozenset[RequestKind], job: JobView, fleet: Mapping[str, MachineView], since_s: float
    ) -> list[Statement]:  # fmt: skip
        """Stacks twice, the second time with compiled frames where the first look accuses somebody: a wait in C looks like the line of
        the script that it is called from. Dumps are asked for in between."""
        topology, found = topology_of(job, self._parallelism), list[Statement]()
        stacks, ends_s = bool(wanted & {"stacks", "still"}), time.monotonic()
        captures: list[Capture] = []
        if stacks:
            taken_s = self._now_s()
            captures, ends_s = [self._capture(job.machines, (), fleet, topology)], time.monotonic() + self._gap_s
            first = analyse_captures(captures, topology)
            self._first.put((job.generation, Statement(taken_s, "look", name_ranks(suspects_from_stacks(first, taken_s), first))))
        if "dumps" in wanted:
            asked_s = self._now_s()
            suspects = judge_dumps(self._fleet.dumps(job.machines, _LOOK_S / 2), job.rank_machine, self._parallelism, since_s, asked_s)
            found.append(Statement(asked_s, "collectives", suspects))
        if stacks:
            self._closing.wait(max(0.0, ends_s - time.monotonic()))
            taken_s, accused = self._now_s(), [suspect.machine for suspect in first.suspects]
            captures.append(self._capture(job.machines, accused, fleet, topology))
            both = analyse_captures(captures, topology)
            said = name_ranks(suspects_from_stacks(both, taken_s), both)
            found.append(Statement(taken_s, "stacks", said, stands_still(captures[0], captures[1], topology, self.gpus)))
        return found

    def _look_once(self, job: JobView, fleet: Mapping[str, MachineView]) -> list[Statement]:
        """One round of a job that moves: all machines at once and nothing twice, since a moment later they stand elsewhere."""
        topology = topology_of(job, self._parallelism)
        taken_s = self._now_s()
        finding = judge_round(self._capture(job.machines, (), fleet, topology), topology)
        return [Statement(taken_s, "round", suspects_from_stacks(finding, taken_s))]

    def _capture(
        self, machines: Sequence[str], native: Sequence[str], fleet: Mapping[str, MachineView], topology: Topology | None
    ) -> Capture:  # fmt: skip
        what = ["stacks", "processes"]
        plain = [machine for machine in machines if machine not in native]
        answers = self._fleet.capture(plain, what, _LOOK_S) if plain else {}
        if native:
            answers |= self._fleet.capture([machine for machine in machines if machine in native], what, _LOOK_S, native=True)
        told = [
            _of_the_job(machine, answer, fleet.get(machine)) for machine, answer in answers.items() if not isinstance(answer, WireError)
        ]
        (capture,) = place_ranks([capture_from_agents(told)], topology, {})
        return capture


def _records(kind: type[R], answers: Mapping[str, Mapping[str, Any] | WireError], part: str) -> list[R]:
    """What the machines told of themselves. Who it is about is not for the answer to say: a machine that somebody has taken over could
    let another one look guilty. What is no record is left out, and the other machines' words count."""
    found: list[R] = []
    for machine, answer in answers.items():
        for row in () if isinstance(answer, WireError) else _rows(answer, part):
            with suppress(WireError):
                found.append(from_json(kind, {**row, "machine": machine}))
    return found


def _rows(answer: Mapping[str, Any], part: str) -> list[Mapping[str, Any]]:
    rows = answer.get(part)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _of_the_job(machine: str, answer: Mapping[str, Any], view: MachineView | None) -> Mapping[str, Any]:
    """Another job's processes on the machine are none of ours; and the rank that the controller knows goes before what the agent saw."""
    ranks = {worker.pid: worker.rank for worker in view.workers if worker.pid is not None} if view is not None else {}
    if not ranks:
        return {**answer, "machine": machine}
    rows = [(row, row.get("parent") if row.get("parent") is not None else row.get("pid")) for row in _rows(answer, "stacks")]
    return {
        **answer,
        "machine": machine,
        "stacks": [{**row, "rank": ranks[own]} for row, own in rows if isinstance(own, int) and own in ranks],
    }
