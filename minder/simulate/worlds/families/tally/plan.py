"""What befalls a site: every fault, cause of the whole job and nuisance of one machine, as acts. Times in seconds, powers as factors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from minder.simulate.worlds.families.tally.acts import Act, pulses
from minder.simulate.worlds.families.tally.site import BLOCK, DEAD, LINGER, LOAD, SEND, WORK, WRITE, Site

__all__ = ["CAUSE_MAKERS", "FAULT_MAKERS", "NUISANCE_MAKERS", "Fault", "Roll"]

_INF = float("inf")


@dataclass(frozen=True, slots=True)
class Roll:
    """What a maker may use: its own random numbers, the site, the machines that are hit, and the onset."""

    rng: np.random.Generator
    site: Site
    at: tuple[int, ...]
    onset_s: float

    def span(self, low: float, high: float) -> float:
        """A number between low and high, all alike likely."""
        return float(self.rng.uniform(low, high))

    def wide(self, low: float, high: float) -> float:
        """A number between low and high, all orders of magnitude alike likely."""
        return float(np.exp(self.rng.uniform(np.log(low), np.log(high))))

    def part(self) -> float:
        """Share of a machine's GPUs that is hit: all of them or one of eight, four or two."""
        return float(self.rng.choice([1.0, 0.5, 0.25, 0.125], p=[0.55, 0.1, 0.15, 0.2]))


_WAITS = ("gpu_tensor_activity_ratio", "gpu_sm_activity_ratio", "gpu_power_draw_watts")
_CLOCK = ("gpu_clock_hertz",)
_PORT = ("cnp_packets_per_second", "rdma_xmit_wait_per_second", "ecn_packets_per_second")
_BUS = ("pcie_link_width", *_PORT)
_LINK = ("link_downs_total", "link_errors_per_second")
_CPU = ("cpu_usage_ratio",)
Maker = Callable[[Roll], list[Act]]


@dataclass(frozen=True, slots=True)
class Fault:
    """text: one sentence. where: one, pair, rack or switch. grey: it slows and logs nothing. weight: how often, of all weights.

    needs: metrics of which a site must have one to see this fault; without, few there report it, so it is rare in what is recorded.
    """

    text: str
    make: Maker
    grey: bool = False
    where: str = "one"
    weight: float = 1.0
    needs: tuple[str, ...] = ()


def _slow(roll: Roll, times: dict[int, float], **more: object) -> list[Act]:
    return [Act(roll.at, roll.onset_s, times=times, **more)]  # type: ignore[arg-type]


def _stop(roll: Roll, way: int, **more: object) -> list[Act]:
    """These machines stop, the rest waits until the collective's time-out; then the job is down, in two of five cases until a restart."""
    wait_s = roll.span(300.0, 1200.0)
    down_s = roll.onset_s + wait_s
    up_s = down_s + roll.span(90.0, 240.0) if roll.rng.random() < 0.4 else _INF
    return [Act(roll.at, roll.onset_s, down_s, stall=way), Act(None, down_s, up_s, halt=DEAD), Act(roll.at, roll.onset_s, up_s, **more)]  # type: ignore[arg-type]


def _throttle(roll: Roll) -> list[Act]:
    pace = roll.span(0.5, 0.8)
    heat = roll.span(3.0, 16.0)
    counters = {"clock": (pace, 0.0), "heat": (1.0, heat), "reason": (1.0, float(roll.rng.choice([0x20, 0x40])))}
    return _slow(roll, {WORK: 1 / pace}, counters=counters, share=roll.part())


def _throttle_waves(roll: Roll) -> list[Act]:
    pace = roll.span(0.45, 0.75)
    counters = {"clock": (pace, 0.0), "reason": (1.0, 0x20)}
    return _slow(roll, {WORK: 1 / pace}, counters=counters, share=roll.part(), shape="wave", period_s=roll.wide(30.0, 240.0))


def _flat_clock(roll: Roll) -> list[Act]:
    pace = roll.span(0.68, 0.88)
    return _slow(roll, {WORK: 1 / pace}, counters={"clock": (pace, 0.0)}, share=roll.part())


