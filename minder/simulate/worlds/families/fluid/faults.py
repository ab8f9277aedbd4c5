"""Faults: which machine, when, how bad, and which levers of the plant that turns. Drawn from the fault's own random numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from minder.simulate.worlds.families.fluid.levers import Effect, Lie, hold, pulses, ramp
from minder.simulate.worlds.families.fluid.site import Site

__all__ = ["FAULTS", "GROUPS", "Fault", "Times", "draw_fault", "visible_faults"]

FAULTS: Mapping[str, str] = MappingProxyType(
    {
        "clock_capped": "GPU clocks stay flat well below the others'",
        "thermal_throttling": "a fan is dead: the governor throttles, the board cools, and so on again",
        "power_capped": "a board's power limit is lower than the others'",
        "nvlink_lane": "some lanes of one NVLink are gone",
        "dirty_optics": "link errors, and the goodput that they cost",
        "port_congestion": "one port gives less than its neighbours: its queue fills",
        "pcie_width": "a PCIe link trained at fewer lanes",
        "cpu_hog": "a process takes the processor: its GPUs starve, and the others wait",
        "link_flap": "a link goes down for seconds, again and again",
        "frozen_gauges": "the driver hangs: gauges stop at their last digit while the others fall to waiting",
        "gpu_off_bus": "a GPU has fallen off the bus",
        "two_slow": "two machines compute slowly",
        "rack_dark": "a rack is without power some minutes before the others notice",
        "switch_dark": "a switch is dead some minutes before the others notice",
        "group_slow": "the machines of one stage, or of one rack, are slow together",
        "recurring_freezes": "a machine stands still for seconds, again and again",
        "slow_storage": "one machine reads slowly",
        "full_disk": "a checkpoint does not fit on one machine's disk",
        "hang": "a process stops for ever",
        "dead_machine": "a machine is gone",
        "memory_leak": "host memory fills until the machine crawls",
        "ecc_errors": "memory errors are counted up and slow the GPU",
        "early_stall": "a process stops in the first minutes",
        "slow_from_start": "a machine is slow from the first step",
    }
)
GROUPS = frozenset({"rack_dark", "switch_dark", "group_slow"})

_NEEDS: Mapping[str, tuple[str, ...]] = {  # one of these must be exported, or nothing shows that this machine is the one
    "clock_capped": ("gpu_clock_hertz",),
    "thermal_throttling": ("gpu_temperature_celsius",),
    "power_capped": ("gpu_power_draw_watts", "gpu_clock_hertz"),
    "nvlink_lane": ("nvlink_bandwidth_bytes_per_second",),
    "dirty_optics": ("link_errors_per_second",),
    "port_congestion": ("ecn_packets_per_second", "rdma_xmit_wait_per_second", "cnp_packets_per_second"),
    "pcie_width": ("pcie_link_width",),
    "link_flap": ("link_downs_total", "link_errors_per_second"),
    "slow_storage": ("tcp_throughput_bytes_per_second",),
    "full_disk": ("disk_usage_ratio",),
    "memory_leak": ("memory_usage_ratio",),
    "ecc_errors": ("gpu_ecc_uncorrectable_total",),
}


@dataclass(frozen=True, slots=True)
class Times:
    """What a fault has to fit into. latest_s: it begins before that; checkpoints_s: from the job's calendar."""

    latest_s: float
    checkpoints_s: tuple[float, ...]
    avoid: frozenset[int]  # machines that are silent, frozen or exchanged anyway


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault as it was drawn. machines: the culprits, or all of the group. onset_s and end_s: seconds of the recording."""

    kind: str
    machines: tuple[int, ...]
    onset_s: float
    end_s: float | None
    grey: bool
    effects: list[Effect] = field(default_factory=list)
    lies: list[Lie] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Case:
    """What is known when the levers of a fault are turned. units_W: the GPUs that are hit; course_T: up from the onset on."""

    site: Site
    rng: np.random.Generator
    machines_W: np.ndarray
    units_W: np.ndarray
    every_unit_W: np.ndarray
    onset_s: float
    end_s: float
    grey: bool
    course_T: np.ndarray

    def between(self, plain: tuple[float, float], grey: tuple[float, float]) -> float:
        return float(self.rng.uniform(*(grey if self.grey else plain)))

    def on_units(self, lever: str, value: float, *, add: bool = False) -> Effect:
        return Effect(lever, self.units_W, value, self.course_T, add)

    def on_machines(self, lever: str, value: float, *, add: bool = False) -> Effect:
        return Effect(lever, self.machines_W, value, self.course_T, add)

    def stopped(self, course_T: np.ndarray | None = None) -> list[Effect]:
        """Its processes stand still and do not even spin."""
        at_T = self.course_T if course_T is None else course_T
        return [Effect("speed", self.every_unit_W, 0.0, at_T), Effect("spin", self.every_unit_W, 0.0, at_T)]


def _clock_capped(case: _Case) -> list[Effect]:
    return [case.on_units("clock_cap", case.between((0.4, 0.7), (0.75, 0.9)))]


def _thermal_throttling(case: _Case) -> list[Effect]:
    return [case.on_units("heat", case.between((2.2, 3.0), (1.7, 2.1)))]


def _power_capped(case: _Case) -> list[Effect]:
    return [case.on_units("power_cap", case.between((0.3, 0.45), (0.45, 0.6)))]


def _nvlink_lane(case: _Case) -> list[Effect]:
    return [case.on_units("nvlink", case.between((0.3, 0.6), (0.65, 0.85)))]


def _dirty_optics(case: _Case) -> list[Effect]:
    errors = 10 ** case.between((1.0, 2.7), (0.0, 1.0))
    return [case.on_machines("loss", errors, add=True), case.on_machines("port", case.between((0.4, 0.7), (0.75, 0.95)))]


def _port_congestion(case: _Case) -> list[Effect]:
    return [case.on_machines("port", case.between((0.2, 0.45), (0.5, 0.7)))]


def _pcie_width(case: _Case) -> list[Effect]:
    return [case.on_units("pcie", 0.5 if case.grey else 0.25)]


def _cpu_hog(case: _Case) -> list[Effect]:
    cpu, feed = case.between((0.5, 0.85), (0.25, 0.4)), case.between((0.1, 0.5), (0.6, 0.85))
    return [case.on_machines("cpu", cpu, add=True), case.on_machines("feed", feed)]


def _link_flap(case: _Case) -> list[Effect]:
    every, lasts = case.between((40, 100), (150, 260)), case.between((6, 25), (3, 6))
    course_T = pulses(case.rng, (case.onset_s, case.end_s), case.site.ticks, every, lasts)
    return [Effect("port", case.machines_W, 0.02, course_T)]


def _stopped(case: _Case) -> list[Effect]:
    return case.stopped()


def _gpu_off_bus(case: _Case) -> list[Effect]:
    return [*case.stopped(), case.on_units("present", 0.0)]


def _slow(case: _Case) -> list[Effect]:
    return [case.on_units("speed", case.between((0.4, 0.75), (0.8, 0.92)))]


def _dark(case: _Case) -> list[Effect]:
    """Dead at once, silent at once or not; the others go on without it until they need it."""
    unnoticed_T = hold(case.site.ticks, case.onset_s, case.onset_s + case.between((90, 260), (30, 90)))
    silent = case.rng.random() < 0.6
    silence = [case.on_machines("alive", 0.0)] if silent else [case.on_machines("port", 0.02)]
    return [*case.stopped(), *silence, Effect("counts", case.machines_W, 0.0, unnoticed_T)]


def _recurring_freezes(case: _Case) -> list[Effect]:
    every, lasts = case.between((50, 120), (120, 220)), case.between((15, 45), (6, 15))
    return case.stopped(pulses(case.rng, (case.onset_s, case.end_s), case.site.ticks, every, lasts))


def _slow_storage(case: _Case) -> list[Effect]:
    return [case.on_machines("read", case.between((0.03, 0.12), (0.18, 0.28)))]


def _full_disk(case: _Case) -> list[Effect]:
    fills_T = ramp(case.site.ticks, case.onset_s, case.onset_s + case.between((4, 20), (20, 60)), case.end_s)
    return [Effect("disk", case.machines_W, 1.0, fills_T, add=True), case.on_machines("can_write", 0.0), *case.stopped(fills_T)]


def _dead_machine(case: _Case) -> list[Effect]:
    return [*case.stopped(), case.on_machines("alive", 0.0)]


def _memory_leak(case: _Case) -> list[Effect]:
    full_s = case.onset_s + case.between((100, 200), (200, 360))
    fills_T = ramp(case.site.ticks, case.onset_s, full_s, case.end_s)
    crawls_T = np.clip((fills_T - 0.8) * 5, 0.0, 1.0)
    crawl = Effect("feed", case.machines_W, case.between((0.05, 0.3), (0.5, 0.8)), crawls_T)
    return [Effect("memory", case.machines_W, 0.7, fills_T, add=True), crawl]


def _ecc_errors(case: _Case) -> list[Effect]:
    rate = 10 ** case.between((-1.0, 1.0), (-1.7, -1.0))
    return [case.on_units("ecc", rate, add=True), case.on_units("speed", case.between((0.0, 0.6), (0.8, 0.95)))]


_TURN: Mapping[str, Callable[[_Case], list[Effect]]] = {
    "clock_capped": _clock_capped,
    "thermal_throttling": _thermal_throttling,
    "power_capped": _power_capped,
    "nvlink_lane": _nvlink_lane,
    "dirty_optics": _dirty_optics,
    "port_congestion": _port_congestion,
    "pcie_width": _pcie_width,
    "cpu_hog": _cpu_hog,
    "link_flap": _link_flap,
    "frozen_gauges": _stopped,
    "gpu_off_bus": _gpu_off_bus,
    "two_slow": _slow,
    "rack_dark": _dark,
    "switch_dark": _dark,
    "group_slow": _slow,
    "recurring_freezes": _recurring_freezes,
    "slow_storage": _slow_storage,
    "full_disk": _full_disk,
    "hang": _stopped,
    "dead_machine": _dead_machine,
    "memory_leak": _memory_leak,
    "ecc_errors": _ecc_errors,
    "early_stall": _stopped,
    "slow_from_start": _slow,
}
_CHRONIC = frozenset({"hang", "frozen_gauges", "gpu_off_bus", "dead_machine", "early_stall", "slow_from_start", "full_disk"}) | GROUPS


def visible_faults(site: Site) -> tuple[str, ...]:
    """Kinds that something shows which this site exports."""
    return tuple(kind for kind in FAULTS if kind not in _NEEDS or set(_NEEDS[kind]) & set(site.metrics))


def _machines(kind: str, site: Site, rng: np.random.Generator, avoid: frozenset[int]) -> tuple[int, ...]:
    free = np.array([m for m in range(site.machines) if m not in avoid])
    first = int(rng.choice(free))
    two = rng.random() < 0.06
    if kind not in GROUPS:
        others = free[free != first]
        pair = (kind == "two_slow" or (two and kind not in ("early_stall", "hang"))) and site.machines >= 6
        return tuple(sorted((first, int(rng.choice(others))))) if pair else (first,)
    staged = kind == "group_slow" and site.stage_M.max() > 0
    place_M = site.stage_M if staged else site.switch_M if kind == "switch_dark" else site.rack_M
    members = np.flatnonzero(place_M == place_M[first])
    if members.size > site.machines // 2:  # a place that holds most of the job: some of it
        members = members[: max(2, site.machines // 3)]
    return tuple(int(m) for m in members if m not in avoid)


def _onset(kind: str, site: Site, rng: np.random.Generator, times: Times) -> float:
    share = rng.random()
    if kind == "slow_from_start":
        return 0.0
    if kind == "early_stall":
        return 30 + 190 * share
    fits = [at for at in times.checkpoints_s if 240 <= at <= times.latest_s]
    if kind == "full_disk" and fits:
        return fits[int(share * len(fits))] + 1.0
    return 240 + share * max(times.latest_s - 240, 1.0)


def draw_fault(kind: str, site: Site, rng: np.random.Generator, times: Times) -> Fault:
    """One fault of this kind at this site."""
    severity, ends, lasts, whole = rng.random(4)
    onset = _onset(kind, site, rng, times)
    machines = _machines(kind, site, rng, times.avoid)
    grey = bool(severity < 0.34)
    end = min(onset + 300 + 600 * lasts, site.duration_s) if ends < 0.3 and kind not in _CHRONIC else site.duration_s + 1
    every_unit = np.concatenate([m * site.per_machine + np.arange(site.per_machine) for m in machines])
    one_each = np.array([m * site.per_machine + rng.integers(site.per_machine) for m in machines])
    rise = float(rng.choice([1.0, 1.0, 5.0, 30.0]))
    case = _Case(
        site=site,
        rng=rng,
        machines_W=np.array(machines),
        units_W=every_unit if kind in GROUPS or (whole < 0.4 and kind != "gpu_off_bus") else one_each,
        every_unit_W=every_unit,
        onset_s=onset,
        end_s=end,
        grey=grey,
        course_T=hold(site.ticks, onset if onset else -99, end, rise),
    )
    lies = [Lie("gpu", m, onset, end, "stuck") for m in machines] if kind == "frozen_gauges" else []
    return Fault(kind, machines, onset, end if end < site.duration_s else None, grey, _TURN[kind](case), lies)
