"""Raw series become samples: names and units by the mapping, machines by the map, counters as rates, blanks as nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from minder.errors import IdentityError
from minder.metrics import find_metric
from minder.telemetry.blank import is_blank, is_saturated
from minder.telemetry.identity import MachineMap, Ownership, target_name
from minder.telemetry.mapping import MetricMapping, Rule
from minder.types import Sample

__all__ = ["RawSeries", "Translator"]

_LONGEST_GROWTH_S = 300.0  # a counter's growth over a longer gap is nobody's rate
_PREFERRED_S = 60.0  # so long the better of two rules for one metric keeps the other out
_FORGET_S = 3600.0
_STEPPED_S = 60.0  # a series whose newest point is so much older than what was read: whoever stamps it had its clock set back


@dataclass(frozen=True, slots=True)
class RawSeries:
    """A series as it was exported: points are (unix seconds, value), times rising."""

    name: str
    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


@dataclass(slots=True)
class _Binding:
    """What one exported series is used for, and how far it was read."""

    machine: str | None
    target: str
    uses: list[tuple[int, int, str | None]]  # rule, side, device
    last_time_s: float = float("-inf")
    last_value: float | None = None


@dataclass(slots=True)
class _Cell:
    """What one scrape gave one rule for one device: values of both sides; None is a component without data."""

    sides: tuple[list[float | None], list[float | None]] = field(default_factory=lambda: ([], []))


_Scrape = tuple[float, str, str]  # time, machine, target


class Translator:
    """Keeps the counters' last values and hands out every point once. One instance per source."""

    def __init__(self, mapping: MetricMapping, machines: MachineMap) -> None:
        self._rules = mapping.all_rules()
        self._machines = machines
        self._bindings: dict[tuple[str, frozenset[tuple[str, str]]], _Binding] = {}
        self._ownership = Ownership()
        self._components: dict[tuple[str, int, str | None], int] = {}
        self._preferred: dict[tuple[str, str], tuple[int, float]] = {}
        self._heard_ours = False

    def translate(self, series: Iterable[RawSeries]) -> list[Sample]:
        """Samples of the points that are new, in time order.

        Raises IdentityError for a target without a machine, for two targets of one machine, and while no target at all maps
        to a machine of the job.
        """
        cells: defaultdict[_Scrape, defaultdict[tuple[int, str | None], _Cell]] = defaultdict(lambda: defaultdict(_Cell))
        stranger: RawSeries | None = None
        for raw in series:
            binding = self._bind(raw)
            if binding.machine is None:
                stranger = raw if binding.uses else stranger
                continue
            self._heard_ours = self._heard_ours or bool(binding.uses)
            self._read(binding, raw, cells)
        if stranger is not None and not self._heard_ours:
            raise IdentityError(
                f"no target maps to a machine of the job; {target_name(stranger.labels)} maps to another: mend "
                "telemetry.machine_label or telemetry.machine_map"
            )
        samples: list[Sample] = []
        for scrape in sorted(cells):
            samples.extend(self._samples(scrape, cells[scrape]))
        self._forget(max((scrape[0] for scrape in cells), default=float("-inf")))
        return samples

    def _bind(self, raw: RawSeries) -> _Binding:
        key = (raw.name, frozenset(raw.labels.items()))
        binding = self._bindings.get(key)
        if binding is None:
            labels = dict(raw.labels)
            uses = [
                (index, side, rule.device_of(labels)) for index, rule in enumerate(self._rules) for side in rule.sides_of(raw.name, labels)
            ]
            machine = self._machines.resolve(labels) if uses else None
            binding = self._bindings[key] = _Binding(machine, target_name(labels), uses)
        return binding

    def _read(self, binding: _Binding, raw: RawSeries, cells: defaultdict[_Scrape, defaultdict[tuple[int, str | None], _Cell]]) -> None:
        assert binding.machine is not None
        if raw.points and raw.points[-1][0] < binding.last_time_s - _STEPPED_S:
            binding.last_time_s, binding.last_value = float("-inf"), None
        for time_s, value in raw.points:
            if time_s <= binding.last_time_s:
                continue
            scrape = cells[time_s, binding.machine, binding.target]
            known = None if is_blank(value) else value
            passed_s = time_s - binding.last_time_s
            for index, side, device in binding.uses:
                rule = self._rules[index]
                scrape[index, device].sides[side].append(_component(rule, known, binding.last_value, passed_s))
            binding.last_time_s, binding.last_value = time_s, known

    def _samples(self, scrape: _Scrape, cells: Mapping[tuple[int, str | None], _Cell]) -> list[Sample]:
        """One sample per device of one scrape, the machine's own first."""
        time_s, machine, target = scrape
        by_device: dict[str | None, dict[str, float]] = {None: {}}
        for (index, device), cell in sorted(cells.items(), key=lambda item: item[0][0]):
            rule = self._rules[index]
            if not self._is_preferred(machine, rule.metric, index, time_s):
                continue
            self._ownership.claim((machine, rule.metric, device), target, time_s)
            value = self._combine(rule, cell, (machine, index, device))
            if value is not None:
                by_device.setdefault(device, {}).setdefault(rule.metric, value)
        found = [Sample(time_s, machine, values, device) for device, values in by_device.items() if values]
        return found or [Sample(time_s, machine, {})]  # it answered, though it said nothing that we know yet

    def _is_preferred(self, machine: str, metric: str, index: int, time_s: float) -> bool:
        best = self._preferred.get((machine, metric))
        if best is not None and best[0] < index and time_s - best[1] < _PREFERRED_S:
            return False
        self._preferred[machine, metric] = (index, time_s)
        return True

    def _combine(self, rule: Rule, cell: _Cell, key: tuple[str, int, str | None]) -> float | None:
        """The rule's value, or None where a component has no data or one that was there is gone (for one scrape)."""
        values, over = cell.sides
        count = len(values) + len(over)
        missing = count < self._components.get(key, 0)
        self._components[key] = count
        if count == 1 and values and not missing and not rule.over and not rule.complement:  # nearly all of them
            return None if values[0] is None else values[0] * rule.scale
        known = [value for value in values if value is not None]
        known_over = [value for value in over if value is not None]
        if missing or not known or len(known) + len(known_over) < count or (rule.over and sum(known_over) <= 0):
            return None
        total = _COMBINE[rule.combine](known)
        value = (total / sum(known_over) if rule.over else total) * rule.scale
        value = 1.0 - value if rule.complement else value
        metric = find_metric(rule.metric)
        if metric is not None and metric.unit == "ratio" and metric.high == 1.0 and (rule.over or len(known) > 1):
            return min(1.0, max(0.0, value))  # two counters are not read at the same instant
        return value

    def _forget(self, newest_s: float) -> None:
        """Series that are long gone: devices, interfaces and targets come and go."""
        if len(self._bindings) % 1000 == 999:
            old = newest_s - _FORGET_S
            self._bindings = {key: item for key, item in self._bindings.items() if item.last_time_s > old}


_COMBINE: dict[str, Callable[[list[float]], float]] = {"sum": sum, "mean": lambda values: sum(values) / len(values), "max": max, "min": min}


def _component(rule: Rule, value: float | None, before: float | None, passed_s: float) -> float | None:
    """What one series adds: itself, or its growth per second; None where that is not known."""
    if value is None or (rule.saturates and is_saturated(value)):
        return None
    if rule.kind != "counter":
        return value
    if before is None or value < before or not 0 < passed_s <= _LONGEST_GROWTH_S:
        return None  # first look, a reset, or an outage
    return (value - before) / passed_s
