"""What a site sees: exporters that refresh, cache, take rates over windows, freeze and restart, and scrapes of them.

Legend: N scrapes, M machines, Q quantities of the account.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minder.simulate.worlds.families.tally.account import DONE, SENT, Ledger, read_ledger
from minder.simulate.worlds.families.tally.acts import Act, level
from minder.simulate.worlds.families.tally.site import (
    BEFORE_S,
    BLOCK,
    DEAD,
    GPU,
    LINGER,
    LOAD,
    RECV,
    SEND,
    SPIN,
    WAYS,
    WORK,
    WRITE,
    Exporter,
    Site,
)  # fmt: skip

__all__ = ["Scraped", "scrape"]

_GPU_COUNTERS = ("clock", "heat", "volts", "reason")
_CEILING = {"pause": 1e9, "cnp": 1e9, "ecn": 1e9, "wait": 1e10}


@dataclass(frozen=True, slots=True)
class Scraped:
    """One exporter's samples. stamps_NM, scrape_NM: seconds since the recording began. heard_NM: the scrape got through."""

    stamps_NM: np.ndarray
    scrape_NM: np.ndarray
    values: dict[str, np.ndarray]
    heard_NM: np.ndarray


class _Kernel:
    """The counters of all machines' kernels and drivers as one exporter reads them: windows that end at read_NM."""

    def __init__(self, site: Site, acts: Sequence[Act], ledger: Ledger, read_NM: np.ndarray, seed: tuple[int, ...]) -> None:
        self.site, self.acts, self.ledger, self.read_NM = site, acts, ledger, read_NM
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.rates: dict[float, np.ndarray] = {}

    def rate(self, window_s: float) -> np.ndarray:
        """(Q, N, M): growth a second over the window before each read."""
        if window_s not in self.rates:
            then_QNM = read_ledger(self.ledger, self.site.micro, self.read_NM - window_s)
            self.rates[window_s] = np.maximum(read_ledger(self.ledger, self.site.micro, self.read_NM) - then_QNM, 0.0) / window_s
        return self.rates[window_s]

    def act_on(self, counter: str, value_NM: np.ndarray, device: int = -1) -> np.ndarray:
        """The counter's rate or the gauge, with what acts do to it. device: -1 for the whole machine, where a hit share counts as such."""
        for act in self.acts:
            if counter not in act.counters:
                continue
            factor, added = act.counters[counter]
            hit = list(range(self.site.machines)) if act.at is None else list(act.at)
            strength_NM = level(act, self.read_NM[:, hit])
            if counter in _GPU_COUNTERS and device >= 0:
                strength_NM = strength_NM * (device < max(1, round(act.share * self.site.devices)))
            elif counter in ("clock", "heat", "volts"):
                strength_NM = strength_NM * act.share
            value_NM[:, hit] = value_NM[:, hit] * (1.0 + (factor - 1.0) * strength_NM) + added * strength_NM
        return value_NM

    def total(self, counter: str, base_M: np.ndarray) -> np.ndarray:
        """(N, M): a counter of rare events, whole numbers."""
        total_NM = np.broadcast_to(base_M, self.read_NM.shape).astype(np.float64)
        for act in self.acts:
            if counter in act.totals:
                hit = list(range(self.site.machines)) if act.at is None else list(act.at)
                lasted_NM = np.clip(self.read_NM[:, hit], None, act.end_s) - act.start_s
                total_NM[:, hit] += np.where(lasted_NM >= 0.0, np.floor(1.0 + act.totals[counter] * np.maximum(lasted_NM, 0.0)), 0.0)
        return total_NM

    def hiss(self, size: float) -> np.ndarray:
        """(N, M): factor near 1 with a heavy tail, as of a sensor that is read once."""
        noise_NM = self.rng.normal(0.0, size, self.read_NM.shape)
        return np.asarray(np.exp(noise_NM * np.where(self.rng.random(self.read_NM.shape) < 0.015, 4.0, 1.0)))

    def bursts(self, size: float) -> np.ndarray:
        """(N, M): factor of a bursty counter: common to the network, of a minute's memory, and of each machine."""
        noise_NM = self.rng.normal(0.0, size, self.read_NM.shape)
        keep = float(np.exp(-self.site.scrape_s / 60.0))
        shock_N = self.rng.normal(0.0, size, len(noise_NM)) * np.sqrt(1 - keep**2)
        common_N = np.empty(len(noise_NM))
        now = 0.0
        for n, shock in enumerate(shock_N):
            now = keep * now + shock
            common_N[n] = now
        return np.asarray(np.exp(noise_NM + common_N[:, None]))


