"""Judged probes as rows of plain columns, for a terminal and a ticket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from minder.app.probing import ProbedMachine
from minder.model.pairs import PairGraph
from minder.model.probes import MeasurementVerdict, ProbeJudgement

__all__ = ["judgement_rows", "matrix_rows", "pair_rows", "reasons", "with_unit"]

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
_SCALED = frozenset({"B/s", "bit/s", "B", "s"})


def with_unit(value: float, unit: str) -> str:
    """Three digits, with a prefix where the unit takes one.

    >>> with_unit(6.21e9, "B/s"), with_unit(0.00042, "s"), with_unit(3, "errors")
    ('6.21 GB/s', '420 µs', '3 errors')
    """
    if unit not in _SCALED or not value:
        return f"{value:.3g} {unit}".rstrip()
    scale, prefix = next(((scale, prefix) for scale, prefix in _PREFIXES if abs(value) >= scale), _PREFIXES[-1])
    return f"{value / scale:.3g} {prefix}{unit}"


def judgement_rows(judged: Sequence[ProbeJudgement]) -> list[tuple[str, ...]]:
    """One machine: a row for each measurement, with what it was compared with."""
    rows: list[tuple[str, ...]] = [("probe", "verdict", "measurement", "value", "expected", "limit", "reason")]
    for item in judged:
        first = (item.probe, _word(item.verdict))
        if not item.measures:
            rows.append((*first, "-", "-", "-", "-", item.reason))
        for index, measure in enumerate(item.measures):
            row = (*first, *_numbers(measure), item.reason) if not index else ("", "", *_numbers(measure), "")
            rows.append(row)
    return rows


def matrix_rows(tested: Mapping[str, ProbedMachine], judged: Mapping[str, Sequence[ProbeJudgement]]) -> list[tuple[str, ...]]:
    """Several machines: a row for each, a column for each probe, with the verdict and its first number that is compared."""
    probes = list(dict.fromkeys(item.probe for items in judged.values() for item in items))
    rows: list[tuple[str, ...]] = [("machine", *probes)]
    for machine in tested:
        by_probe = {item.probe: _cell(item) for item in judged[machine]}
        rows.append((machine, *(by_probe.get(probe, "-") for probe in probes)))
    return rows


def reasons(tested: Mapping[str, ProbedMachine], judged: Mapping[str, Sequence[ProbeJudgement]]) -> Iterable[str]:
    """Why a machine did not pass: faults and slowness first, then what is not judged, the same reason once for all machines."""
    yield from (f"{machine}: not tested: {found.refused}" for machine, found in tested.items() if found.refused)
    for word in ("fail", "slow"):
        for machine, items in judged.items():
            yield from (f"{machine}: {item.probe} {word}: {item.reason}" for item in items if item.verdict == word)
    unjudged: dict[tuple[str, str], list[str]] = {}
    for machine, items in judged.items():
        for item in items:
            if item.verdict in ("not_judged", "not_applicable"):
                unjudged.setdefault((f"{item.probe} {_word(item.verdict)}", item.reason), []).append(machine)
    for (what, reason), machines in unjudged.items():
        yield f"{', '.join(machines)}: {what}: {reason}"


def pair_rows(graph: PairGraph) -> list[tuple[str, ...]]:
    """A row for each pair test: the rate of each direction, and what became of it."""
    rows: list[tuple[str, ...]] = [("machines", "round", "state", "there", "back", "latency", "detail")]
    for edge in graph.edges:
        rates = (edge.forward_bytes_per_s, edge.backward_bytes_per_s)
        there, back = ("-" if rate is None else with_unit(rate, "B/s") for rate in rates)
        latency = "-" if edge.latency_s is None else with_unit(edge.latency_s, "s")
        state = _word(edge.state) + (" (link)" if edge.blamed else "")
        rows.append((" -> ".join(edge.machines), str(edge.round), state, there, back, latency, edge.detail))
    return rows


def _cell(item: ProbeJudgement) -> str:
    compared = [measure for measure in item.measures if measure.verdict != "not_applicable"]
    bad = next((measure for measure in compared if measure.verdict in ("slow", "fail")), compared[0] if compared else None)
    return _word(item.verdict) + (f" {with_unit(bad.value, bad.unit)}" if bad is not None else "")


def _numbers(item: MeasurementVerdict) -> tuple[str, str, str, str]:
    name = item.name + (f" {item.device}" if item.device else "")
    expected = "-" if item.expected is None else with_unit(item.expected, item.unit)
    limit = "-" if item.limit is None else with_unit(item.limit, item.unit)
    return name, with_unit(item.value, item.unit), expected, limit


def _word(verdict: str) -> str:
    return verdict.replace("_", " ")
