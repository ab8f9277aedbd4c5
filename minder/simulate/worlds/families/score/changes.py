"""Changes of regime: faults, causes and nuisances as one kind of thing, which differ in whom they touch and in whether the job waits.

Sizes are those of the field: a throttled GPU keeps 50 to 80 % of its clock, a bad NIC 30 to 70 % of its rate, congestion surges by
three to twenty times, a job loses 5 to 50 % of its time to a grey fault (ByteRobust, MegaScale, Minder's cases).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["CAUSES", "FAULTS", "NUISANCES", "Change"]

Size = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Change:
    """says: one sentence. shift: metric to the move of its score, smallest and largest. wait: share of its time that the job loses.

    own: regime of those that are touched while the others wait. form: how it goes in time (forms.py). lasts: seconds, None to the end.
    scale: of their noise. loose: share of their tie to the common factors that is lost. marks: what no score expresses (samples.py).
    who: one, two, rack, switch, stage, all. device: a single device in worlds with devices. weight: how often it is drawn.
    """

    says: str
    shift: Mapping[str, Size] = field(default_factory=dict)
    wait: Size = (0.0, 0.0)
    own: str = "busy"
    form: str = "step"
    lasts: Size | None = None
    scale: float = 1.0
    loose: float = 0.0
    marks: tuple[str, ...] = ()
    who: str = "one"
    grey: bool = True
    device: bool = False
    weight: float = 1.0


CPU, MEM, DISK, HELD = "cpu_usage_ratio", "memory_usage_ratio", "disk_usage_ratio", "cpu_throttled_ratio"
CLOCK, POWER, HEAT, SM = "gpu_clock_hertz", "gpu_power_draw_watts", "gpu_temperature_celsius", "gpu_sm_activity_ratio"
DUTY, TENSOR, BAND = "gpu_duty_cycle_ratio", "gpu_tensor_activity_ratio", "gpu_memory_bandwidth_ratio"
NVLINK, PCIE, RDMA = "nvlink_bandwidth_bytes_per_second", "pcie_bandwidth_bytes_per_second", "rdma_throughput_bytes_per_second"
PFC, ECN, CNP, XMIT = "pfc_tx_packets_per_second", "ecn_packets_per_second", "cnp_packets_per_second", "rdma_xmit_wait_per_second"
ERRORS, TCP, RTT = "link_errors_per_second", "tcp_throughput_bytes_per_second", "tcp_round_trip_seconds"
RESENT, QUEUE_IN, QUEUE_OUT = "tcp_retransmits_per_second", "tcp_receive_queue_bytes", "tcp_send_queue_bytes"
JOB_CPU, JOB_BUSY, JOB_MEM, USED = "job_cpu_ratio", "job_busy_ratio", "job_memory_bytes", "gpu_memory_used_ratio"

_SLOW_CLOCK: Mapping[str, Size] = {CLOCK: (-0.22, -0.6), POWER: (-0.25, -0.6), HEAT: (-4.0, -12.0)}
_HOT: Mapping[str, Size] = {HEAT: (14.0, 26.0), CLOCK: (-0.2, -0.6), POWER: (-0.15, -0.5)}
_CROWDED: Mapping[str, Size] = {PFC: (1.4, 3.2), ECN: (0.9, 2.4), CNP: (0.9, 2.4), XMIT: (0.8, 2.2)}  # more than the median's surge

FAULTS: Mapping[str, Change] = {
    "clock_flat": Change("A GPU's clock stays flat well below its peers' and nothing else is wrong.",
        _SLOW_CLOCK, (0.15, 0.42), device=True, weight=1.6),
    "throttle_waves": Change("A hot GPU throttles, recovers and throttles again.",
        _HOT, (0.12, 0.4), form="waves", marks=("thermal",), device=True, weight=1.4),
    "fan_decline": Change("A fan fails: the machine warms for minutes and then clocks down.",
        _HOT, (0.1, 0.35), form="growth", marks=("thermal",)),
    "power_brake": Change("A power supply fails and the machine runs under its power brake.",
        {CLOCK: (-0.3, -0.6), POWER: (-0.35, -0.7), HEAT: (-5.0, -14.0)}, (0.2, 0.45), marks=("brake",)),
    "nvlink_lane": Change("One NVLink lane is lost and the machine's tensor group is slower.",
        {NVLINK: (-0.15, -0.5), SM: (0.12, 0.4), TENSOR: (-0.05, -0.2), POWER: (-0.03, -0.12), PCIE: (0.2, 0.9)},
        (0.06, 0.3), device=True),
    "dirty_optics": Change("Dirty optics: symbol errors and congestion counters at a few times the neighbours'.",
        {ERRORS: (5.5, 8.5), **_CROWDED, RESENT: (0.8, 2.0)}, (0.04, 0.25), own="spin", form="ramp", weight=1.4),
    "slow_nic": Change("A NIC negotiated down: 30 to 70 % of its rate, and its queues fill.",
        {**_CROWDED, RDMA: (-0.02, -0.1), RTT: (0.2, 0.9)}, (0.1, 0.45), own="spin", weight=1.4),
    "pcie_narrow": Change("A PCIe link trained down to fewer lanes: buffers fill and the whole job is slower.",
        {PFC: (1.6, 3.5), CNP: (0.8, 2.0), PCIE: (-0.15, -0.6), SM: (-0.05, -0.2)}, (0.1, 0.4), own="idle", marks=("width",), weight=1.2),
    "cpu_hog": Change("Another process takes the processors: they are far up and the machine's GPUs starve.",
        {CPU: (1.8, 3.4), SM: (-0.15, -0.6), HELD: (0.5, 3.0), JOB_BUSY: (0.1, 0.5), RTT: (0.1, 0.6)}, (0.1, 0.45), own="idle", weight=1.2),
    "local_storage": Change("The storage of one machine is slow: its loader starves its GPUs while the others spin.",
        {CPU: (-0.3, -0.8), TCP: (-0.6, -2.0), DISK: (0.0, 0.1), JOB_BUSY: (-0.4, -1.2)}, (0.12, 0.5), own="idle", form="waves"),
    "link_flaps": Change("A link goes down and up again, and the counter of one machine climbs.",
        {RDMA: (-0.5, -2.5), ERRORS: (5.0, 8.0), PFC: (0.8, 2.0), RESENT: (1.0, 2.5)}, (0.4, 0.9), own="spin", form="flaps",
        marks=("downs",)),
    "memory_leak": Change("The host memory of one machine leaks until it swaps.",
        {MEM: (1.6, 3.6), CPU: (0.3, 1.2), JOB_MEM: (0.5, 1.0), SM: (-0.1, -0.4)}, (0.08, 0.35), own="idle", form="growth"),
    "freezes": Change("A machine freezes for seconds, again and again.",
        {CPU: (-0.8, -2.0), JOB_CPU: (-0.8, -2.0), TCP: (-0.5, -1.5)}, (0.7, 0.95), own="idle", form="pulses"),
    "memory_errors": Change("A GPU's memory throws errors and remaps rows: it goes on, slower.",
        {BAND: (-0.2, -0.6), TENSOR: (-0.1, -0.35), POWER: (-0.05, -0.2)}, (0.08, 0.3), marks=("rows", "ecc_slow"), device=True),
    "clock_jitter": Change("A loose card: clocks and power jump about at many times the usual spread.",
        {CLOCK: (-0.08, -0.25), POWER: (-0.06, -0.2)}, (0.08, 0.28), scale=7.0, device=True),
    "preempted": Change("A neighbour on the host takes cores in turns, and the machine no longer moves with its peers.",
        {CPU: (0.8, 2.0), SM: (-0.2, -0.7), POWER: (-0.06, -0.2), JOB_CPU: (-0.2, -0.6)}, (0.1, 0.35), own="idle", scale=3.0, loose=0.9),
    "hang": Change("One rank stops in host code, and all others spin in a collective.",
        {JOB_CPU: (-1.0, -2.5), CPU: (-0.3, -1.0)}, (1.0, 1.0), own="idle", grey=False, weight=2.0),
    "kernel_stuck": Change("A kernel of one GPU never ends: its SMs stay busy while the others only wait.",
        {SM: (0.6, 1.6), POWER: (0.1, 0.35), BAND: (0.5, 2.0), CLOCK: (-0.01, -0.05)}, (1.0, 1.0), own="spin", grey=False, device=True),
    "gpu_lost": Change("A GPU falls off the bus and the job stops.",
        {CPU: (0.1, 0.4)}, (1.0, 1.0), own="gone", grey=False, marks=("blind",), device=True, weight=1.2),
    "machine_lost": Change("A machine is no longer heard of.", {}, (1.0, 1.0), own="gone", grey=False, marks=("silent",), weight=1.4),
    "ecc_stop": Change("An uncorrectable memory error ends one rank, and the others wait for it.",
        {CPU: (0.1, 0.4)}, (1.0, 1.0), own="gone", grey=False, marks=("ecc",), device=True, weight=1.6),
    "nic_down": Change("A NIC goes down for good: its traffic ends and the others wait.",
        {RDMA: (-2.0, -6.0), ERRORS: (4.0, 7.0), SM: (-0.1, -0.5), QUEUE_OUT: (1.0, 3.0)}, (1.0, 1.0), own="spin", grey=False,
        marks=("downs",)),
    "disk_full": Change("A disk fills and one rank cannot finish its checkpoint.",
        {DISK: (5.0, 7.0), CPU: (0.4, 1.2), JOB_MEM: (0.1, 0.3)}, (1.0, 1.0), own="idle", grey=False),
    "crash": Change("A process dies of an error in its CUDA context; its peers wait for the timeout.",
        {TCP: (0.5, 2.0)}, (1.0, 1.0), own="gone", grey=False, weight=1.4),
    "lockup": Change("A kernel locks up: the exporter repeats its last values while all others stop.",
        {}, (1.0, 1.0), own="busy", grey=False, marks=("frozen",)),
    "mount_dead": Change("One machine's mount hangs: its processes sleep without end in the kernel.",
        {CPU: (-0.8, -1.6), TCP: (-2.0, -4.0), QUEUE_IN: (1.0, 3.0), JOB_BUSY: (0.5, 1.5)}, (1.0, 1.0), own="idle", grey=False,
        marks=("stopped",)),
    "two_slow": Change("Two machines at once run at a clock well below their peers'.", _SLOW_CLOCK, (0.15, 0.42), who="two", weight=0.9),
    "rack_capped": Change("A rack's power is capped, and all of its machines clock down.",
        {CLOCK: (-0.2, -0.5), POWER: (-0.25, -0.55), HEAT: (-3.0, -9.0)}, (0.12, 0.35), who="rack", marks=("brake",)),
    "switch_crowded": Change("A switch with a bad uplink: all machines below it are congested.",
        {**_CROWDED, ERRORS: (1.0, 4.0)}, (0.08, 0.4), own="spin", who="switch"),
    "rack_dead": Change("A rack loses power: its machines are silent, minutes before the others stop or at once.",
        {}, (1.0, 1.0), own="gone", grey=False, who="rack", marks=("silent", "late_peers"), weight=0.7),
    "switch_down": Change("A switch goes down: its machines' traffic ends before that of the rest.",
        {RDMA: (-3.0, -6.0), ERRORS: (3.0, 6.0), SM: (-0.2, -0.6)}, (1.0, 1.0), own="spin", grey=False, who="switch",
        marks=("downs", "late_peers"), weight=0.7),
    "stage_slow": Change("One pipeline stage runs hot and clocks down on every machine.",
        {HEAT: (8.0, 16.0), CLOCK: (-0.15, -0.4), POWER: (-0.1, -0.3)}, (0.1, 0.3), who="stage", marks=("thermal",), weight=0.6),
}  # fmt: skip

CAUSES: Mapping[str, Change] = {
    "storage_slow": Change("Shared storage is slow for all machines.", {TCP: (0.3, 1.5), CPU: (-0.1, -0.4), RTT: (0.2, 0.8)},
        (0.15, 0.6), own="idle", form="ramp", lasts=(120, 900), who="all"),
    "congestion": Change("The fabric is congested for all.", {**_CROWDED, RDMA: (-0.02, -0.1)}, (0.1, 0.4), own="spin", form="waves",
        lasts=(120, 1200), who="all"),
    "data_slow": Change("Data loading is slow for all: GPUs wait in turns.", {CPU: (0.2, 0.9)}, (0.1, 0.5), own="stall", form="waves",
        lasts=(120, 900), who="all"),
    "restart": Change("The job restarts from its checkpoint.", {}, (1.0, 1.0), own="gone", lasts=(40, 150), who="all", marks=("cold",)),
    "exchange": Change("The job restarts with a spare in the place of a machine.", {}, (1.0, 1.0), own="gone", lasts=(60, 200), who="all",
        marks=("cold", "swap")),
    "long_evaluation": Change("A long evaluation of all machines.", {}, (1.0, 1.0), own="evaluation", lasts=(150, 500), who="all"),
    "long_checkpoint": Change("A checkpoint takes minutes on all machines.", {}, (1.0, 1.0), own="checkpoint", lasts=(60, 250), who="all"),
    "load_shift": Change("Batches or sequences change: all work more, or less.", {POWER: (-0.15, 0.1), TENSOR: (-0.5, 0.3), SM: (-0.3, 0.2),
        RDMA: (-0.6, 0.4), NVLINK: (-0.5, 0.3)}, form="ramp", who="all"),
    "job_end": Change("The job ends.", {}, (1.0, 1.0), own="gone", who="all"),
    "deadlock": Change("A user's bug: all ranks wait for each other.", {}, (1.0, 1.0), own="spin", who="all", weight=0.8),
    "hall_warm": Change("The hall warms by several degrees.", {HEAT: (4.0, 10.0), POWER: (0.005, 0.02)}, form="growth", who="all"),
    "grid_cap": Change("All GPUs are capped for a while to spare the site's power.", {POWER: (-0.15, -0.4), CLOCK: (-0.1, -0.35),
        HEAT: (-3.0, -8.0)}, (0.08, 0.3), own="training", lasts=(200, 1500), who="all", marks=("brake",)),
    "scrapes_lost": Change("The collector drops most samples of all machines for a while.", {}, lasts=(40, 240), who="all",
        marks=("gaps",), weight=0.7),
    "metric_lost": Change("One metric is no longer exported by any machine.", {}, who="all", marks=("no_metric",), weight=0.6),
}  # fmt: skip

NUISANCES: Mapping[str, Change] = {
    "exporter_restart": Change("An exporter restarts and leaves a gap.", lasts=(20, 90), marks=("silent",), weight=1.4),
    "agent_lost": Change("An agent is lost for minutes while its machine works on.", lasts=(120, 900), marks=("silent",)),
    "stale_exporter": Change("An exporter repeats its last values for minutes while its machine works on.", lasts=(60, 500),
        marks=("frozen",)),
    "broken_metric": Change("One metric of one machine reads zero or is gone.", marks=("broken",)),
    "second_tenant": Change("A second tenant uses processors and network that the job does not need.",
        {CPU: (0.6, 2.2), TCP: (1.0, 3.5), MEM: (0.2, 1.0), RTT: (0.05, 0.3)}, form="waves", lasts=(200, 1500), weight=1.4),
    "hot_aisle": Change("A hot aisle warms a rack, which does not throttle.", {HEAT: (4.0, 11.0)}, form="ramp", who="rack"),
    "warm_slot": Change("A slot is warm from the first row on.", {HEAT: (6.0, 13.0), POWER: (0.01, 0.04)}, form="ever", weight=1.2),
    "uneven_share": Change("A machine has more or less of the work than the others, always.", {SM: (-0.35, 0.3), TENSOR: (-0.4, 0.3),
        POWER: (-0.1, 0.07), USED: (-0.4, 0.3), BAND: (-0.3, 0.25)}, form="ever", weight=1.2),
    "rank_zero": Change("The first machine writes logs and checkpoints for all, in bursts.", {CPU: (0.4, 1.4), TCP: (0.8, 3.0),
        DISK: (0.0, 0.1), SM: (-0.05, -0.3), JOB_CPU: (0.1, 0.4)}, form="pulses", weight=1.2),
    "clock_late": Change("A machine's clock is off by up to two minutes.", form="ever", marks=("clock",), weight=0.8),
    "old_link": Change("A link has more errors and marks than the others, always, and the job does not mind.",
        {ERRORS: (3.0, 6.0), CNP: (0.4, 1.4), PFC: (0.4, 1.4)}, form="ever", weight=1.2),
    "spare_port": Change("A redundant port goes down once; the other carries its traffic.", {ERRORS: (2.0, 5.0)}, lasts=(10, 60),
        marks=("downs",)),
    "housekeeping": Change("Log rotation, scrubbing or a backup: processors and disk for some minutes.", {CPU: (0.5, 1.8),
        DISK: (0.05, 0.3), TCP: (0.3, 2.0), HELD: (0.3, 1.5)}, lasts=(60, 500), weight=1.4),
    "unit_slip": Change("After an update an agent exports one metric in another unit.", marks=("units",), weight=0.7),
    "slow_silicon": Change("Poorer silicon: a clock a few per cent lower, which the step time hides.", {CLOCK: (-0.03, -0.09),
        POWER: (0.01, 0.05)}, form="ever"),
    "noisy_sensor": Change("A sensor is noisy at several times the usual spread.", form="ever", scale=3.5),
    "row_remap": Change("A GPU remaps a row once, without consequence.", marks=("rows",), lasts=(10, 20), device=True),
    "crowded_port": Change("A neighbouring job crowds one port; the job has slack there.", _CROWDED, form="waves", lasts=(100, 900)),
    "warm_spell": Change("A machine is warm for minutes, below its limit.", {HEAT: (5.0, 14.0)}, form="ramp", lasts=(200, 1200)),
    "cache_growth": Change("A page cache grows over the whole recording.", {MEM: (0.3, 1.2)}, form="growth"),
    "lanes_asleep": Change("A PCIe link is read at fewer lanes for a while; the job does not need them.", lasts=(20, 120), marks=("width",),
        weight=0.6),
}  # fmt: skip