def _mix(rate_QNM: np.ndarray, shares: dict[int, float]) -> np.ndarray:
    return np.asarray(sum(share * rate_QNM[way] for way, share in shares.items()))


def _gpu(kernel: _Kernel, exporter: Exporter, device: int) -> dict[str, np.ndarray]:
    """Metrics of GPUs, in base units. device: -1 for the machine as one."""
    site, rate = kernel.site, kernel.site.rate
    kernel.rng = np.random.default_rng([*kernel.seed, device + 1])
    q = kernel.rate(exporter.window_s if exporter.period_s else 1.0)
    brief = kernel.rate(min(1.0, exporter.window_s))  # duty cycle and power are means of the driver's last second
    wait = 1.0 if site.spins else 0.05
    unlike_M = np.ones(site.machines)
    if device >= 0:
        unlike_M = 1.0 + 0.015 * np.random.default_rng([kernel.seed[0], 21, device]).standard_t(5, site.machines).clip(-4, 4)
    clock_NM = kernel.act_on("clock", np.ones_like(kernel.read_NM), device)
    busy = {LOAD: 0.05, WORK: 0.985, RECV: wait, SPIN: wait, SEND: 1.0, WRITE: 0.08, LINGER: wait}
    hiss = kernel.hiss(rate["noise"])
    pace_NM = q[DONE] / clock_NM  # cycles of the pipe over the clock that it runs at
    out = {"gpu_duty_cycle_ratio": np.round(_mix(brief, busy), 2)}
    out["gpu_graphics_activity_ratio"] = _mix(q, busy) * 0.97
    light = rate["sm_spin"] * wait
    sm_NM = _mix(q, {LOAD: 0.01, WORK: 0.35 * rate["sm"], RECV: light, SPIN: light, LINGER: light, SEND: 2 * light + 0.02, WRITE: 0.02})
    out["gpu_sm_activity_ratio"] = (sm_NM + 0.65 * rate["sm"] * pace_NM) * hiss
    memory_bound = np.where(site.rollout_M, 0.35, 1.0)
    out["gpu_tensor_activity_ratio"] = rate["tensor"] * pace_NM * unlike_M * memory_bound * hiss
    out["gpu_fp_activity_ratio"] = rate["fp"] * pace_NM * hiss
    out["gpu_memory_bandwidth_ratio"] = (rate["dram"] * q[DONE] / np.sqrt(memory_bound) + _mix(q, {SEND: 0.12, WRITE: 0.05})) * hiss
    idle, light = rate["idle"], rate["spin_watts"] * wait + rate["idle"] * (1 - wait)
    part_NM = _mix(brief, dict.fromkeys((LOAD, WRITE, BLOCK, DEAD), idle) | dict.fromkeys((RECV, SPIN, LINGER), light))
    part_NM = part_NM + brief[SEND] * 0.45 + brief[WORK] * 0.4 + (0.58 - 0.14 * (memory_bound < 1)) * brief[DONE] * clock_NM**1.3
    watts_NM = kernel.act_on("volts", part_NM * rate["watts"] * 0.92 * site.scale["watts"] * unlike_M * hiss, device)
    out["gpu_power_draw_watts"] = watts_NM.clip(20.0, 1.1 * rate["watts"])
    slot = 0.0 if device < 0 else 1.6 * (device % 4)
    heat_NM = _lagged(watts_NM / rate["watts"], site.scrape_s / 55.0) * rate["kelvin"] * site.scale["kelvin"]
    out["gpu_temperature_celsius"] = np.round(kernel.act_on("heat", heat_NM + rate["air"] * site.scale["air"] + slot, device), 0)
    droop_NM = 1.0 - rate["droop"] * _mix(brief, {WORK: 1.0})
    out["gpu_clock_hertz"] = (
        np.round(rate["hertz"] * site.scale["hertz"].clip(0.98, 1.0) * droop_NM * (1 - 0.7 * brief[DEAD]) * clock_NM / 15e6) * 15e6
    )
    used_NM = kernel.act_on("used", rate["memory"] * site.scale["memory"] * (1.0 - 0.95 * brief[DEAD]), device) + 0.01
    out["gpu_memory_used_ratio"] = used_NM.clip(0.0, 0.995)
    out["gpu_throttle_reasons"] = np.round(kernel.act_on("reason", np.zeros_like(used_NM), device))
    rng = np.random.default_rng([kernel.seed[0], 22])
    old_M = np.where(rng.random(site.machines) < 0.04, rng.integers(1, 30, site.machines), 0)
    out["gpu_ecc_uncorrectable_total"] = kernel.total("ecc", np.floor(old_M / 3))
    out["gpu_rows_remapped_total"] = kernel.total("remap", old_M)
    links = rate["nvlink"] * (q[DONE] + 0.3 * q[SENT])
    out["nvlink_bandwidth_bytes_per_second"] = kernel.act_on("nvlink", links * hiss)
    bus = rate["pcie_load"] * q[LOAD] + 0.1 * rate["pcie_load"] * q[DONE] + rate["pcie_send"] * (q[SENT] + q[WRITE])
    out["pcie_bandwidth_bytes_per_second"] = kernel.act_on("bus", bus * hiss)
    for name in GPU[9:13]:
        out[name] = out[name].clip(0.0, 1.0)
    out["gpu_memory_bandwidth_ratio"] = out["gpu_memory_bandwidth_ratio"].clip(0.0, 1.0)
    out["gpu_duty_cycle_ratio"] = out["gpu_duty_cycle_ratio"].clip(0.0, 1.0)
    out["pcie_link_width"] = np.round(kernel.act_on("lanes", np.full_like(hiss, rate["lanes"])))
    return out


