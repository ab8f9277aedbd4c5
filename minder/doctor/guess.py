"""Rules for metrics whose names no mapping knows: known names inside longer ones, then words that such names are made of.

Each series makes one metric. A guess is proposed, shown with its unit, and written into a file for a
person to read; it is never taken silently. What might be a metric, but shows no unit, is a doubt and no rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minder.doctor.series import Found
from minder.doctor.units import scale_of, spelled
from minder.ingest.sources.blank import is_blank
from minder.ingest.sources.mapping import MetricMapping, Rule
from minder.model.errors import SourceError
from minder.model.metrics import find_metric

__all__ = ["Doubt", "Guess", "guess_rules"]

Read = Callable[[str], Sequence[Found]]

_DEVICES = (
    *("gpu", "gpu_id", "gpu_index", "card", "index", "minor_number", "device_num", "accelerator_id", "gpu_uuid", "uuid", "UUID"),
    *("device", "hca", "nic", "interface", "port", "id"),
)


@dataclass(frozen=True, slots=True)
class Doubt:
    """series might be `metric`, and is not taken. why: in words."""

    metric: str
    series: str
    why: str


@dataclass(frozen=True, slots=True)
class Guess:
    rules: tuple[Rule, ...]
    doubts: tuple[Doubt, ...] = ()


@dataclass(frozen=True, slots=True)
class _Hint:
    """words: of the name, lower case. without: words of other quantities. alone: false where the words are an application's as well, and
    only a scrape job that gives something else of a machine is believed."""

    metric: str
    words: str
    without: str
    kind: str = "gauge"
    combine: str = "mean"
    alone: bool = True


# What sites call the devices that train.
_DEVICE = r"(gpu|npu|mlu|dcu|gcu|xpu|hpu|ppu|tpu|ipu|accel(erator)?|nvidia|rocm|cuda|ascend|habana\w*|hl|rbln(_device_status)?|neuron\w*)"
_OF = rf"(^|[_:]){_DEVICE}\d*([_:]|$)"
_LIMITS = r"limit|cap\b|max|min|threshold|target|default|slowdown|shutdown|enforced|requested|allocat|request|quota|info"
_NOT_NET = r"err|drop|discard|container|pod|infiniband|ib_|rdma|memory|cache"
_NOT_HOST = rf"{_OF}|vram|hbm|idle|core|thread|container|pod|process|job|temp|copy|total$|swap|heap|jvm|request|{_LIMITS}"
_HINTS = (
    _Hint("gpu_power_draw_watts", rf"{_OF}.*(power|watt)|power.*{_OF}", rf"state|energy|violation|percent|{_LIMITS}", combine="max"),
    _Hint(
        "gpu_duty_cycle_ratio",
        rf"{_OF}.*(util|duty|busy|(?<![a-z])(use|usage|load)(?![a-z]))|util.*{_OF}",
        rf"mem|vram|hbm|cache|enc|dec|jpeg|ofa|video|power|energy|fan|temp|clock|bandwidth|bw|{_LIMITS}",
    ),
    _Hint("gpu_temperature_celsius", rf"{_OF}.*temp|temp.*{_OF}", rf"mem|hbm|vram|{_LIMITS}", combine="max"),
    _Hint(
        "gpu_clock_hertz",
        rf"({_OF}.*|(^|[_:])sm_)(clock|freq)|(clock|freq).*({_OF}|_sm([_:]|$))",
        rf"mem|hbm|video|throttle|reason|event|app|{_LIMITS}",
        combine="max",
    ),
    _Hint("gpu_sm_activity_ratio", r"(^|[_:])sm_(active|activity)", "occ"),
    _Hint("gpu_tensor_activity_ratio", r"tensor.*activ|(^|[_:])(mxu|mfma|cube)_.*(activ|util)", ""),
    _Hint("gpu_memory_bandwidth_ratio", rf"dram.*activ|{_OF}.*mem.*(copy|bandwidth).*(util|ratio)|mem.*(copy|bandwidth).*util.*{_OF}", ""),
    _Hint(
        "gpu_memory_used_ratio",
        rf"({_OF}.*mem|(^|[_:])(vram|hbm|fb)_).*(ratio|percent|pct)",
        rf"copy|bandwidth|util|clock|temp|{_LIMITS}",
    ),
    _Hint("cpu_usage_ratio", r"cpu.*(usage|util|busy|percent|pct)", _NOT_HOST, alone=False),
    _Hint("memory_usage_ratio", r"mem.*(usage|used|util).*(ratio|percent|pct)|mem.*util", _NOT_HOST, alone=False),
    _Hint("rdma_throughput_bytes_per_second", r"(^|_)(ib|infiniband|rdma|roce)\d*_.*(bytes|octets)", r"err|drop|disc", "counter", "sum"),
    _Hint("tcp_throughput_bytes_per_second", r"(^|_)net(work)?_.*(bytes|octets)", _NOT_NET, "counter", "sum"),
    _Hint("steps_total", r"(train|trainer|global|optim\w*).*(step|iteration)s?(_total|_count)?$", r"sec|time|dur", "total", "max"),
)


def guess_rules(
    names: Sequence[str],
    known: MetricMapping,
    read: Read,
    have: Collection[str],
    types: Mapping[str, str] | None = None,
    highest: Callable[[str], Sequence[float]] | None = None,
) -> Guess:
    """Rules for metrics that are not in `have` yet. read: the series of a pattern of names. types: of metrics, as exporters declare them.
    highest: of each series of a metric its highest value of the last day. Raises what `read` raises."""
    taken = {pattern for rule in known.all_rules() for pattern in (*rule.series, *rule.over)}
    free = [name for name in names if name not in taken]
    rules = [rule for rule in _renamed(free, known) if rule.metric not in have]
    work = _Work(read, types or {}, highest or (lambda name: ()), [*rules])
    spent = {name for rule in rules for name in (*rule.series, *rule.over)}
    covered = {*have, *(rule.metric for rule in rules)}
    for hint in _HINTS:
        if hint.metric in covered:
            continue
        fitting = [name for name in free if name not in spent and _speaks(hint, name)]
        rule = work.fit(hint, fitting)
        if rule is not None:
            covered.add(rule.metric)
            spent.update(rule.series)
    return Guess(tuple(work.rules), tuple(doubt for doubt in work.doubts if doubt.metric not in covered))


def _speaks(hint: _Hint, name: str) -> bool:
    words = spelled(name)
    return bool(re.search(hint.words, words)) and not (hint.without and re.search(hint.without, words))


def _renamed(names: Sequence[str], known: MetricMapping) -> list[Rule]:
    """Rules whose series are all there under a longer name: with a prefix or suffix of the site's, in any letter case."""
    rules: list[Rule] = []
    for rule in known.all_rules():
        plain = [name for name in (*rule.series, *rule.over) if re.fullmatch(r"\w+", name) and len(name) >= 12]
        if len(plain) < len((*rule.series, *rule.over)):
            continue
        found: dict[str, str] = {}
        for wanted in plain:
            longer = sorted((name for name in names if wanted.lower() in name.lower() and name != wanted), key=len)
            if longer:
                found[wanted] = longer[0]
        if len(found) == len(set(plain)) and not any(set(found.values()) <= {*other.series, *other.over} for other in rules):
            series, over = (tuple(found[name] for name in side) for side in (rule.series, rule.over))
            rules.append(rule.model_copy(update={"series": series, "over": over}))
    return rules


