"""All machines of a job at once: polls agents and launchers in one background thread, hands out what they said.

Each machine's clock is compared with ours at every answer (half the round trip is the error), and every signal's time is
moved to our clock: who failed first is decided on corrected clocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from minder.errors import NoAnswerError, WireError
from minder.types import MachineView, Signal, WorkerView
from minder.wire.allowance import MOST_PROCESSES, MOST_SIGNALS, Allowance, rest_s
from minder.wire.client import MachineClient, MachineEndpoints
from minder.wire.codec import from_json
from minder.wire.contact_log import ContactLog
from minder.wire.plain import PlainHttp

__all__ = ["Fleet"]

T = TypeVar("T")
_POLL_S = 1.0
_CLOCK_S = 5.0
_SILENT_S = 2.5


@dataclass(slots=True)
class _Contact:
    """What we know of one machine's two processes."""

    agent_heard_s: float | None = None  # by the clock that nobody can set
    launcher_heard_s: float | None = None
    started_s: dict[str, float] = field(default_factory=dict)  # agent or launcher to the start of its process
    agent_restarted_s: float | None = None
    workers: tuple[WorkerView, ...] = ()
    ended: dict[int, float] = field(default_factory=dict)  # pids whose exit was told since the launcher was last asked for its state
    jobs: tuple[str, ...] = ()  # all that run on the machine, as its agent sees them
    launcher: Mapping[str, Any] = field(default_factory=dict)
    offset_s: float = 0.0
    offset_error_s: float = float("inf")
    signals: deque[Signal] = field(default_factory=lambda: deque(maxlen=MOST_SIGNALS))  # that nobody took yet
    allowance: Allowance = field(default_factory=Allowance)
    refused: dict[str, str] = field(default_factory=dict)  # agent or launcher to what it said