def _power_brake(roll: Roll) -> list[Act]:
    pace = roll.span(0.4, 0.65)
    return _slow(roll, {WORK: 1 / pace}, counters={"clock": (pace, 0.0), "reason": (1.0, 0x80), "volts": (0.9, 0.0)})


def _nvlink_lane(roll: Roll) -> list[Act]:
    return _slow(roll, {WORK: roll.span(1.15, 1.6)}, counters={"nvlink": (roll.span(0.8, 1.0), 0.0)})


def _slow_memory(roll: Roll) -> list[Act]:
    return _slow(roll, {WORK: roll.span(1.15, 1.5)}, totals={"remap": 1e-9} if roll.rng.random() < 0.4 else {})


def _slow_nic(roll: Roll) -> list[Act]:
    capacity = roll.span(0.3, 0.7)
    counters = {"wait": (roll.wide(4.0, 60.0), 1e4), "pause": (2.0, roll.wide(300.0, 2e4)), "cnp": (roll.span(1.0, 4.0), 20.0)}
    return _slow(roll, {SEND: 1 / capacity}, counters=counters)


def _dirty_optics(roll: Roll) -> list[Act]:
    counters = {"symbol": (1.0, roll.wide(1.0, 500.0)), "cnp": (roll.span(2.0, 6.0), 5.0), "ecn": (roll.span(1.5, 4.0), 5.0),
                "retrans": (roll.span(1.0, 5.0), 0.0), "wait": (roll.span(1.5, 6.0), 0.0)}  # fmt: skip
    return _slow(roll, {SEND: roll.span(1.15, 2.0)}, counters=counters)


def _narrow_bus(roll: Roll) -> list[Act]:
    lanes = float(roll.rng.choice([8.0, 4.0, 1.0], p=[0.55, 0.35, 0.1]))
    times = {LOAD: roll.span(1.5, 3.0), SEND: (16.0 / lanes) ** roll.span(0.5, 0.9), WORK: roll.span(1.0, 1.06)}
    counters = {"lanes": (lanes / 16.0, 0.0), "pause": (3.0, roll.wide(1e3, 5e4)), "wait": (3.0, 1e4), "cnp": (roll.span(1.0, 3.0), 0.0)}
    return _slow(roll, times, counters=counters)


def _flapping_link(roll: Roll) -> list[Act]:
    times = pulses(roll.rng, roll.onset_s, roll.site.duration_s, (20.0, 150.0), (1.5, 9.0))
    counted = [
        Act(roll.at, start_s, end_s, stall=LINGER, totals={"flap": 0.0}, counters={"symbol": (1.0, 40.0)}) for start_s, end_s in times
    ]
    return [*counted, Act(roll.at, roll.onset_s, counters={"symbol": (1.0, roll.wide(0.1, 20.0)), "retrans": (2.0, 1.0)})]


def _runaway_processes(roll: Roll) -> list[Act]:
    counters = {"jiffies": (1.0, roll.span(0.3, 0.85))}
    return _slow(roll, {WORK: roll.span(1.2, 1.9), LOAD: roll.span(1.5, 3.0)}, counters=counters)


def _quota(roll: Roll) -> list[Act]:
    counters = {"quota": (1.0, roll.span(0.15, 0.7)), "jiffies": (roll.span(0.4, 0.8), 0.0)}
    return _slow(roll, {WORK: roll.span(1.15, 1.6), LOAD: roll.span(1.5, 3.0)}, counters=counters)


def _slow_disk(roll: Roll) -> list[Act]:
    return _slow(roll, {WRITE: roll.span(1.5, 4.0)}, adds={LOAD: roll.span(0.2, 0.9) * roll.site.step_s})


def _freezes(roll: Roll) -> list[Act]:
    times = pulses(roll.rng, roll.onset_s, roll.site.duration_s, (40.0, 150.0), (5.0, 28.0))
    return [Act(roll.at, start_s, end_s, stall=BLOCK, counters={"jiffies": (0.3, 0.0)}) for start_s, end_s in times]