def _lagged(value_NM: np.ndarray, share: float) -> np.ndarray:
    """A first-order lag: share is scrape over time constant."""
    keep = float(np.exp(-share))
    out_NM = np.empty_like(value_NM)
    now_M = value_NM[0]
    for n, row_M in enumerate(value_NM):
        now_M = keep * now_M + (1 - keep) * row_M
        out_NM[n] = now_M
    return out_NM


def _host(kernel: _Kernel, exporter: Exporter) -> dict[str, np.ndarray]:
    site, rate = kernel.site, kernel.site.rate
    q = kernel.rate(exporter.window_s)
    spin = 8.0 / rate["cores"] * (1.0 if site.spins else 0.1)
    load = rate["loaders"] / rate["cores"]
    jiffies = {
        LOAD: 0.7 * load,
        WORK: spin,
        DONE: 0.25 * load,
        RECV: spin + 0.1 * load,
        SPIN: spin,
        SEND: spin,
        LINGER: spin,
        WRITE: 0.5 * load,
    }
    cpu_NM = (_mix(q, jiffies) + rate["system"]) * site.scale["host"] * kernel.hiss(4 * rate["noise"])
    out = {"cpu_usage_ratio": kernel.act_on("jiffies", cpu_NM).clip(0.001, 1.0)}
    grown = 1.0 + 0.03 * (kernel.read_NM / site.duration_s) * site.scale["host"]
    out["memory_usage_ratio"] = kernel.act_on("pages", rate["pages"] * site.scale["host"] * grown * (1.0 - 0.8 * q[DEAD])).clip(0.01, 0.995)
    filled_NM = rate["disk"] * site.scale["host"] + 0.02 * kernel.read_NM / site.duration_s
    out["disk_usage_ratio"] = kernel.act_on("disk", filled_NM).clip(0.0, 1.0)
    out["cpu_throttled_ratio"] = kernel.act_on("quota", np.zeros_like(cpu_NM)).clip(0.0, 1.0)
    out["oom_kills_total"] = kernel.total("oom", np.zeros(site.machines))
    out["processes_stopped"] = np.round(kernel.act_on("stopped", np.zeros_like(cpu_NM)))
    bytes_NM = rate["tcp_idle"] * kernel.bursts(0.4) + rate["tcp_load"] * (q[LOAD] + 0.05 * q[DONE]) + rate["tcp_write"] * q[WRITE]
    out["tcp_throughput_bytes_per_second"] = kernel.act_on("tcp", bytes_NM * site.scale["net"])
    out["tcp_retransmits_per_second"] = kernel.act_on("retrans", rate["retrans"] * kernel.bursts(0.7) * (0.2 + q[LOAD] + q[WRITE]))
    return out


