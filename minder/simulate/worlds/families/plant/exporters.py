"""What is read off the plant at each scrape, as this site's exporters read it: windows of a second, rates between scrapes, rounding, gaps.

Legend: S scrapes, M machines, G GPUs of a machine, T ticks, N samples, K metrics.
"""

from __future__ import annotations

import numpy as np

from minder.simulate.worlds.families.plant.changes import KERNEL, SPINNING, WAITING, Changes
from minder.simulate.worlds.families.plant.physics import SPIN, Trace, correlated
from minder.simulate.worlds.families.plant.site import Site, stream

__all__ = ["Samples", "scrape"]

Samples = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, tuple[str, ...]]  # times_N, machine_N, device_N, values_NK, metrics

_NETWORK = {
    True: ("rdma_xmit_wait_per_second",),  # a site with RoCE has no waits for credits
    False: ("pfc_tx_packets_per_second", "ecn_packets_per_second", "cnp_packets_per_second"),
}
# Deviation of what is read, of the value: meters, and what the windows of a second see of work that is not even.
_NOISE = {
    "gpu_power_draw_watts": 0.02, "gpu_clock_hertz": 0.001, "gpu_sm_activity_ratio": 0.02, "gpu_tensor_activity_ratio": 0.03,
    "gpu_duty_cycle_ratio": 0.006, "gpu_graphics_activity_ratio": 0.006, "gpu_memory_bandwidth_ratio": 0.03,
    "nvlink_bandwidth_bytes_per_second": 0.04, "pcie_bandwidth_bytes_per_second": 0.06, "rdma_throughput_bytes_per_second": 0.015,
    "tcp_throughput_bytes_per_second": 0.25, "tcp_retransmits_per_second": 0.7, "cpu_usage_ratio": 0.05, "memory_usage_ratio": 0.002,
    "pfc_tx_packets_per_second": 0.6, "ecn_packets_per_second": 0.45, "cnp_packets_per_second": 0.45, "rdma_xmit_wait_per_second": 0.5,
    "step_seconds": 0.004,
}  # fmt: skip
_LONG = ("network", "tcp_", "rdma", "pfc", "ecn", "cnp")  # spread as a lognormal
_WORST = {"gpu_power_draw_watts": np.max, "gpu_temperature_celsius": np.max, "gpu_clock_hertz": np.min, "gpu_throttle_reasons": np.max}
_COUNTED = ("gpu_ecc_uncorrectable_total", "gpu_rows_remapped_total", "link_downs_total")
_WHOLE = (*_COUNTED, "gpu_throttle_reasons", "pcie_link_width")


def scrape(site: Site, changes: Changes, trace: Trace, seed: int) -> Samples:
    """All samples of a recording; those of a silent machine are missing."""
    return _Scraper(site, changes, trace, seed).samples()