def _far_memory(roll: Roll) -> list[Act]:
    return _slow(roll, {WORK: roll.span(1.12, 1.35), LOAD: roll.span(1.3, 2.5)}, counters={"jiffies": (roll.span(1.2, 1.8), 0.02)})


def _leak(roll: Roll) -> list[Act]:
    fills_s = roll.span(120.0, 500.0)
    ramp = Act(roll.at, roll.onset_s, shape="ramp", period_s=fills_s, counters={"pages": (1.0, 0.9)}, times={LOAD: 2.0, WORK: 1.25})
    killed = replace(roll, onset_s=roll.onset_s + fills_s)
    return [replace(ramp, end_s=killed.onset_s), *_stop(killed, DEAD, totals={"oom": 0.0}, counters={"pages": (0.4, 0.0)})]


def _full_disk(roll: Roll) -> list[Act]:
    fills = Act(roll.at, roll.onset_s, shape="ramp", period_s=30.0, counters={"disk": (1.0, 1.0)})
    return [fills, *_stop(replace(roll, onset_s=roll.onset_s + roll.span(30.0, 120.0)), WRITE)]


def _ecc(roll: Roll) -> list[Act]:
    return _stop(roll, DEAD if roll.rng.random() < 0.7 else LINGER, totals={"ecc": roll.wide(1e-3, 0.2), "remap": 1e-3})


def _lost_gpu(roll: Roll) -> list[Act]:
    acts = _stop(roll, DEAD if roll.rng.random() < 0.6 else BLOCK)
    return [*acts, Act(roll.at, roll.onset_s, acts[-1].end_s, exporter="gpu", trick="gap" if roll.rng.random() < 0.6 else "freeze")]


def _dead_host(roll: Roll) -> list[Act]:
    acts = _stop(roll, BLOCK)
    return [*acts, Act(roll.at, roll.onset_s, acts[-1].end_s, exporter="all", trick="silence")]


def _wedged_driver(roll: Roll) -> list[Act]:
    acts = _stop(roll, LINGER)
    return [*acts, Act(roll.at, roll.onset_s, acts[-1].end_s, exporter="gpu" if roll.rng.random() < 0.6 else "all", trick="freeze")]


def _dead_rack(roll: Roll) -> list[Act]:
    """The machines of a rack go one after the other within half a minute, and the job's agents elsewhere a while later or never."""
    acts = _stop(roll, DEAD)
    gone = [Act((m,), roll.onset_s + roll.span(0.0, 30.0), acts[-1].end_s, exporter="all", trick="silence") for m in roll.at]
    if roll.rng.random() < 0.3:
        late_s = roll.onset_s + roll.span(120.0, 400.0)
        gone.append(Act(None, late_s, late_s + roll.span(60.0, 300.0), exporter="host", trick="silence"))
    return [*gone, *acts]


def _weak_rack(roll: Roll) -> list[Act]:
    pace = roll.span(0.55, 0.8)
    counters = {"clock": (pace, 0.0), "reason": (1.0, 0x04), "volts": (0.95, 0.0)}
    return _slow(roll, {WORK: 1 / pace}, counters=counters)


def _slow_switch(roll: Roll) -> list[Act]:
    counters = {"cnp": (roll.span(3.0, 12.0), 50.0), "ecn": (roll.span(3.0, 12.0), 50.0), "pause": (2.0, roll.wide(300.0, 2e4)),
                "wait": (roll.wide(4.0, 40.0), 1e4), "symbol": (1.0, roll.wide(0.01, 10.0))}  # fmt: skip
    return _slow(roll, {SEND: roll.span(1.4, 3.0)}, counters=counters)


