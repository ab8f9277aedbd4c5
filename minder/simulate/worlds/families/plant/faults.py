"""Faults as changes of physical parameters: of a fan, a lane, a rate, a process. What the metrics make of it is the plant's affair.

Legend: T ticks. Seconds are since the recording began.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from minder.simulate.worlds.families.plant.background import Background
from minder.simulate.worlds.families.plant.changes import DEAD, KERNEL, SPINNING, WAITING, Changes
from minder.simulate.worlds.families.plant.site import Site, stream

__all__ = ["FAULTS", "GROUPED", "Fault", "apply_fault", "choose_fault"]

FAULTS: Mapping[str, str] = MappingProxyType({
    "fan": "A machine's fans fail: its GPUs warm up within minutes and throttle.",
    "paste": "One GPU's heat no longer reaches its sink: it alone throttles.",
    "stuck_clock": "The clock of one or all GPUs stays flat well below what power and heat allow.",
    "power_brake": "A power supply is lost and the board's brake halves all clocks of the machine.",
    "low_cap": "A power limit is set too low on one machine: its clock falls while it works.",
    "flapping_throttle": "A hot regulator throttles one machine for some ten seconds, again and again.",
    "slow_memory": "The memory of one GPU runs at a lower rate while it repairs errors and remaps rows.",
    "ecc": "An uncorrectable memory error ends one process; the others wait in their collective.",
    "off_bus": "A GPU falls off the bus and its series end; the job stops.",
    "cuda_error": "A process dies of a CUDA error and leaves its GPUs idle; the others wait.",
    "kernel_hang": "A kernel never returns: the GPUs of one machine turn at some power, those of the others wait.",
    "host_spin": "A thread of the trainer turns forever: the processor is far up, the GPUs idle, all others wait.",
    "frozen_driver": "A driver hangs: its gauges stay as they were to the digit, and the job stops.",
    "dead_host": "A machine falls silent at once, and the job stops.",
    "nvlink_lane": "NVLink loses lanes on one machine: what its GPUs exchange takes longer.",
    "pcie_width": "The bus of one machine trains to fewer lanes: its network card cannot be served at full rate.",
    "nic_rate": "A network card runs at a part of its rate: its port pauses its senders.",
    "dirty_optics": "A dirty connector loses packets: retransmissions, errors, and congestion a few times its neighbours'.",
    "link_flap": "A link goes down and up again and again; each time the job stands for some seconds.",
    "link_down": "A link goes down for good: the machine cannot join the collective, which stops.",
    "hot_processor": "A processor cooled badly lowers its clock: launches and input take longer.",
    "runaway": "A process that is not the job's takes most of a machine's processor.",
    "leak": "The host's memory fills until pages are swapped: the machine gets slower and slower.",
    "slow_disk": "The disk or mount of one machine is slow: its input runs dry.",
    "full_disk": "A checkpoint finds a full disk on one machine, which never comes back from it.",
    "recurring_freeze": "A host stands still for some seconds, again and again.",
    "rack_brake": "The power of one rack is limited: clocks fall on all its machines (a group).",
    "rack_cooling": "The air of one rack gets so hot that its machines throttle (a group).",
    "switch_uplink": "A switch loses uplinks: its machines share what is left (a group).",
    "rack_dead": "A rack loses its power: all its machines fall silent and the job stops (a group).",
    "stage_crash": "All processes of one stage, or of one rack, die of one error; the others wait (a group).",
})  # fmt: skip
GROUPED = ("rack_brake", "rack_cooling", "switch_uplink", "rack_dead", "stage_crash")
_STOPS = {
    "ecc": DEAD, "off_bus": DEAD, "cuda_error": DEAD, "kernel_hang": KERNEL, "host_spin": SPINNING, "frozen_driver": DEAD,
    "dead_host": DEAD, "link_down": KERNEL, "full_disk": WAITING, "rack_dead": DEAD, "stage_crash": DEAD,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: which machines, from when until when, and whether it is grey (slow, not stopped, no line in any log)."""

    name: str
    machines: tuple[int, ...]
    onset_s: float
    end_s: float

    @property
    def grey(self) -> bool:
        return self.name not in _STOPS

    @property
    def grouped(self) -> bool:
        return self.name in GROUPED


