"""The family "kernels": a job is a timeline of programs, and every gauge is an integral of it or a glance at it.

A step is a list of kernels. Each needs so much of a device's resources and lasts as long as the scarcest allows (a roofline). Ranks meet in
collectives: who comes early spins there, at full duty cycle and little power. One step is laid out for each state of the job, and tiled
over time; gauges are means over the scrape's window or glances, so aliasing and steps longer than a scrape come out by themselves. A fault
changes a rate, holds a rank back, or ends the timeline; nothing is painted on but what a sensor or counter of its own says.
Legend: M machines, D devices of each, U units = M x D, T scrapes, J kernels, R resources, P phases, S signals, K metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from minder.simulate.worlds.world import NO_FAULT, Truth, World

__all__ = ["CAUSES", "FAULTS", "NAME", "NUISANCES", "draw"]
NAME = "kernels"
_START_S = 1_780_000_000.0  # UTC, where all recordings begin
CLOCK, HBM, NVLINK, PCIE, NIC, HOST, DISK, WORK = range(8)  # a unit's resources; the last is its share of the work
LOAD, WARM, COMPUTE, COOL, SPIN, REDUCE, UPDATE, TAIL = range(8)
_SIGNALS = ("duty", "sm", "fp", "host", "tensor", "hbm", "nvlink", "pcie", "nic", "disk", "power")

# By kernel: its phase; how much of clock, HBM, NVLink, PCIe, NIC, host, disk it uses; its duty, SM, FP, host load, tensor activity.
_KERNELS: Mapping[str, tuple[int, tuple[float, ...], tuple[float, ...]]] = {
    "matmul": (COMPUTE, (1, 0.45, 0, 0, 0, 0.1, 0), (1, 0.93, 0.1, 0.12, 0.72)),
    "attention": (COMPUTE, (1, 0.55, 0, 0, 0, 0.1, 0), (1, 0.88, 0.25, 0.12, 0.42)),
    "element": (COMPUTE, (0.4, 1, 0, 0, 0, 0.1, 0), (1, 0.9, 0.3, 0.12, 0)),
    "tensor_all_reduce": (COMPUTE, (0.2, 0.3, 1, 0, 0, 0.1, 0), (1, 0.3, 0.05, 0.15, 0)),
    "expert_all_to_all": (COMPUTE, (0.1, 0.2, 0.3, 0.3, 1, 0.2, 0), (1, 0.24, 0.03, 0.2, 0)),
    "offload": (COMPUTE, (0, 0.1, 0, 1, 0, 0.5, 0), (0.6, 0.06, 0, 0.3, 0)),
    "decode": (COMPUTE, (0.4, 1, 0.3, 0, 0, 0.3, 0), (1, 0.62, 0.12, 0.25, 0.14)),
    "load": (LOAD, (0, 0.02, 0, 0.3, 0, 1, 0.8), (0.1, 0.02, 0, 0.7, 0)),
    "gradient_all_reduce": (REDUCE, (0.1, 0.25, 0.5, 0.45, 1, 0.2, 0), (1, 0.27, 0.08, 0.2, 0)),
    "optimiser": (UPDATE, (0.3, 1, 0, 0, 0, 0.1, 0), (1, 0.8, 0.4, 0.12, 0)),
    "launch": (TAIL, (0, 0, 0, 0, 0, 1, 0), (0.3, 0.08, 0, 0.6, 0)),
    "save": (TAIL, (0, 0.05, 0, 0.3, 0, 0.4, 1), (0.05, 0.01, 0, 0.4, 0)),
}
_PHASE_J, _USE_JR, _SIGNAL_JS = (np.array([row[part] for row in _KERNELS.values()]) for part in range(3))
# What a unit does while it waits (a spin in a collective, nothing at all) or where it never ends: duty, SM, FP, host, tensor.
_WAITS = {"spin": (1, 0.2, 0.02, 0.18, 0), "idle": (0, 0, 0, 0.02, 0), "busy": (1, 0.55, 0.2, 0.12, 0.05)}
# Shares of a step by style of job, in the order of _KERNELS up to "launch".
_STYLES: Mapping[str, tuple[float, ...]] = {
    "dense": (0.46, 0.14, 0.1, 0.1, 0, 0, 0, 0.03, 0.1, 0.04, 0.03),
    "long context": (0.3, 0.36, 0.08, 0.09, 0, 0, 0, 0.02, 0.08, 0.04, 0.03),
    "experts": (0.34, 0.12, 0.1, 0.06, 0.2, 0, 0, 0.02, 0.09, 0.04, 0.03),
    "offload": (0.4, 0.1, 0.1, 0.05, 0, 0.16, 0, 0.03, 0.08, 0.04, 0.04),
    "vision": (0.5, 0.02, 0.18, 0, 0, 0, 0, 0.12, 0.1, 0.03, 0.05),
    "rollout": (0.04, 0.05, 0.05, 0, 0, 0, 0.8, 0.0, 0, 0, 0.06),
}
# By metric: its signal; a site's scale (log-uniform); how machines differ and how it flutters (logs of ratios); its rounding; its limit.
_METRICS: Mapping[str, tuple[str, float, float, float, float, float, float]] = {
    "gpu_duty_cycle_ratio": ("duty", 1, 1, 0.004, 0.015, 0.01, 1), "gpu_sm_activity_ratio": ("sm", 1, 1, 0.01, 0.015, 0, 1),
    "gpu_tensor_activity_ratio": ("tensor", 1, 1, 0.01, 0.015, 0, 1), "gpu_fp_activity_ratio": ("fp", 1, 1, 0.01, 0.015, 0, 1),
    "gpu_graphics_activity_ratio": ("duty", 1, 1, 0.004, 0.006, 0, 1), "gpu_power_draw_watts": ("power", 250, 1000, 0.03, 0.02, 0.1, 1500),
    "gpu_memory_bandwidth_ratio": ("hbm", 0.6, 0.85, 0.01, 0.015, 0, 1), "gpu_temperature_celsius": ("heat", 1, 1, 0.03, 0.006, 1, 120),
    "gpu_clock_hertz": ("clock", 1.2e9, 2e9, 0, 0.004, 15e6, 3e9), "gpu_memory_used_ratio": ("one", 0.5, 0.95, 0.02, 0.001, 0.001, 1),
    "nvlink_bandwidth_bytes_per_second": ("nvlink", 2e11, 8e11, 0.01, 0.03, 1, 1e14), "pcie_link_width": ("one", 16, 16, 0, 0, 1, 16),
    "pcie_bandwidth_bytes_per_second": ("pcie", 2e10, 6e10, 0.03, 0.04, 1, 1e13), "gpu_throttle_reasons": ("none", 1, 1, 0, 0, 1, 1e9),
    "gpu_ecc_uncorrectable_total": ("none", 1, 1, 0, 0, 1, 1e9), "gpu_rows_remapped_total": ("none", 1, 1, 0, 0, 1, 1e9),
    "rdma_throughput_bytes_per_second": ("nic", 2e10, 4e11, 0.01, 0.02, 1, 1e13), "link_downs_total": ("none", 1, 1, 0, 0, 1, 1e6),
    "pfc_tx_packets_per_second": ("nic", 2e2, 2e4, 0.4, 0.5, 1, 1e9), "ecn_packets_per_second": ("nic", 5e2, 5e4, 0.3, 0.4, 1, 1e9),
    "cnp_packets_per_second": ("nic", 2e2, 2e4, 0.3, 0.4, 1, 1e9), "rdma_xmit_wait_per_second": ("nic", 1e4, 1e7, 0.3, 0.3, 1, 1e11),
    "link_errors_per_second": ("nic", 0.05, 3, 0.6, 0.7, 0, 1e6), "cpu_usage_ratio": ("host", 0.15, 0.7, 0.05, 0.06, 0, 1),
    "memory_usage_ratio": ("one", 0.2, 0.6, 0.03, 0.004, 0, 1), "disk_usage_ratio": ("one", 0.1, 0.7, 0.15, 0.0005, 0, 1),
    "tcp_throughput_bytes_per_second": ("storage", 5e8, 8e9, 0.05, 0.12, 0, 1e12),
    "tcp_retransmits_per_second": ("storage", 5, 60, 0.3, 0.5, 0, 1e6),
}  # fmt: skip
_GLANCES = ("gpu_duty_cycle_ratio", "gpu_power_draw_watts", "gpu_clock_hertz")  # read at the instant; the others are means over the window
_GPU = ("gpu_", "nvlink_", "pcie_")  # of a device; the others are of its host
_PARTS = {  # a site's exporters, each a list of what it may have
    "dcgm": "duty_cycle sm_act tensor_ graphics_ fp_ memory_band power temperature clock memory_used nvlink pcie_band remapped throttle",
    "nvml": "duty_cycle power temperature clock memory_used memory_band pcie_link ecc throttle",
    "vendor": "duty_cycle tensor_ power temperature clock memory_used",
    "network": "rdma_thr pfc ecn cnp xmit_wait link_errors link_downs",
    "machine": "cpu memory_usage disk tcp_thr retransmits",
}
_Step = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # ends_UP; upto_UPS, gathered at the ends; rate_UPS; clock_U
_Line = tuple[list[_Step], np.ndarray, np.ndarray, np.ndarray]  # layouts; by step starts_I, which_I of them, stretch_I
_Kept = tuple[tuple[str, float, bool], float]  # of a step: kind, saves and pulse as of _lay_out; until when it is held, 0 if it is not
Mark = tuple[str, str, float, float]  # part of a metric's name; "+", "*", "=", "#" a minute or "!" at once; the range of the amount
# The program and its layout. The first `trainers` machines are replicas of `stages` machines each, with `micro` batches in flight; others
# roll out. seconds_UJ: of each kernel. rate_UR: what resources give, 1 is nominal. part: how much of a machine has a fault of a device.
_Job = SimpleNamespace
_GROUPS = ("rack", "switch", "stage")


@dataclass(frozen=True, slots=True)
class _Kind:
    """What befalls machines. rates: by resource, the range of what is left of it. marks: what sensors of their own say."""

    says: str
    rates: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()
    mode: str = "steady"  # or "waves" (on and off), "ramp", "pulse" (held for span_s each time)
    where: str = "machine"
    stop: str = ""  # what the machine does while all wait for it for ever
    sensors: str = ""  # "frozen", "silent", "broken" or "lost" (the device's own)
    at: str = ""  # "save": begins with a checkpoint; "always"; job-wide: the kind of step
    span_s: tuple[float, float] = (120.0, 1500.0)
    count: int = 1

    @property
    def grey(self) -> bool:
        """A slowdown without a line in any log."""
        return not (self.stop or self.sensors == "silent" or "link_downs" in str(self.marks))


# fmt: off
_MORE, _PORT = (tuple((name, "*", 2.0, 6.0) for name in ("ecn", "cnp", last)) for last in ("retransmits", "pfc"))
_HOT, _GONE = ("throttle", "=", 32.0, 32.0), ("memory_used", "*", 0.02, 0.1)
_FAULTS: Mapping[str, _Kind] = {
    "flat_clock": _Kind("A GPU's clock stays well below its peers', and no reason is given.", {CLOCK: (0.5, 0.8)}, where="device"),
    "throttle_waves": _Kind("A hot GPU throttles in waves.", {CLOCK: (0.5, 0.8)}, (("temperature", "+", 8, 18), _HOT), "waves", "device"),
    "fan_failed": _Kind("A fan fails; clocks follow the heat.", {CLOCK: (0.5, 0.75)}, (("temperature", "+", 12, 25), _HOT), "ramp"),
    "power_brake": _Kind("A power supply holds the machine's GPUs down.", {CLOCK: (0.3, 0.6)}, (("throttle", "=", 128, 128),)),
    "slow_memory": _Kind("A GPU's memory is slow.", {HBM: (0.35, 0.7)}, (("remapped", "#", 0.1, 1),), where="device"),
    "nvlink_lane": _Kind("NVLink lanes of a GPU are down.", {NVLINK: (0.25, 0.6)}, where="device"),
    "pcie_width": _Kind("PCIe lost lanes; the NIC sends pauses.", {PCIE: (0.12, 0.3)}, (("pcie_link", "=", 4, 4), ("pfc", "*", 3, 30))),
    "slow_nic": _Kind("A NIC gives a part of its rate.", {NIC: (0.3, 0.7)}, (("xmit_wait", "*", 2, 8), ("cnp", "*", 1.2, 3))),
    "dirty_optics": _Kind("Errors and marks at a few times the neighbours'.", {NIC: (0.5, 0.85)}, (("link_errors", "*", 4, 20), *_MORE)),
    "link_flaps": _Kind("A link goes down and up.", {}, (("link_downs", "#", 0.4, 1.5), ("link_err", "*", 3, 9)), "pulse", span_s=(8, 30)),
    "slow_disk": _Kind("One machine's storage is slow, and its batches late.", {DISK: (0.02, 0.12)}, (("tcp_thr", "*", 0.5, 0.9),)),
    "processor_hog": _Kind("A runaway process takes the host's cores.", {HOST: (0.12, 0.3)}, (("cpu", "+", 0.35, 0.7),)),
    "swapping": _Kind("Host memory leaks until it swaps.", {HOST: (0.1, 0.25)}, (("memory_usage", "+", 0.3, 0.6),), "ramp"),
    "freezes": _Kind("The machine freezes for seconds, again and again.", mode="pulse", span_s=(6, 25)),
    "frozen_driver": _Kind("A stuck driver: the job crawls, and the GPUs' gauges freeze.", {CLOCK: (0.4, 0.7)}, sensors="frozen"),
    "two_clocks": _Kind("Two machines at a time are slow.", {CLOCK: (0.5, 0.8)}, count=2),
    "gpu_lost": _Kind("A GPU falls off the bus, and all others wait.", stop="idle", where="device", sensors="lost"),
    "memory_error": _Kind("An uncorrectable memory error ends a rank.", {}, (("ecc", "!", 1, 4), _GONE), stop="idle"),
    "dead_process": _Kind("A rank dies without a word, and its peers spin.", {}, (_GONE,), stop="idle"),
    "endless_kernel": _Kind("A kernel never ends.", stop="busy", where="device"),
    "nic_down": _Kind("A NIC is down for good.", {}, (("link_downs", "!", 1, 2), ("tcp_thr", "*", 0.1, 0.9)), stop="idle"),
    "disk_full": _Kind("A disk is full at a checkpoint, which never ends.", {}, (("disk", "=", 1, 1),), stop="idle", at="save"),
    "machine_gone": _Kind("A machine is gone: no sample, no answer.", stop="idle", sensors="silent"),
    "rack_power": _Kind("A rack's power is capped.", {CLOCK: (0.55, 0.8)}, (("throttle", "=", 128, 128),), where="rack"),
    "switch_ports": _Kind("A switch lacks uplinks.", {NIC: (0.3, 0.6)}, (("xmit_wait", "*", 3, 9), ("ecn", "*", 2, 6)), where="switch"),
    "switch_dead": _Kind("A switch's machines fall silent minutes before the rest waits.", stop="idle", where="switch", sensors="silent"),
    "stage_stuck": _Kind("All machines of a stage (or a rack) stop.", {}, (("memory_used", "*", 0.1, 0.3),), stop="idle", where="stage"),
}
_CAUSES: Mapping[str, _Kind] = {
    "storage_slow": _Kind("Shared storage is slow for all.", {DISK: (0.02, 0.15)}),
    "congestion": _Kind("The fabric is congested.", {NIC: (0.35, 0.75)}, _PORT),
    "loader_slow": _Kind("A costly part of the data loads slowly for all.", {HOST: (0.2, 0.5)}, (("cpu", "*", 1.1, 1.5),)),
    "load_shift": _Kind("Sequences get longer or shorter.", rates={WORK: (0.6, 1.6)}),
    "site_cap": _Kind("The site caps all GPUs' clocks.", {CLOCK: (0.75, 0.92)}),
    "evaluation": _Kind("An evaluation: forward passes only.", at="evaluation", span_s=(60, 300)),
    "long_saves": _Kind("Checkpoints take several times as long.", at="saves"),
    "restart": _Kind("The job is started again, at times with a machine exchanged.", {}, (_GONE,), at="idle", span_s=(60, 240)),
    "deadlock": _Kind("A bug of the user's: all ranks wait for each other.", at="spin", span_s=(9e9, 9e9)),
    "job_ends": _Kind("The job ends, and its machines idle.", {}, (_GONE,), at="idle", span_s=(9e9, 9e9)),
}
_TENANT = (("cpu", "+", 0.1, 0.5), ("memory_usage", "+", 0.05, 0.3), ("tcp_thr", "*", 1.5, 6.0))
_NUISANCES: Mapping[str, _Kind] = {
    "exporter_restart": _Kind("An exporter is started again: no samples for a minute or so.", sensors="silent", span_s=(30, 180)),
    "exporter_freeze": _Kind("An exporter gives the same values for minutes.", sensors="frozen", span_s=(60, 360)),
    "agent_lost": _Kind("A machine's agent is lost for long; the machine works.", sensors="silent", span_s=(300, 4000)),
    "second_tenant": _Kind("Another tenant uses the host.", {}, _TENANT),
    "log_shipper": _Kind("A log shipper wakes now and then.", {}, (("cpu", "+", 0.05, 0.25), ("tcp_thr", "*", 1.2, 3)), "waves"),
    "hot_aisle": _Kind("A rack stands in a hot aisle.", {}, (("temperature", "+", 5, 12),), where="rack"),
    "warm_slot": _Kind("A slot is warm, its clock a little lower.", {CLOCK: (0.97, 0.99)}, (("temperature", "+", 5, 11),), at="always"),
    "uneven_share": _Kind("A machine has a little more or less of the work.", rates={WORK: (0.92, 1.05)}, at="always"),
    "first_writes": _Kind("Rank 0 writes on after each checkpoint, the others spin.", at="first"),
    "broken_metric": _Kind("One metric of a machine reads nothing, or zero.", sensors="broken"),
    "unit_change": _Kind("An exporter's new version counts bits for bytes.", {}, (("bytes_per", "*", 8, 8),)),
    "wrong_clock": _Kind("A machine's clock is off by up to two minutes."),
    "old_flaps": _Kind("A spare link flaps, unused.", {}, (("link_downs", "#", 0.1, 0.8), ("link_errors", "*", 2, 6))),
    "busy_port": _Kind("A port marks more packets than others, and the job does not mind.", {}, _PORT, "waves"),
    "thirsty_board": _Kind("A board draws more or less power for the same work.", {}, (("power", "*", 0.88, 1.1),), at="always"),
    "filling_disk": _Kind("Logs fill a disk slowly.", {}, (("disk", "+", 0.05, 0.3),), "ramp"),
}
# fmt: on
FAULTS, CAUSES, NUISANCES = ({name: kind.says for name, kind in table.items()} for table in (_FAULTS, _CAUSES, _NUISANCES))


@dataclass(slots=True)
class _Hit:
    """One thing that befalls some units between two times. left: by resource. amounts: of the kind's marks."""

    kind: _Kind
    units_U: np.ndarray
    start_s: float
    end_s: float
    left: dict[int, float]
    amounts: list[float]
    span_s: float
    period_s: float

    def strength(self, at: np.ndarray | float) -> np.ndarray:
        """From 0 (not there) to 1; a ramp goes up in quarters, so that few steps need to be laid out."""
        inside = (np.asarray(at) >= self.start_s) & (np.asarray(at) < self.end_s)
        turn = np.where(inside, np.asarray(at) - self.start_s, 0.0) / self.period_s
        if self.kind.mode == "ramp":
            return inside * np.clip(np.ceil(turn * 4) / 4, 0.25, 1.0)
        return inside * np.where((turn % 1 < 0.5) | (self.kind.mode != "waves"), 1.0, 0.0)