FAULT_MAKERS: dict[str, Fault] = {
    "hang": Fault("A rank blocks in a call that never returns, and all others spin.", lambda r: _stop(r, BLOCK), weight=2.0),
    "spinning_hang": Fault("A rank spins in a loop of its own, busy for ever.",
                           lambda r: _stop(r, LINGER, counters={"jiffies": (1.0, r.span(0.05, 0.4))})),
    "stuck_read": Fault("A rank waits for ever for a file that is not delivered.",
                        lambda r: _stop(r, LOAD, counters={"stopped": (1.0, 8.0)})),
    "crash": Fault("The processes of one machine die of an error of CUDA.", lambda r: _stop(r, DEAD), weight=2.0),
    "gpu_lost": Fault("A GPU falls off the bus, and its exporter with it.", _lost_gpu, weight=1.5),
    "ecc_error": Fault("A GPU counts uncorrectable memory errors, remaps rows and its process stops.", _ecc, weight=1.5),
    "host_down": Fault("A machine is gone, with its agent.", _dead_host, weight=1.5),
    "wedged_driver": Fault("A driver is wedged: its gauges freeze to the digit while the others' move.", _wedged_driver),
    "out_of_memory": Fault("A leak fills the host's memory until the kernel kills the rank.", _leak),
    "full_disk": Fault("A disk fills up, and a write never ends.", _full_disk),
    "throttle": Fault("A machine's GPUs run hot at half to four fifths of their clock.", _throttle, True, weight=2.0, needs=_CLOCK),
    "throttle_waves": Fault("A throttle comes and goes.", _throttle_waves, True, needs=_CLOCK),
    "flat_clock": Fault("A clock stays well below its peers', and nothing else is said.", _flat_clock, True, weight=1.5, needs=_CLOCK),
    "power_brake": Fault("A failing power supply holds the GPUs at half their clock.", _power_brake, True, needs=_CLOCK),
    "nvlink_lane": Fault("A lane between the GPUs of a machine is lost.", _nvlink_lane, True, needs=_WAITS),
    "slow_memory": Fault("A GPU's memory delivers less than it should.", _slow_memory, True, needs=_WAITS),
    "slow_nic": Fault("A network adapter passes a third to two thirds of its rate.", _slow_nic, True, weight=1.5, needs=_PORT),
    "dirty_optics": Fault("A dirty fibre loses packets that are sent again.", _dirty_optics, True, needs=_PORT),
    "narrow_bus": Fault("A PCIe link trains at a half, a quarter or less of its lanes.", _narrow_bus, True, weight=1.5, needs=_BUS),
    "flapping_link": Fault("A link goes down and up again and again.", _flapping_link, needs=_LINK),
    "runaway_processes": Fault("Processes that are not the job's take the processors.", _runaway_processes, True, needs=_CPU),
    "quota": Fault("A quota of the container takes the processors away from the ranks.", _quota, True, needs=_CPU),
    "slow_disk": Fault("One machine's storage delivers its data late.", _slow_disk, True, needs=_WAITS),
    "recurring_freezes": Fault("A machine stands still for some seconds, again and again.", _freezes, True, needs=_WAITS),
    "far_memory": Fault("The ranks of a machine run far from their memory.", _far_memory, True, needs=_WAITS),
    "throttled_pair": Fault("Two machines throttle.", _throttle, True, "pair", 0.7, needs=_CLOCK),
    "slow_pair_of_nics": Fault("The adapters of two machines are slow.", _slow_nic, True, "pair", 0.5, needs=_PORT),
    "dead_rack": Fault("A rack loses its power, and falls silent before the rest does.", _dead_rack, False, "rack", 1.2),
    "weak_rack": Fault("A rack's power is capped, and its clocks with it.", _weak_rack, True, "rack", 1.0, needs=_CLOCK),
    "slow_switch": Fault("A switch drops and marks packets of all its machines.", _slow_switch, True, "switch", 1.0, _PORT),
}  # fmt: skip


def _all(roll: Roll, low_s: float, high_s: float, **more: object) -> list[Act]:
    """An act on all machines that lasts between low_s and high_s seconds."""
    return [Act(None, roll.onset_s, roll.onset_s + roll.span(low_s, high_s), **more)]  # type: ignore[arg-type]