def choose_fault(site: Site, seed: int, fault: str | None, background: Background) -> Fault | None:
    """The fault of a seed, or the one asked for. Machines with a nuisance are taken only if there are no others.

    It begins while the job works: minutes before the job ends, where its background ends it.
    """
    law = stream(seed, 30)
    chance, kind = law.random(), law.random()
    if fault is None and chance >= 0.62:
        return None
    if fault is None:
        alone = [name for name in FAULTS if name not in GROUPED]
        grey = [name for name in alone if name not in _STOPS]
        other = [name for name in alone if name in _STOPS]
        pool = list(GROUPED) if kind < 0.1 else grey if kind < 0.62 else other
        fault = str(law.choice(pool))
    where = law.random(2)
    length_s = site.duration_s
    latest_s = max(min(length_s, background.over_s) - min(420.0, 0.5 * min(length_s, background.over_s)), 0.0)
    early = law.random()
    onset_s = law.uniform(min(120.0, 0.25 * length_s, latest_s), latest_s)
    if early < 0.07:
        onset_s = law.uniform(20.0, 120.0)
    onset_s = site.tick_s * np.ceil(min(onset_s, latest_s) / site.tick_s)
    if early > 0.96 and fault not in _STOPS:
        onset_s = 0.0
    lasts_s = law.uniform(300.0, 1500.0) if law.random() < 0.25 else np.inf
    if fault in _STOPS:
        lasts_s = law.uniform(240.0, 1200.0)  # then the job's watchdog ends it
    end_s = min(onset_s + lasts_s, length_s)
    machines = _members(site, fault, where[0]) if fault in GROUPED else _alone(site, where, background.touched, fault)
    return Fault(fault, machines, float(onset_s), float(end_s))


def _alone(site: Site, where: np.ndarray, spared: set[int], fault: str) -> tuple[int, ...]:
    many = len(site.names)
    free = [machine for machine in range(many) if machine not in spared] or list(range(many))
    first = free[int(where[0] * len(free))]
    if where[1] < 0.06 and many >= 8 and fault not in _STOPS:
        second = free[int(where[1] / 0.06 * len(free))]
        return tuple(sorted({first, second}))
    return (first,)


