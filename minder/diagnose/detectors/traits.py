"""How the default detector reads each metric: its scale, the smallest deviation that matters, and which family it speaks for.

A family is a group of metrics that move together for one physical reason: however many of them deviate, they are one witness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_type_hints

import numpy as np

from minder.diagnose.detectors.numbers import numbers, read_sections
from minder.model.errors import ConfigError
from minder.model.metrics import find_metric
from minder.model.telemetry import Window

__all__ = [
    "CAUSING",
    "FAMILIES",
    "HIGH",
    "KEPT",
    "LOW",
    "REACHING",
    "SPINNING",
    "Trait",
    "TraitTable",
    "TraitsNumbers",
    "any_bit",
    "trait_of",
    "with_devices",
]


@dataclass(frozen=True, slots=True)
class TraitsNumbers:
    """Section [traits] of detector.toml: what each number is stands there."""

    absurd: float
    unit: float


_N = numbers("traits", TraitsNumbers)

LOW, HIGH = "|low", "|high"  # the smallest and the largest device of a machine, as metrics of their own

FAMILIES = ("activity", "power", "fabric", "congestion", "host", "storage", "thermal", "tcp", "hardware", "job")
REACHING = ("halt", "activity", "power", "fabric", "congestion", "hardware", "job")  # what they tell reaches the training

_OF_GPUS = ("gpu_", "nvlink_", "pcie_")  # what the GPUs' exporter reads, by the beginnings of its names
# checkpoints and data, where they do not go the network's way: to or from the host, or its GPUs
_TCP = "tcp_throughput_bytes_per_second"
_OF_HOSTS = (_TCP, "pcie_bandwidth_bytes_per_second")
_PROCESSOR = "cpu_usage_ratio"
_MEMORY = "gpu_memory_used_ratio"
_BETWEEN = "rdma_throughput_bytes_per_second"  # between machines: the network's driver counts it
CAUSING = ("power", "congestion", "hardware")  # but for what a machine does: a clock rate, error and congestion counters, a link's width


@dataclass(frozen=True, slots=True)
class Trait:
    """scale "log": log(value + offset), so that a standing difference is a factor; "linear": value / offset; "bits": 1 where any bit of
    offset is set, else 0: a mean of masks is no mask, and sets none.

    floor: the smallest noise believed, in scaled units. weight: what a full deviation of this metric counts, 1 for a metric
    that only moves if the training does. activity: falls or rises with the training step on every machine. falls: only a fall is a
    fault's: a GPU that clocks higher has less to do, or is cooler.
    """

    scale: str
    offset: float
    floor: float
    family: str
    weight: float
    reach: float  # scaled change from which on the machine has plainly changed, whatever its peers do
    activity: bool
    falls: bool


def _read_traits() -> dict[str, Trait]:
    """[metrics] of detector.toml. Raises ConfigError in one line for what is missing, unknown or of another type."""
    hints, found = get_type_hints(Trait), {}
    for name, given in read_sections().get("metrics", {}).items():
        wrong = [key for key in {**given, **hints} if key not in hints or type(given.get(key)) is not hints[key]]
        if wrong:
            raise ConfigError(f"detector.toml: [metrics] {name}: {wrong[0]} is no {' or '.join(hints)} of the right type, or is missing")
        found[name] = Trait(**given)
    return found


_TRAITS = _read_traits()
SPINNING = ("gpu_duty_cycle_ratio", "gpu_graphics_activity_ratio")  # high also where GPUs only wait for each other
KEPT = ("cpu_throttled_ratio", "job_run_delay_ratio")  # the share of the time in which processes are kept from the processor
_IGNORED = Trait("linear", 1.0, 1.0, "job", 0.0, 0.4, activity=False, falls=False)


def trait_of(name: str) -> Trait:
    """The trait of a metric (also of its LOW and HIGH device); metrics that say nothing about a machine weigh 0."""
    plain = name.removesuffix(LOW).removesuffix(HIGH)
    return _TRAITS.get(plain, _IGNORED)


class TraitTable:
    """The traits of K metrics as arrays: *_K1 has shape (K, 1)."""

    def __init__(self, metrics: Sequence[str]) -> None:
        traits = [trait_of(name) for name in metrics]
        self.metrics = tuple(metrics)
        self.place = {name: k for k, name in enumerate(self.metrics)}
        self.is_log_K1 = np.array([[t.scale == "log"] for t in traits], dtype=bool).reshape(-1, 1)
        self._linear_runs = _runs(np.array([t.scale == "linear" for t in traits], dtype=bool))
        self._bits = [(k, np.int64(t.offset)) for k, t in enumerate(traits) if t.scale == "bits"]
        self.bits_K = np.array([t.scale == "bits" for t in traits], dtype=bool)
        self.offset_K1 = self._column([t.offset for t in traits])
        self.floor_K1 = self._column([t.floor for t in traits])
        self.weight_K1 = self._column([t.weight for t in traits])
        self.reach_K1 = self._column([t.reach for t in traits])
        self.activity_K = np.array(
            [t.activity and not name.endswith((LOW, HIGH)) for t, name in zip(traits, metrics, strict=True)], dtype=bool
        )
        self.gauges_K = self.activity_K & np.array([name != _BETWEEN for name in metrics], dtype=bool)  # of the GPUs' own exporter
        self.of_gpus_K = np.array([name.startswith(_OF_GPUS) for name in metrics], dtype=bool)  # all that it reads
        self.links_K = self.activity_K & np.array([t.family == "fabric" for t in traits], dtype=bool)
        self.compute_K = self.activity_K & ~self.links_K & np.array([name not in SPINNING for name in metrics], dtype=bool)
        self.works_K1 = np.array(
            [[t.activity and name.removesuffix(LOW).removesuffix(HIGH) not in SPINNING] for t, name in zip(traits, metrics, strict=True)],
            dtype=bool,
        ).reshape(-1, 1)
        self.congestion_K = np.array([t.family == "congestion" for t in traits], dtype=bool)
        # what falls, too, where a machine stands: it sends nothing, and a process that has ended holds no memory
        self.ends_K = self.congestion_K | np.array([name.startswith(_MEMORY) for name in metrics], dtype=bool)
        self.hosts_K = np.array([name in (*KEPT, _PROCESSOR) for name in metrics], dtype=bool)
        self.rises_K = self.congestion_K | self.bits_K | self.hosts_K  # of causes of slowness: more of it is worse, of the others less
        self.errs_K = np.array([name.startswith("link_errors") for name in metrics], dtype=bool)
        self.jams_K = self.congestion_K & ~self.errs_K  # congestion alone
        self.causes_K1 = np.array([[t.family in CAUSING and t.weight > 0 and not t.activity] for t in traits], dtype=bool).reshape(-1, 1)
        self.does_K1 = np.array([[t.activity or name == "cpu_usage_ratio"] for t, name in zip(traits, metrics, strict=True)]).reshape(-1, 1)
        self.carries_K = np.array([t.activity and t.family == "fabric" for t in traits], dtype=bool)
        used = sorted({t.family for t in traits if t.weight > 0}, key=FAMILIES.index)
        self.families = tuple(used)
        members = [np.array([t.family == family and t.weight > 0 for t in traits]).nonzero()[0] for family in used]
        if "cpu_usage_ratio" in metrics:  # heard twice: a rise is housekeeping, a fall is a halt
            self.families = (*self.families, "halt")
            members.append(np.array([list(metrics).index("cpu_usage_ratio")]))
        self.members = members
        bounds = [find_metric(name.removesuffix(LOW).removesuffix(HIGH)) for name in metrics]
        self.reaches_K1 = np.array([[t.family in REACHING] for t in traits], dtype=bool).reshape(-1, 1)
        self.falls_K1 = np.array([[t.falls] for t in traits], dtype=bool).reshape(-1, 1)
        self.doing = self._doing()
        profiled_K = np.array([t.family == "activity" and t.activity for t in traits], dtype=bool) | (self.carries_K & ~self._between())
        self.sources = (profiled_K, self.carries_K)  # what is read at one place: profiling fields, and the counters of links
        self.between, self.processor, self.tcp = self.place.get(_BETWEEN), self.place.get(_PROCESSOR), self.place.get(_TCP)
        self.to_peers = [self.place[name] for name in (_BETWEEN, "nvlink_bandwidth_bytes_per_second") if name in self.place]
        self.host_traffic = [self.place[name] for name in _OF_HOSTS if name in self.place]
        self.exporters = self._exporters()
        self.halts_K1 = np.array([[name == "cpu_usage_ratio"] for name in metrics], dtype=bool).reshape(-1, 1)
        most_K1 = self._column([_N.absurd * m.high if m is not None else np.inf for m in bounds])
        self.limit_K1 = np.minimum(np.where(self.is_log_K1, np.float32(3e38), 1e9 * self.offset_K1), np.minimum(most_K1, np.float32(3e38)))
        self.least_K1 = np.where(
            [[m is not None and m.low > 0.0] for m in bounds], self._column([m.low if m else 0.0 for m in bounds]), -self.limit_K1
        )
        self.first_K1, self.last_K1 = self._ends()
        self.high_K1 = self._column([m.high if m is not None and m.unit == "ratio" else np.inf for m in bounds])

    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Two (K, 1): the least and the most that a gauge can show, scaled. No less than nothing, and no more than all of a ratio."""
        plain = [find_metric(name.removesuffix(LOW).removesuffix(HIGH)) for name in self.metrics]
        last_K1 = self._column([m.high if m is not None and m.unit == "ratio" else np.inf for m in plain])
        log_K1 = np.log(last_K1 + self.offset_K1)
        return np.where(self.is_log_K1, np.log(self.offset_K1), 0.0), np.where(self.is_log_K1, log_K1, last_K1 / self.offset_K1)

    def _between(self) -> np.ndarray:
        """Mask (K,): traffic between machines, which the network card counts and not the GPU."""
        return np.array([name.removesuffix(LOW).removesuffix(HIGH) == _BETWEEN for name in self.metrics], dtype=bool)

    def _doing(self) -> list[tuple[list[int], list[int]]]:
        """(what a machine does and its clock rate, what bears witness to it), as indices: machine, smallest device, largest."""
        found = []
        for suffix in ("", LOW, HIGH):
            here = [k for k, name in enumerate(self.metrics) if _suffix(name) == suffix]
            members = [k for k in here if self.does_K1[k, 0] or self.falls_K1[k, 0]]
            found.append((members, [k for k in here if self.works_K1[k, 0]]))
        return found

    def _exporters(self) -> list[tuple[list[int], list[int]]]:
        """(all that the GPUs' exporter reads, what of it says that the machine computes), as indices: machine, smallest device, largest."""
        found = []
        for suffix in ("", LOW, HIGH):
            here = [k for k, name in enumerate(self.metrics) if _suffix(name) == suffix and name.startswith(_OF_GPUS)]
            found.append((here, [k for k in here if self.works_K1[k, 0] and not self.carries_K[k]]))
        return found

    def reaching_KX(self, falls_KX: np.ndarray) -> np.ndarray:
        """Mask (K, X) of what reaches the training: a busier host is housekeeping, a quieter one is a halt. falls_KX: it is too low."""
        return np.asarray(self.reaches_K1 | (self.halts_K1 & falls_KX))

    def scale(self, values_KM: np.ndarray) -> np.ndarray:
        """Scaled values; what is below 0 on a log scale counts as 0. Values beyond
        `least_K1` and `limit_K1` mean nothing: the caller leaves them out."""
        with np.errstate(invalid="ignore", over="ignore"):
            scaled_KM = np.maximum(values_KM, values_KM.dtype.type(0.0))  # all rows at once, for there are few others
            scaled_KM += self.offset_K1
            np.log(scaled_KM, out=scaled_KM)
            for run in self._linear_runs:
                np.divide(values_KM[run], self.offset_K1[run], out=scaled_KM[run])
            for k, bits in self._bits:
                scaled_KM[k] = any_bit(values_KM[k], bits)
        return np.asarray(scaled_KM)

    def scale_rows(self, rows_C: np.ndarray, values_CM: np.ndarray) -> np.ndarray:
        """(C, M): values of the metrics rows_C, scaled; NaN where they mean nothing."""
        offset_C1, log_C = self.offset_K1[rows_C], self.is_log_K1[rows_C, 0]
        with np.errstate(invalid="ignore", over="ignore"):
            means_CM = (values_CM >= self.least_K1[rows_C]) & (values_CM <= self.limit_K1[rows_C])
            scaled_CM = values_CM / offset_C1
            scaled_CM[log_C] = np.log(np.maximum(values_CM[log_C], 0.0) + offset_C1[log_C])
        for c in np.flatnonzero(self.bits_K[rows_C]).tolist():
            scaled_CM[c] = any_bit(values_CM[c], np.int64(offset_C1[c, 0]))
        return np.where(means_CM, scaled_CM, np.nan)

    def unscale(self, k: int, value: float) -> float:
        """One scaled value of metric k back in its base unit."""
        if self.is_log_K1[k, 0]:
            return float(np.exp(min(value, 80.0)) - self.offset_K1[k, 0])
        if self.bits_K[k]:
            return 0.0  # which bits were set is not kept, and what peers show is none
        return float(value * self.offset_K1[k, 0])

    @staticmethod
    def _column(values: list[float]) -> np.ndarray:
        return np.array(values, dtype=np.float32).reshape(-1, 1)


