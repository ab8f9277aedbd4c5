"""What moves the physical parameters of a plant over time: every fault, cause and nuisance writes here, and only here.

Legend: T ticks, M machines, G GPUs of a machine.
"""

from __future__ import annotations

import numpy as np

from minder.simulate.worlds.families.plant.site import Site

__all__ = ["DEAD", "KERNEL", "SPINNING", "WAITING", "Changes"]

# How a machine that stopped the job stands there: process dead, GPU caught in a kernel, host thread that turns, waiting for a disk.
DEAD, KERNEL, SPINNING, WAITING = 1.0, 2.0, 3.0, 4.0
_FACTORS = {"paste", "airflow", "cap", "lock", "hbm", "lanes", "nic", "pcie", "cpu", "disk", "share", "marks", "width"}
_JOB_FACTORS = {"run", "flop", "traffic", "net", "storage", "loader"}
_OF_GPU = {"paste", "airflow", "cap", "lock", "hbm", "lanes", "absent"}


class Changes:
    """Parameters by name, made when first asked for; what was never asked for is nominal.

    Factors (1 is nominal) of GPUs: paste (resistance from die to sink), airflow, cap (power), lock (highest clock), hbm, lanes; of
    machines: nic, pcie, cpu, disk (rates), share (of the work), marks (congestion counters), width (PCIe lanes); of the job: run, flop,
    traffic, net, storage, loader. All others are added to zero: inlet (degrees), loss (of packets), hog (of the processor), frozen (of the
    time), halt (how, see above), silent, stuck (gauges), tcp (B/s), errors (1/s), downs, ecc, rows (events), memory, fill (of the disk),
    broken (which metric), scaled (its unit), write and jam (of the job's time), absent (a GPU that its exporter does not see).
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self.times_T = np.arange(site.ticks) * site.tick_s
        self._held: dict[str, np.ndarray] = {}

    def job(self, name: str) -> np.ndarray:
        """(T,): a parameter of the whole job."""
        return self._made(name, (self.site.ticks,))

    def machine(self, name: str) -> np.ndarray:
        """(T, M)."""
        return self._made(name, (self.site.ticks, len(self.site.names)))

    def gpu(self, name: str) -> np.ndarray:
        """(T, M, G)."""
        return self._made(name, (self.site.ticks, len(self.site.names), self.site.gpus))

    def now(self, name: str, tick: int) -> np.ndarray | float:
        """A parameter at one tick; the nominal number where nothing moves it."""
        held = self._held.get(name)
        if held is None:
            return self._nominal(name)
        return np.asarray(held[tick])

    def over(self, name: str) -> np.ndarray | float:
        """A parameter over all ticks."""
        return self._held.get(name, self._nominal(name))

    def moved(self, name: str) -> bool:
        """Whether anything moves it."""
        return name in self._held

    def pulse(self, start_s: float, end_s: float = np.inf, ramp_s: float = 0.0) -> np.ndarray:
        """(T,): 0 before start_s and from end_s on, 1 between them, after a rise of ramp_s. Seconds since the recording began."""
        rise_T = np.ones_like(self.times_T) if ramp_s <= 0 else np.clip((self.times_T - start_s + self.site.tick_s) / ramp_s, 0.0, 1.0)
        return np.asarray(np.where((self.times_T >= start_s) & (self.times_T < end_s), rise_T, 0.0))

    def factor(self, name: str, machines: list[int], size: float, shape_T: np.ndarray, gpu: int | None = None) -> None:
        """Multiply a parameter of machines (of one GPU, or of all) by what goes from 1 to `size` as the shape goes from 0 to 1."""
        by_T = 1.0 + (size - 1.0) * shape_T
        for machine in machines:
            if name not in _OF_GPU:
                self.machine(name)[:, machine] *= by_T
            elif gpu is None:
                self.gpu(name)[:, machine] *= by_T[:, None]
            else:
                self.gpu(name)[:, machine, gpu] *= by_T

    def add(self, name: str, machines: list[int], size: float, shape_T: np.ndarray) -> None:
        """Add size times the shape to a parameter of machines."""
        for machine in machines:
            self.machine(name)[:, machine] += size * shape_T

    def put(self, name: str, machines: list[int], size: float, shape_T: np.ndarray) -> None:
        """Set a state of machines where the shape is not 0."""
        for machine in machines:
            self.machine(name)[shape_T > 0, machine] = size

    def _nominal(self, name: str) -> float:
        return 1.0 if name in _FACTORS or name in _JOB_FACTORS else 0.0

    def _made(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name not in self._held:
            self._held[name] = np.full(shape, self._nominal(name), dtype=np.float32)
        return self._held[name]
