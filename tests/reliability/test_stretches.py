from __future__ import annotations

import random

import pytest

from minder.offline.reliability.sliding import slide_hour
from minder.offline.reliability.stretches import Stretch, clip, count_once, fill_gaps


@pytest.fixture(params=range(25))
def dice(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(request.param)


def draw(dice: random.Random) -> list[Stretch]:
    """Up to twelve stretches of four incidents within 300 s, in any order, overlapping or not."""
    pairs = [sorted(dice.sample(range(301), 2)) for _ in range(dice.randrange(13))]
    return [Stretch(begin, end, "detect", "stall", dice.choice("abcd")) for begin, end in pairs]


def seconds_of(found: list[Stretch]) -> list[int]:
    return [second for item in found for second in range(int(item.begin_s), int(item.end_s))]


def test_seconds_are_never_counted_twice_nor_invented(dice: random.Random) -> None:
    drawn = draw(dice)
    seconds = seconds_of(count_once(drawn))
    assert len(seconds) == len(set(seconds)) and set(seconds) <= set(seconds_of(drawn))


def test_the_incident_that_began_first_keeps_its_seconds() -> None:
    first = [Stretch(0, 5, "detect", "stall", "a"), Stretch(5, 20, "restart", "stall", "a")]
    second = [Stretch(3, 8, "detect", "crash", "b"), Stretch(8, 30, "restart", "crash", "b")]
    found = count_once([*second, *first])
    assert [(item.incident, item.begin_s, item.end_s) for item in found] == [("a", 0, 5), ("a", 5, 20), ("b", 20, 30)]


def test_gaps_are_filled_and_what_is_taken_stays(dice: random.Random) -> None:
    taken, others = draw(dice), draw(dice)
    first = count_once(taken)
    found = fill_gaps(first, others)
    assert [item for item in found if item in first] == first
    seconds = seconds_of(found)
    assert seconds == sorted(set(seconds))
    assert set(seconds) <= set(seconds_of(taken)) | set(seconds_of(others))


def test_clipping_keeps_only_what_lies_inside(dice: random.Random) -> None:
    drawn = draw(dice)
    spans = [(10.0, 50.0), (50.0, 60.0), (200.0, 280.0)]
    inside = {second for begin, end in spans for second in range(int(begin), int(end))}
    assert set(seconds_of(clip(drawn, spans))) == set(seconds_of(drawn)) & inside


def test_the_sliding_hour_is_what_counting_seconds_gives(dice: random.Random) -> None:
    """In "hours" of 40 s, over a job that pauses twice."""
    drawn = draw(dice)
    running = [(0.0, 100.0), (120.0, 200.0), (210.0, 300.0)]
    lost = clip(count_once(drawn), running)
    ran = [second for begin, end in running for second in range(int(begin), int(end))]
    bad = set(seconds_of(lost))
    worst = min(1 - sum(second in bad for second in ran[at : at + 40]) / 40 for at in range(len(ran) - 39))
    found = slide_hour(running, lost, 40.0)
    assert found.worst is not None and abs(found.worst[0] - worst) < 1e-9
    assert found.last is not None and abs(found.last - (1 - sum(second in bad for second in ran[-40:]) / 40)) < 1e-9
    assert slide_hour([(0.0, 30.0)], [], 40.0).worst is None
