"""The shortest schedule that still fails (pure): strikes are left out, in halves first, then one by one; then the gaps are halved."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from chaos_lab.schedule import Strike, cut

__all__ = ["shrink"]

_SHORTEST_GAP_S = 5.0


def shrink(schedule: Sequence[Strike], fails: Callable[[Sequence[Strike]], bool], most_tries: int = 100) -> list[Strike]:
    """A schedule out of which no strike can be left (Zeller's ddmin), as far as so many tries show it. `schedule` is known to fail.

    >>> strikes = [Strike(number, "crash", 80.0, 0.5) for number in range(1, 9)]
    >>> [(strike.number, strike.gap_s) for strike in shrink(strikes, lambda left: {3, 6} <= {strike.number for strike in left})]
    [(3, 5.0), (6, 5.0)]
    """
    tries = iter(range(most_tries))
    best = _fewest(list(schedule), fails, tries)
    while any(strike.gap_s > _SHORTEST_GAP_S for strike in best):
        halved = [replace(strike, gap_s=strike.gap_s if strike.joined else max(_SHORTEST_GAP_S, strike.gap_s / 2)) for strike in best]
        if halved == best or next(tries, None) is None or not fails(halved):
            break
        best = halved
    return best


def _fewest(best: list[Strike], fails: Callable[[Sequence[Strike]], bool], tries: Iterator[int]) -> list[Strike]:
    parts = 2
    while len(best) > 1:
        for candidate in _without_a_part(best, parts):
            if next(tries, None) is None:
                return best
            if fails(candidate):
                best, parts = candidate, max(2, parts - 1)
                break
        else:
            if parts >= len(best):
                return best
            parts = min(len(best), 2 * parts)
    return best


def _without_a_part(schedule: Sequence[Strike], parts: int) -> Iterator[list[Strike]]:
    """The schedule without its last part, without the one before it, and so on: what failed late rarely needs what came early."""
    edges = [round(index * len(schedule) / parts) for index in range(parts + 1)]
    for begin, end in itertools.pairwise(edges):
        yield cut([*schedule[:begin], *schedule[end:]])
