"""Rules for metrics whose names nobody told us: known names inside longer ones, then words that such names are made of.

A guess is proposed, shown with the value that it makes, and written into a file for a person to read; it is never taken silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minder.doctor.series import Found
from minder.ingest.sources.mapping import MetricMapping, Rule

__all__ = ["guess_rules"]

_DEVICES = (
    *("gpu", "gpu_id", "gpu_index", "card", "index", "minor_number", "gpu_uuid", "uuid", "UUID"),
    *("device", "hca", "nic", "interface", "port"),
)


@dataclass(frozen=True, slots=True)
class _Hint:
    """words: of the name, lower case. unit: value to the factor that makes it the canonical unit, None where it cannot be."""

    metric: str
    words: str
    without: str
    unit: Callable[[float], float | None]
    kind: str = "gauge"
    combine: str = "mean"


def _ratio(value: float) -> float | None:
    return 1.0 if 0.0 <= value <= 1.0 else 0.01 if 0.0 <= value <= 100.0 else None


def _watts(value: float) -> float | None:
    return 1.0 if 0.0 <= value < 3000.0 else 0.001 if value < 3e6 else None


def _hertz(value: float) -> float | None:
    return 1e6 if 0.0 <= value < 1e4 else 1e3 if value < 1e7 else 1.0 if value < 1e10 else None


def _plain(value: float) -> float | None:
    return 1.0 if value >= 0.0 else None


def _celsius(value: float) -> float | None:
    return 1.0 if -20.0 <= value <= 150.0 else None


_LIMITS = r"limit|cap\b|max|min|threshold|target|default|slowdown|shutdown|enforced|requested"
_NOT_NET = r"err|drop|discard|container|pod|infiniband|ib_|rdma"
_NOT_HOST = r"gpu|vram|idle|core|thread|container|pod|process|job|temp|copy|total$"
_HINTS = (
    _Hint("gpu_duty_cycle_ratio", r"gpu.*(util|duty|busy)|util.*gpu", rf"mem|enc|dec|{_LIMITS}", _ratio),
    _Hint("gpu_power_draw_watts", r"gpu.*(power|watt)|power.*gpu|nvidia.*power.*(draw|usage)", rf"state|{_LIMITS}", _watts, combine="max"),
    _Hint("gpu_temperature_celsius", r"gpu.*temp|temp.*gpu", rf"mem|{_LIMITS}", _celsius, combine="max"),
    _Hint(
        "gpu_clock_hertz",
        r"(gpu|nvidia|(^|_)sm_).*clock|clock.*(gpu|_sm(_|$))",
        rf"mem|video|throttle|reason|event|app|{_LIMITS}",
        _hertz,
        combine="max",
    ),
    _Hint("gpu_sm_activity_ratio", r"(^|_)sm_(active|activity|occ)", "", _ratio),
    _Hint("gpu_tensor_activity_ratio", r"tensor.*activ", "", _ratio),
    _Hint("gpu_memory_bandwidth_ratio", r"dram.*activ|mem.*(copy|bandwidth).*(util|ratio)", "", _ratio),
    _Hint("gpu_memory_used_ratio", r"(gpu|vram|(^|_)fb).*mem.*(ratio|percent|pct)|gpu.*mem.*util", "copy", _ratio),
    _Hint("cpu_usage_ratio", r"cpu.*(usage|util|busy|percent|pct)", _NOT_HOST, _ratio),
    _Hint("memory_usage_ratio", r"mem.*(usage|used|util).*(ratio|percent|pct)|mem.*util", _NOT_HOST, _ratio),
    _Hint(
        "rdma_throughput_bytes_per_second",
        r"(^|_)(ib|infiniband|rdma|roce)\d*_.*(bytes|octets)",
        r"err|drop|disc",
        _plain,
        "counter",
        "sum",
    ),
    _Hint("tcp_throughput_bytes_per_second", r"(^|_)net(work)?_.*(bytes|octets)", _NOT_NET, _plain, "counter", "sum"),
    _Hint("steps_total", r"(train|trainer|global|optim\w*).*(step|iteration)s?(_total|_count)?$", r"sec|time|dur", _plain, "total", "max"),
)


def guess_rules(names: Sequence[str], known: MetricMapping, read: Callable[[str], Sequence[Found]], have: set[str]) -> list[Rule]:
    """Rules for metrics that are not in `have` yet. read: the series of a pattern of names. Raises what `read` raises."""
    rules = [rule for rule in _renamed(names, known) if rule.metric not in have]
    covered = have | {rule.metric for rule in rules}
    for hint in _HINTS:
        if hint.metric in covered:
            continue
        fitting = [
            name for name in names if re.search(hint.words, name.lower()) and not (hint.without and re.search(hint.without, name.lower()))
        ]
        rule = _fit(hint, fitting, read) if fitting else None
        if rule is not None:
            rules.append(rule)
            covered.add(hint.metric)
    return rules


def _renamed(names: Sequence[str], known: MetricMapping) -> list[Rule]:
    """Rules whose series are all there under a longer name: with a prefix or suffix of the site's, in any letter case."""
    rules = []
    for rule in known.all_rules():
        plain = [name for name in (*rule.series, *rule.over) if re.fullmatch(r"\w+", name) and len(name) >= 12]
        if len(plain) < len((*rule.series, *rule.over)):
            continue
        found: dict[str, str] = {}
        for wanted in plain:
            longer = sorted((name for name in names if wanted.lower() in name.lower() and name != wanted), key=len)
            if longer:
                found[wanted] = longer[0]
        if len(found) == len(set(plain)):
            series, over = (tuple(found[name] for name in side) for side in (rule.series, rule.over))
            rules.append(rule.model_copy(update={"series": series, "over": over}))
    return rules


def _fit(hint: _Hint, names: Sequence[str], read: Callable[[str], Sequence[Found]]) -> Rule | None:
    """The rule of the first name whose values can be of the metric; of a counter, of all names (received and sent)."""
    counters = hint.kind == "counter"
    for chosen in [tuple(names[:4])] if counters else [(name,) for name in sorted(names, key=len)[:6]]:
        series = read("|".join(re.escape(name) for name in chosen))
        values = [item.value for item in series if item.value == item.value]
        factors = {hint.unit(value) for value in values}
        if not values or None in factors:
            continue
        scale = min(factor for factor in factors if factor is not None)
        fields: dict[str, Any] = {"metric": hint.metric, "series": chosen, "kind": hint.kind, "combine": hint.combine, "scale": scale}
        device = _device_of(series) if hint.metric.startswith(("gpu_", "rdma_", "tcp_")) else None
        if device is not None:
            fields |= {"device": device[0], "device_prefix": device[1]}
        if hint.metric == "tcp_throughput_bytes_per_second" and device is not None:
            fields["match"] = {device[0]: "!lo|veth.*|docker.*|br-.*|cali.*|cni.*|flannel.*|virbr.*"}
        return Rule(**fields)
    return None


def _device_of(series: Sequence[Found]) -> tuple[str, str] | None:
    """The label that tells the devices of one target apart, and what to put before its value."""
    by_target: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for item in series:
        key = (item.name, item.labels.get("job", ""), item.labels.get("instance", ""))
        by_target.setdefault(key, []).append(item.labels)
    widest = max(by_target.values(), key=len)
    for label in _DEVICES:
        values = [labels.get(label) for labels in widest]
        if all(values) and len(set(values)) == len(values):
            number = all(value is not None and value.isdigit() for value in values)
            return label, "gpu" if number and any("gpu" in item.name.lower() or "dcgm" in item.name.lower() for item in series) else ""
    return None