def _net(kernel: _Kernel, exporter: Exporter) -> dict[str, np.ndarray]:
    site, rate = kernel.site, kernel.site.rate
    q = kernel.rate(exporter.window_s)
    moved_NM = q[SENT] + rate["relay"] * q[DONE]
    scale = site.scale["net"]
    out = {"rdma_throughput_bytes_per_second": kernel.act_on("port", rate["nic"] * moved_NM * scale * kernel.hiss(rate["noise"]) + 1e4)}
    names = {"pause": "pfc_tx_packets_per_second", "cnp": "cnp_packets_per_second", "ecn": "ecn_packets_per_second",
             "wait": "rdma_xmit_wait_per_second"}  # fmt: skip
    for counter, name in names.items():
        base = rate["cnp"] * 2.5 if counter == "ecn" else rate[counter]
        growth_NM = base * moved_NM * kernel.bursts(0.5) * scale**4
        out[name] = np.round(kernel.act_on(counter, growth_NM), 3).clip(0.0, _CEILING[counter])
    events_NM = kernel.rng.poisson(rate["symbol"] * exporter.window_s * scale**8 * np.ones_like(moved_NM)) / exporter.window_s
    out["link_errors_per_second"] = kernel.act_on("symbol", events_NM)
    old_M = np.random.default_rng([kernel.seed[0], 23]).poisson(0.6, site.machines)
    out["link_downs_total"] = kernel.total("flap", old_M)
    return out


def _job(kernel: _Kernel, exporter: Exporter) -> dict[str, np.ndarray]:
    """The ranks' own exporter: steps done, the last step's seconds, what the processes used of the processors and wrote."""
    site, rate = kernel.site, kernel.site.rate
    q = kernel.rate(exporter.window_s)
    start_S = kernel.ledger.start_S
    step_NM = np.searchsorted(start_S, kernel.read_NM, side="right") - 1
    last_NM = start_S[np.clip(step_NM, 0, None)] - start_S[np.clip(step_NM - 1, 0, None)]
    spin = 8.0 if site.spins else 1.0
    cores_NM = _mix(
        q, {LOAD: 0.7 * rate["loaders"], WORK: spin, DONE: 0.25 * rate["loaders"], RECV: spin, SPIN: spin, SEND: spin, LINGER: spin}
    )
    bytes_NM = rate["tcp_load"] * (q[LOAD] + 0.05 * q[DONE]) + rate["tcp_write"] * q[WRITE] + 2e4
    return {"steps_total": step_NM + 1000.0, "step_seconds": last_NM, "job_cpu_ratio": cores_NM * site.scale["host"] * kernel.hiss(0.02),
            "job_io_bytes_per_second": bytes_NM * kernel.hiss(0.05)}  # fmt: skip


