"""Token flows: a job is a network of queues between pools of workers, solved second by second as a fluid.

Each machine has rates (clock, memory, NVLink, PCIe, network, processors, storage), each step takes seconds of each, and the slowest of a
pool holds back its pool, its queues the pools before and after. Every metric is a function of work served, of seconds waited (spinning in
a collective, or blocked on a queue: then the duty cycle falls) and of rates. A fault scales a machine's rates or makes them zero;
a nuisance acts on what exporters read, or on demands for which no step waits.
Legend: T seconds, M machines, U units (GPUs where devices are exported, else machines), N scrapes, B batches, K metrics.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from minder.model.errors import ConfigError
from minder.model.metrics import CATALOGUE, find_metric
from minder.simulate.worlds.world import NO_FAULT, Truth, World

__all__ = ["CAUSES", "FAULTS", "NAME", "NUISANCES", "draw"]
NAME = "rollouts"
_Rng = np.random.Generator
_Row = tuple[str, str, str]  # how (words of _apply); effects; the sentence
# An effect: a RATE, or all metrics that begin so, *scale +addition (a~b: drawn), @ seconds in which it grows, > and < seconds from which
# and until which it acts; ^ from each bout to the end. ANY, WIDE: one metric drawn. JAM: all that count congestion.
# fmt: off
_HARM: dict[str, _Row] = {
    "hang": ("stop either", "job_alive+3000@3000", "A worker stops in its host process or in an endless kernel; all await its tokens."),
    "machine_lost": ("stop silent", "", "A machine is gone, with its samples."), "rack_dead": ("rack stop silent", "", "A rack is gone."),
    "gpu_lost": ("stop blank", "gpu_memory_used*.1 memory_usage*.6 job_pro*.1", "A GPU falls off the bus: gauges end, the worker dies."),
    "gauges_frozen": ("stop frozen", "job_busy*0+1", "The driver locks up: the worker stands, GPU gauges repeat their last values."),
    "disk_full": ("stop:20", "disk_usage+1@18 job_io+1.5e9<20", "The local disk is full as a checkpoint is written; the writer stands."),
    "oom_kill": ("stop:170", "memory_usage+.9@170<170 oom_+1>170 job_pro*.1>170 memory_usage*.5>170", "A worker grows until it is killed."),
    "clock_cap": ("one", "CLK*.55~.92 gpu_thr*0+4", "A GPU, or all of a machine, keeps a lower clock."),
    "throttle_bouts": ("one bouts:20,120,30,120", "CLK*.45~.82 gpu_thr*0+72 gpu_temp+5~12", "Heat brakes the clock in bouts."),
    "nvlink_lane": ("one", "NVL*.25~.5 link_err+3~60 nvlink*1.06~1.2", "An NVLink runs with fewer lanes and replays."),
    "dirty_optics": ("", "NET*.45~.8 JAM*2~7+0~9 link_err+3~80 tcp_retr*2+1~20", "Dirty optics: errors, retransmits, back-pressure."),
    "pcie_degraded": ("one", "PCIE*.08~.2 pcie_link*.25~1", "PCIe runs at a part of its width or speed."),
    "nic_slow": ("", "NET*.3~.7 JAM*2~7+0~9 tcp_round*1.8", "A network card sends at a part of its rate and its port pushes back."),
    "link_flap": ("bouts:4,25,40,160", "NET*.02 link_downs+1^ link_err+10~300", "A link goes down and up, time and again."),
    "cpu_hog": ("", "CPU*.6~.93 cpu_usage+.1~.5 job_run*4+.3~2", "A stray process takes processors from loaders and launches."),
    "disk_slow": ("", "DISK*.4~.88 job_busy*.5+.5", "Local storage is many times slower: data and checkpoints come late."),
    "memory_leak": ("", "memory_usage+.9@150 job_mem+9e11@150 CPU*.3~.6>140 DISK*.5>140 job_run*3+.5>140", "Memory grows: it swaps."),
    "hbm_slow": ("one", "HBM*.2~.35 gpu_rows+1~8", "GPU memory is remapped and retried, and serves less."),
    "freezes": ("stop bouts:5,25,40,150", "", "A worker freezes at times."), "slow_start": ("start", "CLK*.55~.9", "Slow from the start."),
    "slow_pair": ("pair", "CLK*.5~.9", "Two machines that share a batch of power supplies keep lower clocks."),
    "loader_pair": ("pair", "CPU*.55~.9 cpu_usage+.08~.35 job_run*3+.3~1", "Two machines with one more service than others load slowly."),
    "rack_capped": ("rack", "CLK*.55~.9 gpu_thr*0+128", "A rack's power feed is short and all its clocks are capped."),
    "switch_degraded": ("switch", "NET*.3~.7 JAM*1.8~5+0~5 tcp_round*1.8", "A leaf switch serves its machines at a part of its rate."),
    "stage_slow": ("stage", "CPU*.55~.9 cpu_usage+.05~.2", "The machines of one pipeline stage, or block of ranks, are slow alike."),
}
_JOB_WIDE: dict[str, _Row] = {
    "storage_slow": ("", "DISK*.42~.77 tcp_round*3~6", "Shared storage serves all machines slower than the job reads."),
    "congestion": ("", "NET*.35~.6 JAM*3~12", "The fabric is congested for all."), "job_ends": ("", "", "The job ends; the machines idle."),
    "data_loading": ("", "CPU*.42~.77 cpu_usage*1.1", "Loaders of all machines come late."),
    "evaluation": ("", "", "The job evaluates in bursts, all their share."), "checkpoint_stalls": ("", "", "Checkpoints take far longer."),
    "restart": ("", "", "The job is started again, in some cases with a machine exchanged."),
    "phase_change": ("on", "LOAD*.6~1.8 NET*.7~1.4", "Another phase of training: another mix of demands."),
    "longer_sequences": ("on", "LOAD*1.3~1.9@900 gpu_memory_used+.06@900", "Sequences or answers grow longer, and so do steps."),
    "deadlock": ("", "", "A user's mistake in the order of collectives: all stand, no machine is at fault."),
}
_HARMLESS: dict[str, _Row] = {
    "late_writer": ("", "", "Rank 0 writes on after each checkpoint."), "agent_lost": ("on silent", "", "An agent ends, the work goes on."),
    "agent_restarted": ("silent", "", "An agent is away for minutes."), "warm_slot": ("start", "gpu_temp+4~11", "A slot is always warm."),
    "exporter_frozen": ("frozen", "", "An exporter repeats old values."), "clock_offset": ("", "", "A clock is up to 2 minutes off."),
    "broken_metric": ("on", "ANY*0", "A metric reads zero."), "hot_aisle": ("on rack", "gpu_temp+4~11@300", "Inlets grow warmer."),
    "standing_outlier": ("start", "ANY*.75~1.3", "One metric differs."), "lighter_share": ("start", "LOAD*.75~.93", "A machine has less."),
    "unit_change": ("on", "WIDE*.001", "A machine's agent begins to export one metric in another unit."),
    "second_tenant": ("", "cpu_usage+.08~.3 memory_usage+.02~.15 tcp_thr+2e7~5e8", "A sidecar takes what the job does not miss."),
    "cron": ("start bouts:20,60,150,500", "cpu_usage+.1~.4 tcp_thr+1e6~4e8", "A scheduled task runs every few minutes."),
    "old_link_errors": ("start", "link_err+2~40 link_downs+3~40", "A port has had errors and link downs for long."),
    "cache_growth": ("on", "memory_usage+.1~.3@1200", "The page cache of a machine grows."),
}
_OFTEN = (11, 8, 4.5, 8, 6, 6, 6, 4, 3.5, 2, 2.5, 2.5, 2.5, 2.5, 2.5, 2, 2.5, 2, 2.5, 3, 8.5, 4, 3.5, 2.5, 2)  # of 100, in order
_SITE: tuple[tuple[float, float, str], ...] = (  # how often a site exports such metrics, how often each of them, how they begin
    (1.0, 0.93, "gpu_duty gpu_power gpu_temp gpu_clock gpu_memory_used"), (0.4, 0.8, "tcp_receive tcp_send tcp_retr tcp_round"),
    (0.7, 0.8, "gpu_sm gpu_tensor gpu_memory_band nvlink pcie_band gpu_graphics gpu_fp"), (0.4, 0.9, "step_seconds steps_total"),
    (0.5, 0.7, "gpu_thr pcie_link gpu_ecc gpu_rows"), (0.95, 0.9, "cpu_usage memory_usage disk_usage tcp_thr"),
    (0.85, 0.85, "rdma_thr pfc ecn cnp rdma_xmit link_err link_downs"), (0.2, 0.9, "nccl_o nccl_t"),
    (0.35, 0.75, "job_cpu job_busy job_run job_alive job_pro job_mem job_log_lines job_io job_tcp oom_kills"),
)
_READ: dict[str, tuple[float, float, float, int]] = {  # spread, noise, quantum, seconds averaged (0: a scrape, -1: a site's own)
    "gpu_duty": (0.003, 0.012, 0.01, -1), "gpu_power": (0.03, 0.03, 0.1, 1), "gpu_temp": (0.04, 0.008, 1.0, 1),
    "gpu_clock": (0.002, 0.003, 1.5e7, 1), "gpu_memory_used": (0.01, 0.001, 0.001, 1), "gpu_sm": (0.015, 0.03, 0.001, -1),
    "gpu_thr": (0, 0, 1.0, 1), "gpu_": (0.02, 0.03, 0.001, -1), "nvlink": (0.015, 0.02, 1.0, -1), "pcie_band": (0.05, 0.05, 1.0, -1),
    "pcie_link": (0, 0, 1.0, 1), "rdma_thr": (0.01, 0.02, 1.0, 0), "pfc": (0.7, 0.6, 1e-6, 0), "ecn": (0.6, 0.5, 1e-6, 0),
    "cnp": (0.6, 0.5, 1e-6, 0), "rdma_xmit": (0.4, 0.35, 1e-6, 0), "link_err": (0.8, 1.0, 0.1, 0), "cpu": (0.12, 0.1, 0.0001, 0),
    "memory": (0.01, 0.004, 0.0001, 1), "disk": (0.0, 0.0, 0.0001, 1), "tcp_thr": (0.2, 0.2, 1.0, 0), "tcp_retr": (0.4, 0.5, 0.1, 0),
    "tcp_round": (0.15, 0.2, 1e-6, 1), "tcp": (0.4, 0.9, 1.0, 1), "step_s": (0, 0, 1e-6, 1), "job_cpu": (0.08, 0.05, 0.001, 0),
    "job_busy": (0.02, 0.05, 0.01, 0), "job_alive": (0.1, 0.3, 0.01, 1), "job_pro": (0, 0, 1.0, 1),
    "job_mem": (0.02, 0.002, 1.0, 1), "job_log_lines": (0, 0, 1.0, 1), "job_run": (0.2, 0.3, 0.0001, 0), "else": (0.02, 0.02, 1e-6, 0),
}
# fmt: on
FAULTS, CAUSES, NUISANCES = ({name: row[2] for name, row in table.items()} for table in (_HARM, _JOB_WIDE, _HARMLESS))
_RATES = ("CLK", "HBM", "NVL", "PCIE", "NET", "CPU", "DISK", "LOAD")  # LOAD: the work a step brings to a unit
_EFFECT = re.compile(r"([A-Za-z_]+)(?:\*([\d.e]+)(?:~([\d.e]+))?)?(?:\+([\d.e]+)(?:~([\d.e]+))?)?(?:@(\d+))?(?:>(\d+))?(?:<(\d+))?(\^?)")


# A job before it is solved. every: seconds between scrapes. pool_U: 0 trainer, 1 rollout, 2 reward, 3 reference. rate: (T, U), 1 as built.
# need, own: seconds of a training step and of a share of rollout or evaluation. lengths: of shares, by batch. flag: stands (T, U); held,
# down, evaluates, seconds of a checkpoint (T). stuck_U: what a standing unit does, in spins. part_U: the share of its GPUs that is hit.
# edits: metric, from, until, units, scale, addition. blind: machines that are not seen. spans: what exporters lose. spare: exchanged.
_Job = NamedTuple("_Job", [  # noqa: UP014
    ("seconds", int), ("per", int), ("every", int), ("step", float), ("names", list[str]), ("metrics", list[str]), ("pool_U", np.ndarray),
    ("rate", dict[str, np.ndarray]), ("blocks", dict[str, np.ndarray]), ("need", dict[str, float]), ("own", dict[str, float]),
    ("lengths_BU", np.ndarray), ("flag", dict[str, np.ndarray]), ("knob", dict[str, float]), ("stuck_U", np.ndarray),
    ("part_U", np.ndarray), ("edits", list[tuple[str, int, int, np.ndarray, np.ndarray, np.ndarray]]), ("blind", set[int]),
    ("spans", list[tuple[str, int, int, np.ndarray]]), ("spare", list[tuple[int, int, int]]), ("off_s", dict[int, float]),
])  # fmt: skip


def draw(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> World:
    """One world (minder.simulate.worlds.world.Family). Raises ConfigError for a fault that there is not."""
    if fault not in (None, NO_FAULT, *FAULTS):
        raise ConfigError(f'the family {NAME} has no fault "{fault}": use {", ".join(FAULTS)}')
    plan, noise, harm, reading = (np.random.default_rng([seed, 90210, stream]) for stream in range(4))
    job = _job(plan, noise, machines, duration_s)
    cause, nuisances, start_s = _cause(job, plan), _nuisances(job, plan), 1.76e9 + float(plan.integers(0, 10**7))
    harmed, chosen = harm.random() < 0.62, str(harm.choice(list(FAULTS), p=np.array(_OFTEN) / sum(_OFTEN)))
    name, truth = (chosen if harmed else NO_FAULT) if fault is None else fault, Truth(cause=cause, nuisances=nuisances)
    if name != NO_FAULT:
        places, first, last = _inflict(job, harm, name)
        named, words = tuple(job.names[m] for m in places), _HARM[name][0].split()
        group, grey = any(word in job.blocks for word in words), name == "freezes" or not any(word.startswith("stop") for word in words)
        until_s, culprits = start_s + last if last < job.seconds else None, () if group else named
        truth = Truth(culprits, named if group else (), name, start_s + first, until_s, grey, cause, nuisances)
    return _scrape(job, _gauges(job, noise), seed, start_s, truth, plan, reading)


def _wander(rng: _Rng, seconds: int, count: int, every: int, deviation: float) -> np.ndarray:
    """(T, count): slow noise about 0."""
    knots = rng.standard_normal((seconds // every + 2, count)).astype(np.float32) * np.float32(deviation)
    low_T, part_T = np.divmod(np.arange(seconds), every)
    return np.asarray(knots[low_T] + (knots[low_T + 1] - knots[low_T]) * (part_T / every)[:, None].astype(np.float32))


def _job(rng: _Rng, noise: _Rng, machines: int | None, duration_s: float | None) -> _Job:
    """The healthy job: its pools, demands, places and what its site exports."""
    size = np.exp(rng.uniform(np.log(500), np.log(4000))) if rng.random() < 0.1 else 36 * np.exp(0.85 * rng.standard_normal())
    count, kind = machines or int(np.clip(size, 4, 4000)), str(rng.choice(["dense", "moe", "rl", "tune"], p=[0.33, 0.2, 0.32, 0.15]))
    minutes, least = rng.uniform(15, 60), int(rng.choice([1, 2, 5, 10, 15, 30], p=[0.08, 0.1, 0.2, 0.27, 0.23, 0.12]))
    per = 8 if rng.random() < 0.3 and count <= 24 else 1
    seconds, rows = int(duration_s or minutes * 60), count * (9 if per == 8 else 1)
    every = next((s for s in (1, 2, 5, 10, 15, 20, 30) if s >= least and rows * seconds / s < 122_000), 30)
    seconds = seconds if duration_s else int(np.clip(122_000 * every / rows, 900, seconds))
    stages, colocated = int(rng.choice([1, 2, 4, 8])) if kind in ("dense", "moe") and count >= 8 else 1, rng.random() < 0.3 or count < 5
    low, high = {"dense": (0.3, 30), "moe": (1, 40), "rl": (6, 22), "tune": (0.3, 6)}[kind]
    step, units, place_M = float(np.exp(rng.uniform(np.log(low), np.log(high)))), count * per, np.arange(count)
    shares = np.cumsum([rng.uniform(0.38, 0.55), *(rng.uniform(0.04, 0.12, 2) if count >= 10 else (0.0, 0.0))])
    pool_M = np.minimum(np.searchsorted(np.round(shares * count), place_M, side="right") + 1, 4) % 4 * (kind == "rl" and not colocated)
    rack, strided = max(2, min(int(rng.integers(4, 17)), count // 3)), rng.random() < 0.4
    leaf = max(2, min(rack * int(rng.integers(1, 3)), count // 3))
    blocks = {"rack": place_M // rack, "switch": place_M // leaf, "stage": place_M % stages if strided else place_M * stages // count}
    c, h, v, x = rng.uniform(0.5, 0.7), rng.uniform(0.07, 0.13), rng.uniform(0.05, 0.12), rng.uniform(0.02, 0.05)
    hidden, share = rng.uniform(0.3, 0.7) * (c + h), rng.uniform(8, 28) if kind == "rl" else rng.uniform(10, 40)
    both = {"CPU": rng.uniform(0.4, 0.8), "DISK": rng.uniform(0.1, 0.3)}
    need = {"CLK": c, "HBM": h, "NVL": v, "PCIE": x, "hidden": hidden, "NET": 0.97 - c - h - v - x + hidden, **both}
    own = {"CLK": 0.4, "HBM": 0.46, "NVL": 0.08, "PCIE": 0.03, **both}
    rate = {name: np.repeat((1 - np.abs(noise.normal(0, 0.008, (1, units)))).astype(np.float32), seconds, 0) for name in _RATES}
    rate["LOAD"] *= np.repeat(rng.normal(1, 0.02, stages)[blocks["stage"]], per).astype(np.float32)
    rate["LOAD"] += _wander(noise, seconds, units, int(rng.integers(15, 90)), 0.035 if kind == "moe" else 0.006)
    style = str(rng.choice(["node-{2:04d}", "gpu{2:03d}", "r{0:02d}n{1:02d}", "10.4.{0}.{1}"]))
    names = [style.format(m // 16, m % 16 + 1, m + 1) for m in range(count + 1)]
    metrics = [metric.name for often, each, text in _SITE if rng.random() < often for metric in CATALOGUE
               if metric.name.startswith(tuple(text.split())) and rng.random() < each]  # fmt: skip
    flag = {name: np.zeros(seconds, bool) for name in ("held", "down", "evaluates")}
    flag["stands"], flag["saves"] = np.zeros((seconds, units), bool), np.full(seconds, rng.uniform(8, 30) if rng.random() < 0.4 else 3.0)
    flag["evaluates"][int(rng.uniform(30, 200)) :: int(rng.uniform(150, 420))] = kind == "tune"
    knob = {  # trainers roll out between steps; the fast take more from one pot; batches by which rollouts may be ahead; waiting spins; ...
        "colocated": kind == "rl" and colocated, "shared": rng.random() < 0.5, "lag": int(rng.random() < 0.5), "spins": rng.random() < 0.6,
        "save_every": rng.uniform(150, 900), "latest": np.inf, "late_writer": False, "share": share,
    }  # fmt: skip
    need, own = {name: part * step for name, part in need.items()}, {name: part * share for name, part in own.items()}
    lengths_BU = np.exp(noise.normal(0, 0.1 if kind == "rl" else 0.02, (64, units)))
    return _Job(seconds, per, every, step, names, metrics, np.repeat(pool_M, per), rate, blocks, need, own, lengths_BU, flag, knob,
                np.zeros(units, np.float32), np.ones(units, np.float32), [], set(), [], [], {})  # fmt: skip


def _apply(job: _Job, rng: _Rng, row: _Row, units: np.ndarray, first: int, last: int) -> None:
    """Does what a row of a table says to units between two seconds."""
    spans = [(first, last)]
    for word, _, text in (word.partition(":") for word in row[0].split()):
        if word == "bouts":
            (on, longest, off, apart), spans = (float(number) for number in text.split(",")), []
            while (begin := spans[-1][1] + int(rng.uniform(off, apart)) if spans else first) < last:
                spans.append((begin, min(last, begin + int(rng.uniform(on, longest)))))
        elif word in ("silent", "frozen") or (word == "blank" and (job.per > 1 or rng.random() < 0.5)):
            job.spans.append((word, first, last, units[:1] if word == "blank" else units))
        elif word == "stop":
            row = (row[0], row[1] + f" STOP*1>{text or 0}", row[2])
    wide = [name for name in job.metrics if (metric := find_metric(name)) and metric.high > 1e6 and not metric.counter] or job.metrics
    for found in _EFFECT.finditer(row[1]):
        low, high, least, most, grow, late, until = (float(text) if text else None for text in found.groups()[1:8])
        scale, add = (1.0 if low is None else rng.uniform(low, high or low)), (0.0 if least is None else rng.uniform(least, most or least))
        name = {"ANY": str(rng.choice(job.metrics)), "WIDE": str(rng.choice(wide))}.get(found[1], found[1])
        for begin, end in spans:
            begin, end = begin + int(late or 0), last if found[9] else min(end, begin + int(until)) if until else end
            grown_t = np.minimum(1.0, np.arange(1, max(1, end - begin + 1)) / (grow or 1))[:, None]
            if name == "STOP":
                job.flag["stands"][begin:end, units] = True
            elif name in _RATES:
                slack = job.need[name] / job.step if name in ("CPU", "DISK") else 1.0  # these wait for none until they are needed
                job.rate[name][begin:end, units] *= ((1 + (scale - 1) * grown_t) * slack).astype(np.float32)
            else:
                starts = ("pfc", "ecn", "cnp", "rdma_xmit") if name == "JAM" else (name,)
                job.edits.extend((start, begin, end, units, 1 + (scale - 1) * grown_t, add * grown_t) for start in starts)


def _cause(job: _Job, rng: _Rng) -> str | None:
    """Something that hits the job as a whole, in some worlds."""
    happens, name, end = rng.random() < 0.45, str(rng.choice(list(CAUSES))), job.seconds
    first, for_s = int(end * rng.uniform(*(0.78, 0.9) if name in ("deadlock", "job_ends") else (0.15, 0.8))), int(rng.uniform(120, 600))
    if not happens:
        return None
    _apply(job, rng, _JOB_WIDE[name], np.arange(len(job.pool_U)), first, end if _JOB_WIDE[name][0] == "on" else min(end, first + for_s))
    if name == "evaluation":
        job.flag["evaluates"][first : first + for_s : int(rng.uniform(90, 240))] = True
    elif name == "checkpoint_stalls":
        job.flag["saves"][first:], job.knob["save_every"] = rng.uniform(25, 150), min(job.knob["save_every"], 240.0)
    elif name == "restart":
        job.flag["down"][first : first + for_s // 3] = True
        if rng.random() < 0.4:
            job.spare.append((first, first + for_s // 3, int(rng.integers(0, len(job.blocks["rack"])))))
            job.blind.add(job.spare[0][2])
    elif name in ("deadlock", "job_ends"):
        job.flag["held" if name == "deadlock" else "down"][first:], job.knob["latest"] = True, first - 200
    return name


def _nuisances(job: _Job, rng: _Rng) -> tuple[str, ...]:
    """One or two healthy things that look bad."""
    names, end, rack_M = rng.choice(list(NUISANCES), int(rng.integers(1, 3)), replace=False), job.seconds, job.blocks["rack"]
    for name in names:
        place, how = int(rng.integers(0, len(rack_M))), _HARMLESS[name][0].split()
        first = 0 if "start" in how else int(end * rng.uniform(0.1, 0.85))
        last = end if {"start", "on"} & set(how) else min(end, first + int(rng.uniform(120, 600)))
        near_M = rack_M == rack_M[place] if "rack" in how else np.arange(len(rack_M)) == place
        _apply(job, rng, _HARMLESS[name], np.flatnonzero(np.repeat(near_M, job.per)), first, last)
        job.blind.update({place} if {"silent", "frozen"} & set(how) else ())
        job.off_s.update({place: float(rng.uniform(8, 120) * rng.choice([-1, 1]))} if name == "clock_offset" else {})
    job.knob["late_writer"] = "late_writer" in names
    return tuple(str(name) for name in names)


def _inflict(job: _Job, rng: _Rng, name: str) -> tuple[list[int], int, int]:
    """Puts the fault into the job; gives the machines' places, the onset and the end, in seconds."""
    end, how, count = job.seconds, _HARM[name][0].split(), len(job.blocks["rack"])
    low = min(320.0, 0.45 * end) if rng.random() < 0.93 else min(60.0, 0.2 * end)
    first = int(min(rng.uniform(low, max(low + 1, end - 510.0)), job.knob["latest"])) * ("start" not in how)
    place = int(rng.choice(free := [m for m in range(count) if m not in job.blind]))
    alike = [m for m in free if m != place and job.pool_U[m * job.per] == job.pool_U[place * job.per]] or free
    other, brief, for_s, one = int(rng.choice(alike)), rng.random() < 0.15, int(rng.uniform(240, 700)), rng.random() < 0.5
    places = sorted({place, other}) if "pair" in how else [place]
    for key in set(job.blocks) & set(how):
        block_M = job.blocks[key] if job.blocks[key].max() > 1 else job.blocks["rack"]
        places = [int(m) for m in np.flatnonzero(block_M == block_M[place])]
    stops = any(word.startswith("stop") for word in how) and name != "freezes"
    last, gpu = min(end, first + for_s) if brief and not stops and first else end, int(rng.integers(0, 8))
    units = np.flatnonzero(np.repeat(np.isin(np.arange(count), places), job.per))
    if "one" in how and one:
        job.part_U[units] = 1.0 if job.per == 8 else 1 / 8
        units = units[[gpu]] if job.per == 8 else units
    job.stuck_U[units] = rng.uniform(0.8, 4.5) * ("either" in how and one)  # in a kernel
    _apply(job, rng, _HARM[name], units, first, last)
    job.flag["down"][first + int(rng.uniform(*(20, 240) if "silent" in how else (200, 800))) :] |= stops and rng.random() < 0.4
    return places, first, last