class Fleet:
    """Start it, then `drain()` signals and look at `views()`; `capture` and `post_workers` call many machines at once.

    Nothing raises for a machine that does not answer: its age grows, and calls return the WireError as a value.
    """

    def __init__(
        self, endpoints: Iterable[MachineEndpoints], on_signal: Callable[[], None] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """tls: what https:// addresses are called with (minder.wire.tls); None: the system's authorities."""
        self._endpoints = {item.machine: item for item in endpoints}
        self._contact_log = ContactLog()
        self._contacts = {machine: _Contact() for machine in self._endpoints}
        self._lock = threading.Lock()
        self._on_signal = on_signal or (lambda: None)
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="minder-fleet", daemon=True)
        self._ready = threading.Event()
        self._clients: dict[str, MachineClient] = {}

    def start(self) -> None:
        self._thread.start()
        self._ready.wait(10.0)

    def stop(self) -> None:
        """May be called twice, and without `start`."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._cancel_all)
            self._thread.join(5.0)
        elif not self._loop.is_closed():
            self._loop.close()

    @property
    def machines(self) -> tuple[str, ...]:
        return tuple(self._endpoints)

    def drain(self) -> list[Signal]:
        """Signals since the last call, times on our clock, oldest first."""
        found: list[Signal] = []
        with self._lock:
            for contact in self._contacts.values():
                found += contact.signals
                contact.signals.clear()
        return sorted(found, key=lambda signal: signal.time_s)

    def views(self) -> dict[str, MachineView]:
        now_s = time.monotonic()

        def age(heard_s: float | None) -> float | None:
            return None if heard_s is None else max(0.0, now_s - heard_s)

        with self._lock:
            return {
                machine: MachineView(machine, age(item.agent_heard_s), age(item.launcher_heard_s), item.workers, item.agent_restarted_s)
                for machine, item in self._contacts.items()
            }

    def clock_error_s(self) -> float:
        """The largest clock error among machines that answer now, and at least 10 ms: an exit is timed when it is reaped."""
        with self._lock:
            known = [item.offset_error_s for item in self._contacts.values() if item.offset_error_s < 10.0]
        return max([0.01, *known])

    def jobs(self) -> dict[str, tuple[str, ...]]:
        """Machine to the names of all jobs that run on it, as its agent told last."""
        with self._lock:
            return {machine: item.jobs for machine, item in self._contacts.items() if item.jobs}

    def refusals(self) -> dict[str, str]:
        """Machines that answered with an error (a wrong token, say), and what they said."""
        with self._lock:
            return {machine: "; ".join(item.refused.values()) for machine, item in self._contacts.items() if item.refused}

    def launcher_state(self, machine: str) -> Mapping[str, Any]:
        with self._lock:
            return dict(self._contacts[machine].launcher)

    def capture(
        self, machines: Iterable[str], what: list[str], deadline_s: float, **options: float
    ) -> dict[str, Mapping[str, Any] | WireError]:  # fmt: skip
        """Evidence from these machines' agents, all at once (options: minder.wire.client)."""
        return self._ask_agents(machines, deadline_s, lambda client: client.capture(what, deadline_s, **options))

    def dumps(self, machines: Iterable[str], deadline_s: float) -> dict[str, Mapping[str, Any] | WireError]:
        """Flight Recorder dumps; an agent of an earlier version answers with an error."""
        return self._ask_agents(machines, deadline_s, lambda client: client.dumps(deadline_s))

    def retest(self, machine: str, operation: str, wait_s: float) -> Mapping[str, Any] | WireError:
        """What came of the site's test of this machine so far; asked for the first time, it begins."""
        return self._together({machine: self._clients[machine].retest(operation, wait_s)}, wait_s + 3.0)[machine]

    def _ask_agents(
        self, machines: Iterable[str], deadline_s: float, ask: Callable[[MachineClient], Coroutine[Any, Any, Mapping[str, Any]]]
    ) -> dict[str, Mapping[str, Any] | WireError]:
        """A machine whose agent has been silent for some seconds gets one second: the evidence is that it does not answer."""
        silent = {machine for machine, view in self.views().items() if view.agent_age_s is None or view.agent_age_s > _SILENT_S}
        calls = {
            machine: self._bounded(ask(self._clients[machine]), 1.0 if machine in silent else deadline_s + 2.0) for machine in machines
        }
        return self._together(calls, deadline_s + 2.0)

    def post_workers(self, bodies: Mapping[str, Mapping[str, Any]], timeout_s: float = 5.0) -> dict[str, Mapping[str, Any] | WireError]:
        views = self.views()
        silent = {machine for machine, view in views.items() if view.launcher_age_s is None or view.launcher_age_s > _SILENT_S}
        calls = {machine: self._clients[machine].workers(body, 1.0 if machine in silent else timeout_s) for machine, body in bodies.items()}
        return self._together(calls, timeout_s + 2.0)

    def refresh(self, machines: Iterable[str], timeout_s: float = 1.0) -> None:
        """Ask these launchers for their state now."""
        self._together({machine: self._read_state(machine, timeout_s) for machine in machines}, timeout_s + 1.0)

    def _together(self, calls: Mapping[str, Coroutine[Any, Any, T]], timeout_s: float) -> dict[str, T | WireError]:
        async def gather() -> dict[str, T | WireError]:
            results = await asyncio.gather(*(self._bounded(call, timeout_s) for call in calls.values()))
            return dict(zip(calls, results, strict=True))

        return asyncio.run_coroutine_threadsafe(gather(), self._loop).result(timeout_s + 5.0)

    @staticmethod
    async def _bounded(call: Awaitable[T], timeout_s: float) -> T | WireError:
        try:
            return await asyncio.wait_for(call, timeout_s)
        except WireError as error:
            return error
        except TimeoutError:
            return WireError(f"no answer within {timeout_s:.0f} s")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._poll_all())
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.run_until_complete(asyncio.sleep(0))  # connections that were aborted go now
            self._loop.close()

    def _cancel_all(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    async def _poll_all(self) -> None:
        with contextlib.closing(PlainHttp(self._tls)) as http:
            self._clients = {machine: MachineClient(item, http) for machine, item in self._endpoints.items()}
            self._ready.set()
            polls: list[Coroutine[Any, Any, None]] = []
            for machine, client in self._clients.items():
                if client.has_agent:
                    polls.append(self._follow(machine, "agent"))
                if client.has_launcher:
                    polls += [self._follow(machine, "launcher"), self._watch_state(machine)]
                elif client.has_agent:
                    polls.append(self._watch_clock(machine))
            await asyncio.gather(*polls)

    async def _follow(self, machine: str, part: str) -> None:
        """Long-poll one log of events for ever; a restarted process starts its count anew. The first look does not wait: its
        short round trip tells the clock's offset before any signal is dated."""
        since, wait_s = 0, 0.0
        client = self._clients[machine]
        call = client.signals if part == "agent" else client.events
        while True:
            asked_s, answer = time.monotonic(), dict[str, Any]()
            try:
                answer = dict(await call(since, wait_s))
                restarted = self._note_answer(machine, part, answer) or int(answer["next"]) < since
                left_out = 0 if restarted else self._accept(machine, answer.get("signals", ()))
                since, wait_s = (0, 0.0) if restarted else (int(answer["next"]), _POLL_S)
                if part == "agent":
                    self._note_processes(machine, answer)
                if left_out:
                    self._note_refusal(machine, part, WireError(f"{part} of {machine} says too much: {left_out} signals were left out"))
            except (WireError, KeyError, TypeError, ValueError) as error:
                self._note_refusal(machine, part, error)
                await asyncio.sleep(0.3)
            await asyncio.sleep(rest_s(answer, time.monotonic() - asked_s))

    async def _watch_state(self, machine: str) -> None:
        while True:
            try:
                await self._read_state(machine, 1.0)
            except WireError as error:
                self._note_refusal(machine, "launcher", error)
            await asyncio.sleep(_POLL_S)

    async def _watch_clock(self, machine: str) -> None:
        """A machine without a launcher: its agent's clock is what its processes' times are told in. Seldom, once it is known: the
        answers of the long poll show a clock that is set, and so do these a little later."""
        while True:
            pause_s = _POLL_S
            try:
                answer = await self._clients[machine].health(1.0)
                if "now_s" in answer:
                    self._note_clock(machine, answer)
                    pause_s = _CLOCK_S
            except (WireError, TypeError, ValueError) as error:
                self._note_refusal(machine, "agent", error)
            await asyncio.sleep(pause_s)

    async def _read_state(self, machine: str, timeout_s: float) -> None:
        """Raises WireError, also for an answer that is not the protocol's."""
        asked_s = time.monotonic()
        answer = await self._clients[machine].state(timeout_s)
        try:
            workers = tuple(from_json(WorkerView, item) for item in answer.get("workers", ()))
            self._note_clock(machine, answer)
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"launcher of {machine} did not answer the protocol: {type(error).__name__} {error}") from error
        with self._lock:
            contact = self._contacts[machine]
            contact.refused.pop("launcher", None)
            contact.launcher_heard_s = time.monotonic()
            contact.ended = {pid: told_s for pid, told_s in contact.ended.items() if told_s >= asked_s}  # the answer knows of the others
            contact.workers = _less_ended((_shift_worker(worker, contact.offset_s) for worker in workers), contact.ended)
            contact.launcher = answer

    def _note_refusal(self, machine: str, part: str, error: Exception) -> None:
        """It answers, but not what we can use: said until it does. No answer at all is silence, not a refusal."""
        text = str(error) if isinstance(error, WireError) else f"{part} of {machine}: {type(error).__name__} {error} in its answer"
        with self._lock:
            if "HTTP 4" in text or not isinstance(error, NoAnswerError):
                self._contacts[machine].refused[part] = text
                self._contact_log.refused(machine, part, text)
            else:
                self._contacts[machine].refused.pop(part, None)
                self._contact_log.unheard(machine, part, text)

    def _note_answer(self, machine: str, part: str, answer: Mapping[str, Any]) -> bool:
        """Remember that it answered. True if it is a new process, whose count starts at 0."""
        self._note_clock(machine, answer)
        started_s = float(answer.get("started_s", 0.0))
        self._contact_log.reached(machine, part)
        with self._lock:
            contact = self._contacts[machine]
            contact.refused.pop(part, None)
            restarted = abs(started_s - contact.started_s.setdefault(part, started_s)) > 0.5
            contact.started_s[part] = started_s
            if part == "agent":
                contact.agent_restarted_s = started_s if restarted else contact.agent_restarted_s
                contact.agent_heard_s = time.monotonic()
            else:
                contact.launcher_heard_s = time.monotonic()
        return restarted

    def _note_processes(self, machine: str, answer: Mapping[str, Any]) -> None:
        """Whom the agent sees. Where a launcher speaks for the workers, only the jobs are taken from it. Raises WireError."""
        if "processes" not in answer:
            return  # an agent of an earlier version, or one that has not taken its first sample
        watched = not self._clients[machine].has_launcher
        if len(answer["processes"]) > MOST_PROCESSES:
            raise WireError(f"agent of {machine} tells of {len(answer['processes'])} processes: {MOST_PROCESSES} are read at most")
        workers = tuple(map(_as_worker, answer["processes"])) if watched else ()
        with self._lock:
            contact = self._contacts[machine]
            contact.jobs = tuple(str(name) for name in answer.get("jobs", ()))
            if watched:
                contact.workers = tuple(_shift_worker(worker, contact.offset_s) for worker in workers)

    def _note_clock(self, machine: str, answer: Mapping[str, Any]) -> None:
        """NTP's estimate: the best of the answers so far, forgotten slowly so that a stepped clock is noticed."""
        error_s = (answer["_received_s"] - answer["_sent_s"]) / 2
        offset_s = float(answer["now_s"]) - (answer["_received_s"] + answer["_sent_s"]) / 2
        with self._lock:
            contact = self._contacts[machine]
            stepped = abs(offset_s - contact.offset_s) > error_s + contact.offset_error_s
            if error_s <= contact.offset_error_s or stepped:
                contact.offset_s, contact.offset_error_s = offset_s, error_s
            else:
                contact.offset_error_s *= 1.01

    def _accept(self, machine: str, items: Sequence[Any]) -> int:
        """A signal that we do not understand (a newer peer's kind, say) is left out; the others count. Returns how many were more than
        one machine may say: those are left out too."""
        contact, signals = self._contacts[machine], []
        taken = contact.allowance.take(len(items))
        for item in items[:taken]:
            try:
                signal = from_json(Signal, item)
            except WireError:
                continue
            if signal.kind != "order":  # operators alone give orders, and not through a machine
                signals.append(signal)
        exits = {item.pid: time.monotonic() for item in signals if item.kind == "exit" and item.pid is not None}
        if signals:
            with self._lock:
                contact.ended |= exits  # a decision about a dead worker comes before the next look at its launcher's state
                contact.workers = _less_ended(contact.workers, contact.ended)
                contact.signals.extend(replace(item, time_s=item.time_s - contact.offset_s, machine=machine) for item in signals)
            self._on_signal()
        return len(items) - taken


def _less_ended(workers: Iterable[WorkerView], ended: Mapping[int, float]) -> tuple[WorkerView, ...]:
    """A worker whose exit was told runs no more, whatever an older look at it says."""
    return tuple(replace(worker, state="exited") if worker.pid in ended else worker for worker in workers)


def _as_worker(row: Mapping[str, Any]) -> WorkerView:
    """A process that an agent sees, in the words that a launcher uses. Its generation is the job's own count, -1 if it has none."""
    slot, generation = row.get("slot"), row.get("generation")
    fields = {"slot": -1 if slot is None else slot, "generation": -1 if generation is None else generation, "state": "running"}
    return from_json(WorkerView, {**row, **fields})


def _shift_worker(worker: WorkerView, offset_s: float) -> WorkerView:
    def shift(time_s: float | None) -> float | None:
        return None if time_s is None else time_s - offset_s

    return replace(
        worker,
        step_time_s=shift(worker.step_time_s),
        alive_time_s=shift(worker.alive_time_s),
        first_step_time_s=shift(worker.first_step_time_s),
    )