def _hit(rng: np.random.Generator, kind: _Kind, job: _Job) -> _Hit:
    """A kind in numbers, at a time for a healthy machine or for the job as a whole: what comes to stay comes late."""
    of_M, first = np.arange(job.machines), int(rng.integers(job.machines)) * (kind.at != "first")
    if kind.says in CAUSES.values():
        chosen_M = of_M >= 0
    elif kind.where == "stage" and job.stages > 1:
        chosen_M = (of_M % job.stages == first % job.stages) & (of_M < job.trainers)
    elif kind.where in _GROUPS:
        size = job.switch if kind.where == "switch" else job.rack
        chosen_M = of_M // size == min(first // size, job.machines // size - 1)
    else:
        chosen_M = np.isin(of_M, (first + np.arange(kind.count) * int(rng.integers(1, job.machines))) % job.machines)
    chosen_MD = np.repeat(chosen_M[:, None], job.devices, axis=1)
    chosen_MD &= (np.arange(job.devices) == int(rng.integers(job.devices))) | (kind.where != "device")
    left = {place: float(rng.uniform(*span)) for place, span in kind.rates.items()}
    amounts = [float(np.exp(rng.uniform(*np.log([low, high])))) for _, _, low, high in kind.marks]
    span_s, period_s = float(rng.uniform(*kind.span_s)), max(float(rng.uniform(60, 300)), 2.5 * job.step_s)
    start_s = -1e9 if kind.at == "always" else job.long_s * float(rng.uniform(0.75, 0.93) if span_s > 1e9 else rng.uniform(0.03, 0.65))
    end_s = np.inf if kind.at == "always" else start_s + (min(span_s, job.long_s / 4) if kind.at else span_s)
    return _Hit(kind, chosen_MD.ravel(), start_s, end_s, left, amounts, span_s, period_s)