def _clocked(site: Site, exporter: Exporter, acts: Sequence[Act], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(N, M) twice: when each scrape comes, and when the exporter had last read the kernel by then (long ago where it is frozen)."""
    count = max(1, int(site.duration_s / site.scrape_s))
    late_M = rng.uniform(0.0, site.scrape_s, site.machines)
    scrape_NM = np.arange(count)[:, None] * site.scrape_s + late_M + rng.uniform(0.0, 0.02 * site.scrape_s, (count, site.machines))
    phase_M = rng.uniform(0.0, 1.0, site.machines)
    period_s = exporter.period_s
    read_NM = scrape_NM.copy()
    if period_s > 0:
        read_NM = np.floor(scrape_NM / period_s - phase_M) * period_s + phase_M * period_s
    for act in acts:
        if act.trick == "freeze" and act.exporter in (exporter.name, "all"):
            hit = list(act.at or range(site.machines))
            part_NM = read_NM[:, hit]
            frozen_NM = (scrape_NM[:, hit] >= act.start_s) & (scrape_NM[:, hit] < act.end_s)
            last_M = np.where(part_NM < act.start_s, part_NM, -BEFORE_S / 2).max(axis=0)
            read_NM[:, hit] = np.where(frozen_NM, np.minimum(part_NM, last_M), part_NM)
    return scrape_NM, read_NM


def _disturb(scraped: Scraped, exporter: Exporter, site: Site, acts: Sequence[Act], rng: np.random.Generator) -> None:
    """Silence, loss, restarts and wrong units, in place."""
    for number, act in enumerate(acts):
        if act.exporter not in (exporter.name, "all") or act.trick in ("", "freeze"):
            continue
        hit = list(range(site.machines)) if act.at is None else list(act.at)
        during_NM = level(act, scraped.scrape_NM[:, hit]) > 0.0
        if act.trick == "silence":
            scraped.heard_NM[:, hit] &= ~during_NM
        elif act.trick == "lossy":
            loses_NM = np.random.default_rng([*_seed_of(rng), number]).random(during_NM.shape) < 0.45
            scraped.heard_NM[:, hit] &= ~(during_NM & loses_NM)
        else:
            _distort(scraped, act, hit, during_NM)


def _distort(scraped: Scraped, act: Act, hit: list[int], during_NM: np.ndarray) -> None:
    """Gaps in values, halved rates, and counters of 32 bits that wrap, in place."""
    for name, value_NM in scraped.values.items():
        is_rate = name.endswith(("per_second", "bytes_per_second"))
        if act.trick == "gap":
            value_NM[:, hit] = np.where(during_NM, np.nan, value_NM[:, hit])
        elif act.trick == "half" and is_rate:
            value_NM[:, hit] = np.where(during_NM, 0.5 * value_NM[:, hit], value_NM[:, hit])
        elif act.trick == "wrap" and "throughput" in name:
            wraps_NM = np.mod(np.floor(scraped.scrape_NM[:, hit] / 23.0), 4.0) == 0.0
            value_NM[:, hit] = np.where(during_NM & wraps_NM, 0.0, value_NM[:, hit])


def _seed_of(rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(number) for number in rng.integers(0, 2**31, 2))


def scrape(site: Site, acts: Sequence[Act], ledger: Ledger, seed: int) -> list[tuple[int, Scraped]]:
    """Every exporter's samples, with the device that they are of: -1 for those of the whole machine."""
    found: list[tuple[int, Scraped]] = []
    tables = {"host": _host, "net": _net, "job": _job}
    clock = np.random.default_rng([seed, 3])
    phases = {name: _seed_of(clock) for name in ("all", "gpu", "host", "net", "job")}
    for number, exporter in enumerate(site.exporters):
        # one scraper asks all exporters of a machine within the same second
        scrape_NM, read_NM = _clocked(site, exporter, acts, np.random.default_rng(phases["all"]))
        stamps_NM = read_NM if exporter.own_stamp else scrape_NM
        row_N1 = np.arange(len(read_NM))[:, None]
        fresh_NM = np.vstack([np.zeros((1, site.machines), dtype=bool), read_NM[1:] != read_NM[:-1]])
        same_NM = np.maximum.accumulate(np.where(fresh_NM, row_N1, 0), axis=0)  # a cached value is repeated to the digit
        kernel = _Kernel(site, acts, ledger, read_NM, (seed, 30 + number))
        for device in range(site.devices) if exporter.name == "gpu" and site.devices else (-1,):
            made = _gpu(kernel, exporter, device) if exporter.name == "gpu" else tables[exporter.name](kernel, exporter)
            values = {name: np.take_along_axis(made[name], same_NM, axis=0) for name in exporter.metrics if name in made}
            scraped = Scraped(stamps_NM, scrape_NM, values, np.ones(stamps_NM.shape, dtype=bool))
            _disturb(scraped, exporter, site, acts, np.random.default_rng(phases[exporter.name]))
            found.append((device, scraped))
    assert all(name in GPU for device, scraped in found if device >= 0 for name in scraped.values)
    assert ledger.spent_QSM.shape[0] == SENT + 1 == len(WAYS) + 2
    return found
