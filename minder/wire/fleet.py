"""All machines of a job at once: polls agents and launchers in one background thread, hands out what they said.

Each machine's clock is compared with ours at every answer (half the round trip is the error), and every signal's time is
moved to our clock: who failed first is decided on corrected clocks.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar

from minder.model.errors import NoAnswerError, WireError
from minder.model.evidence import Signal
from minder.model.observation import MachineView, WorkerView
from minder.wire.allowance import MOST_PROCESSES, rest_s
from minder.wire.client import MachineClient, MachineEndpoints
from minder.wire.code_tree import CodeFile
from minder.wire.codec import from_json
from minder.wire.contact_log import ContactLog
from minder.wire.contacts import Contact, as_worker, less_ended, shift_worker
from minder.wire.delivery import deliver
from minder.wire.plain import PlainHttp

__all__ = ["Fleet"]

T = TypeVar("T")
_Call = Callable[[], Awaitable[T]]
_POLL_S = 1.0
_CLOCK_S = 5.0
_SILENT_S = 2.5
_AT_ONCE = 32  # launchers that code is sent to at the same time
_KNOWN_S = 1.0  # an answer that took longer measured no clock


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
        self._contacts = {machine: Contact() for machine in self._endpoints}
        self._lock = threading.Lock()
        self._on_signal = on_signal or (lambda: None)
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="minder-fleet", daemon=True)
        self._ready = threading.Event()
        self._clients: dict[str, MachineClient] = {}
        self._polls: dict[str, list[asyncio.Task[None]]] = {}
        self._http: PlainHttp | None = None
        self._lost: collections.Counter[str] = collections.Counter()
        self._is_stopping = False

    def start(self) -> None:
        self._thread.start()
        self._ready.wait(10.0)

    def stop(self) -> None:
        """May be called twice, and without `start`."""
        self._is_stopping = True
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._cancel_all)
            self._thread.join(5.0)
        elif not self._loop.is_closed():
            self._loop.close()

    def add(self, item: MachineEndpoints) -> None:
        """Poll one more machine from now on. Under a known name the addresses are replaced, and what was heard is forgotten."""
        self._change(self._take_in, item)

    def remove(self, machine: str) -> None:
        """Poll it no longer, and forget it; nothing for a machine that is not known."""
        self._change(self._let_go, machine)

    def _change(self, change: Callable[[T], None], value: T) -> None:
        """In the thread that polls, as soon as there is one."""
        if not self._ready.is_set():
            change(value)
            return

        async def run() -> None:
            change(value)

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(5.0)

    def _take_in(self, item: MachineEndpoints) -> None:
        self._let_go(item.machine)
        with self._lock:
            self._endpoints = {**self._endpoints, item.machine: item}
            self._contacts = {**self._contacts, item.machine: Contact()}
        self._begin(item)

    def _let_go(self, machine: str) -> None:
        for task in self._polls.pop(machine, ()):
            task.cancel()
        self._clients.pop(machine, None)
        with self._lock:
            self._endpoints = {name: item for name, item in self._endpoints.items() if name != machine}
            self._contacts = {name: item for name, item in self._contacts.items() if name != machine}

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

    def lost(self) -> dict[str, int]:
        """Signals since the last call that were said and are lost, by why (minder.record.incidents.kinds.SIGNAL_COUNT)."""
        with self._lock:
            found, self._lost = dict(self._lost), collections.Counter()
        return found

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
        """Machine to the names of all jobs that run on it, as its agent reported last."""
        with self._lock:
            return {machine: item.jobs for machine, item in self._contacts.items() if item.jobs}

    def refusals(self) -> dict[str, str]:
        """Machines that answered with an error (a wrong token, say), and what they said."""
        with self._lock:
            return {machine: "; ".join(item.refused.values()) for machine, item in self._contacts.items() if item.refused}

    def launcher_state(self, machine: str) -> Mapping[str, Any]:
        with self._lock:
            return dict(self._contacts[machine].launcher)

    def names(self, machine: str) -> tuple[str, str]:
        """What the agent and the launcher at this machine's addresses call it themselves; "" while one was not heard."""
        with self._lock:
            contact = self._contacts[machine]
            return contact.agent_name, str(contact.launcher.get("machine", ""))

    def capture(
        self, machines: Iterable[str], what: list[str], deadline_s: float, **options: Any
    ) -> dict[str, Mapping[str, Any] | WireError]:  # fmt: skip
        """Evidence from these machines' agents, all at once (options: minder.wire.client)."""
        return self._ask_agents(machines, deadline_s, lambda client: client.capture(what, deadline_s, **options))

    def dumps(self, machines: Iterable[str], deadline_s: float) -> dict[str, Mapping[str, Any] | WireError]:
        """Flight Recorder dumps; an agent of an earlier version answers with an error."""
        return self._ask_agents(machines, deadline_s, lambda client: client.dumps(deadline_s))

    def traces(self, since: Mapping[str, int], timeout_s: float) -> dict[str, Mapping[str, Any] | WireError]:
        """Traced steps of these machines' training processes, each from a number on; an earlier version answers with an error."""
        known = {machine: number for machine, number in since.items() if machine in self._clients}  # none before it polls
        if not known:
            return {}
        return self._together(
            {machine: partial(self._clients[machine].traces, number, timeout_s) for machine, number in known.items()}, timeout_s
        )

    def clock_offsets(self) -> dict[str, tuple[float, float]]:
        """Machine to (seconds by which its clock is ahead of ours, how sure that is)."""
        with self._lock:
            return {machine: (item.offset_s, item.offset_error_s) for machine, item in self._contacts.items()}

    def retest(self, machine: str, operation: str, wait_s: float) -> Mapping[str, Any] | WireError:
        """What came of the site's test of this machine so far; asked for the first time, it begins."""
        return self._together({machine: partial(self._clients[machine].retest, operation, wait_s)}, wait_s + 3.0)[machine]

    def probes(
        self, bodies: Mapping[str, Mapping[str, Any]], part: Literal["agent", "launcher"] = "launcher", wait_s: float = 0.0
    ) -> dict[str, Mapping[str, Any] | WireError]:
        """What came so far of the probes that these orders name (minder.edge.probes.orders), all machines at once; asked for the first
        time, they begin. Each order gets our time, where it is known how long it is under way."""
        views = self.views()
        silent = {machine for machine, view in views.items() if (age_s := _age_s(view, part)) is None or age_s > _SILENT_S}
        calls = {
            machine: partial(
                self._bounded,
                partial(self._clients[machine].probes, {**body, **self._our_time(machine)}, wait_s, part),
                1.0 if machine in silent else wait_s + 3.0,
            )
            for machine, body in bodies.items()
            if machine in self._clients
        }
        gone = {machine: WireError(f"{machine} is not known any more") for machine in bodies if machine not in calls}
        return {**gone, **self._together(calls, wait_s + 3.0)}

    def _our_time(self, machine: str) -> dict[str, float]:
        """The order opens a connection, so it is under way for one and a half round trips: three of them are what the probe halves."""
        with self._lock:
            error_s = self._contacts[machine].offset_error_s
        return {"controller_time_s": time.time(), "round_trip_s": 6.0 * error_s} if error_s < _KNOWN_S else {}

    def _ask_agents(
        self, machines: Iterable[str], deadline_s: float, ask: Callable[[MachineClient], Coroutine[Any, Any, Mapping[str, Any]]]
    ) -> dict[str, Mapping[str, Any] | WireError]:
        """A machine whose agent has been silent for some seconds gets one second: the evidence is that it does not answer."""
        silent = {machine for machine, view in self.views().items() if view.agent_age_s is None or view.agent_age_s > _SILENT_S}
        calls = {
            machine: partial(self._bounded, partial(ask, self._clients[machine]), 1.0 if machine in silent else deadline_s + 2.0)
            for machine in machines
        }
        return self._together(calls, deadline_s + 2.0)

    def post_workers(self, bodies: Mapping[str, Mapping[str, Any]], timeout_s: float = 5.0) -> dict[str, Mapping[str, Any] | WireError]:
        views = self.views()
        silent = {machine for machine, view in views.items() if view.launcher_age_s is None or view.launcher_age_s > _SILENT_S}
        calls = {
            machine: partial(self._clients[machine].workers, body, 1.0 if machine in silent else timeout_s)
            for machine, body in bodies.items()
        }
        return self._together(calls, timeout_s + 2.0)

    def deliver(
        self, machines: Iterable[str], body: Mapping[str, Any], read: Callable[[CodeFile, int], bytes], timeout_s: float = 60.0
    ) -> dict[str, Mapping[str, Any] | WireError]:
        """A version of the job's code to these launchers, all at once: what each of them misses is sent in pieces. read: a file's next
        bytes from an offset. A launcher that has it already answers at once; one that is silent gets a second."""
        views, wanted = self.views(), [machine for machine in machines if machine in self._clients]
        silent = {machine for machine, view in views.items() if view.launcher_age_s is None or view.launcher_age_s > _SILENT_S}
        turns = asyncio.Semaphore(_AT_ONCE)
        calls = {
            machine: partial(
                self._bounded, partial(deliver, self._clients[machine], body, read, turns), 1.0 if machine in silent else timeout_s
            )
            for machine in wanted
        }
        found = self._together(calls, timeout_s + 2.0)
        return {  # no answer in time is silence, and says nothing of what the launcher takes
            machine: NoAnswerError(str(answer)) if isinstance(answer, WireError) and "no answer within" in str(answer) else answer
            for machine, answer in found.items()
        }

    def warm(self, machines: Iterable[str], body: Mapping[str, Any], timeout_s: float = 5.0) -> dict[str, Mapping[str, Any] | WireError]:
        """Have these launchers start processes of a version that they have, beside their workers: {warm: whether all of them wait}."""
        calls = {machine: partial(self._clients[machine].warm_update, body, timeout_s) for machine in machines}
        return self._together(calls, timeout_s + 2.0)

    def refresh(self, machines: Iterable[str], timeout_s: float = 1.0) -> None:
        """Ask these launchers for their state now."""
        self._together({machine: partial(self._read_state, machine, timeout_s) for machine in machines}, timeout_s + 1.0)

    def _together(self, calls: Mapping[str, _Call[T]], timeout_s: float) -> dict[str, T | WireError]:
        """calls: each is begun in the thread that polls, so none is left half made where that has ended."""
        if self._is_stopping:
            return {machine: WireError("the controller stops: nothing is asked any more") for machine in calls}

        async def gather() -> dict[str, T | WireError]:
            results = await asyncio.gather(*(self._bounded(call, timeout_s) for call in calls.values()))
            return dict(zip(calls, results, strict=True))

        return asyncio.run_coroutine_threadsafe(gather(), self._loop).result(timeout_s + 5.0)

    @staticmethod
    async def _bounded(call: _Call[T], timeout_s: float) -> T | WireError:
        try:
            return await asyncio.wait_for(call(), timeout_s)
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
            if rest := asyncio.all_tasks(self._loop):  # calls under way: cancelled by stop, but not over yet
                self._loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
            self._loop.run_until_complete(asyncio.sleep(0))  # connections that were aborted go now
            self._loop.close()

    def _cancel_all(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    async def _poll_all(self) -> None:
        with contextlib.closing(PlainHttp(self._tls)) as http:
            self._http = http
            for item in self._endpoints.values():
                self._begin(item)
            self._ready.set()
            await asyncio.Event().wait()  # until it is cancelled

    def _begin(self, item: MachineEndpoints) -> None:
        if self._http is None:
            return
        machine, client = item.machine, MachineClient(item, self._http)
        self._clients[machine] = client
        polls: list[Coroutine[Any, Any, None]] = []
        if client.has_agent:
            polls.append(self._follow(machine, "agent"))
        if client.has_launcher:
            polls += [self._follow(machine, "launcher"), self._watch_state(machine)]
        elif client.has_agent:
            polls.append(self._watch_clock(machine))
        self._polls[machine] = [self._loop.create_task(poll) for poll in polls]
        for task in self._polls[machine]:
            task.add_done_callback(self._tell_end)

    def _tell_end(self, task: asyncio.Task[None]) -> None:
        """A poll goes on for ever: one that ends by itself is a defect, and its machine looks silent from now on."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "a poll of a machine ended", "exception": error, "task": task})

    async def _follow(self, machine: str, part: str) -> None:
        """Long-poll one log of events for ever; a restarted process starts its count anew. The first look does not wait: its
        short round trip measures the clock's offset before any signal is dated."""
        since, wait_s = 0, 0.0
        client = self._clients[machine]
        call = client.signals if part == "agent" else client.events
        while True:
            asked_s, answer = time.monotonic(), dict[str, Any]()
            try:
                answer = dict(await call(since, wait_s))
                restarted = self._note_answer(machine, part, answer) or int(answer["next"]) < since
                left_out = 0 if restarted else self._accept(machine, answer.get("signals", ()))
                if since and not restarted:  # what was lost before our first look is of before our time
                    self._lose("machine", int(answer.get("dropped", 0)))
                since, wait_s = (0, 0.0) if restarted else (int(answer["next"]), _POLL_S)
                if part == "agent":
                    self._note_processes(machine, answer)
                if left_out:
                    self._lose("too_many", left_out)
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
        """A machine without a launcher: its processes' times are by its agent's clock. Seldom, once it is known: the
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
            contact.ended = {pid: ended_s for pid, ended_s in contact.ended.items() if ended_s >= asked_s}  # the answer knows of the others
            contact.workers = less_ended((shift_worker(worker, contact.offset_s) for worker in workers), contact.ended)
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
                contact.agent_heard_s, contact.agent_name = time.monotonic(), str(answer.get("machine", ""))
            else:
                contact.launcher_heard_s = time.monotonic()
        return restarted

    def _note_processes(self, machine: str, answer: Mapping[str, Any]) -> None:
        """Whom the agent sees. Where a launcher speaks for the workers, only the jobs are taken from it. Raises WireError."""
        if "processes" not in answer:
            return  # an agent of an earlier version, or one that has not taken its first sample
        watched = not self._clients[machine].has_launcher
        if len(answer["processes"]) > MOST_PROCESSES:
            raise WireError(f"agent of {machine} lists {len(answer['processes'])} processes: {MOST_PROCESSES} are read at most")
        workers = tuple(map(as_worker, answer["processes"])) if watched else ()
        with self._lock:
            contact = self._contacts[machine]
            contact.jobs = tuple(str(name) for name in answer.get("jobs", ()))
            if watched:
                contact.workers = tuple(shift_worker(worker, contact.offset_s) for worker in workers)

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
                self._lose("unreadable", 1)
                continue
            if signal.kind != "order":  # operators alone give orders, and not through a machine
                signals.append(signal)
        exits = {item.pid: time.monotonic() for item in signals if item.kind == "exit" and item.pid is not None}
        if signals:
            with self._lock:
                contact.ended |= exits  # a decision about a dead worker comes before the next look at its launcher's state
                contact.workers = less_ended(contact.workers, contact.ended)
                over = len(contact.signals) + len(signals) - (contact.signals.maxlen or 0)
                contact.signals.extend(replace(item, time_s=item.time_s - contact.offset_s, machine=machine) for item in signals)
            self._lose("queue", over)
            self._on_signal()
        return len(items) - taken

    def _lose(self, why: str, count: int) -> None:
        if count > 0:
            with self._lock:
                self._lost[why] += count


def _age_s(view: MachineView, part: Literal["agent", "launcher"]) -> float | None:
    return view.agent_age_s if part == "agent" else view.launcher_age_s