def _members(site: Site, fault: str, where: float) -> tuple[int, ...]:
    by_M = site.rack_M
    if fault == "switch_uplink":
        by_M = site.switch_M
    elif fault == "stage_crash" and len(set(site.stage_M)) > 2:
        by_M = site.stage_M
    sizes = np.bincount(by_M)
    choices = [number for number, size in enumerate(sizes) if 2 <= size <= len(by_M) // 2] or [int(sizes.argmin())]
    return tuple(int(machine) for machine in np.flatnonzero(by_M == choices[int(where * len(choices))]))


def apply_fault(site: Site, changes: Changes, fault: Fault, seed: int) -> None:
    """Write a fault into the plant's parameters."""
    law = stream(seed, 31)
    if fault.name in _STOPS:
        _stop(site, changes, fault, law)
    else:
        _GREY[fault.name](changes, fault, law)


def _stop(site: Site, changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    hit, name = list(fault.machines), fault.name
    during_T, after_T = changes.pulse(fault.onset_s, fault.end_s), changes.pulse(fault.onset_s)
    changes.put("halt", hit, _STOPS[name], during_T)
    if fault.end_s < site.duration_s:
        changes.job("run")[changes.pulse(fault.end_s) > 0] = 0.0
    if name in ("dead_host", "rack_dead"):
        changes.put("silent", hit, 1.0, after_T)
    elif name == "off_bus":
        changes.gpu("absent")[after_T > 0, hit[0], int(law.integers(site.gpus))] = 1.0
    elif name == "frozen_driver":
        changes.put("stuck", hit, 1.0, after_T)
    elif name == "ecc":
        _once(changes, "ecc", hit, fault.onset_s, float(law.integers(1, 6)))
        _once(changes, "rows", hit, fault.onset_s, float(law.integers(0, 3)))
    elif name == "link_down":
        changes.put("nic", hit, 0.02, after_T)
        _once(changes, "downs", hit, fault.onset_s, 1.0)
    elif name == "full_disk":
        full_T = changes.pulse(max(fault.onset_s, 0.0), ramp_s=20.0)
        for machine in hit:
            changes.add("fill", hit, float(0.995 - site.disk_M[machine]), full_T)
        changes.job("write")[changes.pulse(fault.onset_s, fault.onset_s + 20.0) > 0] = 0.7


def _once(changes: Changes, name: str, machines: list[int], at_s: float, count: float) -> None:
    first = int(np.searchsorted(changes.times_T, at_s))
    for machine in machines:
        changes.machine(name)[min(first, len(changes.times_T) - 1), machine] += count


def _shape(changes: Changes, fault: Fault, ramp_s: float = 0.0) -> np.ndarray:
    return changes.pulse(fault.onset_s, fault.end_s if fault.end_s < changes.site.duration_s else np.inf, ramp_s)


def _bursts(
    changes: Changes, fault: Fault, law: np.random.Generator, every_s: tuple[float, float], lasts_s: tuple[float, float]
) -> np.ndarray:
    """(T,): which share of each tick lies in one of the bursts that come again and again."""
    site = changes.site
    share_T = np.zeros(site.ticks)
    at_s = fault.onset_s
    while at_s < fault.end_s:
        end_s = at_s + law.uniform(*lasts_s)
        lies_T = np.minimum(end_s, changes.times_T + site.tick_s) - np.maximum(at_s, changes.times_T)
        share_T = np.maximum(share_T, np.clip(lies_T / site.tick_s, 0.0, 1.0))
        at_s = end_s + law.uniform(*every_s)
    return share_T


def _one_gpu(site: Site, law: np.random.Generator) -> int:
    return int(law.integers(site.gpus))


def _fan(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    changes.factor("airflow", list(fault.machines), law.uniform(0.06, 0.22), _shape(changes, fault, 30.0))


def _paste(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    shape_T = _shape(changes, fault, law.uniform(20.0, 180.0))
    changes.factor("paste", list(fault.machines), law.uniform(5.0, 10.0), shape_T, _one_gpu(changes.site, law))


def _stuck_clock(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    gpu = _one_gpu(changes.site, law) if law.random() < 0.5 else None
    changes.factor("lock", list(fault.machines), law.uniform(0.5, 0.8), _shape(changes, fault), gpu)


def _power_brake(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    changes.factor("lock", list(fault.machines), law.uniform(0.42, 0.6), _shape(changes, fault))


def _low_cap(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    changes.factor("cap", list(fault.machines), law.uniform(0.4, 0.62), _shape(changes, fault))


def _flapping_throttle(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    share_T = _bursts(changes, fault, law, (20.0, 90.0), (15.0, 60.0))
    changes.factor("lock", list(fault.machines), law.uniform(0.45, 0.7), share_T)


def _slow_memory(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    shape_T = _shape(changes, fault)
    changes.factor("hbm", list(fault.machines), law.uniform(0.2, 0.5), shape_T, _one_gpu(changes.site, law))
    hits_T = law.random(changes.site.ticks) < changes.site.tick_s / 150.0
    changes.add("rows", list(fault.machines), 1.0, (shape_T > 0) * hits_T)


def _nvlink_lane(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    gpu = _one_gpu(changes.site, law) if law.random() < 0.4 else None
    changes.factor("lanes", list(fault.machines), law.choice([1 / 6, 1 / 4, 1 / 3, 1 / 2]), _shape(changes, fault), gpu)


def _pcie_width(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    left = float(law.choice([1 / 16, 1 / 8, 1 / 4, 1 / 2], p=[0.05, 0.25, 0.45, 0.25]))
    shape_T = _shape(changes, fault)
    changes.factor("pcie", list(fault.machines), left, shape_T)
    changes.factor("disk", list(fault.machines), max(left, 0.5), shape_T)
    if law.random() < 0.6:
        changes.factor("width", list(fault.machines), left, shape_T)


def _nic_rate(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    changes.factor("nic", list(fault.machines), law.uniform(0.3, 0.7), _shape(changes, fault))


def _dirty_optics(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    shape_T = _shape(changes, fault, law.choice([0.0, 300.0]))
    changes.add("loss", list(fault.machines), law.uniform(0.005, 0.03), shape_T)
    changes.factor("marks", list(fault.machines), law.uniform(1.5, 4.0), shape_T)


def _link_flap(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    share_T = _bursts(changes, fault, law, (30.0, 150.0), (3.0, 14.0))
    changes.factor("nic", list(fault.machines), 0.02, share_T)
    changes.add("downs", list(fault.machines), 1.0, (share_T > 0) & (np.roll(share_T, 1) == 0))
    changes.add("errors", list(fault.machines), law.uniform(0.5, 20.0), share_T)


def _hot_processor(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    changes.factor("cpu", list(fault.machines), law.uniform(0.2, 0.4), _shape(changes, fault, 60.0))


def _runaway(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    shape_T = _shape(changes, fault, 5.0)
    changes.add("hog", list(fault.machines), law.uniform(0.5, 0.9), shape_T)
    changes.factor("cpu", list(fault.machines), law.uniform(0.4, 0.7), shape_T)


def _leak(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    ramp_s = law.uniform(120.0, 500.0)
    shape_T = _shape(changes, fault, ramp_s)
    for machine in fault.machines:
        changes.add("memory", [machine], float(0.99 - changes.site.memory_M[machine]), shape_T)
    swaps_T = np.clip((shape_T - 0.75) * 4.0, 0.0, 1.0)
    changes.factor("cpu", list(fault.machines), law.uniform(0.15, 0.4), swaps_T)
    changes.factor("disk", list(fault.machines), 0.3, swaps_T)


def _slow_disk(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    size = changes.site.demand.load * law.uniform(0.3, 0.7)  # below the job's demand: what it reads is late
    changes.factor("disk", list(fault.machines), size, _shape(changes, fault))


def _recurring_freeze(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    share_T = _bursts(changes, fault, law, (20.0, 90.0), (4.0, 25.0))
    changes.add("frozen", list(fault.machines), 1.0, share_T)
    changes.add("hog", list(fault.machines), law.uniform(-0.04, 0.25), share_T)


def _rack_cooling(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    changes.add("inlet", list(fault.machines), law.uniform(28.0, 45.0), _shape(changes, fault, law.uniform(120.0, 400.0)))


def _switch_uplink(changes: Changes, fault: Fault, law: np.random.Generator) -> None:
    shape_T = _shape(changes, fault)
    changes.factor("nic", list(fault.machines), law.choice([0.25, 0.5, 0.5]), shape_T)
    changes.factor("marks", list(fault.machines), law.uniform(1.0, 3.0), shape_T)


_GREY: Mapping[str, Callable[[Changes, Fault, np.random.Generator], None]] = {
    "fan": _fan, "paste": _paste, "stuck_clock": _stuck_clock, "power_brake": _power_brake, "low_cap": _low_cap,
    "flapping_throttle": _flapping_throttle, "slow_memory": _slow_memory, "nvlink_lane": _nvlink_lane, "pcie_width": _pcie_width,
    "nic_rate": _nic_rate, "dirty_optics": _dirty_optics, "link_flap": _link_flap, "hot_processor": _hot_processor, "runaway": _runaway,
    "leak": _leak, "slow_disk": _slow_disk, "recurring_freeze": _recurring_freeze, "rack_brake": _power_brake,
    "rack_cooling": _rack_cooling, "switch_uplink": _switch_uplink,
}  # fmt: skip