class _Work:
    """Rules so far, and what could not be decided."""

    def __init__(self, read: Read, types: Mapping[str, str], highest: Callable[[str], Sequence[float]], rules: list[Rule]) -> None:
        self._read, self._types, self._highest = read, types, highest
        self.rules, self.doubts = rules, list[Doubt]()
        self._draws_w = 0.0

    def fit(self, hint: _Hint, names: Sequence[str]) -> Rule | None:
        """The rule of the first name whose values can be of the metric; of a counter, of all names (received and sent)."""
        for chosen in _together(hint, names):
            if any(self._types.get(name) in ("histogram", "summary") for name in chosen) or self._is_other_kind(hint, chosen):
                continue
            series = [item for item in self._read("|".join(re.escape(name) for name in chosen)) if hint.alone or self._has_company(item)]
            scale = self._scale(hint, chosen, series) if series else None
            if scale is not None:
                rule = _rule(hint, chosen, series, scale)
                self.rules.append(rule)
                return rule
        return None

    def _is_other_kind(self, hint: _Hint, names: Sequence[str]) -> bool:
        """A declared counter is no gauge, and the other way round; an undeclared metric may be either."""
        wanted = "gauge" if hint.kind == "gauge" else "counter"
        return any(self._types.get(name) in ("gauge", "counter") and self._types[name] != wanted for name in names) and hint.kind != "total"

    def _has_company(self, item: Found) -> bool:
        """Whether the scrape job of a series gives a machine's metrics that are no application's words."""
        names = "|".join(re.escape(name) for rule in self.rules if rule.metric not in _WEAK for name in rule.series)
        return bool(names) and any(other.labels.get("job") == item.labels.get("job") for other in self._read(names))

    def _scale(self, hint: _Hint, chosen: Sequence[str], series: Sequence[Found]) -> float | None:
        metric = find_metric(hint.metric)
        assert metric is not None
        values = [item.value for item in series if not is_blank(item.value)]
        if hint.kind != "gauge":
            return 1.0 if all(value >= 0.0 for value in values) else None
        highest = self._highest_of(chosen[0]) if metric.unit == "ratio" else []
        scale, why = scale_of(metric.unit, chosen[0], values, highest, self._draws_w)
        if scale is None:
            self.doubts.append(Doubt(hint.metric, chosen[0], why))
        elif hint.metric == "gpu_power_draw_watts":
            self._draws_w = max(value * scale for value in values if not is_blank(value))
        return scale

    def _highest_of(self, name: str) -> Sequence[float]:
        try:
            return self._highest(name)
        except SourceError:  # a day is too long an answer for this server
            return ()


