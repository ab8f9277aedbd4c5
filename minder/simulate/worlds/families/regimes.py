"""Worlds as a statistician sees them: every machine is in one of some forty regimes, and each regime is a joint law of all metrics.

A regime (`_REGIMES_TEXT`) says how far each kind of metric stands from the machine's own long-run level. The job goes through regimes with
semi-Markov sojourns; tables with lags say what that makes of each machine. A fault is a rare regime of one machine or a group, and what
`_WAITS` and `_STOPS` make of the others; a nuisance is a regime of one machine that leaves the others alone. Around the means lies noise in
common, noise of the machine with a memory of a minute or two (three factors each, so metrics move together), and a white rest whose scale
is drawn for each row: a multivariate t.

Levels and spreads were measured, and nothing is copied. In real H100 telemetry, means of 5 s in a steady phase: GPUs of one machine differ
durably by 0.4 to 1.7 % in power, 1 % in SM and tensor activity, 10 % in temperature; common fluctuation 0.2 to 5 %, of a single GPU 0.4 to
1.5 %, kurtosis 3 to 25, correlation 0.5 to 0.65 after 5 s; duty 0.84 to 1.0, SM 0.63 to 0.88, tensor 0.19 to 0.59, power 540 to 690 W, 53
to 72 °C. In AcmeTrace (CC BY 4.0, InternLM) busy A100s draw 300 to 440 W at 51 to 66 °C.
Legend: N samples, K metrics, T scrapes, M machines (m: some), B blocks of a machine, D devices, J kinds of metrics (j: some), G seconds.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from minder.model.errors import ConfigError
from minder.model.metrics import CATALOGUE
from minder.simulate.worlds.world import NO_FAULT, Truth, World

__all__ = ["CAUSES", "FAULTS", "NAME", "NUISANCES", "draw"]

NAME = "regimes"
_ROWS, _INTERVALS = 90_000, (1.0, 2.0, 5.0, 10.0, 15.0, 30.0)  # about so many samples: large jobs are scraped less often, as sites do
_ON_GPU, _ON_HOST = "duty sm tensor power clock temp dram nvl pcie fbm", "rdma tcp cong err cpu quota mem disk"
_KINDS, _GPU_KINDS = f"{_ON_GPU} {_ON_HOST}".split(), len(_ON_GPU.split())

# Regimes: the level of each kind relative to the machine's own, 1 where not named. With a star: a state, which replaces what was before
# it; without: it scales what was before it, and the numbers are those of intensity 1 (a fifth of the speed lost is an intensity of 0.2).
_STILL = "sm .01 tensor 0 power .07 temp .3 dram .01 nvl .004 pcie .02 rdma .003 tcp .5 cong .1"
_LESS = "sm .35 tensor 0 power .3 temp .6 dram 0 nvl 0 pcie 0 rdma 0"
_SAVES = "tensor .02 temp .75 dram .1 nvl .05 pcie 2 rdma .05 cong .3"
_REGIMES_TEXT = f"""
spinning* {_STILL} duty 1.2 sm .35 power .38 clock 1.02 temp .6; p2p_spinning* {_STILL} duty 1.1 sm .12 power .28 temp .5 cpu .95
blocked* {_STILL} duty .02 cpu .35; kernel_stuck* {_STILL} duty 1.2 sm 1.1 power .58 temp .75 nvl .002 cpu .8
frozen_host* {_STILL} duty .01 nvl 0 rdma 0 tcp .1 cong .02 cpu .08; dead* {_STILL} duty 0 clock .7 fbm .02 rdma 0 cpu .1 mem .4
port_gone* {_STILL} duty 1.2 sm .3 power .36 temp .65 rdma 0 cong 0 err 80 cpu 1.2; disk_full* {_STILL} duty .03 tcp .2 cpu .25 disk 9
fallen_off* {_STILL} duty 0 sm 0 power 0 clock .1 temp .1 fbm 0 cpu .5; loading* {_SAVES} duty .15 sm .05 power .15 fbm .7 tcp 9 cpu 1.6
checkpointing* {_SAVES} duty .4 sm .1 power .25 tcp 8 cpu 1.7 mem 1.05; writing* {_SAVES} duty .1 sm .03 power .12 tcp 14 cpu 2.3 mem 1.06
evaluating* {_SAVES} duty .95 sm .8 tensor .7 power .85 temp .9 dram 1.1 nvl .5 pcie .8 cpu 1.15
weak_rows {_LESS} duty 1.05 sm 1.2 tensor .2 power .4 dram -.6
waiting {_LESS} duty 1.03 cong .5 cpu 1.02; waiting_p2p {_LESS} duty .55 sm .1 power .2 temp .5 cong .4 cpu .97
waiting_expert {_LESS} sm .6 power .45 dram .25 nvl .1 rdma .1 cong 1.3; queueing {_LESS} duty .2 sm .15 tensor .1 cong .3 cpu .8
starved {_LESS} duty .1 sm .05 power .1 tcp .2 cong .2 cpu 1.5; preparing {_LESS} duty .1 sm .05 power .1 cong .2 cpu 3.5 mem 1.3
congested {_LESS} duty 1.03 tcp 2 cong 18 err 8; throttled {_LESS} duty 1.15 sm 1.1 tensor .9 power .1 clock -.3 temp .5
overheated {_LESS} duty 1.15 sm 1.1 tensor .9 clock -.2 temp 3.4; braked {_LESS} duty 1.1 sm 1.05 tensor .8 power -.2 clock -.4 temp .2
lane_lost {_LESS} duty 1.05 sm 1.2 power .5 dram .2 nvl -.4; narrow_pcie {_LESS} duty .8 sm .6 pcie -.5 rdma -.1 cong 16 cpu 1.2
dim_optics {_LESS} duty 1.02 sm .5 rdma -.2 tcp 1.3 cong 14 err 2500; slow_port {_LESS} duty 1.02 sm .5 rdma -.2 cong 12 err 20
hogged {_LESS} duty .4 sm .1 tcp 1.6 cpu 9 mem 1.4; rationed {_LESS} duty .3 sm 0 power .2 cpu .3 quota 500
slow_mount {_LESS} duty .05 sm 0 power .1 tcp -.5 cpu 2.2; swapping {_LESS} duty .3 sm .1 cpu 4 mem 4
heavier duty 1.08 sm 1.35 tensor 1.5 power 1.25 temp 1.2 dram 1.3 nvl .9 pcie 1.1 rdma .9 cpu 1.1; same duty 1; warm temp 1.7 power 1.02
tenant tcp 4 cpu 5 mem 2 quota 30 pcie 1.2; noisy_port cong 6 err 400; misread power 1.6; slow_policy clock .4 power .9
"""
# Laws: name | regime, its lowest and highest intensity, course in time, whom it takes, seconds that it lasts, what no mean says | text
_FAULTS_TEXT = """
clock_capped | throttled .12 .4 step one 0 0 grey device | A GPU's clock stays flat well below its peers', and no log says so.
clock_bouts | throttled .2 .45 bouts one 0 0 grey device reason | A GPU is throttled for some ten seconds, recovers, and again.
overheating | overheated .15 .4 ramp one 0 0 grey device reason | A GPU warms over minutes and lowers its clock.
nvlink_lane | lane_lost .12 .4 step one 0 0 grey device | A lane of a GPU's NVLink is lost.
pcie_narrow | narrow_pcie .15 .45 step one 0 0 grey width | A PCIe link trains at fewer lanes.
dirty_optics | dim_optics .1 .35 bouts one 0 0 grey | A dirty transceiver: errors and congestion at a few times the neighbours'.
slow_port | slow_port .15 .5 step one 0 0 grey | A NIC moves a third to two thirds of what it should.
link_flaps | port_gone 1 1 pulses one 4 12 grey flaps | A link goes down and up again and again.
cpu_hog | hogged .15 .5 step one 0 0 grey | A stray process takes the processors of a machine.
cpu_quota | rationed .15 .45 step one 0 0 grey | A quota cuts the processors of a machine's trainers.
slow_mount | slow_mount .2 .5 bouts one 0 0 grey | The storage of one machine alone is slow.
freezes | frozen_host 1 1 pulses one 12 45 grey | The trainer of a machine stands still for some ten seconds every few minutes.
weak_rows | weak_rows .15 .4 step one 0 0 grey device ecc | Rows of a GPU's memory are remapped, and it slows.
memory_leak | swapping .2 .5 ramp one 0 0 grey | Memory fills over minutes until the machine swaps.
slow_pair | throttled .15 .4 step two 0 0 grey | Two machines are throttled at once.
hot_rack | overheated .15 .35 ramp rack 0 0 grey reason | The cooling of a rack fails, and its machines lower their clocks.
switch_slow | slow_port .15 .45 step switch 0 0 grey | A switch drops packets: its machines are slow.
stage_braked | braked .15 .35 step stage 0 0 grey | The machines of one pipeline stage hang on one braked power feed.
kernel_stuck | kernel_stuck 1 1 step one 0 0 device | A kernel never ends: its GPU is busy and does no work.
process_hung | frozen_host 1 1 step one 0 0 - | The trainer of one machine hangs on the host.
process_killed | dead 1 1 step one 0 0 oom | The kernel kills a trainer for want of memory.
gpu_lost | fallen_off 1 1 step one 0 0 device lost | A GPU falls off the bus.
machine_dead | dead 1 1 step one 0 0 silent | A machine dies and is silent.
nic_down | port_gone 1 1 step one 0 0 down | A machine's network port goes down for good.
driver_hung | frozen_host 1 1 step one 0 0 frozen early | A driver hangs: gauges freeze to the digit, soon all wait.
disk_full | disk_full 1 1 step one 0 0 checkpoint | A disk is full at a checkpoint and stops its machine.
rack_dark | dead 1 1 step rack 0 0 silent late | A rack loses its power, often minutes before the rest is seen to stop.
"""
_CAUSES_TEXT = """
storage_slow | starved .3 .7 bouts all 60 600 - | The storage is slow for all.
congestion | congested .15 .5 bouts all 60 600 - | The network is congested for all.
loading_slow | preparing .2 .6 step all 60 600 - | Data are slow to prepare on all machines.
power_cap | throttled .1 .3 step all 200 1500 - | The site caps the power of all GPUs.
load_shift | heavier .3 .8 step all 200 1500 - | Longer sequences: all machines do more.
evaluation | evaluating 1 1 step all 90 400 - | A long evaluation.
long_checkpoint | checkpointing 1 1 step all 60 240 - | A checkpoint that takes minutes.
restart | spinning 1 1 step all 1 5 restart | The job restarts from a checkpoint.
exchange | spinning 1 1 step all 1 60 restart exchange | The job restarts with one healthy machine exchanged for a spare.
user_bug | spinning 1 1 step all 60 300 restart | The user's code fails everywhere: all spin, end and begin again.
deadlock | spinning 1 1 step all 60 300 final | Collectives in the wrong order: all spin, and no machine is to blame.
job_ends | dead 1 1 step all 60 300 final | The job ends.
units_change | same 0 0 step all 60 300 units | An exporter is upgraded machine by machine and gives other units.
metric_broken | same 0 0 step all 200 1500 broken | One metric is zero or missing on most machines.
"""
_NUISANCES_TEXT = """
exporter_restart | same 0 0 step one 15 90 silent | An exporter restarts: a gap.
agent_lost | same 0 0 step one 60 600 silent forever | An agent is lost, and the machine works on.
frozen_exporter | same 0 0 step one 60 400 frozen | An exporter repeats its last values.
clock_lag | same 0 0 step few 60 600 clock | Machines whose clocks are off by up to two minutes.
second_tenant | tenant .3 1 bouts one 60 600 - | A second tenant on the host.
hot_aisle | warm .4 .9 ramp rack 300 1500 - | The machines of a rack are warm for a while.
warm_slot | warm .3 .8 step one 0 0 durable | A machine in a warm slot.
uneven_share | heavier .15 .4 step one 0 0 durable | A machine with a larger share of the work.
noisy_port | noisy_port .3 1 bouts one 60 600 - | Congestion and error counters of a port that slow no machine.
misread_power | misread .2 .4 step one 0 0 durable | A power sensor is off by a tenth or two.
slow_policy | slow_policy .06 .16 step one 0 0 durable | A machine with a lower clock by policy, fast enough.
late_writer | writing 1 1 writer one 5 45 - | One machine writes on after each checkpoint while the others spin.
narrow_slot | same 0 0 step one 0 0 width durable | A PCIe link that is narrow, and wide enough.
one_flap | noisy_port .3 .8 step one 4 20 down | A link goes down once and up again, in the midst of retries.
old_rows | same 0 0 step one 60 600 ecc | Rows of a GPU's memory are remapped without consequence.
"""
# Metrics: kind, level at rest, usual levels from and to (in its unit); then relative: spread between machines, noise of its own, noise in
# common, swing within a step (positive: high while it computes); and the quantum of a reading, in the metric's unit.
_METRICS_TEXT = """
gpu_duty_cycle_ratio duty 0 .82 .99 .012 .014 .02 .2 .01; gpu_sm_activity_ratio sm 0 .45 .85 .012 .012 .03 .35 0
gpu_tensor_activity_ratio tensor 0 .15 .55 .014 .01 .035 .7 0; gpu_graphics_activity_ratio duty 0 .85 .98 .01 .01 .02 .15 0
gpu_fp_activity_ratio tensor 0 .04 .2 .02 .015 .035 .6 0; gpu_power_draw_watts power 70 330 690 .02 .007 .022 .3 .1
gpu_temperature_celsius temp 29 50 71 .1 .01 .01 0 1; gpu_clock_hertz clock 1e8 1.2e9 1.95e9 .004 .002 .003 -.02 15e6
gpu_memory_used_ratio fbm .01 .5 .93 .01 .001 0 0 .001; gpu_memory_bandwidth_ratio dram 0 .25 .45 .01 .008 .03 .4 0
nvlink_bandwidth_bytes_per_second nvl 0 2e9 1.5e11 .01 .015 .05 -.5 1; pcie_bandwidth_bytes_per_second pcie 1e6 3e7 3e9 .03 .02 .05 .2 1
rdma_throughput_bytes_per_second rdma 0 4e8 3e10 .015 .015 .04 -.6 1; tcp_throughput_bytes_per_second tcp 1e4 2e5 4e7 .2 .2 .15 0 1
pfc_tx_packets_per_second cong 0 2 600 .4 .4 .3 0 .1; ecn_packets_per_second cong 0 5 3e3 .3 .3 .3 0 .1
cnp_packets_per_second cong 0 2 2e3 .3 .35 .3 0 .1; rdma_xmit_wait_per_second cong 0 1e2 1e6 .35 .3 .3 0 1
link_errors_per_second err 0 .005 .03 .5 .6 0 0 .1; tcp_retransmits_per_second err 0 .1 3 .4 .5 .2 0 .1
cpu_usage_ratio cpu .005 .05 .24 .08 .05 .05 0 .001; cpu_throttled_ratio quota 0 .0005 .002 .4 .4 0 0 1e-4
memory_usage_ratio mem .02 .08 .32 .06 .006 .005 0 .001; disk_usage_ratio disk 0 .15 .7 .2 .0005 0 0 .001
"""
# What exporters export, and of each metric the chance; a healthy machine's events a second; the columns that a word of a law moves.
_EXPORTS = {
    "dcgm": "power_draw 1 duty_cycle .7 sm_activity .9 tensor_activity .9 graphics .6 fp_activity .3 temperature .9 gpu_clock .8 "
    "memory_used .7 memory_bandwidth .8 nvlink .8 pcie_bandwidth .7 throttle_reasons .5 ecc .5 rows .4",
    "nvml": "duty_cycle 1 power_draw .95 temperature .95 gpu_clock .85 memory_used .9 throttle .6 link_width .5 pcie_bandwidth .4 ecc .5",
    "vendor": "duty_cycle 1 power_draw .9 temperature .9 memory_used .8 tensor_activity .6 gpu_clock .5 nvlink .5",
    "host": "cpu_usage 1 memory_usage .9 disk_usage .5 cpu_throttled .35 oom .4",
    "network": "rdma_throughput 1 pfc .6 ecn .45 cnp .45 xmit .5 link_errors .6 link_downs .5",
    "tcp": "tcp_throughput 1 retransmits .6",
    "job": "step_seconds 1 steps_total .6",
}
_COUNTERS = {"link_downs_total": 2e-5, "gpu_ecc_uncorrectable_total": 3e-6, "gpu_rows_remapped_total": 5e-6, "oom_kills_total": 0.0}
_MARKS = {"flaps": "link_downs", "down": "link_downs", "ecc": "ecc rows", "oom": "oom", "width": "link_width", "reason": "throttle_reasons"}
_HABITS = {"checkpointing": (5.0, 40.0), "evaluating": (15.0, 80.0), "congested": (3.0, 15.0)}  # the job's ordinary regimes, in seconds
# Who waits how, by layout or by what those do who wait for ever: the culprit's own stage, and the others.
_WAITS = {"tensor": ("waiting", "waiting"), "pipeline": ("waiting", "waiting_p2p"), "expert": ("waiting_expert", "waiting_expert")}
_STOPS = {"spin": ("spinning", "spinning"), "pipeline": ("spinning", "p2p_spinning"), "block": ("blocked", "blocked")}
_Windows = list[tuple[float, float, float, float]]  # start and end in seconds, seconds that it takes to come, height
_Law = namedtuple("_Law", "text regime low high shape reach lasts words")  # a rare regime


def _laws(text: str) -> dict[str, _Law]:
    laws = {}
    for name, numbers, sentence in (line.split(" | ") for line in text.strip().splitlines()):
        regime, low, high, shape, reach, least, most, *words = numbers.split()
        laws[name] = _Law(sentence, regime, float(low), float(high), shape, reach, (float(least), float(most)), tuple(words))
    return laws


def _lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().replace(";", "\n").splitlines()]


def _pairs(words: list[str]) -> dict[str, float]:
    return {word: float(number) for word, number in zip(words[::2], words[1::2], strict=True)}


_REGIMES = {name.rstrip("*"): (name.endswith("*"), _pairs(words)) for name, *words in _lines(_REGIMES_TEXT)}  # is it a state, its levels
_METRICS = {name: (_KINDS.index(kind), [float(number) for number in numbers]) for name, kind, *numbers in _lines(_METRICS_TEXT)}
_FAULT_LAWS, _CAUSE_LAWS, _NUISANCE_LAWS = _laws(_FAULTS_TEXT), _laws(_CAUSES_TEXT), _laws(_NUISANCES_TEXT)
_BOUNDS = {metric.name: (metric.low, metric.high) for metric in CATALOGUE}
FAULTS, CAUSES, NUISANCES = ({name: law.text for name, law in laws.items()} for laws in (_FAULT_LAWS, _CAUSE_LAWS, _NUISANCE_LAWS))


def _between(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _amount(windows: _Windows, time_s: np.ndarray) -> np.ndarray:
    """How much of a regime there is at each time: 0 outside its windows."""
    total = np.zeros(time_s.shape)
    for start, end, rise, height in windows:
        total += height * np.clip(np.minimum((time_s - start) / rise, (end - time_s) / min(rise, 5.0)), 0, 1)
    return total


def _filter(in_T: np.ndarray, keep: float, gain: float) -> np.ndarray:
    """Memory along the first axis: each value keeps a part of the one before it."""
    out_T = in_T.copy()
    for t in range(1, len(out_T)):
        out_T[t] = keep * out_T[t - 1] + gain * in_T[t]
    return out_T


def _course(law: _Law, start: float, end: float, rng: np.random.Generator) -> _Windows:
    """The semi-Markov course of a regime between two times, in windows of height 1 or somewhat less."""
    if law.shape not in ("bouts", "pulses"):
        return [(start, end, rng.uniform(60, 300) if law.shape == "ramp" else 1.0, 1.0)]
    pulses, windows = law.shape == "pulses", _Windows()
    on_s, off_s = (np.mean(law.lasts), rng.uniform(60, 180)) if pulses else (rng.uniform(25, 120), rng.uniform(10, 80))
    while start < end:
        until = start + rng.gamma(4, on_s / 4)
        windows.append((start, min(until, end), 1.0, 1.0 if pulses else rng.uniform(0.75, 1)))
        start = until + rng.gamma(3, off_s / 3)
    return windows


class _Job:
    """A recording in the making: each machine's share of its own level by kind, and what no share can say. Times: seconds since start.

    gpus: that one gauge of a machine averages. trains_M: false for a rollout worker. pace_G: steps done in a second, of those usual.
    marks: word of a law, machines, device, from, to: what a law does beside the means, by `mark`.
    """

    def __init__(self, rng: np.random.Generator, count: int | None, duration_s: float | None) -> None:
        machines, seconds = round(4 * 1000 ** (rng.random() ** 1.6)), rng.uniform(900, 3600)
        self.machines, seconds = count or machines, duration_s or seconds
        self.step_s = float(np.clip(4 * np.exp(rng.normal(0, 1.2)), 0.3, 60.0))
        devices = int(rng.choice([1, 2, 4, 8], p=[0.7, 0.1, 0.1, 0.1])) if self.machines <= 64 else 1
        usual, rows = rng.choice(_INTERVALS, p=[0.12, 0.13, 0.3, 0.2, 0.15, 0.1]), self.machines * seconds * (devices + (devices > 1))
        self.interval_s = next((step for step in _INTERVALS if step >= usual and rows / step <= _ROWS), _INTERVALS[-1])
        self.duration_s = duration_s or float(np.clip(_ROWS * self.interval_s / self.machines, 900.0, seconds))
        self.devices = devices if rows / self.interval_s <= _ROWS else 1
        self.gpus = int(rng.choice([1, 2, 4, 8], p=[0.5, 0.1, 0.15, 0.25])) if self.devices == 1 else 1
        self.layout, place_M = str(rng.choice(list(_WAITS), p=[0.35, 0.4, 0.25])), np.arange(self.machines)
        stages = int(rng.choice([2, 4, 8])) if self.layout == "pipeline" else 1
        stages = stages if 2 * stages <= self.machines else 1
        self.stage_M = place_M % stages if rng.random() < 0.5 else place_M * stages // self.machines
        self.stop = "block" if rng.random() < 0.2 else "pipeline" if stages > 1 else "spin"
        self.trains_M = place_M < self.machines * (rng.uniform(0.5, 0.8) if rng.random() < 0.15 and self.machines >= 8 else 1.0)
        self.rack_M = (place_M + rng.integers(4)) // rng.choice([2, 4, 8, 16])
        self.switch_M = self.rack_M // rng.choice([1, 2, 4])
        exporters = [str(rng.choice(["dcgm", "nvml", "vendor"], p=[0.5, 0.25, 0.25]))]
        exporters += [name for name, chance in (("host", 0.75), ("network", 0.65), ("tcp", 0.25), ("job", 0.3)) if rng.random() < chance]
        words = [word for exporter in exporters for word, chance in _pairs(_EXPORTS[exporter].split()).items() if rng.random() < chance]
        self.metrics = tuple(dict.fromkeys(next(metric.name for metric in CATALOGUE if word in metric.name) for word in words))
        self.start_s, self.final_s, self.lag_s = 1.7e9 + float(rng.integers(10**8)) + rng.random(), np.inf, min(2 * self.step_s, 20.0)
        shape = (max(int(self.duration_s / self.interval_s), 2), self.machines)
        within_TM = rng.uniform(0, 1, self.machines) + np.clip(rng.normal(0, 0.02, shape), -0.1, 0.1)
        self.t_TM = (np.arange(shape[0])[:, None] + within_TM) * self.interval_s
        self.share_TMDJ, self.pace_G = np.ones((*shape, self.devices, len(_KINDS))), np.ones(int(self.duration_s) + 90)
        self.gone_TM, self.off_M = rng.random(shape) < rng.choice([0.0, 0.002, 0.01]), np.zeros(self.machines)
        self.marks, self.checkpoints = list[tuple[str, np.ndarray, int, float, float]](), list[tuple[float, float]]()

    def visit(self, regime: str, who_m: np.ndarray, windows: _Windows, lag_m: object = 0.0, scale_mDJ: object = 1.0) -> None:
        """Bring machines into a regime. scale_mDJ: of its intensity, (machines, devices, kinds) or what broadcasts to it."""
        (state, table), devices = _REGIMES[regime], self.share_TMDJ.shape[2]
        kinds, levels_j = np.array([_KINDS.index(kind) for kind in table]), np.array(list(table.values()))
        amount_Tm = _amount(windows, self.t_TM[:, who_m] - np.asarray(lag_m))
        rows_T = np.flatnonzero(amount_Tm.any(axis=1))
        scale_mDj = np.broadcast_to(np.asarray(scale_mDJ, dtype=float), (len(who_m), devices, len(_KINDS)))[:, :, kinds]
        amount_TmDj = amount_Tm[rows_T][:, :, None, None] * scale_mDj
        at = np.ix_(rows_T, who_m, np.arange(devices), kinds)
        old_TmDj = self.share_TMDJ[at]
        scaled_TmDj = old_TmDj * np.maximum(1 + amount_TmDj * (levels_j - 1), 0)
        self.share_TMDJ[at] = old_TmDj + np.minimum(amount_TmDj, 1) * (levels_j - old_TmDj) if state else scaled_TmDj

    def slow(self, windows: _Windows, loss: float) -> None:
        self.pace_G *= 1 - np.clip(_amount(windows, np.arange(len(self.pace_G)) + 0.0) * loss, 0, 1)

    def restart(self, at_s: float, rng: np.random.Generator) -> float:
        """All end at a time, load and begin again. Gives when they begin to load."""
        who_m, loads_s = np.arange(self.machines), at_s + rng.uniform(20, 90)
        for regime, start, until in (("dead", at_s, loads_s), ("loading", loads_s, loads_s + rng.uniform(30, 150))):
            self.visit(regime, who_m, [(start, until, 1.0, 1.0)], rng.uniform(0, 8, len(who_m)))
            self.slow([(start, until, 1.0, 1.0)], 1.0)
        return float(loads_s)

    def habits(self, rng: np.random.Generator) -> None:
        """Ordinary regimes of the whole job after steady spans, and dips of single samples."""
        who_m, weights = np.flatnonzero(self.trains_M), rng.dirichlet([2.0, 0.8, 0.8])
        steady_s, now_s, windows = _between(rng, 150, 900), -rng.uniform(0, 200), [_Windows() for _ in _HABITS]
        while (now_s := now_s + rng.gamma(4, steady_s / 4)) < self.duration_s - 60:
            kind = int(rng.choice(3, p=weights))
            windows[kind].append((now_s, now_s + _between(rng, *list(_HABITS.values())[kind]), 1.0, 1.0 - 0.5 * (kind == 2)))
            now_s = windows[kind][-1][1]
        self.checkpoints = [window[:2] for window in windows[0]]
        for name, visits in zip(_HABITS, windows, strict=True):
            self.visit(name, who_m, visits, rng.uniform(0, self.lag_s, len(who_m)))
            self.slow(visits, 1.0)
        dip_TM = np.where(rng.random(self.t_TM.shape) < 0.003 * self.interval_s, rng.uniform(0.75, 1.0, self.t_TM.shape), 1.0)
        self.share_TMDJ[..., :4] *= dip_TM[..., None, None]

    def innocent(self, law: _Law, free_M: np.ndarray, rng: np.random.Generator) -> list[int]:
        """What hits all machines, or touches one or a few healthy ones and leaves the others alone. Gives the machines."""
        every, words, one = law.reach == "all", law.words, int(rng.choice(np.flatnonzero(free_M)))
        few_m = rng.choice(np.flatnonzero(free_M), 1 + rng.integers(max(1, free_M.sum() // 10)), replace=False)
        rack_m = np.flatnonzero((self.rack_M == self.rack_M[one]) & free_M)
        who_m = {"all": np.arange(self.machines), "few": few_m, "rack": rack_m}.get(law.reach, np.array([one]))
        start = rng.uniform(0.5 if "final" in words else 0.02, 0.85) * self.duration_s
        end = 1e6 if {"durable", "final", "forever"} & {*words} else start + _between(rng, *law.lasts)
        windows = _course(law, -1e4 if "durable" in words else start, end if end < 1e6 or "durable" in words else self.duration_s + 60, rng)
        if law.shape == "writer":  # all the others wait for it, as they do after each checkpoint
            windows = [(stop, stop + _between(rng, *law.lasts), 1.0, 1.0) for _, stop in self.checkpoints]
            self.visit("spinning", np.setdiff1d(np.flatnonzero(self.trains_M), who_m), windows, self.step_s)
        if "clock" in words:
            self.off_M[who_m] = rng.uniform(20, 120, len(who_m)) * rng.choice([-1, 1], len(who_m))
        state, height = _REGIMES[law.regime][0], rng.uniform(law.low, law.high)
        uneven_mDJ = np.exp(rng.normal(0, 0.12, (len(who_m), 1, 1))) if every and not state else np.ones((1, 1, 1))
        self.visit(law.regime, who_m, windows, rng.uniform(0, self.lag_s, len(who_m)) * every, height * uneven_mDJ)
        if every or law.shape == "writer":
            self.slow(windows, height)
        self.marks += [(word, who_m, 0, window[0], window[1]) for word in words for window in windows]
        if "restart" in words:
            loads_s = self.restart(end, rng)
            if "exchange" in words:  # the last machine comes for the last but one
                self.marks += [("silent", who_m[-2:-1], 0, end, np.inf), ("silent", who_m[-1:], 0, -np.inf, loads_s)]
        self.final_s = start if "final" in words else self.final_s
        return [int(m) for m in who_m]

    def shows(self, law: _Law) -> bool:
        """Whether the site exports anything in which the law sets its machine apart from those that wait for it."""
        near = (_STOPS[self.stop] if _REGIMES[law.regime][0] else _WAITS[self.layout])[0]
        marked = " ".join(_MARKS.get(word, word if word in ("silent", "frozen") else "") for word in law.words).split()
        own, others = _REGIMES[law.regime][1], _REGIMES[near][1]
        part, kinds = (law.low + law.high) / 2, {_KINDS[_METRICS[name][0]] for name in self.metrics if name in _METRICS}
        part = part / self.gpus if "device" in law.words else part
        apart = any(abs(own.get(kind, 1.0) - others.get(kind, 1.0)) * part > 0.12 for kind in kinds)
        apart |= any(word in name for word in marked for name in (*self.metrics, "silent", "frozen"))
        return apart and (law.reach != "stage" or self.stage_M.max() > 1)

    def choose(self, rng: np.random.Generator) -> str:
        """A fault: a tenth are groups, a twentieth pairs, half are grey, and few are such that this site's metrics cannot show them."""
        reach, grey, blind = rng.choice(["group", "two", "one"], p=[0.1, 0.05, 0.85]), rng.random() < 0.52, rng.random() < 0.05
        laws = {name: law for name, law in _FAULT_LAWS.items() if blind or self.shows(law)}
        laws = {name: law for name, law in laws.items() if reach == (law.reach if law.reach in ("one", "two") else "group")} or laws
        return str(rng.choice([name for name, law in laws.items() if ("grey" in law.words) == grey] or list(laws)))

    def fault(self, law: _Law, free_M: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, float, float | None]:
        """Gives the machines (a group: at most two fifths of the job), the onset and the end in seconds since start (None: it lasts)."""
        words, first, place_M = law.words, int(rng.choice(np.flatnonzero(free_M))), np.arange(self.machines)
        of_M = {"rack": self.rack_M, "switch": self.switch_M, "stage": self.stage_M}.get(law.reach, place_M)
        who_m = np.flatnonzero((of_M == of_M[first]) & (self.trains_M == self.trains_M[first]))
        if law.reach != "one" and not 2 <= len(who_m) <= 0.4 * self.machines:  # the next best: neighbours
            size = 2 if law.reach == "two" else int(np.clip(self.machines // 4, 2, 8))
            who_m = np.sort(np.argsort(np.abs(place_M - first) + 1e3 * ~free_M, kind="stable")[:size])
        latest, early = max(min(self.duration_s * 0.85, self.duration_s - 200, self.final_s - 150), 60.0), rng.random()
        onset = 0.0 if early < 0.05 and "grey" in words else rng.uniform(20, 120) if early < 0.13 else rng.uniform(min(120, latest), latest)
        known = [start for start, _ in self.checkpoints if 60 < start < latest]
        onset = float(rng.choice(known)) + 2.0 if "checkpoint" in words and known else min(onset, latest)
        fixed = onset + rng.uniform(240, 1200) if rng.random() < 0.4 else np.inf
        end = fixed if fixed < min(self.duration_s - 120, self.final_s - 60) else None
        windows = _course(law, onset or -1e4, end or self.duration_s + 60, rng)
        state, height = _REGIMES[law.regime][0], rng.uniform(law.low, law.high)
        delay = rng.uniform(40, 240) * (rng.random() < 0.6) if "late" in words else rng.uniform(20, 60) * ("early" in words)
        device, weight_DJ = int(rng.integers(self.devices)), np.ones(self.share_TMDJ.shape[2:])
        if "device" in words:  # the machine's other GPUs wait for this one, as other machines do
            weight_DJ[:, :_GPU_KINDS] = (np.arange(self.devices) == device)[:, None] / self.gpus
        (near, far), trains = _STOPS[self.stop] if state else _WAITS[self.layout], bool(self.trains_M[first])
        self.slow([(start + delay, stop, rise, part) for start, stop, rise, part in windows], height)
        away_M, rest_M = np.abs(self.stage_M - self.stage_M[first]), ~np.isin(place_M, who_m) & self.trains_M & trains
        those = (rest_M & (away_M == 0), rest_M & (away_M > 0), self.trains_M != trains)
        table = zip((near, far, "queueing"), map(np.flatnonzero, those), (0.0, 0.0, rng.uniform(20, 90)), strict=True)
        for regime, those_m, later_s in table:
            lag_m = rng.uniform(0, self.lag_s / 2, len(those_m)) + away_M[those_m] / (away_M.max() + 1) * self.step_s + delay + later_s
            self.visit(regime, those_m, windows, lag_m, height)
        self.visit(near, who_m, windows, delay, height * np.maximum(1 - weight_DJ, state))
        vary_J, levels = rng.uniform(0.7, 1.3, len(_KINDS)), _REGIMES[law.regime][1]
        vary_J[[_KINDS.index(kind) for kind, level in levels.items() if state or level == 0]] = 1.0  # as slow as the job is, no more
        self.visit(law.regime, who_m, windows, delay if "early" in words else 0.0, height * weight_DJ * vary_J)
        self.marks += [(word, who_m, device, window[0], window[1]) for word in words for window in windows]
        if state and end is not None and law.shape == "step":
            self.restart(end, rng)
            self.marks += [("silent", who_m, 0, end, np.inf)] * (rng.random() < 0.5)
        return who_m, onset, end

    def gauges(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Metric to values of shape (T, M, D), or (T, M, 1) for what belongs to the whole machine."""
        share_TMDJ, (scrapes, machines, devices, _) = self.share_TMDJ, self.share_TMDJ.shape
        cool, keep, warm = np.exp(-self.interval_s / 40.0), np.exp(-self.interval_s / _between(rng, 30, 120)), _KINDS.index("temp")
        share_TMDJ[..., warm] = _filter(share_TMDJ[..., warm], cool, 1 - cool)  # heat leaves slowly
        common_TF, own_TMF = (_filter(rng.normal(size=(scrapes, *of, 3)), keep, np.sqrt(1 - keep**2)) for of in ((), (machines,)))
        tail_TMD = np.sqrt(2 / rng.chisquare(4, (scrapes, machines, devices)))
        loud, quiet, busy = _between(rng, 0.5, 1.8), _between(rng, 0.2, 1.5), rng.uniform(0.45, 0.85)
        span_s = min(rng.choice([0.2, 1, 5, 60, 60]), self.interval_s)  # that a reading averages
        done_G, out = np.cumsum(self.pace_G) / self.step_s, dict[str, np.ndarray]()
        until_TM, from_TM = (np.interp(self.t_TM - back, np.arange(len(done_G)), done_G) for back in (0, span_s))
        area_TM, before_TM = (np.floor(x) * busy + np.minimum(x % 1, busy) for x in (until_TM, from_TM))  # of the steps' computing part
        moved_TM = np.maximum(until_TM - from_TM, 1e-3)
        wave_TM = (np.where(moved_TM > 1e-3, (area_TM - before_TM) / moved_TM / busy, 1) - 1) * rng.uniform(0.2, 1)
        for name in (name for name in self.metrics if name in _METRICS):
            j, (rest, low, high, spread, own, common, swing, quantum) = _METRICS[name]
            at_TMD = share_TMDJ[..., j] if j < _GPU_KINDS else share_TMDJ[..., j].mean(axis=2, keepdims=True)
            by_stage_M = (min(3 * spread, 0.2) * rng.normal(size=8))[self.stage_M]
            by_role_M = ((0.25 if swing > 0.3 else 0.02) * rng.normal(size=2))[self.trains_M * 1]
            level_M = _between(rng, low, high) * np.exp(by_stage_M + by_role_M + spread * rng.normal(size=machines))
            level_MD = np.minimum(level_M[:, None] * np.exp(0.7 * spread * rng.normal(size=at_TMD.shape[2])), 1.2 * high)
            load_F = rng.normal(0, 0.4, 3)
            load_F[(j >= _GPU_KINDS) + (j >= _KINDS.index("cpu"))] = 1.0  # factors: GPUs, network, host
            load_F /= np.linalg.norm(load_F)
            white_TMD = 0.6 * rng.normal(size=at_TMD.shape) * tail_TMD[:, :, : at_TMD.shape[2]]
            own_TMD = own * loud * (0.8 * (own_TMF @ load_F)[..., None] + white_TMD)
            noise_TMD = own_TMD + common * quiet * (common_TF @ load_F)[:, None, None]
            moves_TMD = np.exp(np.clip(noise_TMD, -4, 4)) if own >= 0.2 else 1 + noise_TMD + (swing * wave_TM)[..., None]
            value_TMD = rest + (level_MD - rest) * at_TMD * np.maximum(moves_TMD, 0)
            out[name] = np.round(value_TMD / quantum) * quantum if quantum else value_TMD
        shape, whole = self.t_TM.shape, dict[str, np.ndarray]()  # counters, bits, widths and steps
        for name, rate in _COUNTERS.items():
            whole[name] = rng.poisson(0.4, machines) + np.cumsum(rng.random(shape) < rate * self.interval_s, axis=0)
        last_TM, before_TM = (np.interp(np.floor(until_TM) - back, done_G, np.arange(len(done_G))) for back in (0, 1))
        whole["step_seconds"] = np.maximum(last_TM - before_TM, 0.5 * self.step_s) * (1 + 0.01 * rng.normal(size=shape))
        whole["gpu_throttle_reasons"] = 4 * (rng.random(shape) < rng.beta(0.3, 4, machines))
        whole |= {"pcie_link_width": np.full(shape, 16.0), "steps_total": np.floor(until_TM) + rng.integers(10**5)}
        return out | {name: value_TM[..., None].astype(float) for name, value_TM in whole.items() if name in self.metrics}

    def mark(self, values_TMBK: np.ndarray, word: str, who_m: np.ndarray, device: int, start: float, end: float) -> None:
        """Do to readings, between two times, what a word of a law says."""
        rng, gpu = np.random.default_rng([int(self.start_s), len(word)]), "gpu_ nvlink pcie_bandwidth"
        columns = {"lost": gpu, "frozen": gpu, "units": "per_second watts", "broken": "_", **_MARKS}.get(word, "").split()
        at_K = [k for k, name in enumerate(self.metrics) if any(part in name for part in columns)]
        at_K = [int(rng.choice(at_K))] if word in ("units", "broken") and at_K else at_K
        factor, lanes, later_m = rng.choice([0.0, np.nan]), rng.choice([4, 8]), rng.uniform(0, 400 * (word == "units"), len(who_m))
        for m, later_s in zip(who_m, later_m, strict=True):
            first, last = np.searchsorted(self.t_TM[:, m], [start + later_s, np.inf if word == "units" else end])
            part_TBK = values_TMBK[first:last, m]
            if word == "silent":
                self.gone_TM[first:last, m] = True
            elif word == "frozen":
                part_TBK[..., at_K] = values_TMBK[max(first - 1, 0), m][None][..., at_K]
            elif word == "lost" and self.gpus == 1:
                part_TBK[:, device + 1 if self.devices > 1 else 0, at_K] = np.nan
            elif word == "units" or (word == "broken" and rng.random() < 0.8):
                part_TBK[..., at_K] *= factor if word == "broken" else 1 / 1024
            elif word in ("width", "reason"):
                part_TBK[:, 0, at_K] = lanes if word == "width" else 0x48
            elif word in _MARKS:
                values_TMBK[first:, m, 0, at_K] += rng.integers(1, 3)

    def samples(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """times_N, machine_N, device_N and values_NK of what was scraped. Block 0 is the whole machine, the others its devices."""
        gauges, blocks, shape = self.gauges(rng), self.devices + (self.devices > 1), self.t_TM.shape
        values_TMBK = np.full((*shape, blocks, len(self.metrics)), np.nan)
        for k, name in enumerate(self.metrics):
            values_TMBK[:, :, slice(1, None) if gauges[name].shape[2] > 1 else slice(0, 1), k] = np.clip(gauges[name], *_BOUNDS[name])
        for mark in self.marks:
            self.mark(values_TMBK, *mark)
        at_T, at_M, at_B = np.nonzero(~self.gone_TM[..., None] & (~np.isnan(values_TMBK).all(axis=3) | (blocks == 1)))
        return (self.start_s + self.t_TM + self.off_M)[at_T, at_M], at_M, at_B - 1, values_TMBK[at_T, at_M, at_B]


def draw(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> World:
    """One world (world.py). Each concern has a generator of its own: without the fault all other numbers stay what they are."""
    if fault not in (None, NO_FAULT, *FAULTS):
        raise ConfigError(f'regimes has no fault "{fault}": use {", ".join(FAULTS)}')
    site, labels, habits, causes, nuisances, faults, noise = (np.random.default_rng([seed, concern]) for concern in range(41, 48))
    job = _Job(site, machines, duration_s)
    free_M, cause = np.ones(job.machines, dtype=bool), str(causes.choice(list(CAUSES))) if causes.random() < 0.45 else None
    free_M[-2:] = cause != "exchange"  # the machine that leaves, and the one that comes
    clean_M = free_M.copy()
    job.habits(habits)
    touched = [str(name) for name in nuisances.choice(list(NUISANCES), min(nuisances.poisson(1.6), 5), replace=False)]
    touched = [name for name in touched if name != "late_writer" or job.checkpoints]
    for name in touched:
        clean_M[job.innocent(_NUISANCE_LAWS[name], free_M, nuisances)] = False
    if cause:
        job.innocent(_CAUSE_LAWS[cause], free_M, causes)
    names = [f"{('node', 'gpu-', 'w')[seed % 3]}{number:04d}" for number in labels.permutation(9999)[: job.machines]]
    truth = Truth(cause=cause, nuisances=tuple(sorted(touched)))
    chosen = fault or (job.choose(faults) if faults.random() < 0.62 else NO_FAULT)
    if chosen != NO_FAULT:
        who_m, onset, end = job.fault(law := _FAULT_LAWS[chosen], clean_M if clean_M.any() else free_M, faults)
        of, until = tuple(names[m] for m in who_m), None if end is None else job.start_s + end
        culprits, group = (of, ()) if law.reach in ("one", "two") else ((), of)
        truth = Truth(culprits, group, chosen, job.start_s + onset, until, "grey" in law.words, cause, truth.nuisances)
    tables = [dict(zip(names, at_M.tolist(), strict=True)) for at_M in (job.stage_M, job.trains_M, job.rack_M, job.switch_M)]
    racks, switches = ({name: f"{word}{at}" for name, at in table.items()} if labels.random() < 0.6 else {}
                       for word, table in zip(("rack", "leaf"), tables[2:], strict=True))  # fmt: skip
    return World(
        NAME, seed, tuple(names), job.metrics, job.interval_s, job.step_s, *job.samples(noise), truth,
        tuple(f"gpu{d}" for d in range(job.devices)) if job.devices > 1 else (), tables[0] if job.stage_M.any() else {},
        {} if job.trains_M.all() else {name: "trainer" if trains else "rollout" for name, trains in tables[1].items()}, racks, switches,
        {name: float(off) for name, off in zip(names, job.off_M, strict=True) if off},
    )  # fmt: skip