def _paces(job: _Job, need: dict[str, float], part: np.ndarray | float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """(T, U): seconds of GPU work, and in all, that a share takes alone; part: the share of a unit's GPUs that is hit."""
    gpu = {name: job.rate[name] * part + job.rate[name][0] * (1 - part) for name in ("CLK", "HBM", "NVL", "PCIE")}
    busy_TU = sum(need[name] / gpu[name] for name in ("CLK", "HBM", "NVL")) * job.rate["LOAD"] + need["PCIE"] / gpu["PCIE"]
    return busy_TU, np.maximum(busy_TU, np.maximum(need["CPU"] / job.rate["CPU"], need["DISK"] / job.rate["DISK"]))


def _pour(job: _Job, done_U: np.ndarray, able_U: np.ndarray, cap: float) -> np.ndarray:
    """(U,): shares that rollout and scoring pools serve in a second: rollouts up to a cap, scoring up to the rollouts."""
    roll_U, given_U, done_u = job.pool_U == 1, np.zeros(len(done_U)), done_U[job.pool_U == 1]
    given_U[roll_U] = np.minimum(able_U[roll_U], np.maximum(0, min(cap, np.floor(done_u.min() + 1e-6) + 1) - done_u))
    if job.knob["shared"]:  # one pot; else each has its part of a batch, and the batch waits for the last
        given_U[roll_U] = able_U[roll_U] * min(1.0, max(0.0, cap - done_u.mean()) * len(done_u) / max(able_U[roll_U].sum(), 1e-9))
    return np.where(job.pool_U > 1, np.clip(done_u.mean() - done_U, 0, able_U), given_U)


def _flow(job: _Job, rng: _Rng) -> dict[str, np.ndarray]:
    """Second by second: steps of the trainers (T), shares of others (T, U), who waits in a collective, who writes, weights on their way."""
    train_U, (end, units), net, flag, knob = job.pool_U == 0, job.flag["stands"].shape, job.rate["NET"], job.flag, job.knob
    link_T, still_TU = np.maximum(0, job.need["NET"] / net[:, train_U].min(1) - job.need["hidden"]), flag["stands"] | flag["held"][:, None]
    steps_T = np.exp(_wander(rng, end, 1, 3, 0.02)[:, 0]) / (_paces(job, job.need)[1][:, train_U].max(1) + link_T)
    steps_T[still_TU[:, train_U].any(1)] = 0
    able_TU, queues, last_U = ~still_TU / _paces(job, job.own)[1], bool((job.pool_U == 1).any()), job.pool_U >= min(2, job.pool_U.max())
    flow: dict[str, np.ndarray] = {name: np.zeros((end, units), np.float32) for name in ("own", "wait", "write")}
    flow["steps"], flow["weights"] = np.zeros((2, end))
    (done_U, left_U, burst_U), batch, progress, sync, saved, rolled = np.zeros((3, units)), 0, 0.0, 0.0, 0, not knob["colocated"]
    for t in np.flatnonzero(~flag["down"]):
        able_U, wait_U = able_TU[t] / job.lengths_BU[batch % 64], np.zeros(units, bool)
        if left_U.any():  # a checkpoint is written
            flow["write"][t], wait_U = (left_U > 0) & ~still_TU[t], (left_U <= 0) & bool(knob["spins"])
            left_U = np.maximum(0, left_U - job.rate["DISK"][t] * ~still_TU[t])
        elif burst_U.any():  # all evaluate or roll out
            flow["own"][t], wait_U = np.minimum(able_U, burst_U), (burst_U <= 0) & bool(knob["spins"] and not knob["colocated"])
            burst_U = np.where(burst_U - able_U > 1e-6, burst_U - able_U, 0)
        elif sync > 0:  # new weights go to all
            flow["weights"][t], wait_U = net[t].min() * ~still_TU[t].any(), ~wait_U
            sync -= flow["weights"][t]
        elif not rolled or flag["evaluates"][t]:
            burst_U, rolled, wait_U = np.ones(units), True, ~wait_U
        else:
            flow["own"][t] = _pour(job, done_U, able_U, batch + 1 + knob["lag"]) if queues else 0
            done_U += flow["own"][t]
            if not queues or (done_U[last_U].mean() if knob["shared"] else done_U[last_U].min()) >= batch + 0.999:
                flow["steps"][t] = min(steps_T[t], 1 - progress) if queues or knob["colocated"] else steps_T[t]
                progress, wait_U = progress + flow["steps"][t], train_U
            if progress >= 1 - 1e-6:
                batch, progress = batch + int(progress + 1e-6), max(0.0, progress - int(progress + 1e-6))
                rolled, sync = not knob["colocated"], 2.0 * queues
                left_U, saved = (np.full(units, flag["saves"][t]), int(t)) if t - saved > knob["save_every"] else (left_U, saved)
        flow["wait"][t] = wait_U
    return flow


def _gauges(job: _Job, rng: _Rng) -> dict[str, np.ndarray]:
    """(T, U) by name: what is true of each metric that the site exports, with what acts on exporters."""
    flow, train_U, end, need = _flow(job, rng), job.pool_U == 0, job.seconds, job.need
    own, write, total_T, stands, up_T = flow["own"], flow["write"], flow["steps"].cumsum(), job.flag["stands"], ~job.flag["down"][:, None]
    core, at_T = min(0.95, 1.03 * (need["CLK"] + need["HBM"] + need["NVL"]) / job.step), np.concatenate([[0.0], total_T])
    grown_3T = [np.floor(at_T) + np.interp(at_T % 1, [0, core, 1], [0, part, 1]) for part in (core, 0.94, 0.35)]  # of work in two phases
    x_TU, work, sent = ((np.diff(grown_T)[:, None] * train_U).astype(np.float32) for grown_T in grown_3T)
    clk, nvl = (job.rate[name] * job.part_U + job.rate[name][0] * (1 - job.part_U) for name in ("CLK", "NVL"))
    up_TU, on_TU = up_T & (~stands | (job.stuck_U > 0)), up_T & ~stands
    (busy_t, whole_t), (busy_o, _) = _paces(job, need, job.part_U), _paces(job, job.own, job.part_U)
    busy = np.clip(np.nan_to_num(x_TU * busy_t + own * busy_o), 0, 1) * on_TU
    wait = np.where(stands, job.stuck_U, np.clip(flow["wait"] - x_TU * whole_t, 0, 1)) * up_TU
    c, h, v = ((work * need[name] + own * job.own[name]) * job.rate["LOAD"] * on_TU for name in ("CLK", "HBM", "NVL"))
    net = (sent * need["NET"] * 0.9 + 0.5 * flow["weights"][:, None].astype(np.float32)) * on_TU + 0.002
    run, rank0_U = (x_TU * job.step + own * job.knob["share"]) * on_TU, np.arange(len(train_U)) < job.per
    top, peak = ((350.0, 1e11), (400.0, 1.6e11), (700.0, 4e11), (1000.0, 4e11))[rng.integers(0, 4)]  # W of a GPU, B/s of a machine
    late = np.convolve(write.max(1), np.ones(90))[:end, None].clip(0, 1) * rank0_U * up_TU * job.knob["late_writer"]
    power = top * (0.13 + 0.87 * np.clip((0.85 * c / clk + 0.5 * h + 0.25 * v + 0.13 * wait) * clk**2.2, 0, 1))
    heat, base_U = power.copy(), rng.uniform(0.2, 0.5, len(train_U)).astype(np.float32)
    for t in range(1, end):
        heat[t] = heat[t - 1] + (power[t] - heat[t - 1]) / 45
    host = 0.03 + 0.3 * np.clip(run * need["CPU"] / job.step, 0, 1) + 0.06 * up_TU + 0.05 * np.minimum(wait, 1) + 0.15 * write + 0.12 * late
    storage, flat = 2e8 * run * need["DISK"] / job.step + 9e8 * write + 8e8 * late + 2e6 * own * job.knob["share"], np.ones_like(host)
    ends_2T = np.interp(np.floor(total_T) - [[1], [0]], total_T + 1e-9 * np.arange(end), np.arange(end))
    trained, alive = np.where(train_U, 1.0, np.nan), up_T * flat
    truth: dict[str, Callable[[], np.ndarray]] = {
        "gpu_duty": lambda: np.clip(busy + wait, 0, 0.995), "gpu_sm": lambda: c / clk + 0.6 * h + 0.3 * v / nvl + 0.12 * wait,
        "gpu_tensor": lambda: 0.6 * (c - 0.7 * own * job.own["CLK"] * on_TU), "gpu_graphics": lambda: np.clip(busy + wait, 0, 0.98),
        "gpu_fp": lambda: 0.12 * c, "gpu_power": lambda: power, "gpu_temp": lambda: 27 + 43 * heat / top,
        "gpu_clock": lambda: 1.98e9 * clk * (1 - 0.05 * np.clip(power / top - 0.5, 0, 1)), "gpu_thr": lambda: 4.0 * (power > 0.97 * top),
        "gpu_memory_used": lambda: 0.01 + alive * (0.85 - 0.15 * (job.pool_U > 1)), "gpu_memory_band": lambda: 0.25 * c + 0.9 * h,
        "nvlink": lambda: 4e11 * v + 0.1 * peak * net, "pcie_band": lambda: 8e8 * run + 0.25 * peak * net + 0.6 * storage,
        "pcie_link": lambda: 16 * flat, "rdma_thr": lambda: peak * net, "pfc": lambda: 40 * net**2, "ecn": lambda: 400 * net**2,
        "cnp": lambda: 150 * net**2, "rdma_xmit": lambda: 3e4 * net**2, "link_err": lambda: 0.05 * flat, "nccl_t": lambda: 2.2 * peak * net,
        "tcp_thr": lambda: 2e6 + storage + 3e5 * run, "tcp_retr": lambda: 0.4 + 2e-9 * storage, "tcp_round": lambda: 2e-4 + 2e-13 * storage,
        "tcp_rec": lambda: 2e3 + 4e-5 * storage, "tcp_send": lambda: 3e3 + 6e-5 * storage, "job_io": lambda: 5e4 + storage,
        "cpu_usage": lambda: host, "memory_usage": lambda: 0.05 + base_U * (0.25 + 0.75 * alive), "job_tcp": lambda: 1e5 + 0.5 * storage,
        "disk_usage": lambda: 0.2 + base_U + 1e-6 * write.cumsum(0), "step_seconds": lambda: (ends_2T[1] - ends_2T[0])[:, None] * trained,
        "steps_total": lambda: np.floor(total_T + 1e4)[:, None] * trained, "job_run": lambda: 0.3 * host**2,
        "job_busy": lambda: np.clip(0.9 * busy + wait + 0.6 * write + 0.05, 0, 1) * up_TU, "job_alive": lambda: flat,
        "job_cpu": lambda: 64 * (host - 0.02), "job_pro": lambda: 2 + 70 * alive, "nccl_o": lambda: np.floor(200 * total_T)[:, None] * flat,
        "job_mem": lambda: 1e9 + 6e11 * base_U * alive, "job_log": lambda: 100 + np.floor(total_T)[:, None] * rank0_U,
    }  # fmt: skip
    gauges = {}
    for name in job.metrics:
        gauges[name] = np.array(next((make for start, make in truth.items() if name.startswith(start)), lambda: 0 * flat)(), np.float32)
        for _, first, last, units, scale_t, add_t in (edit for edit in job.edits if name.startswith(edit[0])):
            gauges[name][first:last, units] = gauges[name][first:last, units] * scale_t + add_t
    return gauges


def _scrape(job: _Job, gauges: dict[str, np.ndarray], seed: int, start_s: float, truth: Truth, plan: _Rng, rng: _Rng) -> World:
    """What exporters read, cache and lose of the gauges, as rows."""
    count, per, every, units = len(job.blocks["rack"]), job.per, job.every, len(job.pool_U)
    scrapes, late_M, names = job.seconds // every, rng.uniform(0, every, count) * (rng.random() < 0.7), tuple(job.names[:count])
    at_NM = np.arange(scrapes)[:, None] * every + late_M + rng.normal(0, 0.01 * every, (scrapes, count))
    at_NM, keep_NM = np.clip(at_NM, 0, job.seconds - 0.001), rng.random((scrapes, count)) > 0.004
    period, wide = int(rng.choice([1, 1, 1, 5, 10, 15, 30])), int(rng.choice([1, 1, 5, 10, every]))
    machine_NM, host_NU = np.tile(np.arange(count), (scrapes, 1)), np.repeat(at_NM.astype(int), per, 1)
    gpu_NU, blank_NU = host_NU // period * period, np.zeros_like(host_NU, bool)
    for word, first, last, of in job.spans:
        inside_NU = (host_NU >= first) & (host_NU < last) & np.isin(np.arange(units), of)
        blank_NU |= inside_NU & (word == "blank")
        keep_NM &= ~inside_NU[:, ::per] | (word != "silent")
        gpu_NU = np.where(inside_NU & (word == "frozen"), np.minimum(gpu_NU, max(0, first - 1)), gpu_NU)
    values_NUK, gpu_K = np.empty((scrapes, units, len(gauges))), np.array([name.startswith(("gpu", "nvl", "pcie")) for name in gauges])
    for k, (name, values_TU) in enumerate(gauges.items()):
        metric, second_NU = next(known for known in CATALOGUE if known.name == name), gpu_NU if gpu_K[k] else host_NU
        read = (
            (0.0, 0.0, 1.0, 1) if metric.counter else next((read for start, read in _READ.items() if name.startswith(start)), _READ["else"])
        )
        spread, noise, quantum, width = *read[:3], {-1: wide, 0: every}.get(read[3], read[3])
        read_NU = sum(values_TU[np.maximum(0, second_NU - ago), np.arange(units)] for ago in range(width)) / width
        drift_NU = 0.7 * _wander(rng, scrapes, units, 9, 1.0) + 0.55 * rng.standard_t(4, second_NU.shape)
        read_NU = read_NU * np.exp(spread * rng.standard_normal(units) + noise * drift_NU)
        fresh_NU = np.vstack([np.ones((1, units), bool), second_NU[1:] != second_NU[:-1]])
        read_NU = np.take_along_axis(read_NU, np.maximum.accumulate(np.where(fresh_NU, np.arange(scrapes)[:, None], 0), axis=0), 0)
        read_NU = 2.0 ** np.round(np.log2(read_NU.clip(1))) if name == "pcie_link_width" else np.round(read_NU / quantum) * quantum
        values_NUK[:, :, k] = np.where(blank_NU & gpu_K[k], np.nan, np.clip(read_NU, metric.low, metric.high))
    for first, until, place in job.spare:
        keep_NM[:, place] &= (at_NM[:, place] < first) | (at_NM[:, place] >= until)
        machine_NM[at_NM[:, place] >= until, place], names = count, tuple(job.names)
    places, off_M = [m if m < count else job.spare[0][2] for m in range(len(names))], [job.off_s.get(m, 0.0) for m in range(count)]
    hosts_NMK = np.where(gpu_K & (per > 1), np.nan, values_NUK.reshape(scrapes, count, per, -1).mean(2))
    parts = [(-1, hosts_NMK), *((gpu, np.where(gpu_K, values_NUK[:, gpu::per], np.nan)) for gpu in range(per if per > 1 else 0))]
    rows = [((at_NM + start_s + off_M)[keep_NM], machine_NM[keep_NM], np.full(keep_NM.sum(), gpu), part[keep_NM]) for gpu, part in parts]
    order_N = np.argsort(np.concatenate([row[0] for row in rows]), kind="stable")
    times_N, machine_N, device_N, values_NK = (np.concatenate(part)[order_N] for part in zip(*rows, strict=True))
    rack, leaf, stage, pool = (dict(zip(names, by_M[places].tolist(), strict=True)) for by_M in (*job.blocks.values(), job.pool_U[::per]))
    shown, kinds = plan.random(4) < (0.8, 0.75, 0.6, 0.5), ("trainer", "rollout", "reward", "reference")
    return World(
        NAME, seed, names, tuple(gauges), float(every), job.step, times_N, machine_N, device_N, values_NK, truth,
        tuple(f"gpu{n}" for n in range(per)) if per > 1 else (), stage if shown[0] and job.blocks["stage"].any() else {},
        {name: kinds[n] for name, n in pool.items()} if shown[1] and job.pool_U.any() else {},
        {name: f"r{n}" for name, n in rack.items()} if shown[2] else {}, {name: f"leaf{n}" for name, n in leaf.items()} if shown[3] else {},
        {job.names[m]: off for m, off in job.off_s.items()},
    )  # fmt: skip