def any_bit(values_M: np.ndarray, bits: np.int64) -> np.ndarray:
    """(M,): 1 where any of these bits is set, 0 where none is, NaN where nothing is known.

    >>> any_bit(np.array([0.0, 4.0, 68.0, 8.5, np.nan]), np.int64(232))
    array([ 0.,  0.,  1.,  0., nan])
    """
    known_M = np.isfinite(values_M)
    whole_M = np.where(known_M, values_M, 0.0).astype(np.int64)
    is_set_M = ((whole_M & bits) != 0) & (whole_M == values_M)
    return np.where(known_M, is_set_M, np.nan)


def _suffix(name: str) -> str:
    return next((suffix for suffix in (LOW, HIGH) if name.endswith(suffix)), "")


def _runs(mask_K: np.ndarray) -> list[slice]:
    """The runs of neighbours that are true.

    >>> _runs(np.array([True, False, True, True]))
    [slice(0, 1, None), slice(2, 4, None)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask_K, [False]]).astype(np.int8))).tolist()
    return [slice(first, end) for first, end in zip(edges[::2], edges[1::2], strict=True)]


def with_devices(window: Window) -> tuple[tuple[str, ...], np.ndarray]:
    """Metrics and values of shape (T, K, M); the smallest and largest device of a machine join as metrics where there are devices."""
    names, parts = list(window.metrics), [window.values_TMK]
    for suffix, extreme_TMK in ((LOW, window.low_TMK), (HIGH, window.high_TMK)):
        if extreme_TMK is not None:
            names += [name + suffix for name in window.metrics]
            parts.append(extreme_TMK)
    joined_TMK = np.concatenate(parts, axis=2) if len(parts) > 1 else parts[0]
    with np.errstate(over="ignore"):  # what is too large for 32 bits becomes infinite: no data
        return tuple(names), np.transpose(joined_TMK, (0, 2, 1)).astype(np.float32, order="C")
