from __future__ import annotations

import asyncio

from minder.edge.launcher.events import EventRing
from minder.model.evidence import Signal


def _signal(number: int) -> Signal:
    return Signal(float(number), "exit", "m1", str(number))


def test_since_gives_what_is_new_and_counts_what_is_lost() -> None:
    ring = EventRing(limit=3)
    for number in range(5):
        ring.append(_signal(number))
    assert [signal.message for signal in ring.since(3)[0]] == ["3", "4"]
    found, dropped = ring.since(0)
    assert [signal.message for signal in found] == ["2", "3", "4"] and dropped == 2
    assert ring.since(5) == ([], 0) and ring.since(99) == ([], 0)


def test_a_waiting_reader_wakes_for_news_and_gives_up_in_time() -> None:
    async def play() -> tuple[int, int]:
        ring = EventRing()
        await ring.wait_for_news(0, 0.01)
        before = ring.next
        reader = asyncio.create_task(ring.wait_for_news(0, 30.0))
        await asyncio.sleep(0)
        ring.append(_signal(0))
        await asyncio.wait_for(reader, 5.0)
        return before, ring.next

    assert asyncio.run(play()) == (0, 1)
