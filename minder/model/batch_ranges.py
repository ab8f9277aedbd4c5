"""Batches of a run that are not to be trained on, as text that a worker's environment can carry (pure).

A batch is a global batch: what all ranks together consume in one step. Batches are numbered from 0 in the order of the data plan, over all
epochs; a step is numbered from 1. Without skips step `s` consumes batch `s - 1`.
"""

from __future__ import annotations

from collections.abc import Iterable

from minder.model.errors import BadInputError

__all__ = ["SKIP_BATCHES", "BatchRangesError", "batch_of_step", "consumed_alike", "format_ranges", "parse_ranges"]

SKIP_BATCHES = "MINDER_SKIP_BATCHES"


class BatchRangesError(BadInputError):
    """A text that names no batches."""


def parse_ranges(text: str) -> tuple[range, ...]:
    """Sorted, disjoint ranges of batch numbers.

    >>> parse_ranges("340,120-121,121"), parse_ranges("")
    ((range(120, 122), range(340, 341)), ())

    Raises:
        BatchRangesError: A part is neither `N` nor `FIRST-LAST` with 0 <= FIRST <= LAST.
    """
    found: set[range] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise BatchRangesError(f"{part!r} names no batches: write numbers from 0 and ranges, as in 120-121,340")
        found.add(range(int(first), int(last if dash else first) + 1))
    return _joined(found)


def format_ranges(ranges: Iterable[range]) -> str:
    """The text that `parse_ranges` reads: its shortest form.

    >>> format_ranges([range(5, 6), range(6, 8)])
    '5-7'
    """
    joined = _joined(set(ranges))
    return ",".join(str(one.start) if len(one) == 1 else f"{one.start}-{one.stop - 1}" for one in joined)


def batch_of_step(step: int, skipped: Iterable[range]) -> int:
    """The batch which step `step` (from 1) consumes: number `step - 1` of those that are not skipped.

    >>> [batch_of_step(step, parse_ranges("1-2")) for step in (1, 2, 3)]
    [0, 3, 4]
    """
    batch = step - 1
    for one in _joined(set(skipped)):
        if one.start <= batch:
            batch += len(one)
    return batch


def consumed_alike(step: int, one: Iterable[range], other: Iterable[range]) -> bool:
    """Whether the steps up to `step` consume the same batches under both skips: a state after that step then belongs to either run.

    >>> [consumed_alike(step, parse_ranges("5"), ()) for step in (0, 5, 6)]
    [True, True, False]
    """
    ones, others = _joined(set(one)), _joined(set(other))
    last = batch_of_step(step, ones)
    return last == batch_of_step(step, others) and _up_to(last, ones) == _up_to(last, others)


def _up_to(last: int, joined: tuple[range, ...]) -> tuple[range, ...]:
    return _joined({range(item.start, min(item.stop, last + 1)) for item in joined})


def _joined(ranges: Iterable[range]) -> tuple[range, ...]:
    joined: list[range] = []
    for one in sorted((each for each in ranges if each), key=lambda each: (each.start, each.stop)):
        if joined and one.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, one.stop))
        else:
            joined.append(one)
    return tuple(joined)