def _lengths(job: _Job, own_MP: np.ndarray) -> np.ndarray:
    """(M, P): how long each phase lasts, waiting included, where a machine needs own_MP seconds in each: who waits for whom."""
    n, length_MP = job.trainers, own_MP.copy()
    own_RS, load_RS = own_MP[:n, COMPUTE].reshape(-1, job.stages), own_MP[:n, LOAD].reshape(-1, job.stages)
    # Batches run through the stages of a replica; the slowest stage sets the pace, and all replicas meet in the all-reduce.
    pace_RS = np.broadcast_to(own_RS.max(axis=0), own_RS.shape) if job.experts else own_RS
    fill_RS = (np.cumsum(pace_RS, axis=1) - pace_RS) / job.micro
    pipe_R = pace_RS.sum(axis=1) / job.micro + pace_RS.max(axis=1) * (job.micro - 1) / job.micro
    arrive_R, rolled_s = load_RS.max(axis=1) + pipe_R, float(own_MP[n:, COMPUTE].max(initial=0.0))
    length_MP[:n, WARM] = (rolled_s + load_RS.max(axis=1)[:, None] - load_RS + fill_RS / 3).ravel()
    length_MP[:n, COMPUTE], length_MP[:n, COOL] = (pipe_R[:, None] - fill_RS).ravel(), (fill_RS * 2 / 3).ravel()
    length_MP[:n, SPIN], length_MP[:n, REDUCE] = np.repeat(arrive_R.max() - arrive_R, job.stages), own_MP[:n, REDUCE].max()
    length_MP[:n, TAIL] = (own_MP[:n, UPDATE] + own_MP[:n, TAIL]).max() - own_MP[:n, UPDATE]
    length_MP[n:, TAIL] = length_MP[:n].sum(axis=1).max() - length_MP[n:, :TAIL].sum(axis=1)
    return length_MP


