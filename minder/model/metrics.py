"""The metric catalogue: canonical names, units, ranges, and what each says about a fault (docs/recordings.md).

`minder_` + canonical name is what our own exporter calls a metric; a counter's exported name ends in `_total`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CATALOGUE", "Metric", "find_metric", "is_spoken"]

Family = Literal["host", "gpu", "interconnect", "network", "tcp", "job"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One canonical metric. low/high: values outside are impossible, in the metric's unit.

    `spoken`: not to be compared between machines: what it says comes as a signal (minder.ingest.sources.spoken), and no window holds it.
    `counter`: the total of events so far, not a rate; only its growth means anything.
    `synchronous`: moves with the training step, so peers move together.
    """

    name: str
    unit: str
    low: float
    high: float
    family: Family
    counter: bool = False
    synchronous: bool = False
    spoken: bool = False


_HUGE = 1e15

CATALOGUE: tuple[Metric, ...] = (
    Metric("cpu_usage_ratio", "ratio", 0.0, 1.0, "host"),
    Metric("memory_usage_ratio", "ratio", 0.0, 1.0, "host"),
    Metric("disk_usage_ratio", "ratio", 0.0, 1.0, "host"),
    Metric("cpu_throttled_ratio", "ratio", 0.0, 1.0, "host"),
    Metric("processes_stopped", "1", 0.0, 1e6, "host"),
    Metric("gpu_duty_cycle_ratio", "ratio", 0.0, 1.0, "gpu", synchronous=True),
    Metric("gpu_sm_activity_ratio", "ratio", 0.0, 1.0, "gpu", synchronous=True),
    Metric("gpu_tensor_activity_ratio", "ratio", 0.0, 1.0, "gpu", synchronous=True),
    Metric("gpu_graphics_activity_ratio", "ratio", 0.0, 1.0, "gpu", synchronous=True),
    Metric("gpu_fp_activity_ratio", "ratio", 0.0, 1.0, "gpu", synchronous=True),
    Metric("gpu_power_draw_watts", "W", 0.0, 5000.0, "gpu", synchronous=True),
    Metric("gpu_temperature_celsius", "°C", -20.0, 150.0, "gpu"),
    Metric("gpu_clock_hertz", "Hz", 0.0, 1e10, "gpu"),
    Metric("gpu_memory_used_ratio", "ratio", 0.0, 1.0, "gpu"),
    Metric("gpu_memory_bandwidth_ratio", "ratio", 0.0, 1.0, "gpu", synchronous=True),
    Metric("nvlink_bandwidth_bytes_per_second", "B/s", 0.0, 1e14, "interconnect", synchronous=True),
    Metric("pcie_bandwidth_bytes_per_second", "B/s", 0.0, 1e13, "interconnect", synchronous=True),
    Metric("rdma_throughput_bytes_per_second", "B/s", 0.0, 1e13, "network", synchronous=True),
    Metric("tcp_throughput_bytes_per_second", "B/s", 0.0, 1e13, "network"),
    Metric("pfc_tx_packets_per_second", "1/s", 0.0, 1e12, "network"),
    Metric("ecn_packets_per_second", "1/s", 0.0, 1e12, "network"),
    Metric("cnp_packets_per_second", "1/s", 0.0, 1e12, "network"),
    Metric("rdma_xmit_wait_per_second", "1/s", 0.0, 1e12, "network"),
    Metric("link_errors_per_second", "1/s", 0.0, 1e12, "network"),
    Metric("link_downs_total", "1", 0.0, _HUGE, "network", counter=True),
    Metric("gpu_ecc_uncorrectable_total", "1", 0.0, _HUGE, "gpu", counter=True),
    Metric("gpu_rows_remapped_total", "1", 0.0, _HUGE, "gpu", counter=True),
    Metric("gpu_throttle_reasons", "bit mask", 0.0, 2.0**63, "gpu"),
    Metric("pcie_link_width", "lanes", 1.0, 64.0, "interconnect"),
    Metric("tcp_receive_queue_bytes", "B", 0.0, 1e12, "tcp"),
    Metric("tcp_send_queue_bytes", "B", 0.0, 1e12, "tcp"),
    Metric("tcp_retransmits_per_second", "1/s", 0.0, 1e9, "tcp"),
    Metric("tcp_round_trip_seconds", "s", 0.0, 3600.0, "tcp"),
    Metric("step_seconds", "s", 0.0, 1e6, "job"),
    Metric("steps_total", "1", 0.0, _HUGE, "job", counter=True),
    # Ours, of no exporter: how a machine's training processes spend their time, seen from outside.
    Metric("job_cpu_ratio", "ratio", 0.0, 1e4, "job"),  # CPU seconds of the job's processes per second, in cores
    Metric("job_busy_ratio", "ratio", 0.0, 1.0, "job"),  # share of instants at which a main thread was not sleeping (R or D)
    Metric("job_run_delay_ratio", "ratio", 0.0, 1e4, "job"),  # seconds runnable but not running, per second (schedstat)
    Metric("job_alive_age_seconds", "s", 0.0, 1e9, "job"),  # since the oldest worker's background thread last ticked
    Metric("job_processes", "1", 0.0, 1e6, "job"),
    Metric("job_memory_bytes", "B", 0.0, 1e15, "job"),
    Metric("job_threads", "1", 0.0, 1e7, "job"),
    Metric("job_log_lines_total", "1", 0.0, _HUGE, "job", counter=True),  # lines of the job's logs; each state of a progress bar is one
    # What shows that a job gets on of which no step is read (docs/rules.md): of its processes, never of the machine.
    Metric("job_io_bytes_per_second", "B/s", 0.0, 1e13, "job"),  # read and written by system calls, page cache and pipes included
    Metric("job_tcp_bytes_per_second", "B/s", 0.0, 1e13, "job"),  # acknowledged and received over the ranks' own connections
    Metric("job_log_bytes_per_second", "B/s", 0.0, 1e13, "job"),  # by which the ranks' log files grow
    # As NCCL's Inspector counts them: operations that completed, and the bytes of their messages.
    Metric("nccl_operations_total", "1", 0.0, _HUGE, "job", counter=True),
    Metric("nccl_throughput_bytes_per_second", "B/s", 0.0, 1e15, "job"),
    Metric("oom_kills_total", "1", 0.0, _HUGE, "host", counter=True),
    # What a GPU's exporter calls its newest Xid: it keeps it until it is started again. And what a Prometheus says of each scrape.
    Metric("gpu_xid_code", "1", 0.0, 1e4, "gpu", spoken=True),
    Metric("scrape_up", "ratio", 0.0, 1.0, "host", spoken=True),
    Metric("scrape_seconds", "s", 0.0, 1e6, "host", spoken=True),
    Metric("scrape_samples", "1", 0.0, 1e9, "host", spoken=True),
)

_BY_NAME = {metric.name: metric for metric in CATALOGUE}


def find_metric(name: str) -> Metric | None:
    """The catalogue's entry, or None for a name that it does not have.

    >>> find_metric("gpu_power_draw_watts").unit
    'W'
    """
    return _BY_NAME.get(name)


def is_spoken(name: str) -> bool:
    """Whether what this metric says comes as a signal, and no window holds it."""
    metric = find_metric(name)
    return metric is not None and metric.spoken
