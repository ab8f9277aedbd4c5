"""What exporters make of the plant: they count, are scraped at their own times, and now and then say what is not so.

Legend: R scrapes of a machine, M machines, G devices of a row's machine, K metrics of one exporter, D samples due at one tick.
"""

from __future__ import annotations

import numpy as np

from minder.simulate.worlds.families.fluid.levers import Lie
from minder.simulate.worlds.families.fluid.nuisances import Nuisances
from minder.simulate.worlds.families.fluid.plant import Plant
from minder.simulate.worlds.families.fluid.site import FABRIC, GPU, JOB, NODE, Site, stream

__all__ = ["Exporter", "Rows", "exporters_of", "gather"]

Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, tuple[str, ...]]  # times, machines, devices, values; metrics

_COUNTED = frozenset(  # exported as counters, so that a rate is the mean between two scrapes
    {
        "tcp_throughput_bytes_per_second", "tcp_retransmits_per_second", "rdma_throughput_bytes_per_second", "pfc_tx_packets_per_second",
        "ecn_packets_per_second", "cnp_packets_per_second", "rdma_xmit_wait_per_second", "link_errors_per_second", "cpu_usage_ratio",
    }
)  # fmt: skip
_TOTALS = frozenset({"link_downs_total", "gpu_ecc_uncorrectable_total", "gpu_rows_remapped_total", "steps_total"})
_GRAIN = {
    "gpu_duty_cycle_ratio": 0.01, "gpu_temperature_celsius": 1.0, "gpu_clock_hertz": 1.5e7, "gpu_throttle_reasons": 1.0,
    "gpu_ecc_uncorrectable_total": 1.0, "gpu_rows_remapped_total": 1.0, "pcie_link_width": 1.0, "link_downs_total": 1.0,
    "steps_total": 1.0, "gpu_power_draw_watts": 0.1,
}  # fmt: skip
_SURE = _TOTALS | {
    "gpu_throttle_reasons",
    "pcie_link_width",
    "gpu_temperature_celsius",
    "gpu_clock_hertz",
    "step_seconds",
    "disk_usage_ratio",
}
_NOISE = {
    "link_errors_per_second": 0.3,
    "tcp_throughput_bytes_per_second": 0.08,
    "cnp_packets_per_second": 0.1,
    "ecn_packets_per_second": 0.1,
    "memory_usage_ratio": 0.002,
    "gpu_memory_used_ratio": 0.001,
}


