"""The numbered ring of signals."""

from __future__ import annotations

import asyncio
import threading

from minder.edge.agent.ring import SignalRing
from minder.model.evidence import Signal


def _signals(*messages: str) -> list[Signal]:
    return [Signal(1.0, "log", "m0", message) for message in messages]


def _texts(ring: SignalRing, since: int) -> list[str]:
    return [signal.message for signal in ring.read(since).signals]


def test_a_reader_goes_on_where_it_stopped() -> None:
    ring = SignalRing()
    ring.append(_signals("a", "b"))
    first = ring.read(0)
    assert first.next == 2
    ring.append(_signals("c"))
    assert _texts(ring, first.next) == ["c"]
    assert _texts(ring, 3) == []


def test_what_was_lost_is_counted() -> None:
    ring = SignalRing(size=3)
    ring.append(_signals(*"abcde"))
    found = ring.read(1)
    assert [signal.message for signal in found.signals] == ["c", "d", "e"]
    assert (found.dropped, found.next) == (1, 5)
    assert ring.read(2).dropped == 0


def test_a_number_of_a_former_agent_starts_at_the_oldest() -> None:
    ring = SignalRing()
    ring.append(_signals("a"))
    assert _texts(ring, 4711) == ["a"]


def test_a_waiting_reader_is_woken_from_another_thread() -> None:
    ring = SignalRing()

    async def wait() -> list[str]:
        threading.Timer(0.1, ring.append, [_signals("late")]).start()
        return [signal.message for signal in (await ring.wait(0, 30.0)).signals]

    assert asyncio.run(wait()) == ["late"]


def test_waiting_ends_without_signals() -> None:
    assert asyncio.run(SignalRing().wait(0, 0.05)).signals == ()
