"""Raw series become samples: names and units by the mapping, machines by the map, counters as rates, blanks as nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from minder.ingest.sources.blank import BLANK_FLOOR, BLANK_RANGES, is_blank, is_saturated
from minder.ingest.sources.exposition import Layout
from minder.ingest.sources.identity import Claim, Given, MachineMap, Ownership, target_name
from minder.ingest.sources.mapping import MetricMapping, Rule
from minder.model.errors import IdentityError
from minder.model.metrics import find_metric
from minder.model.telemetry import Sample

__all__ = ["Page", "RawSeries", "Translator"]

_LONGEST_GROWTH_S = 300.0  # a counter's growth over a longer gap gives no rate
_PREFERRED_S = 60.0  # so long the better of two rules for one metric keeps the other out
_FORGET_S = 3600.0
_TIDY_S = 600.0
_BLANK_FROM = BLANK_RANGES[0][0]  # below it only what is far out or no number at all is blank
_OF_SCRAPES = ("scrape_up", "scrape_seconds", "scrape_samples")
_STEPPED_S = 60.0  # a series whose newest point is so much older than what was read: the clock that stamps it was set back


@dataclass(frozen=True, slots=True)
class RawSeries:
    """A series as it was exported: points are (unix seconds, value), times rising."""

    name: str
    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Page:
    """One answer of one target. labels: its machine and instance, which all of its series have. values: in the layout's order."""

    labels: Mapping[str, str]
    layout: Layout
    time_s: float
    values: Sequence[float]

    def series(self) -> list[RawSeries]:
        found = zip(self.layout.series, self.values, strict=True)
        return [RawSeries(name, {**own, **self.labels}, ((self.time_s, value),)) for (name, own), value in found]


@dataclass(slots=True)
class _Binding:
    """What one exported series is used for, and how far it was read. machine: None for one of another job, and for one that cannot be
    placed, of which `refusal` says why."""

    machine: str | None
    target: str
    uses: list[tuple[int, int, str | None]]  # rule, side, device
    last_time_s: float = float("-inf")
    last_value: float | None = None
    refusal: str = ""


@dataclass(slots=True)
class _Cell:
    """What one scrape gave one rule for one device: values of both sides; None is a component without data."""

    sides: tuple[list[float | None], list[float | None]] = field(default_factory=lambda: ([], []))


_Scrape = tuple[float, str, str]  # time, machine, target


@dataclass(frozen=True, slots=True)
class _Place:
    """A value that a page gives, and where its numbers stand among those that are used. scale: of a single gauge; None: combined."""

    device: str | None
    metric: str
    index: int  # of its rule
    sides: tuple[tuple[int, ...], tuple[int, ...]]
    scale: float | None


@dataclass(slots=True)
class _Sheet:
    """What is known of one target's pages as long as they have the same series: only numbers change from one to the next."""

    layout: Layout
    machine: str
    target: str
    lines: tuple[int, ...]  # of the layout's series, those that are used
    bindings: tuple[_Binding, ...]
    places: tuple[_Place, ...]
    metrics: tuple[tuple[str, int], ...]  # each once, with its rule
    keys: tuple[Given, ...]
    time_s: float
    known: list[float | None]  # of the last page, in the order of lines
    claim: Claim | None = None

    def settle(self) -> None:
        """Tell the series how far they were read."""
        for binding, value in zip(self.bindings, self.known, strict=True):
            binding.last_time_s, binding.last_value = self.time_s, value