def _congestion(roll: Roll) -> list[Act]:
    counters = {name: (roll.span(2.0, 15.0), 0.0) for name in ("cnp", "ecn", "pause", "wait")}
    return _all(roll, 60.0, 900.0, times={SEND: roll.span(1.3, 3.0)}, counters=counters)


def _restart(roll: Roll) -> list[Act]:
    """Down, then the checkpoint is read; the machine in `at` hands over to a spare in between."""
    up_s = roll.onset_s + roll.span(45.0, 260.0)
    read_s = up_s + roll.span(15.0, 120.0)
    return [Act(None, roll.onset_s, up_s, halt=DEAD), Act(None, up_s, read_s, halt=LOAD)]


def _shift(roll: Roll) -> list[Act]:
    more = roll.wide(0.6, 1.7)
    return [Act(None, roll.onset_s, more=more, counters={"used": (float(np.clip(more, 0.85, 1.1)), 0.0)})]


def _hungry_loaders(roll: Roll) -> list[Act]:
    added_s = roll.span(0.15, 1.0) * roll.site.step_s
    return _all(roll, 90.0, 1200.0, adds={LOAD: added_s}, counters={"jiffies": (1.0, roll.span(0.02, 0.25))})


CAUSE_MAKERS: dict[str, tuple[str, Maker]] = {
    "slow_storage": ("Storage is slow for every machine.",
                     lambda r: _all(r, 60.0, 900.0, times={WRITE: r.span(2.0, 5.0)}, adds={LOAD: r.span(0.2, 1.5) * r.site.step_s})),
    "congestion": ("The fabric is congested by another job, for every machine.", _congestion),
    "slow_loading": ("Every machine's data loaders fall behind.", _hungry_loaders),
    "restart": ("The job is stopped and started again on the same machines.", _restart),
    "exchange": ("The job is started again with a spare in the place of one machine.", _restart),
    "evaluation": ("All ranks evaluate for a while, with other work and no exchange.",
                   lambda r: _all(r, 30.0, 240.0, halt=WORK)),
    "checkpoint_burst": ("An unplanned checkpoint of everything is written.", lambda r: _all(r, 15.0, 150.0, halt=WRITE)),
    "load_shift": ("The work in each step changes, as with longer sequences.", _shift),
    "power_cap": ("The site caps the power of all GPUs.",
                  lambda r: _all(r, 200.0, 2000.0, times={WORK: 1.25}, counters={"clock": (0.8, 0.0), "reason": (1.0, 4.0)})),
    "deadlock": ("An error of the program stops all ranks in one collective.", lambda r: [Act(None, r.onset_s, halt=LINGER)]),
    "program_error": ("An error of the program ends all processes.", lambda r: [Act(None, r.onset_s, halt=DEAD)]),
    "pause": ("All ranks wait for an answer from outside.", lambda r: _all(r, 20.0, 200.0, halt=BLOCK)),
    "broken_exporters": ("One kind of exporter goes wrong everywhere after a change.",
                         lambda r: _all(r, 60.0, 1500.0, exporter=str(r.rng.choice(["gpu", "host", "net"])), trick="gap")),
}  # fmt: skip


def _one(roll: Roll, **more: object) -> list[Act]:
    """An act on the nuisance's machine for one to twenty minutes."""
    return [Act(roll.at, roll.onset_s, roll.onset_s + roll.wide(60.0, 1200.0), **more)]  # type: ignore[arg-type]


def _exporter(roll: Roll, trick: str, low_s: float, high_s: float) -> list[Act]:
    name = str(roll.rng.choice(["gpu", "host", "net"]))
    return [Act(roll.at, roll.onset_s, roll.onset_s + roll.wide(low_s, high_s), exporter=name, trick=trick)]


def _tenant(roll: Roll) -> list[Act]:
    counters = {"jiffies": (1.0, roll.span(0.08, 0.55)), "pages": (1.0, roll.span(0.0, 0.2)), "tcp": (1.0, roll.wide(1e6, 2e9))}
    return _one(roll, counters=counters)