def _lay_out(job: _Job, hits: list[tuple[_Hit, float]], kind: str = "", saves: float = 0.0, pulse: bool = False) -> _Step:
    """One step under what befalls the units (each with its strength), with so many checkpoints; of _WAITS: a second of nothing else."""
    rate_UR, late_U, late, part_U1 = job.rate_UR.copy(), 0 * job.rate_UR[:, 0], "idle", np.ones((len(job.rate_UR), 1))
    length_UP, sums_UPS = np.zeros((len(rate_UR), 8)), np.zeros((len(rate_UR), 8, len(_SIGNALS)))
    length_UP[:, SPIN], sums_UPS[:, SPIN, :5] = 1.0, _WAITS.get(kind, _WAITS["idle"])
    for hit, strength in hits:
        for place, left in hit.left.items():
            rate_UR[hit.units_U, place] *= 1 - strength * (1 - left)
        part_U1[hit.units_U] *= job.part if hit.kind.where == "device" and job.devices == 1 else 1.0
        if pulse and hit.kind.mode == "pulse":
            late_U[hit.units_U], late = hit.span_s, "spin" if hit.kind.marks else "idle"
        if hit.kind.stop:
            sums_UPS[hit.units_U, SPIN, :5] = _WAITS[hit.kind.stop]
    clock_U1 = part_U1 * rate_UR[:, :HBM] + (1 - part_U1) * job.rate_UR[:, :HBM]
    if kind not in _WAITS:
        need_UJ = job.seconds_UJ * np.where(_PHASE_J == COMPUTE, rate_UR[:, WORK:], 1.0)
        need_UJ[:, -1] = np.repeat(job.save_M * saves, job.devices)
        if kind == "evaluation":
            need_UJ *= np.where(_PHASE_J == COMPUTE, 0.36, np.where(np.isin(_PHASE_J, (REDUCE, UPDATE)), 0.0, 1.0))
        own_UJ = need_UJ * (_USE_JR / rate_UR[:, None, :WORK]).max(axis=2)
        of_phase_JP = (_PHASE_J[:, None] == np.arange(8)).astype(float)
        own_UP = own_UJ @ of_phase_JP + late_U[:, None] * (np.arange(8) == LOAD)
        length_UP = np.repeat(_lengths(job, own_UP.reshape(job.machines, job.devices, 8).max(axis=1)), job.devices, axis=0)
        # What the kernels gather; the rest of a phase is waiting. Of a machine as a whole, the devices that are well are done sooner.
        own_UJ = part_U1 * own_UJ + (1 - part_U1) * need_UJ * (_USE_JR / job.rate_UR[:, None, :WORK]).max(axis=2)
        wait_UP, idle_UP = np.maximum(length_UP - own_UJ @ of_phase_JP, 0.0), np.zeros(length_UP.shape, dtype=bool)
        idle_UP[:, LOAD], idle_UP[:, WARM], idle_UP[job.trainers * job.devices :, TAIL] = late == "idle", job.trainers < job.machines, True
        for place, signal_J in enumerate(_SIGNAL_JS.T):  # the tensor cores' are shares of cycles, of which slow clocks have fewer
            needs_UJ = need_UJ / clock_U1 if _SIGNALS[place] == "tensor" else own_UJ
            waits_UP = wait_UP * np.where(idle_UP, _WAITS["idle"][place], _WAITS["spin"][place])
            sums_UPS[:, :, place] = (needs_UJ * signal_J) @ of_phase_JP + waits_UP
        for place, resource in enumerate((HBM, NVLINK, PCIE, NIC, DISK), start=5):
            sums_UPS[:, :, place] = (need_UJ * _USE_JR[:, resource]) @ of_phase_JP
    # Power, as a share of the board's limit: what busy parts draw goes with the square of the clock.
    sums_UPS[:, :, -1] = 0.12 * length_UP + sums_UPS[:, :, [1, 4, 5]] @ np.array([0.45, 0.45, 0.2]) * clock_U1**2
    return np.cumsum(length_UP, axis=1), np.cumsum(sums_UPS, axis=1), sums_UPS / np.maximum(length_UP, 1e-9)[:, :, None], clock_U1[:, 0]