class Translator:
    """Keeps the counters' last values and hands out every point once. One instance per source.

    unplaced: target to the number of its series for which no label gave the machine, in the last call; refusal: why, of one of them.
    """

    def __init__(self, mapping: MetricMapping, machines: MachineMap) -> None:
        self._rules = mapping.all_rules()
        self._machines = machines
        self._bindings: dict[tuple[str, frozenset[tuple[str, str]]], _Binding] = {}
        self._ownership = Ownership()
        self._components: dict[tuple[str, int, str | None], int] = {}
        self._preferred: dict[tuple[str, str], tuple[int, float]] = {}
        self._heard_ours = False
        self._sheets: dict[tuple[str, str], _Sheet] = {}
        self._tidied_s = float("-inf")
        self._targets: dict[str, set[str | None]] = {}  # whose target it is, of those that gave a metric of their own
        self._placed_by = machines.version
        self.unplaced: dict[str, int] = {}
        self.refusal = ""

    def translate_pages(self, pages: Iterable[Page]) -> list[Sample]:
        """`translate` for the pages of targets that are scraped again and again: the same samples at a tenth of the cost."""
        samples: list[Sample] = []
        for page in sorted(pages, key=lambda item: (item.time_s, item.labels["machine"], item.labels["instance"])):
            sheet = self._sheets.get((page.labels["machine"], page.labels["instance"]))
            if sheet is None or sheet.layout is not page.layout or page.time_s <= sheet.time_s:
                samples.extend(self._turn_page(page))
            else:
                samples.extend(self._read_page(sheet, page))
        return samples

    def translate(self, series: Iterable[RawSeries]) -> list[Sample]:
        """Samples of the points that are new, in time order.

        A series that cannot be placed is left out, and counted in `unplaced`. Raises IdentityError for two targets of one machine, and
        while no series at all maps to a machine of the job.
        """
        cells: defaultdict[_Scrape, defaultdict[tuple[int, str | None], _Cell]] = defaultdict(lambda: defaultdict(_Cell))
        stranger: RawSeries | None = None
        self.unplaced, self.refusal = {}, ""
        self._place_anew()
        for raw in sorted(series, key=_is_of_scrapes):
            binding = self._bind(raw)
            if binding.refusal:
                self.unplaced[binding.target] = self.unplaced.get(binding.target, 0) + 1
                self.refusal = self.refusal or binding.refusal
                continue
            if binding.machine is None:
                stranger = raw if binding.uses else stranger
                continue
            self._heard_ours = self._heard_ours or bool(binding.uses)
            self._read(binding, raw, cells)
        if self.refusal and not self._heard_ours:
            raise IdentityError(self.refusal)
        if stranger is not None and not self._heard_ours:
            raise IdentityError(
                f"no target maps to a machine of the job; {target_name(stranger.labels)} maps to another: mend "
                "telemetry.machine_label or telemetry.machine_map"
            )
        samples: list[Sample] = []
        for scrape in sorted(cells, key=lambda scrape: (scrape[:2], min(index for index, _ in cells[scrape]), scrape[2])):
            samples.extend(self._samples(scrape, cells[scrape]))
        self._forget(max((scrape[0] for scrape in cells), default=float("-inf")))
        return samples

    def _place_anew(self) -> None:
        """What the joins say has changed: whose series it is has to be asked again."""
        if self._machines.version == self._placed_by:
            return
        self._placed_by = self._machines.version
        self._targets = {}
        for (_, labels), binding in sorted(self._bindings.items(), key=lambda item: self._of_scrapes(item[1])):
            machine, refusal = self._place(dict(labels), binding)
            if machine != binding.machine:  # its counters were another machine's
                binding.last_time_s, binding.last_value = float("-inf"), None
            binding.machine, binding.refusal = machine, refusal

    def _bind(self, raw: RawSeries) -> _Binding:
        key = (raw.name, frozenset(raw.labels.items()))
        binding = self._bindings.get(key)
        if binding is None:
            labels = dict(raw.labels)
            uses = [
                (index, side, rule.device_of(labels)) for index, rule in enumerate(self._rules) for side in rule.sides_of(raw.name, labels)
            ]
            binding = _Binding(None, target_name(labels), uses)
            binding.machine, binding.refusal = self._place(labels, binding)
            if binding.machine is None and self._of_scrapes(binding):
                return _Binding(None, binding.target, [])  # asked again: its target may give a metric of its own later
            self._bindings[key] = binding
        return binding

    def _of_scrapes(self, binding: _Binding) -> bool:
        """Whether it is what a Prometheus says of its own scrapes."""
        return bool(binding.uses) and all(self._rules[index].metric in _OF_SCRAPES for index, _, _ in binding.uses)

    def _place(self, labels: Mapping[str, str], binding: _Binding) -> tuple[str | None, str]:
        """The machine, and why there is none where no label gives it."""
        if not binding.uses:
            return None, ""
        if self._of_scrapes(binding):  # a Prometheus scrapes much that is no machine of the job
            return self._scraped(labels, self._targets.get(binding.target, set())), ""
        try:
            machine = self._machines.resolve(labels)
        except IdentityError as error:
            return None, str(error)
        self._targets.setdefault(binding.target, set()).add(machine)
        return machine, ""

    def _scraped(self, labels: Mapping[str, str], owners: set[str | None]) -> str | None:
        """Whose scrape it was. Of a target that speaks for several machines (a collector, localhost of each) only what its labels say."""
        if len(owners) == 1:
            return next(iter(owners))
        try:
            machine = self._machines.resolve(labels) if owners else None
        except IdentityError:
            return None
        return machine if machine in owners else None

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
            if not self._speaks(Given(machine, rule.metric, device), target, time_s):
                continue
            value = self._combine(rule, cell, (machine, index, device))
            if value is not None:
                by_device.setdefault(device, {}).setdefault(rule.metric, value)
        found = [Sample(time_s, machine, values, device) for device, values in by_device.items() if values]
        return found or [Sample(time_s, machine, {})]  # it answered, though it said nothing that we know yet

    def _speaks(self, key: Given, target: str, time_s: float) -> bool:
        """Whether this target gives it. Of several exporters of a machine (one for each half of its devices) the first speaks of scrapes.
        Raises IdentityError where two give one metric."""
        try:
            self._ownership.claim([key], target, time_s)
        except IdentityError:
            if key.metric in _OF_SCRAPES:
                return False
            raise
        return True

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

    def _turn_page(self, page: Page) -> list[Sample]:
        """A page that is not like the one before is read series by series, and remembered if the next one may be like it."""
        key = (page.labels["machine"], page.labels["instance"])
        before = self._sheets.pop(key, None)
        if before is not None:
            before.settle()
        series = page.series()
        samples = self.translate(series)
        used: dict[int, tuple[int, _Binding]] = {}
        for line, raw in enumerate(series):
            binding = self._bind(raw)
            if binding.uses:
                used.setdefault(id(binding), (line, binding))
        sheet = self._sheet(page, [*used.values()])
        if sheet is not None:
            self._sheets[key] = sheet
        return samples

    def _sheet(self, page: Page, used: list[tuple[int, _Binding]]) -> _Sheet | None:
        """None where a page's series belong to several targets or to none, or were not all read together."""
        whose = {(binding.machine, binding.target, binding.last_time_s) for _, binding in used}
        machine, target, time_s = next(iter(whose)) if len(whose) == 1 else (None, "", page.time_s)
        if machine is None and used:
            return None
        cells: dict[tuple[int, str | None], tuple[list[int], list[int]]] = {}
        for at, (_, binding) in enumerate(used):
            for index, side, device in binding.uses:
                cells.setdefault((index, device), ([], []))[side].append(at)
        least: dict[str, int] = {}
        for index, _ in sorted(cells, key=lambda cell: cell[0]):
            least.setdefault(self._rules[index].metric, index)
        places = []
        for (index, device), sides in sorted(cells.items(), key=lambda item: item[0][0]):
            rule = self._rules[index]
            if least[rule.metric] == index:
                single = len(sides[0]) == 1 and not sides[1] and not (rule.over or rule.complement or rule.saturates)
                scale = rule.scale if single and rule.kind != "counter" else None
                places.append(_Place(device, rule.metric, index, (tuple(sides[0]), tuple(sides[1])), scale))
        keys = tuple(Given(machine or "", place.metric, place.device) for place in places)
        lines, bindings = tuple(line for line, _ in used), tuple(binding for _, binding in used)
        known = [binding.last_value for binding in bindings]
        return _Sheet(page.layout, machine or "", target, lines, bindings, tuple(places), tuple(least.items()), keys, time_s, known)

    def _read_page(self, sheet: _Sheet, page: Page) -> list[Sample]:
        """A page whose series are those of the sheet, and all of them new."""
        if not sheet.places:
            return []
        time_s, passed_s, values, before = page.time_s, page.time_s - sheet.time_s, page.values, sheet.known
        found = [values[line] for line in sheet.lines]
        known = [value if -BLANK_FLOOR < value < _BLANK_FROM or not is_blank(value) else None for value in found]
        sheet.time_s, sheet.known = time_s, known
        left = {metric for metric, index in sheet.metrics if not self._is_preferred(sheet.machine, metric, index, time_s)}
        if left:
            self._ownership.claim([key for key in sheet.keys if key.metric not in left], sheet.target, time_s)
        else:
            sheet.claim = self._ownership.claim(sheet.keys, sheet.target, time_s, sheet.claim)
        by_device: dict[str | None, dict[str, float]] = {None: {}}
        for place in sheet.places:
            if place.metric in left:
                continue
            if place.scale is not None:
                single = known[place.sides[0][0]]
                value = None if single is None else single * place.scale
            else:
                rule, cell = self._rules[place.index], _Cell()
                for side, ats in zip(cell.sides, place.sides, strict=True):
                    side.extend([_component(rule, known[at], before[at], passed_s) for at in ats])
                value = self._combine(rule, cell, (sheet.machine, place.index, place.device))
            if value is not None:
                by_device.setdefault(place.device, {})[place.metric] = value
        samples = [Sample(time_s, sheet.machine, values, device) for device, values in by_device.items() if values]
        return samples or [Sample(time_s, sheet.machine, {})]

    def _forget(self, newest_s: float) -> None:
        """Series that are long gone: devices, interfaces and targets come and go."""
        if 0 <= newest_s - self._tidied_s < _TIDY_S or newest_s == float("-inf"):
            return
        self._tidied_s = newest_s
        old_s = newest_s - _FORGET_S
        for sheet in self._sheets.values():
            sheet.settle()
        self._sheets = {key: sheet for key, sheet in self._sheets.items() if sheet.time_s > old_s}
        self._bindings = {key: item for key, item in self._bindings.items() if item.last_time_s > old_s}


def _is_of_scrapes(raw: RawSeries) -> bool:
    """What a Prometheus says of a target comes after what the target says: only the order shows whose it is."""
    return raw.name == "up" or raw.name.startswith("scrape_")


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