def _aisle(roll: Roll) -> list[Act]:
    rack = np.flatnonzero(roll.site.rack_M == roll.site.rack_M[roll.at[0]])
    warm = roll.span(4.0, 13.0)
    return [Act(tuple(int(m) for m in rack), roll.onset_s, shape="ramp", period_s=roll.span(60.0, 600.0), counters={"heat": (1.0, warm)})]


NUISANCE_MAKERS: dict[str, tuple[str, Maker]] = {
    "exporter_restart": ("An exporter is started again and exports nothing meanwhile.", lambda r: _exporter(r, "gap", 15.0, 180.0)),
    "frozen_exporter": ("An exporter repeats its last values while the machine works on.", lambda r: _exporter(r, "freeze", 60.0, 1500.0)),
    "agent_lost": ("A machine's agent is gone while its ranks work on.", lambda r: _one(r, exporter="all", trick="silence")),
    "lossy_scrapes": ("Almost half of a machine's scrapes time out.", lambda r: _one(r, exporter="all", trick="lossy")),
    "second_tenant": ("Another container uses idle processors of a machine.", _tenant),
    "backup": ("A backup or an update reads and sends a disk.",
               lambda r: _one(r, counters={"tcp": (1.0, r.wide(5e7, 2e9)), "disk": (1.0, 0.02), "jiffies": (1.0, r.span(0.02, 0.12))})),
    "hot_aisle": ("A rack's air warms, and no clock falls.", _aisle),
    "warm_slot": ("A machine has been warmer than its peers from the first.",
                  lambda r: [Act(r.at, -1e4, counters={"heat": (1.0, r.span(4.0, 15.0))}, share=r.part())]),
    "uneven_share": ("A machine has durably less or a little more work than its peers.",
                     lambda r: [Act(r.at, -1e4, more=r.span(0.75, 1.05))]),
    "chief_writes": ("The first machine writes on after each checkpoint while the others wait.",
                     lambda r: [Act((0,), -1e4, times={WRITE: r.span(1.5, 5.0)}, counters={"tcp": (1.3, 1e6)})]),
    "biased_sensor": ("A power sensor has always read some per cent too high or too low.",
                      lambda r: [Act(r.at, -1e4, counters={"volts": (r.span(0.85, 1.12), 0.0)})]),
    "harmless_errors": ("A link counts symbol errors that its code corrects.",
                        lambda r: _one(r, counters={"symbol": (1.0, r.wide(0.01, 20.0))})),
    "rows_remapped": ("A GPU remaps a row and works on.", lambda r: [Act(r.at, r.onset_s, totals={"remap": 0.0})]),
    "reason_flicker": ("A throttle reason is set now and then, and the clock hardly moves.",
                       lambda r: _one(r, shape="wave", period_s=r.span(7.0, 60.0), counters={"reason": (1.0, 4.0), "clock": (0.985, 0.0)})),
    "page_cache": ("The page cache of a machine grows and is harmless.",
                   lambda r: [Act(r.at, r.onset_s, shape="ramp", period_s=600.0, counters={"pages": (1.0, r.span(0.1, 0.4))})]),
    "changed_unit": ("A machine's new exporter counts one direction only.",
                     lambda r: [Act(r.at, r.onset_s, exporter=str(r.rng.choice(["gpu", "net"])), trick="half")]),
    "wrapping_counter": ("A counter of 32 bits wraps, and its rate is nothing at times.", lambda r: _one(r, exporter="net", trick="wrap")),
    "missing_exporter": ("An exporter was never installed on one machine.",
                         lambda r: [Act(r.at, -1e4, exporter=str(r.rng.choice(["gpu", "host", "net"])), trick="gap")]),
    "lagging_clock": ("A machine's clock is off by up to two minutes.", lambda r: []),
    "marked_port": ("One port is marked more often than its neighbours, at full rate.",
                    lambda r: _one(r, counters={"cnp": (r.span(2.0, 6.0), 1.0), "ecn": (r.span(2.0, 6.0), 1.0), "wait": (2.0, 0.0)})),
}  # fmt: skip