def _integral(line: _Line, at_UT: np.ndarray) -> np.ndarray:
    """(U, T, S): what each signal has gathered from the beginning of the timeline on."""
    steps, starts_I, which_I, stretch_I = line
    step_UT = np.searchsorted(starts_I, at_UT, side="right") - 1
    out_UTS = np.zeros((*at_UT.shape, len(_SIGNALS)))
    for place, (ends_UP, upto_UPS, rate_UPS, _) in enumerate(steps):
        here_I = np.where(which_I == place, stretch_I, 0.0)
        out_UTS += (np.cumsum(here_I) - here_I)[step_UT][:, :, None] * upto_UPS[:, None, -1]
        u, t = np.nonzero(which_I[step_UT] == place)
        stretch = stretch_I[step_UT[u, t]]
        offset = np.minimum((at_UT[u, t] - starts_I[step_UT[u, t]]) / stretch, ends_UP[u, -1])
        phase = np.minimum((offset[:, None] >= ends_UP[u]).sum(axis=1), 7)
        out_UTS[u, t] += (upto_UPS[u, phase] - (ends_UP[u, phase] - offset)[:, None] * rate_UPS[u, phase]) * stretch[:, None]
    return out_UTS


def _next(job: _Job, t: float, last_s: float, fault: _Hit | None, cause: _Hit | None, down_s: float) -> _Kept:
    """The step at t. down_s: how long all idle after a stop has ended; negative: for how long the job goes on after one has begun."""
    f, at = float(fault.strength(t)) if fault else 0.0, cause.kind.at if cause and cause.strength(t) else ""
    if fault and fault.kind.stop and f and t >= fault.start_s - min(down_s, 0.0):
        return ("spin", 0.0, False), min(fault.end_s, job.long_s + 60)
    if fault and fault.kind.stop and fault.end_s <= t < fault.end_s + down_s:
        return ("idle", 0.0, False), fault.end_s + down_s
    if cause and at in _WAITS:
        return (at, 0.0, False), min(cause.end_s, job.long_s + 60)
    saves = float(t // job.save_every_s > last_s // job.save_every_s) * (4.0 if at == "saves" else 1.0)
    pulse = fault is not None and f > 0 and (t - fault.start_s) // fault.period_s > (last_s - fault.start_s) // fault.period_s
    return (at, saves, pulse), 0.0


def _run(job: _Job, rng: np.random.Generator, fault: _Hit | None, cause: _Hit | None, down_s: float) -> _Line:
    """Step after step until the end. The fault begins with the first step after it is armed, and its start_s is set to that."""
    memory = 0.008 * np.convolve(rng.standard_normal(4096), np.ones(8) / 8**0.5, mode="same") + 0.006 * rng.standard_normal(4096)
    jitter = np.exp(memory) * np.where(rng.random(4096) < 0.004, rng.uniform(1.1, 1.9, 4096), 1.0)
    steps: dict[tuple[object, ...], int] = {}
    laid, rows = list[_Step](), list[tuple[float, int, float]]()
    armed_s, begun, t = fault.start_s if fault else np.inf, False, (last_s := -2.0 * max(job.step_s, 40.0))
    while t < job.long_s:
        if fault and not begun:
            begun = t >= armed_s and (fault.kind.at != "save" or t // job.save_every_s > last_s // job.save_every_s)
            fault.start_s = t if begun else np.inf
        what, held_s = _next(job, t, last_s, fault, cause, down_s)
        hits = [(hit, strength) for hit in (fault, cause) if hit and (strength := float(hit.strength(t)))]
        key = (what, *((hit.kind.says, strength) for hit, strength in hits))
        if key not in steps:
            steps[key] = len(laid)
            laid.append(_lay_out(job, hits, *what))
        usual_s = float(laid[steps[key]][0][:, -1].max())
        length_s = max(held_s - t if held_s else usual_s * jitter[len(rows) % 4096], 1e-3)
        rows.append((t, steps[key], length_s / usual_s))
        last_s, t = t, t + length_s
    starts, which, stretch = zip(*rows, strict=True)
    return laid, np.array(starts), np.array(which), np.array(stretch)


def _marked(name: str, value_UT: np.ndarray, at_UT: np.ndarray, hits: list[_Hit]) -> np.ndarray:
    """A metric's values with what befell the units as its own sensor says it."""
    for hit in hits:
        for (part, how, _, _), amount in zip(hit.kind.marks, hit.amounts, strict=True):
            if part in name:
                strength_UT = hit.strength(at_UT) * hit.units_U[:, None]
                minutes_UT = np.clip(np.minimum(at_UT, hit.end_s) - hit.start_s, 0, None) * hit.units_U[:, None] / 60
                value_UT = {
                    "=": np.where(strength_UT > 0, amount, value_UT), "+": value_UT + strength_UT * amount,
                    "*": value_UT * (1 + strength_UT * (amount - 1)), "#": value_UT + np.floor(amount * minutes_UT),
                    "!": value_UT + round(amount) * (minutes_UT > 0),
                }[how]  # fmt: skip
    return value_UT


def _gauges(job: _Job, names: tuple[str, ...], line: _Line, at_UT: np.ndarray, hits: list[_Hit], rng: np.random.Generator) -> np.ndarray:
    """(U, T, K): what the exporters read. A metric of the host is the same in the rows of all of its machine's devices."""
    interval_s, glance_s, short = float(np.median(np.diff(at_UT))), float(rng.choice([0.2, 1.0])), bool(rng.random() < 0.3)
    before_UT, now_UTS = np.concatenate([at_UT[:, :1] - interval_s, at_UT[:, :-1]], axis=1), _integral(line, at_UT)
    glance_UTS = (now_UTS - _integral(line, at_UT - glance_s)) / glance_s
    mean_UTS = (now_UTS - _integral(line, before_UT)) / (at_UT - before_UT)[:, :, None]
    host_UTS = np.repeat(mean_UTS.reshape(job.machines, job.devices, *mean_UTS.shape[1:]).mean(axis=1), job.devices, axis=0)
    which_UT = line[2][np.searchsorted(line[1], at_UT, side="right") - 1]
    clock_UT = np.take_along_axis(np.stack([step[3] for step in line[0]], axis=1), which_UT, axis=1)
    # Noise, half of it with a memory of a minute or two, and with tails.
    white_TUK, slow_TUK = (rng.standard_normal((*at_UT.T.shape, len(names)), dtype=np.float32) for _ in range(2))
    for t in range(1, len(slow_TUK)):
        slow_TUK[t] = (keep := np.exp(-interval_s / 80.0)) * slow_TUK[t - 1] + (1 - keep**2) ** 0.5 * slow_TUK[t]
    white_TUK[rng.random(white_TUK.shape, dtype=np.float32) < 0.004] *= 4
    noise_UTK, values_UTK = 0.7 * (white_TUK + slow_TUK).transpose(1, 0, 2), np.empty((*at_UT.shape, len(names)))
    for k, name in enumerate(names):
        source, low, high, differs, flutter, digit, limit = _METRICS[name]
        read_UTS = host_UTS if not name.startswith(_GPU) else glance_UTS if short or name in _GLANCES else mean_UTS
        signal = dict(zip(_SIGNALS, np.moveaxis(read_UTS, 2, 0), strict=True))
        signal |= {"clock": clock_UT, "heat": 30 + 42 * signal["power"], "none": 0 * clock_UT, "one": 1 + 0 * clock_UT,
                   "storage": 0.03 + signal["disk"], "host": 0.1 + signal["host"]}  # fmt: skip
        scale_U = np.exp(rng.uniform(*np.log([low, high])) + differs * rng.standard_normal(len(at_UT)))
        value_UT = np.clip(_marked(name, signal[source] * scale_U[:, None] * np.exp(flutter * noise_UTK[:, :, k]), at_UT, hits), 0.0, limit)
        if source == "heat":
            for t in range(1, at_UT.shape[1]):
                value_UT[:, t] += float(np.exp(-interval_s / 50.0)) * (value_UT[:, t - 1] - value_UT[:, t])
        values_UTK[:, :, k] = np.round(value_UT / digit) * digit if digit else value_UT
    return values_UTK


def _heard(rng: np.random.Generator, job: _Job, gpu_K: np.ndarray, out_UTK: np.ndarray, at_UT: np.ndarray, hits: list[_Hit]) -> np.ndarray:
    """(M, T): which scrapes were heard. Freezes, loses and breaks values where a hit does so."""
    heard_MT, one_K = rng.random((job.machines, at_UT.shape[1])) > 0.003, np.arange(len(gpu_K)) == rng.integers(len(gpu_K))
    for hit in hits:
        on_UT = (hit.strength(at_UT) > 0) & hit.units_U[:, None]
        if hit.kind.sensors in ("lost", "broken"):
            out_UTK[on_UT[:, :, None] & (gpu_K if hit.kind.sensors == "lost" else one_K)] = (
                np.nan if hit.period_s < 150 or hit.kind.stop else 0.0
            )
        elif hit.kind.sensors == "silent":
            heard_MT &= ~on_UT.reshape(job.machines, job.devices, -1).any(axis=1)
        for u in np.flatnonzero(on_UT.any(axis=1)) if hit.kind.sensors == "frozen" else ():
            at = np.flatnonzero(on_UT[u])
            out_UTK[u, at[0] : at[-1] + 1, gpu_K] = out_UTK[u, max(at[0] - 1, 0), gpu_K][:, None]
    return heard_MT


def _job(rng: np.random.Generator, count: int, long_s: float) -> _Job:
    stages = int(rng.choice([n for n in (1, 1, 1, 2, 4, 4, 8, 3) if count % n == 0 and count // n >= 2]))
    trainers = count if rng.random() > 0.2 or count < 8 else max(stages, int(count * rng.uniform(0.4, 0.8)) // stages * stages)
    devices = int(rng.choice([4, 8])) if rng.random() < 0.3 and count <= 64 else 1
    units, rack, style = count * devices, int(rng.choice([4, 8, 16])), str(rng.choice([name for name in _STYLES if name != "rollout"]))
    seconds_UJ = np.tile(np.array([*_STYLES[style], 0.0]) * np.exp(0.15 * rng.standard_normal(12)), (units, 1))
    seconds_UJ[trainers * devices :] = np.array([*_STYLES["rollout"], 0.0]) * rng.uniform(0.4, 1.5)
    differs_R = np.array([0.007, 0.01, 0.01, 0.02, 0.01, 0.03, 0.05, 0.004])
    job = _Job(
        machines=count, devices=devices, trainers=trainers, stages=stages, experts=style == "experts", part=rng.choice([0.25, 0.5, 1]),
        rack=min(rack, max(2, count // 3)), switch=min(rack * int(rng.choice([1, 2, 4])), max(2, count // 3)), seconds_UJ=seconds_UJ,
        step_s=float(np.clip(np.exp(rng.normal(1.6, 1.1)), 0.35, 50)), long_s=long_s, save_every_s=long_s * float(rng.uniform(0.07, 0.22)),
        rate_UR=np.exp(differs_R * np.clip(rng.standard_normal((units, 8)), -2, 2)), micro=stages * int(rng.choice([2, 4, 8])),
        save_M=(np.arange(count) < (trainers if rng.random() < 0.6 else stages)) * float(np.exp(rng.uniform(1, 3.7))),
    )  # fmt: skip
    job.seconds_UJ = seconds_UJ * (job.step_s / _lay_out(job, [])[0][:, -1].max())
    return job


def _fault(rng: np.random.Generator, job: _Job, asked: str | None) -> tuple[str | None, _Hit | None]:
    weights = np.array([(1.3 - 0.4 * k.grey) * 0.8 ** (k.count - 1) * (0.65 if k.where in _GROUPS else 1.0) for k in _FAULTS.values()])
    name = asked or (str(rng.choice(list(_FAULTS), p=weights / weights.sum())) if rng.random() < 0.62 else NO_FAULT)
    if name == NO_FAULT:
        return None, None
    hit, early, span_s = _hit(rng, _FAULTS[name], job), rng.random(), (0.5 if _FAULTS[name].at == "save" else 0.65) * job.long_s
    hit.start_s = float(rng.uniform(20, 120) if early < 0.18 else rng.uniform(min(120, span_s / 2), span_s))
    hit.start_s = -1e6 if early < 0.08 and hit.kind.grey and hit.kind.mode == "steady" else hit.start_s  # slow from the first row on
    hit.end_s = max(hit.start_s, 0.0) + float(rng.uniform(240, 900)) if rng.random() < 0.35 else np.inf
    return name, hit


def draw(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> World:
    """One world. fault: one of FAULTS, NO_FAULT, or None for the seed's own choice; so with the number of machines and seconds."""
    site, flow, plight, harm, noise, look = (np.random.default_rng([seed, 71, concern]) for concern in range(6))
    drawn, of_four = round(4 * 1000 ** (site.random() ** 1.6)), site.random() < 0.7
    total = machines or (drawn // 4 * 4 if of_four else drawn)
    long_s = duration_s or float(site.uniform(900, 3600) if total < 400 else site.uniform(900, 1500))
    cause_name = str(plight.choice(list(_CAUSES))) if plight.random() < 0.35 else None
    exchange = cause_name == "restart" and total >= 8 and plight.random() < 0.5
    job = _job(site, total - exchange, long_s)
    # A site: one exporter of its GPUs, at times those of the host and of the network, some fields of each.
    parts = [str(site.choice(["dcgm", "dcgm", "nvml", "vendor"])), *(part for part in ("machine", "network") if site.random() < 0.7)]
    words = [word for part in parts for word in _PARTS[part].split() if site.random() < 0.85 or word in ("duty_cycle", "power")]
    names = tuple(name for name in _METRICS if any(word in name for word in words))
    least_s = max(float(site.choice([1, 1, 2, 5, 5, 10, 15, 30])), len(job.rate_UR) * long_s / 90_000)
    interval_s = min([s for s in (1.0, 2.0, 5.0, 10.0, 15.0, 20.0) if s >= least_s], default=30.0)
    cause = _hit(plight, _CAUSES[cause_name], job) if cause_name else None
    lesser = {str(name): _hit(look, _NUISANCES[name], job) for name in look.permutation(list(_NUISANCES))[: min(4, look.poisson(1.1))]}
    for hit in lesser.values():
        for place, left in hit.left.items():
            job.rate_UR[hit.units_U, place] *= left
    job.save_M[0] = job.save_M.max() * (float(look.uniform(3, 6)) if "first_writes" in lesser else 1.0)
    fault_name, struck = _fault(harm, job, fault)
    line = _run(job, flow, struck, cause, float(harm.uniform(-200, -30) if fault_name == "switch_dead" else harm.uniform(40, 180)))
    # The scrapes, each machine's at an instant of its own.
    count, beats_T = job.machines, interval_s * (1 + np.arange(int(long_s // interval_s) - 1))
    late_MT = look.random((count, 1)) - 0.5 + 0.03 * np.clip(look.standard_normal((count, len(beats_T))), -3, 3)
    at_UT = np.repeat(beats_T + interval_s * late_MT, job.devices, axis=0)
    hits, gpu_K = [hit for hit in (struck, cause, *lesser.values()) if hit], np.array([name.startswith(_GPU) for name in names])
    values_UTK = _gauges(job, names, line, at_UT, hits, noise)
    heard_MT = _heard(look, job, gpu_K, values_UTK, at_UT, hits)
    labels = [f"gpu-{m:04d}" for m in range(count)] + ["spare-0000"] * exchange
    off_M, machine_MT = np.zeros(count), np.repeat(np.arange(count)[:, None], len(beats_T), axis=1)
    off_M[lesser["wrong_clock"].units_U[:: job.devices] if "wrong_clock" in lesser else []] = look.uniform(-120, 120)
    if exchange and cause:  # a spare takes over the work, and with it the habits of the sensors, of the machine that goes
        machine_MT[(at_UT[:: job.devices] > cause.start_s + 30) & (machine_MT == plight.integers(count))] = count
    values_MDTK, devices = values_UTK.reshape(count, job.devices, -1, len(names)), [-1, *range(job.devices if job.devices > 1 else 0)]
    parts_DNK = [np.where((gpu_K == (d >= 0)) | (len(devices) == 1), values_MDTK[:, max(d, 0)][heard_MT], np.nan) for d in devices]
    stamped_N = (_START_S + at_UT[:: job.devices] + off_M[:, None])[heard_MT]
    named = tuple(labels[m] for m in np.unique(np.flatnonzero(struck.units_U) // job.devices)) if struck else ()
    grouped = struck is not None and struck.kind.where in _GROUPS
    truth = Truth(
        named if not grouped else (), named if grouped else (), fault_name, _START_S + max(struck.start_s, 0.0) if struck else None,
        _START_S + struck.end_s if struck and struck.end_s < long_s else None, bool(struck and struck.kind.grey), cause_name, tuple(lesser),
    )  # fmt: skip
    shows, who = look.random(4) < (0.8, 0.9, 0.7, 0.6), list(enumerate(labels[:count]))
    return World(
        NAME, seed, tuple(labels), names, interval_s, job.step_s, np.tile(stamped_N, len(devices)),
        np.tile(machine_MT[heard_MT], len(devices)), np.repeat(devices, len(stamped_N)), np.concatenate(parts_DNK), truth,
        tuple(f"gpu{d}" for d in devices[1:]),
        {name: m % job.stages for m, name in who[: job.trainers]} if job.stages > 1 and shows[0] else {},
        {name: "trainer" if m < job.trainers else "rollout" for m, name in who} if job.trainers < count and shows[1] else {},
        {name: f"rack{m // job.rack}" for m, name in who if shows[2]}, {name: f"leaf{m // job.switch}" for m, name in who if shows[3]},
        {name: float(off_M[m]) for m, name in who if off_M[m]},
    )  # fmt: skip