_WEAK = ("cpu_usage_ratio", "memory_usage_ratio", "steps_total")


def _together(hint: _Hint, names: Sequence[str]) -> list[tuple[str, ...]]:
    if not names:
        return []
    return [tuple(names[:4])] if hint.kind == "counter" else [(name,) for name in sorted(names, key=lambda name: (len(name), name))[:6]]


def _rule(hint: _Hint, chosen: tuple[str, ...], series: Sequence[Found], scale: float) -> Rule:
    fields: dict[str, Any] = {"metric": hint.metric, "series": chosen, "kind": hint.kind, "combine": hint.combine, "scale": scale}
    device = _device_of(series) if hint.metric.startswith(("gpu_", "rdma_", "tcp_")) else None
    if device is not None:
        fields |= {"device": device[0], "device_prefix": device[1]}
    if hint.metric == "tcp_throughput_bytes_per_second" and device is not None:
        fields["match"] = {device[0]: "!lo|veth.*|docker.*|br-.*|cali.*|cni.*|flannel.*|virbr.*"}
    return Rule(**fields)


def _device_of(series: Sequence[Found]) -> tuple[str, str] | None:
    """The label that distinguishes the devices of one target, and what to put before its value."""
    by_target: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for item in series:
        outer = tuple(value for label, value in sorted(item.labels.items()) if label not in _DEVICES)  # of one target, or of a collector's
        by_target.setdefault((item.name, *outer), []).append(item.labels)
    widest = max(by_target.values(), key=len)
    for label in _DEVICES:
        values = [labels.get(label) for labels in widest]
        if all(values) and len(set(values)) == len(values):
            number = all(value is not None and value.isdigit() for value in values)
            return label, "gpu" if number and any("gpu" in item.name.lower() or "dcgm" in item.name.lower() for item in series) else ""
    return None