class Exporter:
    """One exporter on every machine. names: what it exports; devices: whether it has a row for each GPU."""

    def __init__(self, site: Site, parts: tuple[str, ...], names: tuple[str, ...], number: int, period_s: float) -> None:
        self.site, self.parts, self.names, self._rng = site, parts, names, stream(site.seed, 20 + number)
        self.devices = site.device_rows and parts == ("gpu",)
        scrapes = max(int(site.duration_s // period_s), 2)
        offset_M = self._rng.uniform(0, min(period_s, site.duration_s / scrapes), site.machines)
        jitter_RM = self._rng.exponential(0.02 * min(period_s, 5.0), (scrapes, site.machines))
        self.times_RM = np.minimum(offset_M + np.arange(scrapes)[:, None] * period_s + jitter_RM, site.duration_s - 0.01)
        ticks = self.times_RM.astype(int).ravel()
        self._order = np.argsort(ticks, kind="stable")
        self._bounds = np.searchsorted(ticks[self._order], np.arange(site.ticks + 1))
        rows = site.per_machine if self.devices else 1
        self.values = np.full((scrapes, site.machines, rows, len(names)), np.nan)
        self.there = np.ones((scrapes, site.machines, rows), bool)
        self._counted = [name for name in names if name in _COUNTED]
        self._sum_KM = np.zeros((len(self._counted), site.machines))

    def due(self, tick: int) -> bool:
        """Whether any machine is scraped within this second."""
        return bool(self._bounds[tick + 1] > self._bounds[tick])

    def _read(self, plant: Plant) -> np.ndarray:
        """(M, G, K) what could be measured now; of counters, what they have counted."""
        site = self.site
        read = np.empty((site.machines, self.values.shape[2], len(self.names)))
        for k, name in enumerate(self.names):
            if name in plant.unit:
                by_unit = plant.unit[name].reshape(site.machines, -1)
                read[:, :, k] = by_unit if self.devices else self._over_machine(name, by_unit)
            elif name in _COUNTED:
                read[:, 0, k] = self._sum_KM[self._counted.index(name)]
            else:
                read[:, 0, k] = plant.host[name] if name in plant.host else plant.port[name]
        return read

    @staticmethod
    def _over_machine(name: str, by_unit: np.ndarray) -> np.ndarray:
        if by_unit.shape[1] == 1:
            return by_unit
        if name == "gpu_throttle_reasons":
            return np.asarray(by_unit.max(axis=1, keepdims=True))
        if name == "pcie_link_width":
            return np.asarray(by_unit.min(axis=1, keepdims=True))
        if name in _TOTALS:
            return np.asarray(by_unit.sum(axis=1, keepdims=True))
        return np.asarray(by_unit.mean(axis=1, keepdims=True))

    def watch(self, plant: Plant, tick: int) -> None:
        """Follow the plant by a second, and write down the samples that are due."""
        for k, name in enumerate(self._counted):
            self._sum_KM[k] += plant.host[name] if name in plant.host else plant.port[name]
        if not self.due(tick):
            return
        scrape_D, machine_D = np.divmod(self._order[self._bounds[tick] : self._bounds[tick + 1]], self.site.machines)
        self.values[scrape_D, machine_D] = self._read(plant)[machine_D]
        alive_D = plant.host["alive"][machine_D] > 0.5
        present = plant.unit["present"].reshape(self.site.machines, -1)[machine_D] > 0.5
        self.there[scrape_D, machine_D] = alive_D[:, None] & (present if self.devices else True)

    def finish(self, lies: list[Lie], gaps: float) -> None:
        """Counters become rates, sensors get their grain and noise, then come the lies."""
        seconds = np.maximum(np.diff(np.floor(self.times_RM), axis=0), 1.0)[:, :, None]
        for k, name in enumerate(self.names):
            value = self.values[..., k]
            if name in _COUNTED:
                value[1:] = np.maximum(np.diff(value, axis=0), 0.0) / seconds
                value[0] = np.nan
            noise = self._rng.standard_normal(value.shape, np.float32)
            if name not in _SURE:
                size = _NOISE.get(name, 0.012)
                value *= np.exp(size * noise + size * 0.15 * noise**3)
            if name in _GRAIN:
                value[:] = np.rint(value / _GRAIN[name]) * _GRAIN[name]
            if name.endswith("_ratio"):
                value.clip(0.0, 1.0, out=value)
        lost_RM = self._rng.random(self.times_RM.shape) < gaps + 0.002
        self.there &= ~lost_RM[:, :, None]
        if self.site.lead_only:
            self.values[:, 1:, :, [k for k, name in enumerate(self.names) if name in JOB]] = np.nan
        for lie in lies:
            if lie.exporter == "all" or lie.exporter in self.parts:
                self._lie(lie)

    def _lie(self, lie: Lie) -> None:
        m = lie.machine
        inside = np.flatnonzero((self.times_RM[:, m] >= lie.start_s) & (self.times_RM[:, m] < lie.end_s))
        own = {"gpu": GPU, "node": NODE, "fabric": FABRIC, "job": JOB, "all": self.names}[lie.exporter]
        columns = [k for k, name in enumerate(self.names) if name in own and (lie.metric is None or name == lie.metric)]
        if not inside.size or not columns:
            return
        cells = np.ix_(inside, np.array([m]), np.arange(self.values.shape[2]), np.array(columns))
        if lie.kind == "silent":
            self.there[inside, m] = False
        elif lie.kind == "missing":
            self.values[cells] = np.nan
        elif lie.kind == "zero":
            self.values[cells] = 0.0
        elif lie.kind == "unit":
            self.values[cells] *= lie.factor
        elif lie.kind == "stuck":
            self.values[cells] = self.values[max(inside[0] - 1, 0), m][None, None][..., columns]
        elif lie.kind == "noise":
            shuffled = (self._rng.random(inside.size) * inside).astype(int)  # of its own past
            self.values[cells] = self.values[shuffled][:, [m]][..., columns] * self._rng.choice([0.0, 0.3, 1.0], (inside.size, 1, 1, 1))
        else:  # counts from zero again
            for k in columns:
                if self.names[k] in _TOTALS - {"steps_total"}:
                    self.values[inside, m, :, k] -= self.values[inside[0], m, :, k]


def exporters_of(site: Site) -> list[Exporter]:
    """The site's exporters: one of everything, or one for GPUs (a row for each, or their mean), one for the node, one for the fabric."""
    wanted = {"gpu": GPU, "node": NODE + JOB, "fabric": FABRIC}
    kept = {part: tuple(name for name in names if name in site.metrics) for part, names in wanted.items()}
    rng = stream(site.seed, 7)
    slower = {"gpu": 1.0, "node": float(rng.choice([1.0, 1.0, 2.0, 3.0])), "fabric": float(rng.choice([1.0, 2.0, 3.0]))}
    if site.joined and not site.device_rows:
        return [Exporter(site, ("gpu", "node", "fabric", "job"), kept["gpu"] + kept["node"] + kept["fabric"], 0, site.scrape_s)]
    parts = [(("gpu",), kept["gpu"]), (("node", "job"), kept["node"]), (("fabric",), kept["fabric"])]
    return [
        Exporter(site, part, names, number, min(site.scrape_s * slower[part[0]], 30.0))
        for number, (part, names) in enumerate(parts)
        if names
    ]


def gather(site: Site, exporters: list[Exporter], nuisances: Nuisances) -> Rows:
    """times, machine, device, values (N, K) of all exporters' rows, and the metrics' names; times in UTC as the machines stamp them."""
    metrics = tuple(name for exporter in exporters for name in exporter.names)
    times, machines, devices, values = [], [], [], []
    for exporter in exporters:
        there = exporter.there & np.isfinite(exporter.values).any(axis=-1)
        scrape_N, machine_N, row_N = np.nonzero(there)
        wide = np.full((scrape_N.size, len(metrics)), np.nan)
        wide[:, [metrics.index(name) for name in exporter.names]] = exporter.values[there]
        times.append(exporter.times_RM[scrape_N, machine_N] + site.start_s + nuisances.clock_off_M[machine_N])
        machines.append(machine_N)
        devices.append(row_N if exporter.devices else np.full(row_N.size, -1))
        values.append(wide)
    return np.concatenate(times), np.concatenate(machines), np.concatenate(devices), np.concatenate(values), metrics