class _Scraper:
    def __init__(self, site: Site, changes: Changes, trace: Trace, seed: int) -> None:
        self.site, self.changes, self.trace, self.seed = site, changes, trace, seed
        self.law = stream(seed, 20)
        many = len(site.names)
        count = int(site.duration_s // site.scrape_s)
        offset_M = self.law.uniform(0.0, site.scrape_s, many) if self.law.random() < 0.7 else np.full(many, 0.4 * site.scrape_s)
        late_SM = np.minimum(self.law.exponential(0.02 * site.scrape_s, (count, many)), 0.4 * site.scrape_s)
        self.at_SM = np.arange(count)[:, None] * site.scrape_s + offset_M + late_SM
        self.tick_SM = np.clip((self.at_SM / site.tick_s).astype(np.int64), 0, site.ticks - 1)
        self.lost_SM = self.law.random((count, many)) < 0.003
        self.row_SM = np.broadcast_to(np.arange(many), self.at_SM.shape)
        self.durable = {name: stream(seed, 1000 + k) for k, name in enumerate(sorted((*_NOISE, *_WHOLE)))}
        self.edge_T = np.arange(len(trace.phase_T)) * site.tick_s

    def samples(self) -> Samples:
        """Columns; where GPUs have series of their own, a row of the host and a row of each GPU."""
        unused = _NETWORK[self.site.roce]
        metrics = tuple(name for name in self.site.metrics if name not in unused)
        gpu, host = self._gpu(), self._host()
        present_SM = ~self.lost_SM & (self._at("silent") == 0)
        chosen = np.nonzero(present_SM)
        times_N, machine_N = self.site.start_s + self.at_SM[chosen], chosen[1]
        parts = [(times_N, np.full(len(times_N), -1), self._table(metrics, host if self.site.per_gpu else {**host, **gpu}, chosen))]
        if self.site.per_gpu:
            for index in range(self.site.gpus):
                own = {name: value[..., index] for name, value in gpu.items()}
                parts.append((times_N, np.full(len(times_N), index), self._table(metrics, own, chosen)))
        every = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
        return every[0], np.tile(machine_N, len(parts)), every[1], every[2], metrics

    def _table(self, metrics: tuple[str, ...], held: dict[str, np.ndarray], chosen: tuple[np.ndarray, ...]) -> np.ndarray:
        values_NK = np.full((len(chosen[0]), len(metrics)), np.nan)
        for k, name in enumerate(metrics):
            if name not in held:
                continue
            value_SM = self._frozen(self._reduced(name, held[name]))
            if self.changes.moved("broken") and name != metrics[0]:
                wrong_SM = self._at("broken") == k
                value_SM = np.where(wrong_SM, value_SM * self._at("scaled") if name not in _COUNTED else 0.0, value_SM)
            values_NK[:, k] = value_SM[chosen]
        return values_NK

    def _reduced(self, name: str, value: np.ndarray) -> np.ndarray:
        """(S, M): the GPUs of a machine in one number, the mean or what shows the worst of them."""
        if value.ndim == 2:
            return value
        if name in _COUNTED:
            return np.asarray(value.sum(axis=-1))
        if name in _WHOLE or self.site.worst:
            reduce = np.min if name == "pcie_link_width" else _WORST.get(name, np.mean)
            return np.asarray(reduce(value, axis=-1))
        with np.errstate(invalid="ignore"):
            return np.asarray(np.nansum(value, axis=-1) / np.maximum((~np.isnan(value)).sum(axis=-1), 1))

    def _frozen(self, value_SM: np.ndarray) -> np.ndarray:
        """Gauges of a driver or exporter that answers with what it knew before."""
        if not self.changes.moved("stuck"):
            return value_SM
        stuck_SM = self._at("stuck") > 0
        fresh_SM = np.where(stuck_SM, 0, np.arange(len(value_SM))[:, None])
        return np.take_along_axis(value_SM, np.maximum.accumulate(fresh_SM, axis=0), axis=0)

    def _at(self, name: str) -> np.ndarray:
        """(S, M) or (S, M, G): a parameter at the scrapes."""
        held = self.changes.over(name)
        if not isinstance(held, np.ndarray):
            return np.full(self.at_SM.shape, held)
        return self._of(held)

    def _of(self, held: np.ndarray) -> np.ndarray:
        return np.asarray(held[self.tick_SM] if held.ndim == 1 else held[self.tick_SM, self.row_SM])

    def _phase(self, back_s: float) -> np.ndarray:
        return np.asarray(np.interp(self.at_SM - back_s, self.edge_T, self.trace.phase_T))

    def _noisy(self, name: str, value: np.ndarray) -> np.ndarray:
        """The value with its meter's lasting error and its noise: half of it with a memory of a minute, half of the moment."""
        size = _NOISE[name] * self.site.noise
        law = self.durable[name]
        shape = value.shape
        lasting = law.standard_normal(shape[1:], dtype=np.float32) * min(size, 0.25) * (0.5 if name == "gpu_duty_cycle_ratio" else 1.0)
        noise = correlated(law, shape[:2], self.site.scrape_s, float(law.uniform(40.0, 110.0)))
        if value.ndim == 3:
            noise = noise[:, :, None] + 0.5 * law.standard_normal(shape, dtype=np.float32)
        else:
            noise = noise + law.standard_normal(shape, dtype=np.float32)
        if name.startswith(_LONG):
            return np.asarray(value * np.exp(np.clip(0.8 * size * noise + lasting, -3.0, 3.0)))
        return np.asarray(value * (1.0 + 0.7 * size * noise + lasting))

    def _seen(self, share: np.ndarray, first: np.ndarray, moved: np.ndarray, phase: np.ndarray) -> np.ndarray:
        """How much more than its mean a window sees of what fills [first, first + share) of each step; 1 while no step moves."""
        still = moved < 1e-4
        size = np.clip(share, 1e-3, 1.0)

        def filled(at: np.ndarray) -> np.ndarray:
            whole = np.floor(at)
            return np.asarray(whole * size + np.clip(at - whole - first, 0.0, size))

        gain = (filled(phase) - filled(phase - np.where(still, 1.0, moved))) / (np.where(still, 1.0, moved) * size)
        return np.asarray(np.where(still, 1.0, gain))

    def _gpu(self) -> dict[str, np.ndarray]:
        """(S, M, G) by metric: all that GPUs and their links are asked for."""
        site, board, demand = self.site, self.site.board, self.site.demand
        phase_SM = self._phase(0.0)
        moved_SM = phase_SM - self._phase(site.window_s)
        work, lane, pause = self._of(self.trace.work_TMG), self._of(self.trace.lane_TMG), self._of(self.trace.pause_TM)[:, :, None]
        net = self._of(self.trace.net_T)[:, :, None]
        # In a step first the wait for input, then work with NVLink in between, then the wait for others, then what is left of the exchange.
        rate = np.maximum(work + lane + net + pause + np.clip(1.0 - work - lane - net - pause, 0.0, 1.0), 1e-6)
        seen_work = self._seen(work / rate, np.minimum(pause / rate, 0.9), moved_SM[..., None], phase_SM[..., None])
        seen_pause = self._seen(pause / rate, np.zeros_like(pause), moved_SM[..., None], phase_SM[..., None])
        seen_net = self._seen(net / rate, 1.0 - np.clip(net / rate, 1e-3, 1.0), moved_SM[..., None], phase_SM[..., None])
        work, lane, net = work * seen_work, lane * seen_work, net * seen_net
        pause = np.clip(np.where(pause > 0.98, pause, pause * seen_pause), 0.0, 1.0)
        rest = np.clip(1.0 - work - lane - net - pause, 0.0, 1.0)
        kernel = (self._at("halt") == KERNEL)[..., None]
        clock = self._of(self.trace.clock_TMG)
        bound = demand.flop / (demand.flop + demand.memory)
        power = board.idle_w + work * self._of(self.trace.draw_TMG)
        power = power + board.full_w * (SPIN["nvlink"] * lane + SPIN["net"] * net + SPIN["wait"] * rest + SPIN["kernel"] * kernel)
        idle = (pause > 0.98) & (np.asarray(site.fallow) < 0.5)
        duty = np.clip(1.0 - pause, 0.0, 1.0) + 0.0 * work
        held = {
            "gpu_duty_cycle_ratio": duty,
            "gpu_graphics_activity_ratio": duty * 0.985,
            "gpu_sm_activity_ratio": work * demand.occupied + 0.3 * lane + 0.16 * (net + rest) + 0.5 * kernel,
            "gpu_tensor_activity_ratio": work * bound * demand.tensor,
            "gpu_memory_bandwidth_ratio": work * (0.25 + 0.6 * (1.0 - bound)) + 0.1 * (lane + net) + 0.02 * rest,
            "gpu_power_draw_watts": power,
            "gpu_clock_hertz": np.where(idle, 0.2, clock) * board.clock_hz,
            "nvlink_bandwidth_bytes_per_second": board.link_bytes * (lane / max(demand.nvlink, 0.01) * 0.25 + 0.15 * net) + 2e5,
            "pcie_bandwidth_bytes_per_second": 1.2e9 * work + 0.3 * site.nic_bytes * net + 3e6,
        }
        held = {name: self._noisy(name, value) for name, value in held.items() if name in site.metrics}
        held |= self._plain()
        for name, value in held.items():
            if name.endswith("_ratio"):
                held[name] = np.round(np.clip(value, 0.0, 1.0), 2 if name in ("gpu_duty_cycle_ratio", "gpu_memory_bandwidth_ratio") else 4)
        if "gpu_power_draw_watts" in held:
            held["gpu_power_draw_watts"] = np.round(np.clip(held["gpu_power_draw_watts"], 5.0, 1.2 * board.full_w), 1)
        if "gpu_clock_hertz" in held:
            held["gpu_clock_hertz"] = np.round(held["gpu_clock_hertz"] / 15e6) * 15e6
        if self.changes.moved("absent"):
            absent = self._at("absent") > 0
            held = {name: np.where(absent, np.nan, value) for name, value in held.items()}
        return held

    def _plain(self) -> dict[str, np.ndarray]:
        """What is not a share of the step: temperature, memory, reasons, counters, lanes."""
        site, law, shape = self.site, stream(self.seed, 21), (len(self.site.names), self.site.gpus)
        many = self.at_SM.shape
        hot, locked = self._of(self.trace.hot_TMG) > 0.5, self._at("lock")
        locked = locked if locked.ndim == 3 else locked[..., None]
        capped = self._of(self.trace.clock_TMG) < 0.97
        reasons = np.where(hot, 32.0, 0.0) + np.where(capped & ~hot, 4.0, 0.0) + np.where(locked < 0.98, 128.0, 0.0)
        idle = self._of(self.trace.pause_TM)[..., None] > 0.98
        used = site.board.memory * (1.0 + 0.02 * law.standard_normal(shape)) * np.where(site.role_M == 1, 1.05, 1.0)[:, None]
        gone = self._of(np.asarray(self.changes.over("run")))[..., None] < 0.5 if self.changes.moved("run") else np.zeros((*many, 1), bool)
        age_MG = law.poisson(0.2, shape).astype(float)
        width = 16.0 * self._at("width")[..., None]
        first = np.arange(site.gpus) == 0
        held = {
            "gpu_temperature_celsius": np.round(self._of(self.trace.die_TMG) + 0.3 * law.standard_normal((*many, site.gpus))),
            "gpu_memory_used_ratio": np.round(np.clip(np.where(gone, 0.01, used), 0.0, 0.99), 3),
            "gpu_throttle_reasons": np.where(idle, 1.0, reasons),
            "gpu_ecc_uncorrectable_total": age_MG + self._summed("ecc")[..., None] * first,
            "gpu_rows_remapped_total": age_MG + self._summed("rows")[..., None] * first,
            "pcie_link_width": np.maximum(np.round(width), 1.0) + np.zeros(site.gpus),
        }
        return {name: np.broadcast_to(value, (*many, site.gpus)) for name, value in held.items() if name in site.metrics}

    def _summed(self, name: str) -> np.ndarray:
        """(S, M): events so far."""
        held = self.changes.over(name)
        return self._of(np.cumsum(held, axis=0)) if isinstance(held, np.ndarray) else np.zeros(self.at_SM.shape)

    def _host(self) -> dict[str, np.ndarray]:
        """(S, M) by metric: processor, memory, disk, network."""
        site, demand = self.site, self.site.demand
        law = stream(self.seed, 22)
        many = len(site.names)
        pace = (self._phase(0.0) - self._phase(site.scrape_s)) / site.scrape_s * site.step_s
        pace = np.where(self.at_SM < site.scrape_s, self._of(np.diff(self.trace.phase_T) / site.tick_s) * site.step_s, pace)
        halt, run = self._at("halt"), self._at("run")
        busy = np.where(halt > 0, 0.0, pace) * demand.launch * 0.22 / np.maximum(self._at("cpu"), 0.2)
        polling = np.where((halt > 0) | (run < 0.5), 0.0, 0.05)
        cpu = (
            site.cpu_base_M * (0.35 + 0.65 * np.minimum(run, 1.0)) + busy + polling + self._at("hog") + np.where(halt == SPINNING, 0.5, 0.0)
        )
        cpu = cpu - np.where(halt == WAITING, 0.03, 0.0) + 0.03 * self._at("write")
        memory = site.memory_M + self._at("memory") + 0.02 * np.minimum(run, 1.0)
        fill = site.disk_M + self._at("fill") + self.at_SM * law.uniform(0.0, 2e-6)
        tcp = 2e6 + law.uniform(1e7, 3e8) * pace * demand.load + self._at("tcp") + 4e8 * self._at("write")
        held = {
            "cpu_usage_ratio": cpu, "memory_usage_ratio": memory, "tcp_throughput_bytes_per_second": tcp,
            "tcp_retransmits_per_second": 0.4 + 0.2 * law.exponential(1.0, many) + 300.0 * self._at("loss"),
            "step_seconds": np.minimum(self._of(self.trace.step_T), site.step_s * 5.0),
        }  # fmt: skip
        held |= self._network(pace, law)
        held = {name: self._noisy(name, value) for name, value in held.items() if name in site.metrics and name in _NOISE}
        if "link_errors_per_second" in site.metrics:
            packets = site.nic_bytes * 0.25 * pace / 4096.0
            rare = law.exponential(0.02, many) * (law.random(many) < 0.3)
            mean = rare + self._at("errors") + np.minimum(self._at("loss") * packets * 0.02, 1e4)
            held["link_errors_per_second"] = np.round(mean * (0.5 + law.random(mean.shape)), 2)
        if "link_downs_total" in site.metrics:
            held["link_downs_total"] = law.poisson(0.7, many) + self._summed("downs")
        if "disk_usage_ratio" in site.metrics:
            held["disk_usage_ratio"] = fill
        for name, value in held.items():
            held[name] = np.round(np.clip(value, 0.0, 1.0), 4) if name.endswith("_ratio") else np.maximum(value, 0.0)
        return held

    def _network(self, pace: np.ndarray, law: np.random.Generator) -> dict[str, np.ndarray]:
        """Throughput between scrapes, and what narrow links do: a receiver that drains slowly pauses its port, its senders are slowed."""
        site, changes = self.site, self.changes
        many = len(site.names)
        loss = self._at("loss")
        traffic = pace * self._at("traffic")
        bytes_SM = 1e5 + site.nic_bytes * 0.25 * traffic * (1.0 + 4.0 * loss) * (1.0 + 0.01 * law.standard_normal(many))
        ticks = (site.ticks, many)
        drain_TM = np.broadcast_to(np.minimum(changes.over("nic"), np.asarray(changes.over("pcie")) * site.pcie_head), ticks)
        short_TM = np.clip(1.0 - drain_TM, 0.0, 1.0) + np.minimum(8.0 * np.broadcast_to(changes.over("loss"), ticks), 0.4)
        crowd_T = np.clip(1.0 / np.broadcast_to(changes.over("net"), (site.ticks,)) - 1.0, 0.0, 5.0)
        mine = self._of(short_TM) + 0.3 * self._of(crowd_T)
        sender = self._of(np.roll(short_TM, -1, axis=1)) * 0.35 + 0.3 * self._of(crowd_T)
        usual_M = np.exp(0.6 * law.standard_normal(many))
        marks = self._at("marks") * np.maximum(traffic, 0.0)
        base = float(np.exp(law.uniform(np.log(5.0), np.log(300.0))))
        return {
            "rdma_throughput_bytes_per_second": bytes_SM,
            "pfc_tx_packets_per_second": marks * base * (0.2 * usual_M + 30.0 * mine),
            "ecn_packets_per_second": marks * base * (usual_M + 12.0 * mine),
            "cnp_packets_per_second": marks * base * (0.7 * usual_M + 9.0 * mine + 6.0 * sender),
            "rdma_xmit_wait_per_second": marks * base * 400.0 * (usual_M + 9.0 * mine + 14.0 * sender),
        }
