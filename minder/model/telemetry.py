"""What arrives from machines: samples, aligned windows, connections, tries to reach a peer, and what an incident keeps of them.

Plain and frozen, standard library only: agents load this module too. Shape legend: T grid rows (time), M machines, K metrics. Times are
unix seconds (UTC).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from minder.model.job_mode import JobMode

__all__ = ["ConnectivityProbe", "ExcerptPanel", "Flow", "Sample", "TelemetryExcerpt", "Window"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One scrape of one machine (or one device of it): canonical metric name to value, base units."""

    time_s: float
    machine: str
    values: Mapping[str, float]
    device: str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Aligned telemetry: the grid rows that are new since the last window.

    values_TMK is float with NaN where there is no data. device_TMK, if present, names the index of the most
    deviating device for evidence (-1: none). present_TM is True where the machine was scraped at all in that row.
    mode is what the job was doing at the last row, None where it is not known yet.
    """

    times_T: np.ndarray
    machines: tuple[str, ...]
    metrics: tuple[str, ...]
    values_TMK: np.ndarray
    present_TM: np.ndarray
    device_TMK: np.ndarray | None = None
    devices: tuple[str, ...] = ()
    low_TMK: np.ndarray | None = None  # smallest and largest device of the machine, NaN without devices
    high_TMK: np.ndarray | None = None
    mode: JobMode | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """One TCP connection of the job, as one end's kernel sees it (NETLINK_SOCK_DIAG).

    Times are ages in seconds at the sample. Addresses are "ip:port". unanswered_probes: window probes in a row that nothing came
    back for, not even an acknowledgement. unsent_bytes: of the send queue, what has not been handed to the network; 0 where the
    kernel (before Linux 4.6) does not tell.
    """

    machine: str
    time_s: float
    pid: int
    local: str
    remote: str
    receive_queue_bytes: int
    send_queue_bytes: int
    unacked_segments: int
    retransmits: int
    backoff: int
    round_trip_s: float
    bytes_acked: int
    bytes_received: int
    last_send_age_s: float
    last_receive_age_s: float
    unanswered_probes: int = 0
    unsent_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ConnectivityProbe:
    """One try of a machine to reach a peer's address over the job's network; `reached` if anything there answered, or refused.

    Addresses are IPs without a port.
    """

    machine: str
    time_s: float
    local: str
    remote: str
    reached: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class ExcerptPanel:
    """One metric at the times of its excerpt, in its base unit, None without data. low, middle, high: the peers; line: the machine."""

    low: tuple[float | None, ...]
    middle: tuple[float | None, ...]
    high: tuple[float | None, ...]
    line: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class TelemetryExcerpt:
    """Some minutes of a few metrics of an accused machine around its fault, against its `peers` machines. Its size is bounded."""

    machine: str
    fault_s: float
    verdict_s: float
    peers: int
    times: tuple[float, ...]
    metrics: Mapping[str, ExcerptPanel]
