"""At most so many series from one machine, whatever hardware it has: a Prometheus with thousands of machines pays for each.

Left out are the last devices of the metrics that have the most of them (the 200th virtual interface, not the eighth GPU); metrics
of the whole machine come last. How many were left out is a metric itself.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from minder.edge.exporters.reading import Reading, Series

__all__ = ["LEFT_OUT", "MOST_SERIES", "bound"]

MOST_SERIES = 600
LEFT_OUT = "agent_series_left_out"


def bound(reading: Reading, most: int = MOST_SERIES) -> Reading:
    """The reading with at most `most` series, the count of those left out among them (0 mostly)."""
    places = [*reading.gauges, *reading.counters, *((name, str(sorted(labels.items()))) for name, labels in reading.info)]
    kept = frozenset(_fitting(places, most - 1))
    found = Reading(signals=reading.signals)
    found.gauges = {place: value for place, value in reading.gauges.items() if place in kept}
    found.counters = {place: value for place, value in reading.counters.items() if place in kept}
    found.info = [item for item in reading.info if (item[0], str(sorted(item[1].items()))) in kept]
    found.gauge(LEFT_OUT, len(places) - len(found))
    return found


def _fitting(places: Iterable[Series], most: int) -> list[Series]:
    """The first devices of every metric, as many of each as fit."""
    by_name: dict[str, list[Series]] = defaultdict(list)
    for place in sorted(places, key=lambda place: (place[0], _natural(place[1]))):
        by_name[place[0]].append(place)
    widest = max((len(found) for found in by_name.values()), default=0)
    while widest > 1 and sum(min(len(found), widest) for found in by_name.values()) > most:
        widest -= 1
    return [place for found in by_name.values() for place in found[:widest]][:most]


def _natural(device: str | None) -> tuple[tuple[str, int], ...]:
    """gpu2 before gpu10."""
    return tuple((word, int(number or 0)) for word, number in re.findall(r"(\D*)(\d*)", device or "") if word or number)
